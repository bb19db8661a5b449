"""Owners' processes: what they send arrives, and their end is noticed with its reason."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context
from typing import Any

from fkge.experiment.engines.workers import Died, Failed, Outbox, Workers


def echo(greeting: str, outbox: Outbox) -> None:
    outbox.send((greeting, os.environ.get("FKGE_TEST")))
    outbox.send(outbox.connection.recv())


def fail(outbox: Outbox) -> None:
    raise ValueError("no numbers")


def wait(outbox: Outbox) -> None:
    outbox.send("here")
    outbox.connection.recv()


def all_messages(workers: Workers, count: int) -> dict[str, list[Any]]:
    """Messages by worker, until so many of them have died."""
    got: dict[str, list[Any]] = {}
    while sum(isinstance(m[-1], Died) for m in got.values()) < count:
        for name, message in workers.receive(1.0):
            got.setdefault(name, []).append(message)
            if message == "here":
                os.kill(workers.pids[name], signal.SIGKILL)
    return got


def test_messages_arrive_and_the_end_is_noticed_with_its_reason() -> None:
    workers = Workers(get_context("spawn"))
    workers.start("ant", echo, "hello", environment={"FKGE_TEST": "yes"})
    workers.start("bee", fail)
    workers.start("cat", wait)
    assert "FKGE_TEST" not in os.environ
    workers.send("ant", "back")
    got = all_messages(workers, 3)
    assert got["ant"] == [("hello", "yes"), "back", Died("the process of owner ant ended with code 0")]
    failed, died = got["bee"]
    assert isinstance(failed, Failed)
    assert "Traceback" in failed.trace
    assert failed.why == "ValueError: no numbers"
    assert died == Died("owner bee failed: ValueError: no numbers")
    assert got["cat"] == ["here", Died("the process of owner cat was killed by signal 9")]
    assert sorted(workers.lost) == ["ant", "bee", "cat"]
    assert workers.alive == workers.join(1) == []
    workers.send("ant", "too late")  # nobody gets it, and nobody minds
