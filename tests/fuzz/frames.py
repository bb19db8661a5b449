"""Frames between nodes, and alignment messages: refused with `PeerError` or read, and the same when repeated.

The first byte of an input says which of the two the rest is taken for. These are read by protobuf's own parser, whose
lines cannot guide the search: the form that `mutate` keeps has to.
"""

from __future__ import annotations

from random import Random

from fkge.errors import PeerError
from fkge.node import frames_pb2 as pb
from fkge.node.frames import bye, decode_frame, decode_meeting, refusal
from tests.fuzz import mutations
from tests.fuzz.mutations import Leaf

DECODERS = (decode_frame, decode_meeting)


def check(data: bytes) -> None:
    """Raises if a decoder fails in a way it must not."""
    decode = DECODERS[data[0] % 2] if data else decode_frame
    try:
        found = decode(data[1:])
    except PeerError:
        return
    assert found.WhichOneof("is") is not None
    once = found.SerializeToString(deterministic=True)
    assert decode(once).SerializeToString(deterministic=True) == once
    if isinstance(found, pb.Frame) and found.WhichOneof("is") == "bye":
        told = refusal(found.bye)
        assert not told.ours
        assert str(told).isprintable()
        assert len(str(told)) <= 500
        assert told.reason.upper() in pb.Reason.keys()  # noqa: SIM118  # protobuf's enum, no mapping


def seeds() -> list[bytes]:
    """A frame and a message of every kind."""
    token = bytes(range(16))
    hello = pb.Hello(
        versions=[1, 2], program="fkge 0.1.0", consortium="c", owner="atlas", capabilities=["x"], life=token,
        nonce=token, heard=3, certificate=b"0", proof=b"1", clock=2**40, terms={"share": "both"}, pact=token,
        begun=True, probe=True,
    )  # fmt: skip
    frames = [
        pb.Frame(hello=hello), pb.Frame(part=pb.Part(step=1, heard=2, channel=2, more=True, body=b"\x52\x00")),
        pb.Frame(heard=pb.Heard(step=300)),
    ]  # fmt: skip
    tokens = pb.Tokens(generation=1, round=2, quiet=3, entities=bytes(16), relations=bytes(8), settled=True)
    meetings = [
        pb.Meeting(keys=pb.Keys(entities=3, relations=4, ratio=0.5)), pb.Meeting(intersect=pb.Intersect(frame=b"PSI1")),
        pb.Meeting(pact=pb.Pact(name=token)), pb.Meeting(tokens=tokens),
    ]  # fmt: skip
    return [
        *(b"\0" + frame.SerializeToString() for frame in frames), b"\0" + bye("budget", "spent\x1b[2J"),
        *(b"\1" + message.SerializeToString() for message in meetings),
    ]  # fmt: skip


def mutate(data: bytes, random: Random, leaf: Leaf) -> bytes:
    """Changes what follows the first byte."""
    return data[:1] + mutations.mutate(data[1:], random, leaf) if data else leaf(data)
