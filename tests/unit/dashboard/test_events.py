"""Server-sent events: everything first, then what changed; looking only while somebody listens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fkge.dashboard import events as module
from fkge.dashboard.events import EventStream


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.01)
    monkeypatch.setattr(module, "HEARTBEAT", 0.2)


class Source:
    """What is looked at."""

    def __init__(self) -> None:
        self.events: dict[str, tuple[str, Any]] = {"state": ("state", {"n": 0}), "a": ("figure", "A\n<svg>")}
        self.looks = 0

    def __call__(self) -> dict[str, tuple[str, Any]]:
        self.looks += 1
        return dict(self.events)


def parsed(text: str) -> list[tuple[str, Any]]:
    """The events in a piece of a stream, as a browser reads them."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def run(test: Any) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(in_time())


def test_a_listener_gets_everything_then_only_what_changed() -> None:
    source = Source()

    async def test() -> None:
        stream = EventStream(source).stream()
        first = await anext(stream)
        assert first.startswith("retry: ")
        assert parsed(first)[0][0] == "clock"
        assert parsed(await anext(stream)) == [("state", {"n": 0}), ("figure", "A\n<svg>")]
        source.events["state"] = ("state", {"n": 1})
        assert parsed(await anext(stream)) == [("state", {"n": 1})]
        await stream.aclose()

    run(test())


def test_silence_is_broken_by_a_sign_of_life_that_is_no_event() -> None:
    async def test() -> None:
        stream = EventStream(Source()).stream()
        await anext(stream)
        await anext(stream)
        sign = await anext(stream)
        assert sign.startswith(":")
        assert parsed(sign) == []
        await stream.aclose()

    run(test())


def test_a_slow_listener_gets_the_newest_and_a_late_one_everything() -> None:
    source = Source()

    async def test() -> None:
        live = EventStream(source)
        slow, quick = live.stream(), live.stream()
        for stream in (slow, quick):
            await anext(stream)
            await anext(stream)
        for n in range(1, 4):
            source.events["state"] = ("state", {"n": n})
            assert parsed(await anext(quick)) == [("state", {"n": n})]
        assert parsed(await anext(slow)) == [("state", {"n": 3})]
        late = live.stream()
        await anext(late)
        assert len(parsed(await anext(late))) == 2
        for stream in (slow, quick, late):
            await stream.aclose()

    run(test())


def test_nobody_looks_while_nobody_listens() -> None:
    source = Source()

    async def test() -> None:
        live = EventStream(source)
        stream = live.stream()
        await anext(stream)
        await anext(stream)
        assert live.listeners == 1
        await stream.aclose()
        assert live.listeners == 0
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)  # would never end if one of them looked on
        assert asyncio.all_tasks() == {asyncio.current_task()}
        source.events["state"] = ("state", {"n": 5})  # meanwhile
        stream = live.stream()
        await anext(stream)
        assert ("state", {"n": 5}) in parsed(await anext(stream))
        await stream.aclose()

    run(test())


def test_closing_ends_every_stream() -> None:
    async def test() -> None:
        live = EventStream(Source())
        streams = [live.stream() for _ in range(3)]
        for stream in streams:
            await anext(stream)
            await anext(stream)
        waiting = [asyncio.ensure_future(anext(stream, None)) for stream in streams]
        await asyncio.sleep(0)
        await live.close()
        await asyncio.gather(*waiting)
        for stream in streams:
            assert [piece async for piece in stream] == []
        assert live.listeners == 0

    run(test())
