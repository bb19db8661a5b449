"""Frames: encode and decode everything that passes over a stream between two nodes, and the reasons for ending a
stream. `fkge.node.session` splits messages into parts.

A frame is protobuf (`frames.proto`) and never larger than `FRAME_LIMIT`; larger messages are sent in parts. What cannot
be decoded is refused with a typed reason.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError

from fkge.errors import PeerError
from fkge.node import frames_pb2 as pb

VERSIONS = (1,)
"""Versions of the protocol that this program speaks."""

PART = 1 << 20
"""Bytes of a message that one frame carries at most."""

FRAME_LIMIT = PART + (1 << 16)

MEETING, FEDERATION = 1, 2
"""Channels: alignment and tokens, which come first, and the exchanges."""

_SENTENCE = 500
_Framed = TypeVar("_Framed", pb.Frame, pb.Meeting)


class Refused(PeerError):
    """A peer is refused, or refuses this node. The stream ends.

    Args:
        reason: one of `frames.proto`; sentence: for people.
        ours: this node refuses.
    """

    def __init__(self, reason: str, sentence: str, ours: bool = True) -> None:
        self.reason, self.ours = reason, ours
        super().__init__(sentence)

    @classmethod
    def by(cls, error: PeerError) -> Refused:
        """Return the refusal that an error is, or leads to."""
        return error if isinstance(error, Refused) else cls("malformed", str(error))


def decode_frame(data: bytes) -> pb.Frame:
    """Decode a frame.

    Raises:
        Refused: it is none, or too large.
    """
    if len(data) > FRAME_LIMIT:
        raise Refused("too_large", f"a frame of {len(data):,} bytes; {FRAME_LIMIT:,} is the most")
    return _decoded(
        pb.Frame, data, "a frame that is none of this protocol, or cut short", "a frame without anything in it"
    )


def decode_meeting(body: bytes) -> pb.Meeting:
    """Decode a message of channel 1.

    Raises:
        Refused: it is none.
    """
    return _decoded(pb.Meeting, body, "an alignment message that cannot be read", "an empty alignment message")


def _decoded(kind: type[_Framed], data: bytes, unreadable: str, empty: str) -> _Framed:
    try:
        message: _Framed = kind.FromString(data)
    except DecodeError:
        raise Refused("malformed", unreadable) from None
    if message.WhichOneof("is") is None:
        raise Refused("malformed", empty)
    return message


def bye(reason: str, sentence: str) -> bytes:
    """Encode the last frame of a stream."""
    number = pb.Reason.Value(reason.upper())
    return bytes(pb.Frame(bye=pb.Bye(reason=number, sentence=sentence[:_SENTENCE])).SerializeToString())


def refusal(frame: pb.Bye) -> Refused:
    """Decode the reason in a peer's last frame."""
    known = frame.reason in pb.Reason.values()
    reason = pb.Reason.Name(frame.reason).lower() if known else "unspecified"
    return Refused(reason, plain(frame.sentence, _SENTENCE) or reason, ours=False)


def plain(text: str, longest: int = 80) -> str:
    """Make a peer's text fit for a log or a screen: cut off, and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:longest])
