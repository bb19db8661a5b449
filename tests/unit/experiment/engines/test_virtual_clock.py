"""The virtual clock: slow, lost and late owners, at the same virtual time in every run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fkge.experiment.engines import InProcess, Pace
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation
from tests.conftest import OWNERS, EventLog, reported, tiny_federation, tiny_settings


def simulation(
    folder: Path, seed: int = 0, window: float = 30.0, federation: Federation | None = None, **settings: Any
) -> Simulation:
    made = federation or tiny_federation()
    return Simulation.create(folder, made, tiny_settings(window=window, **settings), engine="in-process", seed=seed)


def spent(made: Simulation, arm: str) -> dict[str, tuple[int, int]]:
    """Epochs and tests, by owner."""
    results = {member.name: reported(member, arm) or {} for member in made.owners}
    return {name: (result.get("epochs", 0), result.get("tests", 0)) for name, result in results.items()}


def test_nobody_waits_for_the_slowest(tmp_path: Path) -> None:
    made, log = simulation(tmp_path / "run", window=0.01), EventLog()
    with InProcess(made.owners, log, Pace(triples=10_000, slow={"cat": 50.0})) as engine:
        assert all(engine.run(made.arm(arm)) for arm in ("control", "permuted", "federated"))
    for arm in ("control", "permuted", "federated"):  # and nobody gets less, or more, for it
        assert spent(made, arm) == dict.fromkeys(OWNERS, (20, 5))
    log = EventLog(n for n in log if n["arm"] == "federated")
    until = {name: [n["until"] for n in log.of("work", owner=name)] for name in OWNERS}
    for fast in ("ant", "bee"):
        assert len(until[fast]) == 10
        assert log.of("work", owner=fast)[-1]["epoch"] == made.settings.total_epochs
        assert until[fast][-1] < until["cat"][1]  # all their rounds are over before its first one is
    results = {member.name: reported(member, "federated") or {} for member in made.owners}
    assert results["cat"]["handshakes"] == {"ant": 1, "bee": 1}  # when it comes round, it gets what they reached
    assert results["cat"]["rounds"] >= 1


def test_the_clock_is_no_part_of_what_equals_compute(tmp_path: Path) -> None:
    """Owners that keep step do the same sums, however long everything takes."""
    runs = []
    for name, pace in (("quick", Pace()), ("slow", Pace(triples=10.0, latency=0.5, bandwidth=1e4))):
        made = simulation(tmp_path / name, window=1e6)
        assert InProcess(made.owners, EventLog(), pace).run(made.arm("control"))
        runs.append({h.name: (h.workspace("control").folder / "model.safetensors").read_bytes() for h in made.owners})
    assert runs[0] == runs[1]


def test_a_lost_owner_stops_nobody(tmp_path: Path) -> None:
    whole, log = simulation(tmp_path / "whole"), EventLog()
    assert InProcess(whole.owners, log).run(whole.arm("federated"))
    once = {"ant": (20, 5), "bee": (0, 0), "cat": (20, 5)}
    times = sorted({n["t"] for n in log})
    for number, moment in enumerate([times[0], times[len(times) // 3], times[len(times) // 2], times[-2]]):
        made, told = simulation(tmp_path / str(number)), EventLog()
        with InProcess(made.owners, told, Pace(losses={"bee": moment + 1e-9})) as engine:
            assert not engine.run(made.arm("federated"))
        assert [member.name for member in made.owners if reported(member, "federated") is None] == ["bee"]
        for name in ("ant", "cat"):
            assert [n["peer"] for n in told.of("lost", owner=name)] == ["bee"]
            assert told.of("work", owner=name)[-1]["epoch"] == made.settings.total_epochs
        assert spent(made, "federated") == once
        with InProcess(made.owners, EventLog()) as again:  # it comes back, and the arm can be finished
            assert again.run(made.arm("federated"))
        assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))


@pytest.mark.parametrize("translate", ["frame", "procrustes", "ppat", "ppat+refine"])
def test_one_of_two_is_lost(translate: str, tmp_path: Path) -> None:
    """Whatever passes between them, the other goes on alone, and both end with what they paid for."""
    two = tiny_federation(OWNERS[:2])
    made, log = simulation(tmp_path / "run", federation=two, translate=translate), EventLog()
    assert InProcess(made.owners, log).run(made.arm("federated"))
    for name, peer in (("ant", "bee"), ("bee", "ant")):
        result = reported(made.owners[OWNERS.index(name)], "federated") or {}
        assert result["handshakes"] == {peer: 9}
        assert bool(result["price"]) == translate.startswith("ppat")
        assert result["seconds"]["translate"] > 0
    moment = sorted({n["t"] for n in log})[4]
    made = simulation(tmp_path / "lost", federation=two, translate=translate)
    assert not InProcess(made.owners, EventLog(), Pace(losses={"bee": moment})).run(made.arm("federated"))
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (0, 0)}
    assert InProcess(made.owners, EventLog()).run(made.arm("federated"))
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (20, 5)}


def test_whoever_comes_when_all_is_over_still_gets_what_they_reached(tmp_path: Path) -> None:
    made, log = simulation(tmp_path / "run"), EventLog()
    assert InProcess(made.owners, log, Pace(late={"cat": 1e4})).run(made.arm("federated"))
    assert max(n["t"] for n in log.of("work", owner="ant")) < 1e4 <= log.of("work", owner="cat")[0]["t"]
    results = {member.name: reported(member, "federated") or {} for member in made.owners}
    assert {name: result["handshakes"] for name, result in results.items()} == {
        "ant": {"bee": 9}, "bee": {"ant": 9}, "cat": {"ant": 1, "bee": 1},
    }  # fmt: skip
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))
