"""Owners' processes: what they send arrives, and their end is noticed with its reason."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context
from typing import Any

from fkge.experiment.engines.workers import Outbox, Workers


def echo(greeting: str, outbox: Outbox) -> None:
    outbox.send((greeting, {"environment": os.environ.get("FKGE_TEST")}))
    outbox.send((outbox.connection.recv(), {}))


def fail(outbox: Outbox) -> None:
    raise ValueError("no numbers")


def wait(outbox: Outbox) -> None:
    outbox.send(("here", {}))
    outbox.connection.recv()


def died(name: str, why: str) -> tuple[str, dict[str, str]]:
    return "died", {"owner": name, "why": why}


def all_events(workers: Workers, count: int) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Events by worker, until so many of them have died."""
    got: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    while sum(events[-1][0] == "died" for events in got.values()) < count:
        for name, event, fields in workers.receive(1.0):
            got.setdefault(name, []).append((event, fields))
            if event == "here":
                os.kill(workers.pids[name], signal.SIGKILL)
    return got


def test_messages_arrive_and_the_end_is_noticed_with_its_reason() -> None:
    workers = Workers(get_context("spawn"))
    workers.start("ant", echo, "hello", environment={"FKGE_TEST": "yes"})
    workers.start("bee", fail)
    workers.start("cat", wait)
    assert "FKGE_TEST" not in os.environ
    workers.send("ant", "back")
    got = all_events(workers, 3)
    hello = ("hello", {"environment": "yes"})
    assert got["ant"] == [hello, ("back", {}), died("ant", "the process of owner ant ended with code 0")]
    (event, fields), end = got["bee"]
    assert (event, fields["owner"], fields["why"]) == ("failed", "bee", "ValueError: no numbers")
    assert "Traceback" in fields["trace"]
    assert end == died("bee", "owner bee failed: ValueError: no numbers")
    assert got["cat"] == [("here", {}), died("cat", "the process of owner cat was killed by signal 9")]
    assert sorted(workers.lost) == ["ant", "bee", "cat"]
    assert workers.alive == workers.join(1) == []
    workers.send("ant", "too late")  # nobody gets it, and nobody minds
