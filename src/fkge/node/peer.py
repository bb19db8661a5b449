"""`Peer`: one peer of a node, with its session and its open stream; reads and writes the frames of that stream.

A reader task emits the messages that arrive, at the pace at which the node handles them; a writer task writes what is
to be sent, at the pace at which the peer reads, or at which the owner's bandwidth limit allows. Neither shares anything
with other peers, so a slow or dead peer delays only itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from fkge.node import frames_pb2 as pb
from fkge.node.events import Emit, Event, Failed
from fkge.node.frames import FEDERATION, MEETING, Refused, bye, decode_frame, refusal
from fkge.node.session import Session
from fkge.node.settings import PeerSettings
from fkge.node.transport import Line

_IDLE = 0.2  # seconds after which received parts are acknowledged, if nothing else is sent
STALLED = 120.0  # seconds that writing a frame may take
LAST_WORD = 2.0  # seconds that sending the reason for the end of a stream may take
_MEETING_LIMIT = 1 << 20
_EARLY_LIMIT = 1 << 12
"""Bytes of an exchange message until the peer has joined: one side may be ready a moment before the other, and signal
that it has news."""

_SMALL = 128  # bytes: shorter than any message that costs its sender an effort
_QUEUE = 4  # alignment messages that may wait: each side waits for the other's, but for a last one and the next first


class MessageReceived(Event):
    """A whole message has arrived on a channel of the peer's session."""

    peer: Peer
    channel: int
    body: bytes


class SessionEnded(Event):
    """The session with an incarnation of a peer is over, outside of any stream; `why` is None for a lost peer."""

    peer: Peer
    why: Refused | None


