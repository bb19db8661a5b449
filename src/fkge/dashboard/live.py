"""Server-sent events: what the page is told as it changes, to everybody who listens."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

PERIOD = 0.5
"""Seconds between two looks, while somebody listens."""

HEARTBEAT = 15.0
"""Seconds of silence after which a listener gets a sign of life."""

RETRY = 1000
"""Milliseconds after which a browser that was cut off tries again."""

Events = Mapping[str, tuple[str, Any]]
"""By a key: an event's name and what it says, as JSON."""


class Live:
    """Events for any number of listeners. Each gets everything first, then what changed; a slow one skips what is old.

    Args:
        look: makes the events as they are now. Called in a thread, one call at a time, and only while somebody listens.
    """

    def __init__(self, look: Callable[[], Events]) -> None:
        self._look = look
        self._told: dict[str, tuple[int, str]] = {}
        self._version = 0
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._poll: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        return self._listeners

    async def stream(self) -> AsyncIterator[str]:
        """The text of an event stream, until the listener or the server leaves."""
        self._listeners += 1
        try:
            if self._poll is None:
                self._told.clear()
                await self._refresh()
            if self._poll is None:  # of two who come at once, one got here first
                self._poll = asyncio.create_task(self._keep_looking())
            yield f"retry: {RETRY}\nevent: clock\ndata: {time.time():.3f}\n\n"
            seen = 0
            while not self._closed:
                new = [text for version, text in self._told.values() if version > seen]
                seen = self._version
                if new:
                    yield "".join(new)
                elif not await self._wait(seen):
                    yield ": still here\n\n"
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._poll is not None:
                self._poll.cancel()
                self._poll = None

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, seen: int) -> bool:
        """For news; False if there was none for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT), self._changed:
                await self._changed.wait_for(lambda: self._version > seen or self._closed)
                return True
        return False

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            await self._refresh()

    async def _refresh(self) -> None:
        events = await asyncio.to_thread(self._look)
        texts = {key: f"event: {name}\ndata: {json.dumps(said)}\n\n" for key, (name, said) in events.items()}
        new = {key: text for key, text in texts.items() if self._told.get(key, (0, ""))[1] != text}
        if not new:
            return
        async with self._changed:
            self._version += 1
            self._told |= {key: (self._version, text) for key, text in new.items()}
            self._changed.notify_all()
