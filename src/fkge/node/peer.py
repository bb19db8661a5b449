"""One peer as a node sees it: the session with its present life, and the stream that carries it, if there is one.

A reader takes in what comes, at the pace at which the node deals with it; a writer writes what is to be said, at the
pace at which the peer takes it, or at which its owner lets it go. Neither knows of other peers: one that is slow or
dead holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from fkge.errors import PeerError
from fkge.node import frames_pb2 as pb
from fkge.node.frames import FEDERATION, MEETING, Refused, bye, decode_frame, refusal
from fkge.node.session import Session
from fkge.node.settings import PeerSettings
from fkge.node.transport import Line

_IDLE = 0.2  # seconds after which a listener says what it has heard, if it has nothing else to say
_STALLED = 120.0  # seconds that a frame may take to be written
_LOOK = 10.0  # seconds between looks at whether one takes longer
_LAST_WORD = 2.0  # seconds that it may take to say why a stream ends
_MEETING_LIMIT = 1 << 20
_EARLY_LIMIT = 1 << 12
"""Bytes of a message on channel 2 until the two deal with each other: one side may be ready a moment before the other,
and say that it has news."""

_SMALL = 128  # bytes: fewer than a message has that costs its sender anything
_QUEUE = 4  # messages of a meeting that may wait: either side waits for the other's, but for a last word and a next one


class Listener(Protocol):
    """Who hears a peer."""

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """A whole message. `Refused` ends the stream; anything else ends the node."""

    def ended(self, peer: Peer, why: Refused) -> None:
        """The session is over, at a time when there was no stream to say so on."""

    def failed(self, error: BaseException) -> None:
        """Something happened that nobody thought of."""


class Bucket:
    """So much per second, and a second's worth at once."""

    def __init__(self, rate: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst or rate, clock
        self._level, self._at = self._burst, clock()

    def take(self, amount: float) -> float:
        """Take it; the seconds to wait before it is used."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)

    def allows(self, amount: float = 1.0) -> bool:
        """Take it if it is there."""
        if self.take(amount) == 0.0:
            return True
        self._level += amount
        return False


class Peer:
    """A peer of this node.

    Attributes:
        name: whose certificate it shows.
        settings: what it may have.
        state: away, here (a stream is open), refused.
        life: of the peer's process that the session is with.
        session: with that life; None before they have met.
        since: when the state last changed; reason: why it is what it is.
        meeting: messages of channel 1 that were not looked at yet.
        certificate: what it showed last, PEM or DER.
        basis: a digest of what an alignment with it rests on, once that was asked for.
        noted, answers: how many refusals of it are written down, and how many small answers it may have.
    """

    def __init__(self, name: str, settings: PeerSettings, listener: Listener) -> None:
        self.name, self.settings = name, settings
        self.state, self.reason, self.sentence = "away", "", ""
        self.since = self.last_heard = time.time()
        self.life = b""
        self.session: Session | None = None
        self.meeting: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self.bytes_in = self.bytes_out = 0
        self.program, self.basis = "", ""
        self.noted, self.answers = Bucket(1, 100), Bucket(20, 2000)
        self.hellos = Bucket(0.5, 20)
        self._words, self._controls, self._confirmations = Bucket(20, 2000), Bucket(2000, 20_000), Bucket(200, 2000)
        self.strays = Bucket(1, 100)
        self.certificate = b""
        self._listener = listener
        self._out = Bucket(settings.rate) if settings.rate else None
        self._in = Bucket(settings.rate) if settings.rate else None
        self._bell: asyncio.Future[None] | None = None
        self._line: Line | None = None
        self._turn, self._newest = asyncio.Lock(), 0
        self._over: asyncio.Future[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._due = False
        self._writing: float | None = None
        self._ended: Refused | None = None

    # -- saying --------------------------------------------------------------------------------------

    def send(self, channel: int, body: bytes) -> None:
        """Say something to the peer's present life; if there is none, nobody hears it."""
        if self.session is None:
            return
        try:
            self.session.send(channel, body)
        except Refused as error:
            self.hang_up(error)
            return
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    # -- streams -------------------------------------------------------------------------------------

    @property
    def here(self) -> bool:
        """A stream is open."""
        return self._line is not None

    def fresh(self, life: bytes) -> None:
        """Begin a session with a new life of the peer; what was said to the old one is forgotten."""
        self.life, self.session = life, Session({MEETING: _MEETING_LIMIT, FEDERATION: _EARLY_LIMIT})
        self.meeting = asyncio.Queue(_QUEUE)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """From a greeting to the end of its stream: the session must not be used by two of them.

        The newest takes over: the one before is ended first. `Refused` if a newer one came meanwhile.
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
        """Let the session use a stream until that ends; why it ended, or None if it just broke."""
        assert self.session is not None
        assert self._line is None
        self._line, self._ended, self._due = line, None, False
        self._become("here")
        reader = asyncio.create_task(self._read(line, self.session), name=f"read {self.name}")
        writer = asyncio.create_task(self._write(line, self.session), name=f"write {self.name}")
        self._writing, self._over = None, asyncio.get_running_loop().create_future()
        try:
            waiting = (reader, writer, self._over)
            while not (await asyncio.wait(waiting, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED))[0]:
                self._check_stalled()
            if self._ended is None and not reader.done():  # nothing goes out; the other's last word may still be there
                await asyncio.wait((reader,), timeout=_LAST_WORD)
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
        """The last word, if this side has one.

        Both tasks are let alone for it: gRPC ends a stream if who reads or writes is cancelled, and takes one frame at
        a time.
        """
        if self._ended is None and reader.done() and not reader.cancelled():
            error = reader.exception()
            self._ended = error if isinstance(error, Refused) else None
        if self._ended is None or not self._ended.ours:
            return
        self._ring()
        with contextlib.suppress(TimeoutError, Refused):
            async with asyncio.timeout(_LAST_WORD):
                await asyncio.wait((writer,))
                if await line.write(bye(self._ended.reason, str(self._ended))):
                    await line.done()
                    await asyncio.wait((reader,))
                    if reader.exception() is self._ended:  # nobody reads any more; else the other side has hung up
                        await line.drain()

    def _parted(self, *tasks: asyncio.Task[None]) -> Refused | None:
        """There is no stream any more; why."""
        for task in tasks:
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, Refused):
                self._ended = self._ended or error
            elif error is not None:
                self._listener.failed(error)
        self._line = self._bell = self._over = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._ended is not None and self._ended.reason != "replaced":
            self.session = None
        self._become("away", self._ended)
        return self._ended

    def hang_up(self, why: Refused) -> None:
        """End the stream, and say why. The session is over with it, unless another stream is to take over."""
        if self._line is not None:
            self._ended = self._ended or why
            if self._over is not None and not self._over.done():
                self._over.set_result(None)
        elif why.reason != "replaced" and self.session is not None:
            self.session = None
            self._become("away", why)
            asyncio.get_running_loop().call_soon(self._tell_ended, why)

    def _tell_ended(self, why: Refused) -> None:
        try:
            self._listener.ended(self, why)
        except Exception as error:
            self._listener.failed(error)

    def refuse(self, why: Refused) -> None:
        """Note that the peer is not let in, or does not let in."""
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
                continue  # nobody listens any more; the other side will see why
            self.bytes_in += len(data)
            self.last_heard = time.time()
            if self._in is not None and await self._held_up(self._in.take(len(data))):
                continue
            frame = decode_frame(data)
            kind = frame.WhichOneof("is")
            if kind == "part":
                whole = session.hear(frame.part)
                self._confirm_soon()
                if whole is not None:
                    self._hear(*whole)
                self._ring()
                await asyncio.sleep(0)  # an answer goes before the next read
            elif kind == "heard":
                if not self._confirmations.allows():
                    raise Refused("too_many", "a flood of confirmations")
                session.confirmed(frame.heard.step)
            elif kind == "bye":
                raise refusal(frame.bye)
            else:
                raise Refused("malformed", "a second greeting within one stream")

    def _hear(self, channel: int, body: bytes) -> None:
        if channel == MEETING and not self._words.allows():
            raise Refused("too_many", "a flood of messages of a meeting")
        if channel == FEDERATION and len(body) < _SMALL and not self._controls.allows():
            raise Refused("too_many", "a flood of small messages")
        try:
            self._listener.heard(self, channel, body)
        except Refused:
            raise
        except PeerError as error:
            raise Refused("malformed", str(error)) from None

    async def _write(self, line: Line, session: Session) -> None:
        loop = asyncio.get_running_loop()
        while self._ended is None:
            frame = session.following()
            if frame is None and self._due:
                self._due, frame = False, session.confirm()
            if frame is None:
                self._bell = loop.create_future()
                await self._bell
                continue
            self.bytes_out += len(frame)
            if self._out is not None and await self._held_up(self._out.take(len(frame))):
                return
            self._writing = loop.time()
            if not await line.write(frame):
                return
            self._writing = None

    async def _held_up(self, seconds: float) -> bool:
        """Wait, for the sake of the bandwidth. True: the stream is over meanwhile."""
        if seconds > 0 and self._over is not None:
            await asyncio.wait((self._over,), timeout=seconds)
        return self._ended is not None

    def _check_stalled(self) -> None:
        if self._writing is not None and asyncio.get_running_loop().time() - self._writing > _STALLED:
            self.hang_up(Refused("stalled", f"took nothing in for {_STALLED:g} seconds"))

    def _confirm_soon(self) -> None:
        if self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._confirm)

    def _confirm(self) -> None:
        self._idle, self._due = None, True
        self._ring()


def hello_frame(hello: pb.Hello) -> bytes:
    """The first frame of a stream."""
    return bytes(pb.Frame(hello=hello).SerializeToString())