class Bucket:
    """A token bucket.

    Args:
        rate, clock: tokens per second, and a function that returns the time in seconds.
        burst: the most that are saved up; a second's worth if None.
    """

    def __init__(self, rate: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst or rate, clock
        self._level, self._at = self._burst, clock()

    def take(self, amount: float) -> float:
        """Take `amount`, into debt if need be; return the seconds to wait before using it."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)

    def allows(self, amount: float = 1.0) -> bool:
        """Take `amount` if the bucket holds it; return whether it did."""
        if self.take(amount) == 0.0:
            return True
        self._level += amount
        return False


class Peer:
    """A peer of this node.

    Args:
        name: the owner that its certificate must name.
        settings: what it may have.
        emit: called with `MessageReceived`, `SessionEnded` and `Failed`.
    """

    def __init__(self, name: str, settings: PeerSettings, emit: Emit) -> None:
        self.name, self.settings = name, settings
        self.state = "away"  # or here (a stream is open), or refused
        self.reason = self.sentence = ""  # why the peer was refused, or refused this node
        self.since = self.last_heard = time.time()  # when the state last changed, and when anything came
        self.incarnation = b""  # id of the peer's process that the session is with
        self.session: Session | None = None
        self.meeting: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)  # alignment messages that were not processed yet
        self.bytes_in = self.bytes_out = self.exchanges = 0
        self.certificate = b""  # the one it showed last, PEM or DER
        # Limits on refusals recorded, small answers, failed exchanges and greetings.
        self.noted, self.answers, self.strays = Bucket(1, 100), Bucket(20, 2000), Bucket(1, 100)
        self.hellos = Bucket(0.5, 20)
        self._words, self._controls, self._confirmations = Bucket(20, 2000), Bucket(2000, 20_000), Bucket(200, 2000)
        self._emit = emit
        self._out = Bucket(settings.rate) if settings.rate else None
        self._in = Bucket(settings.rate) if settings.rate else None
        self._bell = asyncio.Event()  # the writer waits for it when it has nothing to write
        self._line: Line | None = None
        self._turn, self._newest = asyncio.Lock(), 0
        self._over: asyncio.Future[None] | None = None  # done when this side ends the stream
        self._idle: asyncio.TimerHandle | None = None
        self._due = False
        self._ended: Refused | None = None

    def send(self, channel: int, body: bytes) -> None:
        """Send a message to the peer's current incarnation; without a session it is dropped."""
        if self.session is None:
            return
        try:
            self.session.send(channel, body)
        except Refused as error:
            self.hang_up(error)
        self._bell.set()

    @property
    def here(self) -> bool:
        """Whether a stream is open."""
        return self._line is not None

    def fresh(self, incarnation: bytes) -> None:
        """Start a session with a new incarnation of the peer; messages to the old one are dropped."""
        self.incarnation = incarnation
        self.session = Session({MEETING: _MEETING_LIMIT, FEDERATION: _EARLY_LIMIT})
        self.meeting = asyncio.Queue(_QUEUE)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the session from a greeting to the end of its stream: two streams must not use it at once.

        The newest stream wins, and ends the one before.

        Raises:
            Refused: a newer stream came while this one waited.
        """
        why = Refused("replaced", "a newer stream of the same peer took over")
        self._newest += 1
        mine = self._newest
        self.hang_up(why)
        async with self._turn:
            if mine != self._newest:
                raise why
            yield

    async def carry(self, line: Line) -> Refused | None:
        """Let the session use a stream until it ends; return why it ended, or None if it broke."""
        assert self.session is not None
        assert self._line is None
        self._line, self._ended, self._due = line, None, False
        self._become("here")
        reader = asyncio.create_task(self._read(line, self.session), name=f"read {self.name}")
        writer = asyncio.create_task(self._write(line, self.session), name=f"write {self.name}")
        self._over = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((reader, writer, self._over), return_when=asyncio.FIRST_COMPLETED)
            if self._ended is None and not reader.done():  # writing failed; the peer's reason may still be readable
                await asyncio.wait((reader,), timeout=LAST_WORD)
        finally:
            try:
                await self._say_why(line, reader, writer)
                for task in (reader, writer):
                    task.cancel()
                await asyncio.wait((reader, writer))
            finally:
                ended = self._parted(reader, writer)
        return ended

    async def _say_why(self, line: Line, reader: asyncio.Task[None], writer: asyncio.Task[None]) -> None:
        """Send the reason, if it was this side that ended the stream.

        Neither task is cancelled before: gRPC ends a stream when a pending read or write is cancelled, and takes one
        frame at a time.
        """
        if self._ended is None and reader.done() and not reader.cancelled():
            error = reader.exception()
            self._ended = error if isinstance(error, Refused) else None
        if self._ended is None or not self._ended.ours:
            return
        self._bell.set()
        with contextlib.suppress(TimeoutError, Refused):
            async with asyncio.timeout(LAST_WORD):
                await asyncio.wait((writer,))
                if await line.write(bye(self._ended.reason, str(self._ended))):
                    await line.done()
                    await asyncio.wait((reader,))
                    if reader.exception() is self._ended:  # the reader failed, so the rest must be read here
                        await line.drain()

    def _parted(self, *tasks: asyncio.Task[None]) -> Refused | None:
        """Clean up after a stream; return why it ended."""
        for task in tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, Refused):
                self._ended = self._ended or error
            elif error is not None:
                self._emit(Failed(error))
        self._line = self._over = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._ended is not None and self._ended.reason != "replaced":
            self.session = None
        self._become("away", self._ended)
        return self._ended

    def hang_up(self, why: Refused) -> None:
        """End the stream and send the reason. The session ends with it, unless another stream takes over."""
        if self._line is not None:
            self._ended = self._ended or why
            if self._over is not None and not self._over.done():
                self._over.set_result(None)
        elif why.reason != "replaced" and self.session is not None:
            self.session = None
            self._become("away", why)
            self._emit(SessionEnded(self, why))

    def refuse(self, why: Refused) -> None:
        """Set the state after a refused greeting, on either side."""
        if not self.here:
            self._become("away", why)

    def _become(self, state: str, why: Refused | None = None) -> None:
        if why is not None and why.reason not in ("leaving", "replaced"):
            state = "refused"
        self.reason, self.sentence = ("", "") if why is None else (why.reason, str(why))
        if state != self.state:
            self.state, self.since = state, time.time()

    async def _read(self, line: Line, session: Session) -> None:
        while (data := await line.read()) is not None:
            if self._ended is not None:
                continue  # this side has ended the stream; the peer will read why
            self.bytes_in += len(data)
            self.last_heard = time.time()
            if self._in is not None and await self._held_up(self._in.take(len(data))):
                continue
            frame = decode_frame(data)
            kind = frame.WhichOneof("is")
            if kind == "part":
                whole = session.receive(frame.part)
                self._idle = self._idle or asyncio.get_running_loop().call_later(_IDLE, self._confirm)
                if whole is not None:
                    self._check_flood(whole[0], len(whole[1]))
                    self._emit(MessageReceived(self, *whole))
                self._bell.set()
                await asyncio.sleep(0)  # let the writer send the answer before the next read
            elif kind == "heard":
                if not self._confirmations.allows():
                    raise Refused("too_many", "a flood of acknowledgements")
                session.confirmed(frame.heard.step)
            elif kind == "bye":
                raise refusal(frame.bye)
            else:
                raise Refused("malformed", "a second greeting within one stream")

    def _check_flood(self, channel: int, size: int) -> None:
        if channel == MEETING and not self._words.allows():
            raise Refused("too_many", "a flood of alignment messages")
        if channel == FEDERATION and size < _SMALL and not self._controls.allows():
            raise Refused("too_many", "a flood of small messages")

    async def _write(self, line: Line, session: Session) -> None:
        while self._ended is None:
            frame = session.following()
            if frame is None and self._due:
                self._due, frame = False, session.confirm()
            if frame is None:
                await self._bell.wait()
                self._bell.clear()
                continue
            self.bytes_out += len(frame)
            if self._out is not None and await self._held_up(self._out.take(len(frame))):
                return
            try:
                async with asyncio.timeout(STALLED):
                    if not await line.write(frame):
                        return
            except TimeoutError:
                raise Refused("stalled", f"read nothing for {STALLED:g} seconds") from None

    async def _held_up(self, seconds: float) -> bool:
        """Wait, because of the bandwidth limit; return whether this side has ended the stream."""
        if seconds > 0 and self._over is not None:
            await asyncio.wait((self._over,), timeout=seconds)
        return self._ended is not None

    def _confirm(self) -> None:
        self._idle, self._due = None, True
        self._bell.set()


def hello_frame(hello: pb.Hello) -> bytes:
    """Encode the first frame of a stream."""
    return bytes(pb.Frame(hello=hello).SerializeToString())
