"""The event queue: one event at a time, in order, on the loop."""

from __future__ import annotations

import asyncio
import threading

from fkge.node.events import Event, EventQueue


class Number(Event):
    value: int


def test_an_event_is_handled_before_put_returns_and_nested_ones_after_it() -> None:
    log: list[str] = []

    async def go() -> None:
        def handle(event: Event) -> None:
            assert isinstance(event, Number)
            log.append(f"begin {event.value}")
            if event.value < 3:
                queue.put(Number(2 * event.value + 1))
                queue.put(Number(2 * event.value + 2))
            log.append(f"end {event.value}")

        queue = EventQueue(handle)
        queue.put(Number(0))
        log.append("back")

    asyncio.run(go())
    assert log == [f"{what} {number}" for number in range(7) for what in ("begin", "end")] + ["back"]


def test_events_of_other_threads_are_handled_on_the_loop_in_their_order() -> None:
    async def go() -> None:
        handled: list[tuple[int, int]] = []
        done = asyncio.Event()

        def handle(event: Event) -> None:
            assert isinstance(event, Number)
            handled.append((event.value, threading.get_ident()))
            if len(handled) == 200:
                done.set()

        queue = EventQueue(handle)
        threads = [
            threading.Thread(target=lambda start=start: [queue.put(Number(start + i)) for i in range(100)])
            for start in (0, 1000)
        ]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(20):
            await done.wait()
        for thread in threads:
            thread.join()
        assert {ident for _, ident in handled} == {threading.get_ident()}
        values = [value for value, _ in handled]
        assert [v for v in values if v < 1000] == list(range(100))
        assert [v for v in values if v >= 1000] == list(range(1000, 1100))

    asyncio.run(go())


def test_a_timer_puts_an_event_unless_cancelled() -> None:
    async def go() -> list[Event]:
        handled: list[Event] = []
        queue = EventQueue(handled.append)
        queue.after(0, Number(1)).cancel()
        queue.after(0, Number(2))
        await asyncio.sleep(0.01)
        return handled

    assert asyncio.run(go()) == [Number(2)]
