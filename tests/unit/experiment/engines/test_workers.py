"""Owners' processes: what they send arrives, and their end is noticed with its reason."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context

from fkge.experiment.engines.workers import Outbox, Workers
from fkge.experiment.trace_events import Died, Failed
from fkge.owner_events import OwnerEvent, StateChanged


def echo(greeting: str, outbox: Outbox) -> None:
    outbox.send(StateChanged(state=f"{greeting} {os.environ.get('FKGE_TEST')}"))
    outbox.send(StateChanged(state=outbox.connection.recv()))


def fail(outbox: Outbox) -> None:
    raise ValueError("no numbers")


def wait(outbox: Outbox) -> None:
    outbox.send(StateChanged(state="here"))
    outbox.connection.recv()


def all_events(workers: Workers, count: int) -> dict[str, list[OwnerEvent]]:
    """Events by worker, until so many of them have died."""
    got: dict[str, list[OwnerEvent]] = {}
    while sum(isinstance(events[-1], Died) for events in got.values()) < count:
        for event in workers.receive(1.0):
            got.setdefault(event.owner, []).append(event)
            if event == here("cat", "here"):
                os.kill(workers.pids["cat"], signal.SIGKILL)
    return got


def here(name: str, what: str) -> StateChanged:
    return StateChanged(owner=name, state=what)


def test_messages_arrive_and_the_end_is_noticed_with_its_reason() -> None:
    workers = Workers(get_context("spawn"))
    workers.start("ant", echo, "hello", environment={"FKGE_TEST": "yes"})
    workers.start("bee", fail)
    workers.start("cat", wait)
    assert "FKGE_TEST" not in os.environ
    workers.send("ant", "back")
    got = all_events(workers, 3)
    end = Died(owner="ant", why="the process of owner ant ended with code 0")
    assert got["ant"] == [here("ant", "hello yes"), here("ant", "back"), end]
    failed, end = got["bee"]
    assert isinstance(failed, Failed)
    assert failed.why == "ValueError: no numbers"
    assert "Traceback" in failed.trace
    assert end == Died(owner="bee", why="owner bee failed: ValueError: no numbers")
    end = Died(owner="cat", why="the process of owner cat was killed by signal 9")
    assert got["cat"] == [here("cat", "here"), end]
    assert sorted(workers.lost) == ["ant", "bee", "cat"]
    assert workers.alive == workers.join(1) == []
    workers.send("ant", "too late")  # nobody gets it, and nobody minds
