"""A session: messages between two lives of two nodes, each delivered once and in order, whatever happens to streams.

Every part of a message has a number, its step. The sender keeps a part until the other side has said that it has heard
it; after a new stream is there, both say what they have heard, and the rest is sent again, the same bytes. So a retry
never makes a node compute an answer, or draw noise, twice. Within a stream steps come one after another: anything else
is a fault or an attack, and refused.

No I/O here: an engine of streams writes what `following` gives, and hands in the parts that come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from fkge.node import frames_pb2 as pb
from fkge.node.frames import PART, Refused

HEARD_EVERY = 8
"""Parts after which a listener that has nothing to say says at least what it has heard."""


@dataclass(slots=True)
class _Kept:
    channel: int
    body: memoryview
    more: bool


_KEPT = 512  # bytes that a part takes beside its body

_PART, _BODY = (bytes([number << 3 | 2]) for number in (pb.Frame.PART_FIELD_NUMBER, pb.Part.BODY_FIELD_NUMBER))
"""Tags of fields that hold a length and so many bytes."""


def _part(step: int, heard: int, channel: int, more: bool, body: memoryview) -> bytes:
    """A frame with a part of a message, as protobuf writes it, but for copying the body once instead of three times."""
    head = pb.Part(step=step, heard=heard, channel=channel, more=more).SerializeToString()
    if body:
        head += _BODY + _varint(len(body))
    return b"".join((_PART, _varint(len(head) + len(body)), head, body))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class Session:
    """One side of a session.

    Args:
        limits: by channel, the longest message that may come; channels that are not named are closed.
        backlog: bytes that may wait to be heard by the other side.
        part: bytes of a message that one frame carries; the same on both sides.
    """

    def __init__(self, limits: Mapping[int, int], backlog: int = 256 << 20, part: int = PART) -> None:
        self.limits = dict(limits)
        self.backlog = backlog
        self._part = part
        self.heard = 0
        """The last step taken in."""
        self.sent = 0
        """The last step given out, written or not."""
        self._kept: deque[_Kept] = deque()
        self._written = 0
        self._told = 0
        self._bytes = 0
        self._coming: list[bytes] = []
        self._coming_size = 0
        self._coming_channel = 0

    # -- out -----------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Bytes that are kept until the other side has confirmed them."""
        return self._bytes

    def send(self, channel: int, body: bytes) -> None:
        """Give a message out. `Refused` (stalled) if the other side has not heard far too much already."""
        if self._bytes and self._bytes + len(body) > self.backlog:
            raise Refused("stalled", f"{self._bytes:,} bytes wait to be heard, and it hears nothing")
        view = memoryview(body)
        for start in range(0, max(len(body), 1), self._part):
            piece = view[start : start + self._part]
            self._kept.append(_Kept(channel, piece, start + self._part < len(body)))
            self.sent += 1
            self._bytes += len(piece) + _KEPT

    def following(self) -> bytes | None:
        """The next frame to write, or None if there is none."""
        acknowledged = self.sent - len(self._kept)
        if self._written < self.sent:
            kept = self._kept[self._written - acknowledged]
            self._written += 1
            self._told = self.heard
            return _part(self._written, self.heard, kept.channel, kept.more, kept.body)
        if self.heard - self._told >= HEARD_EVERY:
            return self.confirm()
        return None

    def confirm(self) -> bytes | None:
        """A frame that says what was heard, if the other side does not know yet."""
        if self._told == self.heard:
            return None
        self._told = self.heard
        return bytes(pb.Frame(heard=pb.Heard(step=self.heard)).SerializeToString())

    def resume(self, heard: int) -> None:
        """A new stream is there, and the other side has heard so much: write the rest again.

        `Refused` if it cannot have: it takes back what it confirmed, or confirms what nobody sent. Nothing changes.
        """
        acknowledged = self.sent - len(self._kept)
        if heard < acknowledged:
            raise Refused("out_of_order", f"step {acknowledged} was confirmed, and now {heard} is the last heard")
        self.confirmed(heard)
        self._written = self.sent - len(self._kept)
        self._told = self.heard

    def confirmed(self, step: int) -> None:
        """The other side has heard everything up to `step`."""
        acknowledged = self.sent - len(self._kept)
        if step > self._written:
            raise Refused("out_of_order", f"step {step} was confirmed, and {self._written} is the last that was sent")
        for _ in range(step - acknowledged):
            self._bytes -= len(self._kept.popleft().body) + _KEPT

    # -- in ------------------------------------------------------------------------------------------

    def hear(self, part: pb.Part) -> tuple[int, bytes] | None:
        """Take in a part: the channel and the message it completes, or None. What is refused changes nothing."""
        step = part.step
        if step != self.heard + 1:
            if step <= self.heard:
                raise Refused("replayed", f"step {step} came again; {self.heard + 1} was due")
            raise Refused("out_of_order", f"step {step} came where {self.heard + 1} was due")
        limit = self.limits.get(part.channel)
        if limit is None:
            raise Refused("out_of_order", f"a message on channel {part.channel}, which is not open")
        if self._coming and part.channel != self._coming_channel:
            raise Refused("malformed", "a message that changes its channel half-way")
        body = part.body  # a copy, each time it is asked for
        size = self._coming_size + len(body)
        if size > limit:
            raise Refused("too_large", f"a message of more than {limit:,} bytes, which is the most here")
        if part.more and len(body) != self._part:  # or a list of tiny ones would take far more room than the message
            raise Refused("malformed", f"a part of {len(body):,} bytes within a message; only the last is not full")
        self.confirmed(part.heard)
        self.heard = step
        if part.more:
            self._coming.append(body)
            self._coming_size, self._coming_channel = size, part.channel
            return None
        if not self._coming:
            return part.channel, body
        body = b"".join([*self._coming, body])
        self._coming, self._coming_size = [], 0
        return part.channel, body
