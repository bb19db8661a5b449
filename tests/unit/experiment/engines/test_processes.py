"""Owners in processes of their own: what passes between them, and what happens when one dies or stands still."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fkge.errors import EngineError
from fkge.experiment.engines import ENGINES, Processes, processes
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.simulation import Simulation
from fkge.federation.codec import KINDS, decode
from fkge.owner_events import Emit, OwnerEvent
from tests.conftest import COMPLEX, OWNERS, EventLog, reported, tiny_federation, tiny_settings


class TappedPipes:
    """A way to start processes in which every byte through a pipe is seen."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self.seen: list[list[bytes]] = []
        self.threads: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Pipe(self) -> tuple[Connection, Connection]:
        (a, near), (far, b) = self._context.Pipe(), self._context.Pipe()
        seen: list[bytes] = []
        self.seen.append(seen)
        self.threads.append(threading.Thread(target=self._carry, args=(near, far, seen), daemon=True))
        self.threads[-1].start()
        return a, b

    def _carry(self, near: Connection, far: Connection, seen: list[bytes]) -> None:
        with near, far:
            while True:
                for end in wait([near, far]):
                    try:
                        data = end.recv_bytes()  # type: ignore[union-attr]
                        seen.append(data)
                        (far if end is near else near).send_bytes(data)
                    except (EOFError, OSError):
                        return


def test_nothing_passes_but_messages_about_what_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(exchanges=2))
    taps = TappedPipes()
    monkeypatch.setattr(processes, "get_context", lambda _: taps)
    with Processes(made.owners, EventLog()) as engine:
        assert engine.run(made.arm("federated"))
    for thread in taps.threads:
        thread.join(timeout=30)
    members = {member.name: member for member in made.owners}
    between = [OWNERS[:2]]
    kinds = set()
    for (a, b), seen in zip(between, taps.seen, strict=False):  # then come those to the starting process
        shared = members[a].peers[b].common
        assert seen
        for data in seen:
            message, _ = decode(data[processes.RUN_BYTES :])
            assert type(message) in KINDS.values()
            kinds.add(type(message).__name__)
            tensors = {k: v for k, v in vars(message).items() if isinstance(v, Tensor)}
            if tensors:
                assert len(message.entity) == len(shared.entities) < len(members[a].graph.entities)
                assert len(message.relation) == len(shared.relations)
                assert message.entity_moments.shape == (2, *message.entity.shape)
                assert set(tensors) <= {
                    "entity", "relation", "entity_weight", "relation_weight", "entity_moments", "relation_moments",
                }  # fmt: skip
    assert {"Signal", "Request", "Accept", "Update", "Ack"} <= kinds
    control = b"".join(data for seen in taps.seen[len(between) :] for data in seen)
    assert not any(library in control for library in (b"torch", b"numpy"))  # nor any vector to the starting process
    assert len(control) < sum(len(data) for seen in taps.seen[: len(between)] for data in seen)


# -- death -----------------------------------------------------------------------------------------


When = Callable[..., bool]


class Struck(Processes):
    """Owners, some of whom are killed at their moment: it is asked about every note and, with "", now and then."""

    def __init__(self, members: list[SimulatedOwner], note: Emit, victims: Mapping[str, When]) -> None:
        def told(event: OwnerEvent) -> None:
            note(event)
            self._strike(**event.record())

        super().__init__(members, told)
        self._victims = dict(victims)

    def _strike(self, event: str, **fields: Any) -> None:
        for victim, when in list(self._victims.items()):
            if fields.get("arm") == "federated" and fields.get("owner", victim) == victim and when(event, **fields):
                os.kill(self.pids[victim], signal.SIGKILL)
                del self._victims[victim]

    def run(self, arm: Any, stop: Callable[[], bool] | None = None) -> bool:
        def ask() -> bool:
            self._strike("", arm=arm.name)
            return stop is not None and stop()

        return super().run(arm, ask)


def at_first(event: str, **fields: Any) -> bool:
    return event == ""


def in_an_exchange(event: str, **fields: Any) -> bool:
    return event == "translated"


def asleep(event: str, **fields: Any) -> bool:
    return event == "state" and bool(fields["state"] == "sleep")


def spent(made: Simulation) -> dict[str, tuple[int, int]]:
    """Epochs and tests of the federation's owners; none of those without a result."""
    results = {member.name: reported(member, "federated") for member in made.owners}
    return {name: (result["epochs"], result["tests"]) for name, result in results.items() if result is not None}


def test_a_lone_reciprocal_owner_ends_in_the_bits_of_the_in_process_engine(tmp_path: Path) -> None:
    """Wherever it was stopped on the way."""
    found: dict[str, list[bytes]] = {}
    for engine in ("in-process", "processes"):
        settings = tiny_settings(exchanges=60, train=COMPLEX)
        made = Simulation.create(tmp_path / engine, tiny_federation(OWNERS[:2]), settings, baselines=["control"])
        log = EventLog()

        def enough(log: EventLog = log) -> bool:
            return any(n["epoch"] >= 10 for n in log.of("work"))

        with ENGINES[engine](made.owners, log) as running:
            if engine == "processes":
                assert running.run(made.arm("control"), enough) is False
            assert running.run(made.arm("control")) is True
        found[engine] = [
            (member.workspace("control").folder / "model.safetensors").read_bytes() for member in made.owners
        ]
    assert found["in-process"] == found["processes"]


