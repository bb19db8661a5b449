"""Server-sent events: what has changed on the page, sent to all browsers that show it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

PERIOD = 0.5
"""Seconds between two polls, while a browser listens."""

HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent to keep the connection open."""

RETRY = 1000
"""Milliseconds after which a browser that was disconnected tries again."""

Json = dict[str, Any]
"""An object that is sent to the page as JSON; ``static/*.js`` reads it."""

Events = Mapping[str, tuple[str, Json | str]]
"""Name and data of each event, by a key; an event is sent again when its data has changed."""


class EventStream:
    """Send events to any number of listeners: all of them first, then what has changed; slow listeners skip some.

    Args:
        poll: returns the current events. Called in a thread, one call at a time, and only while somebody listens.
    """

    def __init__(self, poll: Callable[[], Events]) -> None:
        self._poll = poll
        self._sent: dict[str, tuple[int, str]] = {}
        self._version = 0
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        return self._listeners

    async def stream(self) -> AsyncIterator[str]:
        """Yield the text of an event stream until the listener or the server closes it."""
        self._listeners += 1
        try:
            if self._polling is None:
                self._sent.clear()
                await self._refresh()
            if self._polling is None:  # another listener may have started it during the refresh
                self._polling = asyncio.create_task(self._keep_polling())
            yield f"retry: {RETRY}\nevent: clock\ndata: {time.time():.3f}\n\n"
            seen = 0
            while not self._closed:
                new = [text for version, text in self._sent.values() if version > seen]
                seen = self._version
                if new:
                    yield "".join(new)
                elif not await self._wait(seen):
                    yield ": heartbeat\n\n"
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, seen: int) -> bool:
        """Wait for a version after `seen`; False if there was none for `HEARTBEAT` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT), self._changed:
                await self._changed.wait_for(lambda: self._version > seen or self._closed)
                return True
        return False

    async def _keep_polling(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            await self._refresh()

    async def _refresh(self) -> None:
        events = await asyncio.to_thread(self._poll)
        texts = {key: f"event: {name}\ndata: {json.dumps(data)}\n\n" for key, (name, data) in events.items()}
        new = {key: text for key, text in texts.items() if self._sent.get(key, (0, ""))[1] != text}
        if not new:
            return
        async with self._changed:
            self._version += 1
            self._sent |= {key: (self._version, text) for key, text in new.items()}
            self._changed.notify_all()
