"""A session: messages between two incarnations of two nodes, each delivered once and in order, over streams that break.

Every part of a message has a number, its step. The sender keeps a part until the other side has confirmed it. When a
new stream is open, both sides say which step they received last, and the rest is sent again, the same bytes; so a retry
never makes a node compute an answer, or draw noise, twice. Within a stream steps come one after another; anything else
is a fault or an attack, and refused.

No I/O here: `fkge.node.peer` writes the frames that `following` returns, and passes in the parts that arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from fkge.federation.varint import encode_varint
from fkge.node import frames_pb2 as pb
from fkge.node.frames import PART, Refused

CONFIRM_EVERY = 8
"""Parts after which a side that has nothing to send confirms what it has received."""


class _Kept(NamedTuple):
    channel: int
    body: memoryview
    more: bool


_KEPT = 512  # bytes that keeping a part takes in addition to its body

_PART, _BODY = (bytes([number << 3 | 2]) for number in (pb.Frame.PART_FIELD_NUMBER, pb.Part.BODY_FIELD_NUMBER))
"""Tags of fields that hold a length and so many bytes."""


def encode_part(step: int, received: int, channel: int, more: bool, body: memoryview) -> bytes:
    """Encode a frame with a part of a message as protobuf does, but copy the body once instead of three times."""
    head = pb.Part(step=step, heard=received, channel=channel, more=more).SerializeToString()
    if body:
        head += _BODY + encode_varint(len(body))
    return b"".join((_PART, encode_varint(len(head) + len(body)), head, body))


class Session:
    """One side of a session.

    Args:
        limits: by channel, the longest message that may come; channels that are not named are closed.
        backlog: bytes that may wait for the other side's confirmation.
        part: bytes of a message that one frame carries; the same on both sides.
    """

    def __init__(self, limits: Mapping[int, int], backlog: int = 256 << 20, part: int = PART) -> None:
        self.limits, self.backlog, self._part = dict(limits), backlog, part
        self.received = 0  # the last step received
        self.sent = 0  # the last step added, written or not
        self.waiting = 0  # bytes that are kept until the other side has confirmed them
        self._kept: deque[_Kept] = deque()
        self._written = self._confirmed = 0
        self._coming: list[bytes] = []
        self._coming_channel = 0

    # -- out -----------------------------------------------------------------------------------------

    def send(self, channel: int, body: bytes) -> None:
        """Add a message to be written.

        Raises:
            Refused: the other side has confirmed nothing for far too long (stalled).
        """
        if self.waiting and self.waiting + len(body) > self.backlog:
            raise Refused("stalled", f"{self.waiting:,} bytes wait to be confirmed, and it confirms nothing")
        view = memoryview(body)
        for start in range(0, max(len(body), 1), self._part):
            piece = view[start : start + self._part]
            self._kept.append(_Kept(channel, piece, start + self._part < len(body)))
            self.sent += 1
            self.waiting += len(piece) + _KEPT

    @property
    def _acknowledged(self) -> int:
        """The last step that the other side has confirmed."""
        return self.sent - len(self._kept)

    def following(self) -> bytes | None:
        """Return the next frame to write, or None if there is none."""
        if self._written < self.sent:
            kept = self._kept[self._written - self._acknowledged]
            self._written += 1
            self._confirmed = self.received
            return encode_part(self._written, self.received, kept.channel, kept.more, kept.body)
        if self.received - self._confirmed >= CONFIRM_EVERY:
            return self.confirm()
        return None

    def confirm(self) -> bytes | None:
        """Return a frame that confirms what was received, if the other side does not know yet."""
        if self._confirmed == self.received:
            return None
        self._confirmed = self.received
        return bytes(pb.Frame(heard=pb.Heard(step=self.received)).SerializeToString())

    def resume(self, received: int) -> None:
        """Continue on a new stream: write again what follows the step that the other side received last.

        Raises:
            Refused: it takes back what it had confirmed, or confirms what was never sent; nothing has changed.
        """
        if received < (known := self._acknowledged):
            raise Refused("out_of_order", f"step {known} was confirmed, and now {received} is the last received")
        self.confirmed(received)
        self._written = self._acknowledged
        self._confirmed = self.received

    def confirmed(self, step: int) -> None:
        """Drop the parts up to `step`, which the other side has received; raise `Refused` if it was never sent."""
        if step > self._written:
            raise Refused("out_of_order", f"step {step} was confirmed, and {self._written} is the last that was sent")
        for _ in range(step - self._acknowledged):
            self.waiting -= len(self._kept.popleft().body) + _KEPT

    # -- in ------------------------------------------------------------------------------------------

    def receive(self, part: pb.Part) -> tuple[int, bytes] | None:
        """Take in a part; return the channel and the message that it completes, or None.

        Raises:
            Refused: the part is out of order, too long or malformed; nothing has changed.
        """
        step = part.step
        if step != self.received + 1:
            if step <= self.received:
                raise Refused("replayed", f"step {step} came again; {self.received + 1} was due")
            raise Refused("out_of_order", f"step {step} came where {self.received + 1} was due")
        limit = self.limits.get(part.channel)
        if limit is None:
            raise Refused("out_of_order", f"a message on channel {part.channel}, which is not open")
        if self._coming and part.channel != self._coming_channel:
            raise Refused("malformed", "a message that changes its channel half-way")
        body = part.body  # a copy, each time it is asked for
        size = len(self._coming) * self._part + len(body)
        if size > limit:
            raise Refused("too_large", f"a message of more than {limit:,} bytes, which is the most here")
        if part.more and len(body) != self._part:  # or many tiny ones would take far more memory than the message
            raise Refused("malformed", f"a part of {len(body):,} bytes within a message; only the last is not full")
        self.confirmed(part.heard)
        self.received = step
        if part.more:
            self._coming.append(body)
            self._coming_channel = part.channel
            return None
        whole, self._coming = b"".join([*self._coming, body]), []
        return part.channel, whole
