"""A relay in front of a TCP server, with the faults of a bad network: for machines on which there is no laboratory.

It runs in a thread of its own, so that tests of any kind can use it, and passes on the bytes of each connection, late,
not now, changed or not at all. It works on streams and not on packets: what it has taken from one end is acknowledged,
whether or not it ever reaches the other. Where a test can have a `Lab`, that is closer to the truth.

    with Relay(("127.0.0.1", port)) as relay:
        connect(relay.address)
        relay.truncate(100, "up")       # breaks the connection after 100 more bytes to the server
        relay.wait(lambda: relay.broken == 1)

Bytes go "up" to the server and "down" to the client. Faults that count bytes count from the call, over all connections,
and happen once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Literal

Direction = Literal["up", "down"]
Address = tuple[str, int]

CHUNK = 64 * 1024
HELD = 256
"""Chunks of one direction of a connection that wait in the relay; beyond them it reads no more."""
PATIENCE = 30.0
RESET = struct.pack("ii", 1, 0)


class _Way:
    """One direction, over all connections: what it carried, and the faults still to come in it."""

    def __init__(self) -> None:
        self.carried = 0
        self.delay = 0.0
        self.end: int | None = None
        self.flips: dict[int, int] = {}

    def alter(self, chunk: bytes) -> tuple[bytes, bool]:
        """What is to be passed on instead of these bytes, and whether the connection breaks after it."""
        broken = self.end is not None and self.end <= self.carried + len(chunk)
        if broken:
            assert self.end is not None
            chunk = chunk[: self.end - self.carried]
            self.end = None
        changed = bytearray(chunk)
        for place in [place for place in self.flips if place < self.carried + len(chunk)]:
            changed[place - self.carried] ^= 1 << self.flips.pop(place)
        self.carried += len(chunk)
        return bytes(changed), broken


class Relay:
    """Listens at `address`, and relays every connection to `target`, which may be changed while it runs."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.connections = 0
        self.broken = 0
        """Connections that a fault has ended."""
        self.held = 0
        """Pieces that wait here to be passed on, ends of connections among them."""
        self._ways: dict[Direction, _Way] = {"up": _Way(), "down": _Way()}
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        # Bound and never listening: it keeps the port ours while the relay is cut.
        self._place = _bound(("127.0.0.1", 0))
        self.address: Address = self._place.getsockname()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections. Closing twice is allowed."""
        if self._loop.is_closed():
            return
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._place.close()

    # -- faults ------------------------------------------------------------------------------------

    def delay(self, seconds: float) -> None:
        """Holds all bytes for so long, each way; those already on their way are not held again."""
        for way in self._ways.values():
            self._do(self._set(partial(setattr, way, "delay", seconds)))

    def silence(self) -> None:
        """Passes nothing on, neither bytes nor ends, until `unsilence`, and then everything."""
        self._do(self._set(self._flowing.clear))

    def unsilence(self) -> None:
        """Passes on what was held, and all that comes."""
        self._do(self._set(self._flowing.set))

    def cut(self) -> None:
        """Breaks every connection, at both ends, and refuses new ones until `heal`."""
        self._do(self._stop())

    def heal(self) -> None:
        """Ends all faults, and listens again."""
        self._do(self._heal())

    def truncate(self, after: int, direction: Direction) -> None:
        """Breaks a connection when so many more bytes have gone this way, whatever comes behind them."""
        way = self._ways[direction]
        self._do(self._set(lambda: setattr(way, "end", way.carried + after)))

    def flip(self, after: int, direction: Direction, bit: int = 0) -> None:
        """Changes one bit of the byte that comes after so many more."""
        way = self._ways[direction]
        self._do(self._set(lambda: way.flips.update({way.carried + after: bit})))

    # -- what happened -----------------------------------------------------------------------------

    def carried(self, direction: Direction) -> int:
        """How many bytes have been passed on this way."""
        return self._ways[direction].carried

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until this is true; it is asked whenever something has happened here."""
        with self._changed:
            if not self._changed.wait_for(condition, PATIENCE):
                raise TimeoutError(f"it did not happen at the relay within {PATIENCE:g} s")

    # -- within ------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _set(self, change: Callable[[], object]) -> None:
        change()

    async def _heal(self) -> None:
        self._flowing.set()
        for way in self._ways.values():
            way.delay, way.end = 0.0, None
            way.flips.clear()
        if self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._relay, sock=_bound(self.address))

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = [to_client]
        if self._server is None:  # cut between this connection and its first step
            _reset(writers)
            return
        self._open.add(task)
        self._note(connections=1)
        try:
            await self._carry(client, writers)
        except asyncio.CancelledError:
            _reset(writers)
            self._note(broken=1)
        finally:
            self._open.discard(task)

    async def _carry(self, client: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        """Relays a connection to its end. One that breaks still delivers what has been passed on."""
        try:
            server, to_server = await asyncio.open_connection(*self.target)
            writers.append(to_server)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(client, to_server, self._ways["up"]))
                pumps.create_task(self._pump(server, writers[0], self._ways["down"]))
        except* OSError:
            _reset(writers)
        except* _BrokenError:
            pass
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(OSError):
                await writer.wait_closed()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
        held: asyncio.Queue[tuple[float, bytes | OSError]] = asyncio.Queue(HELD)
        waiting = 0

        def count(change: int) -> None:
            nonlocal waiting
            waiting += change
            self._note(held=change)

        async def read() -> None:
            taken: bytes | OSError = b"."
            while taken and not isinstance(taken, OSError):
                try:
                    taken = await reader.read(CHUNK)
                except OSError as error:  # it passes the relay like all else: late, or not now
                    taken = error
                count(1)
                await held.put((self._loop.time() + way.delay, taken))

        async def write() -> None:
            while True:
                due, taken = await held.get()
                await asyncio.sleep(due - self._loop.time())
                await self._flowing.wait()
                count(-1)
                if isinstance(taken, OSError):
                    raise taken
                if not taken:
                    writer.write_eof()
                    return
                chunk, broken = way.alter(taken)
                writer.write(chunk)
                await writer.drain()
                self._note(broken=int(broken))
                if broken:
                    raise _BrokenError

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(read())
                both.create_task(write())
        finally:
            count(-waiting)

    def _note(self, connections: int = 0, broken: int = 0, held: int = 0) -> None:
        with self._changed:
            self.held += held
            self.connections += connections
            self.broken += broken
            self._changed.notify_all()


class _BrokenError(Exception):
    """A fault has ended the connection."""


def _bound(address: Address) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(address)
    return made


def _reset(writers: list[asyncio.StreamWriter]) -> None:
    """Ends connections as a machine does that knows nothing of them."""
    for writer in writers:
        with suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
