"""One peer as a node sees it: the session with its present life, and the stream that carries it, if there is one.

A reader takes in what comes, at the pace at which the node deals with it; a writer writes what is to be said, at the pace
at which the peer takes it, or at which its owner lets it go. Neither knows of other peers: one that is slow or dead holds
up nobody but itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from fkge.node import frames_pb2 as pb
from fkge.node.frames import FEDERATION, MEETING, Refused, bye, decode_frame, refusal
from fkge.node.session import Session
from fkge.node.settings import PeerSettings
from fkge.node.transport import Line

_IDLE = 0.2  # seconds after which a listener says what it has heard, if it has nothing else to say
_STALLED = 120.0  # seconds that a frame may take to be written
_MEETING_LIMIT = 1 << 20
_QUEUE = 256


class Listener(Protocol):
    """Who hears a peer."""

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """A whole message. `Refused` ends the stream; anything else ends the node."""

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
        early: messages of channel 2 that came before this node was ready for them.
    """

    def __init__(self, name: str, settings: PeerSettings, listener: Listener) -> None:
        self.name, self.settings = name, settings
        self.state, self.reason, self.sentence = "away", "", ""
        self.since = self.last_heard = time.time()
        self.life = b""
        self.session: Session | None = None
        self.meeting: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self.early: list[bytes] = []
        self.bytes_in = self.bytes_out = 0
        self.program = ""
        self.hellos = Bucket(0.5, 20)
        self.controls = Bucket(100, 1000)
        self._listener = listener
        self._out = Bucket(settings.rate) if settings.rate else None
        self._in = Bucket(settings.rate) if settings.rate else None
        self._bell: asyncio.Future[None] | None = None
        self._line: Line | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._idle: asyncio.TimerHandle | None = None
        self._due = False
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
        self.life, self.session = life, Session({MEETING: _MEETING_LIMIT})
        self.meeting = asyncio.Queue(_QUEUE)
        self.early.clear()

    async def carry(self, line: Line) -> Refused | None:
        """Let the session use a stream until that ends; why it ended, or None if it just broke."""
        assert self.session is not None
        self._line, self._ended = line, None
        self._become("here")
        reader = asyncio.create_task(self._read(line, self.session), name=f"read {self.name}")
        writer = asyncio.create_task(self._write(line, self.session), name=f"write {self.name}")
        self._tasks = tasks = [reader, writer]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = self._ended
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Refused):
                    ended = ended or result
                elif isinstance(result, Exception):
                    self._listener.failed(result)
            if self._line is line:
                self._line, self._bell = None, None
                if self._idle is not None:
                    self._idle.cancel()
                    self._idle = None
                self._become("refused" if ended and ended.reason not in ("leaving", "replaced") else "away", ended)
            if ended is not None and ended.ours:
                await _last_word(line, ended)
        return ended

    async def drop(self, why: Refused) -> None:
        """End the stream, if there is one, and wait until nothing more comes from it."""
        if self._line is not None:
            self.hang_up(why)
            await asyncio.gather(*self._tasks, return_exceptions=True)
            while self._line is not None:
                await asyncio.sleep(0)

    def hang_up(self, why: Refused) -> None:
        """End the stream, if there is one, and say why."""
        self._ended = self._ended or why
        for task in self._tasks:
            task.cancel()

    def refuse(self, why: Refused) -> None:
        """Note that the peer is not let in, or does not let in."""
        if not self.here:
            self._become("refused", why)

    def _become(self, state: str, why: Refused | None = None) -> None:
        self.reason, self.sentence = ("", "") if why is None else (why.reason, str(why))
        if state != self.state:
            self.state, self.since = state, time.time()

    async def _read(self, line: Line, session: Session) -> None:
        while (data := await line.read()) is not None:
            self.bytes_in += len(data)
            self.last_heard = time.time()
            if self._in is not None and (wait := self._in.take(len(data))) > 0:
                await asyncio.sleep(wait)
            frame = decode_frame(data)
            kind = frame.WhichOneof("is")
            if kind == "part":
                whole = session.hear(frame.part)
                self._confirm_soon()
                if whole is not None:
                    channel, body = whole
                    if channel == FEDERATION and len(body) < 128 and not self.controls.allows():
                        raise Refused("too_many", "a flood of small messages")
                    self._listener.heard(self, channel, body)
                self._ring()
            elif kind == "heard":
                session.confirmed(frame.heard.step)
            elif kind == "bye":
                raise refusal(frame.bye)
            else:
                raise Refused("malformed", "a second greeting within one stream")

    async def _write(self, line: Line, session: Session) -> None:
        loop = asyncio.get_running_loop()
        while True:
            frame = session.following()
            if frame is None and self._due:
                self._due, frame = False, session.confirm()
            if frame is None:
                self._bell = loop.create_future()
                await self._bell
                continue
            self.bytes_out += len(frame)
            if self._out is not None and (wait := self._out.take(len(frame))) > 0:
                await asyncio.sleep(wait)
            try:
                async with asyncio.timeout(_STALLED):
                    if not await line.write(frame):
                        return
            except TimeoutError:
                raise Refused("stalled", f"took nothing in for {_STALLED:g} seconds") from None

    def _confirm_soon(self) -> None:
        if self._idle is None:
            self._idle = asyncio.get_running_loop().call_later(_IDLE, self._confirm)

    def _confirm(self) -> None:
        self._idle, self._due = None, True
        self._ring()


async def _last_word(line: Line, why: Refused) -> None:
    """Say why, if the other side still listens."""
    try:
        async with asyncio.timeout(2.0):
            await line.write(bye(why.reason, str(why)))
    except (TimeoutError, Refused, asyncio.CancelledError):
        pass


def hello_frame(hello: pb.Hello) -> bytes:
    """The first frame of a stream."""
    return bytes(pb.Frame(hello=hello).SerializeToString())
