"""Connections of a server are answered or dropped, each by itself, and none is lost when the server closes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fkge.node.ops.sockets import Connections

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server(Connections):
    """Does what it is asked: `echo` a word, `wait` to be released, or fail in some way."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.waiting = asyncio.Event(), 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match await reader.readline():
            case b"late\n":
                raise TimeoutError
            case b"gone\n":
                raise ConnectionResetError
            case b"wait\n":
                self.waiting += 1
                await self.released.wait()
        writer.write(b"done\n")
        await writer.drain()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    server.listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    try:
        yield server, server.listening.sockets[0].getsockname()[1]
    finally:
        server.released.set()
        await server.stop_listening()
        await asyncio.gather(*server.busy)


async def ask(port: int, word: bytes) -> bytes:
    """What comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(word)
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b"reset"
    finally:
        writer.close()


def test_each_is_answered_by_itself_and_then_closed() -> None:
    async def go() -> None:
        async with serving() as (server, port):
            slow = asyncio.create_task(ask(port, b"wait\n"))
            assert await ask(port, b"echo\n") == b"done\n"
            assert not slow.done()
            server.released.set()
            assert await slow == b"done\n"
            await asyncio.gather(*server.busy)
            assert server.busy == set()

    asyncio.run(go())


def test_one_that_is_too_slow_is_dropped_and_one_that_is_gone_does_no_harm() -> None:
    async def go() -> None:
        async with serving() as (server, port):
            assert await ask(port, b"late\n") in (b"", b"reset")
            assert await ask(port, b"gone\n") == b""
            assert await ask(port, b"echo\n") == b"done\n"
            assert server.busy == set()

    asyncio.run(go())


def test_a_cancelled_answer_is_dropped_and_its_task_ends_quietly() -> None:
    async def go() -> None:
        async with serving() as (server, port):
            asked = asyncio.create_task(ask(port, b"wait\n"))
            while not server.waiting:
                await asyncio.sleep(0)
            (task,) = server.busy
            task.cancel()
            await task
            assert await asked in (b"", b"reset")

    asyncio.run(go())


def test_whoever_was_accepted_before_the_end_has_a_task() -> None:
    async def go() -> None:
        async with serving() as (server, port):
            callers = [asyncio.create_task(ask(port, b"wait\n")) for _ in range(5)]
            while server.waiting < 5:
                await asyncio.sleep(0)
            await server.stop_listening()
            assert len(server.busy) == 5
            try:
                await asyncio.open_connection("127.0.0.1", port)
                raise AssertionError("it listens still")
            except OSError:
                pass
            server.released.set()
            assert await asyncio.gather(*callers) == [b"done\n"] * 5

    asyncio.run(go())


def test_one_that_never_listened_can_be_stopped() -> None:
    async def go() -> None:
        await Server().stop_listening()

    asyncio.run(go())