@pytest.mark.parametrize("victims", [{"bee": at_first}, {"bee": in_an_exchange, "cat": asleep}])
def test_those_that_are_killed_take_nothing_with_them(
    victims: dict[str, When], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings())
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "processes", lambda members, note: Struck(list(members), note, victims))
        dead = ", ".join(victims)
        with pytest.raises(EngineError, match=rf"^{dead} died during federated \(.* signal 9.* fkge simulate --resume"):
            made.run()
    died = {r["owner"]: r["why"] for r in made.trace.read() if r["event"] == "died"}
    assert set(died) == set(victims)
    assert all("signal 9" in why for why in died.values())
    assert spent(made) == {name: (20, 5) for name in OWNERS if name not in victims}
    before = {member.name: reported(member, "federated") for member in made.owners}

    again = Simulation.open(made.folder)
    again.spec = again.spec.model_copy(
        update={"engine": "in-process"}
    )  # what was begun on one engine may be ended on another
    result = again.run()
    assert result is not None
    assert spent(made) == dict.fromkeys(OWNERS, (20, 5))
    for name, reached in before.items():
        if reached is not None:
            assert result.owners[name].arms["federated"].best_score == reached["best_score"]
    assert Simulation.open(made.folder).result == result


@pytest.mark.long
def test_one_that_fails_takes_nobody_with_it(tmp_path: Path) -> None:
    """An owner whose vectors end in no numbers, and a server that cannot go on for that; both say why."""
    wild = tiny_federation(OWNERS[:2], {"bee": {"lr": 3e38}})
    made = Simulation.create(tmp_path / "run", wild, tiny_settings(), baselines=())
    with pytest.raises(EngineError, match=r"^bee died during federated \(owner bee failed: SettingsError: .*diverged"):
        made.run()
    assert spent(made) == {"ant": (20, 5)}
    (failed,) = (r for r in made.trace.read() if r["event"] == "failed")
    assert failed["owner"] == "bee"
    assert "Traceback" in failed["trace"]
    with Processes(made.owners, EventLog()) as engine:
        with pytest.raises(EngineError, match=r"owner \w+ failed: SettingsError: fede: .* during fede; resume the run"):
            engine.central(["fede"])
        with pytest.raises(EngineError, match=r"owner \w+ failed: SettingsError: fede"):
            engine.run(made.arm("federated"))


# -- waiting ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_one_that_stands_still_stops_nobody(tmp_path: Path) -> None:
    """Before it begins, as another process holds its store; then within an exchange."""
    settings = tiny_settings(
        exchanges=1, translate="ppat", ppat={"steps": 100}, window=0.3, period=0.3, answer=0.5
    )  # fmt: skip
    made = Simulation.create(tmp_path / "run", tiny_federation(), settings, baselines=["permuted"])
    log, total = EventLog(), settings.total_epochs
    others, signals = ("ant", "cat"), [signal.SIGCONT, signal.SIGSTOP]
    held = (made.folder / "owners" / "bee" / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)

    def waits() -> bool:
        if not held.closed and all(log.of("work", owner=name) for name in others):
            assert log.of("work", owner="bee") == []
            held.close()
        return False

    def federated(event: str, name: str, **fields: Any) -> bool:
        return bool(log.of(event, arm="federated", owner=name, **fields))

    def stands() -> bool:
        if len(signals) == 2 and all(federated("state", name, state="ready") for name in OWNERS):
            os.kill(engine.pids["bee"], signals.pop())  # all have news, and ask each other for it
        if len(signals) == 1 and all(federated("work", name, epoch=total) for name in others):
            assert not federated("work", "bee", epoch=total)
            os.kill(engine.pids["bee"], signals.pop())  # or the arm would wait for it
        return False

    with Processes(made.owners, log) as engine:
        assert engine.run(made.arm("permuted"), waits)
        assert engine.run(made.arm("federated"), stands)
    assert signals == []
    for name in others:
        assert log.of("given up", arm="federated", owner=name, peer="bee")
    assert log.of("lost") == log.of("died") == []
    for member in made.owners:
        for arm in ("permuted", "federated"):
            result = reported(member, arm)
            assert result is not None
            assert (result["epochs"], result["tests"]) == (total, 2)


def test_owners_never_hear_a_ctrl_c_and_we_still_do(tmp_path: Path) -> None:
    """Not even while their interpreters start, when they would end with a page of lines."""
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings())

    def hears(pid: int) -> bool:
        blocked = re.search(r"^SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), flags=re.M)
        assert blocked is not None
        return not int(blocked[1], 16) >> (signal.SIGINT - 1) & 1

    with Processes(made.owners, EventLog()) as engine:
        assert [hears(pid) for pid in engine.pids.values()] == [False, False]
        assert hears(os.getpid())
