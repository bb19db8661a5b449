"""A session: whatever frames a peer writes, one after another, are refused or heard, and nothing half-way.

An input is a conversation: frames, each behind its length in two bytes, that a session hears one after another.
"""

from __future__ import annotations

from random import Random

from fkge.node import frames_pb2 as pb
from fkge.node.frames import FEDERATION, MEETING, Refused, decode_frame, decode_meeting, refusal
from fkge.node.session import Session
from tests.fuzz.mutations import Leaf
from tests.fuzz.mutations import mutate as mutate_message

LIMIT, PART = 64, 5


def check(data: bytes) -> None:
    """Raises if anything but `Refused` comes of it, or if what was refused has changed the session."""
    session = Session({MEETING: LIMIT, FEDERATION: LIMIT}, part=PART)
    session.send(MEETING, b"something to confirm")
    assert session.following() is not None
    for one in split(data):
        before = (session.received, session.waiting)
        try:
            frame = decode_frame(one)
            if frame.WhichOneof("is") == "bye":
                why = refusal(frame.bye)
                assert str(why).isprintable()
                assert len(str(why)) <= 500
                assert pb.Reason.Value(why.reason.upper()) >= 0
            elif frame.WhichOneof("is") == "heard":
                session.confirmed(frame.heard.step)
            elif frame.WhichOneof("is") == "part":
                whole = session.receive(frame.part)
                assert session.received == before[0] + 1
                if whole is not None:
                    assert len(whole[1]) <= LIMIT
                    if whole[0] == MEETING:
                        decode_meeting(whole[1])
        except Refused:
            if session.received == before[0]:
                assert session.waiting == before[1]
            return


def split(data: bytes) -> list[bytes]:
    """The frames of a conversation; the last one may be cut short."""
    frames = []
    while len(data) >= 2:
        length = int.from_bytes(data[:2], "big")
        frames.append(data[2 : 2 + length])
        data = data[2 + length :]
    return frames


def join(frames: list[bytes]) -> bytes:
    return b"".join(len(frame[:65535]).to_bytes(2, "big") + frame[:65535] for frame in frames)


def seeds() -> list[bytes]:
    """Conversations as they should be, of every frame and every alignment message."""
    meetings = [
        pb.Meeting(keys=pb.Keys(entities=3, relations=1, ratio=0.5)), pb.Meeting(pact=pb.Pact(name=bytes(16))),
        pb.Meeting(intersect=pb.Intersect(frame=b"PSI1")), pb.Meeting(tokens=pb.Tokens(round=1, entities=bytes(8))),
    ]  # fmt: skip
    spoken = Session({})
    for message in meetings:
        spoken.send(MEETING, message.SerializeToString())
    said = []
    while (frame := spoken.following()) is not None:
        said.append(frame)
    parts = [
        pb.Frame(part=pb.Part(step=1, heard=1, channel=2, more=True, body=b"one, ")),
        pb.Frame(part=pb.Part(step=2, heard=1, channel=2, body=b"two")), pb.Frame(heard=pb.Heard(step=1)),
        pb.Frame(bye=pb.Bye(reason=pb.LEAVING, sentence="good bye")),
    ]  # fmt: skip
    hello = pb.Frame(hello=pb.Hello(versions=[1], owner="ant", life=bytes(16), terms={"seed": "0"}))
    return [join(said), join([p.SerializeToString() for p in parts]), join([hello.SerializeToString()])]


def mutate(data: bytes, random: Random, leaf: Leaf) -> bytes:
    """One frame changed, left out, moved or said twice."""
    frames = split(data)
    if not frames or random.random() < 0.05:
        return leaf(data)
    i = random.randrange(len(frames))
    match random.randrange(8):
        case 0:
            del frames[i]
        case 1:
            frames.insert(random.randrange(len(frames)), frames[i])
        case _:
            frames[i] = mutate_message(frames[i], random, leaf)
    return join(frames)
