"""Server-sent events: what has changed on the page, sent to all browsers that show it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

PERIOD = 0.5
"""Seconds between two polls, while a browser listens."""

HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent to keep the connection open."""

RETRY = 1000
"""Milliseconds after which a browser that was disconnected tries again."""

Json = dict[str, object]
"""An object that is sent to the page as JSON; ``static/*.js`` reads it."""

Events = Mapping[str, tuple[str, Json | str]]
"""Name and data of each event, by a key; an event is sent again when its data has changed."""


class EventStream:
    """Send events to any number of `listeners`: all of them first, then what has changed; slow ones skip some.

    Args:
        poll: returns the current events. Called in a thread, one call at a time, and only while somebody listens.
    """

    def __init__(self, poll: Callable[[], Events]) -> None:
        self.listeners = 0
        self._poll = poll
        self._turn = asyncio.Lock()
        self._closed = asyncio.Event()

    async def stream(self) -> AsyncIterator[str]:
        """Yield the text of an event stream until the listener or the server closes it."""
        self.listeners += 1
        try:
            yield f"retry: {RETRY}\nevent: clock\ndata: {time.time():.3f}\n\n"
            sent: dict[str, str] = {}
            last = time.monotonic()
            while not self._closed.is_set():
                now = await self._texts()
                new = {key: text for key, text in now.items() if sent.get(key) != text}
                if new or time.monotonic() - last > HEARTBEAT:
                    yield "".join(new.values()) or ": heartbeat\n\n"
                    sent |= new
                    last = time.monotonic()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), PERIOD)
        finally:
            self.listeners -= 1

    async def close(self) -> None:
        """End all streams."""
        self._closed.set()

    async def _texts(self) -> dict[str, str]:
        async with self._turn:
            events = await asyncio.to_thread(self._poll)
        return {key: f"event: {name}\ndata: {json.dumps(data)}\n\n" for key, (name, data) in events.items()}
