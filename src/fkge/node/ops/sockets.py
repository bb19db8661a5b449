"""Connections of the control socket and of the metrics server, which are answered one by one."""

from __future__ import annotations

import asyncio
import contextlib

_TURNS = 8  # of a loop, within which asyncio has a task for every connection that it has accepted


class Connections:
    """The connections of a server, each answered by `answer` and then closed; a subclass listens, with `accept`."""

    def __init__(self) -> None:
        self.listening: asyncio.Server | None = None
        self.busy: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes; a timeout or a cancellation drops the connection."""
        raise NotImplementedError

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.busy.add(task)
        try:
            await self.answer(reader, writer)
        except (TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # also if it does not read the answer
        except OSError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.busy.discard(task)

    async def stop_listening(self) -> None:
        """Accept no more connections. Accepted ones have tasks when this returns; asyncio alone would lose some."""
        if self.listening is None:
            return
        for listener in self.listening.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self.listening.close()
