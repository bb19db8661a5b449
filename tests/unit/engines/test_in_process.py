"""The engine with a virtual clock: one seed, one run; slow and lost owners hold up nobody."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import OWNERS, Notes, tiny_federation, tiny_settings

from fkge.engines import InProcess, Pace
from fkge.simulations import Simulation


def simulation(folder: Path, seed: int = 0, window: float = 30.0, exchanges: int = 8) -> Simulation:
    settings = tiny_settings(window=window, exchanges=exchanges)
    return Simulation.create(folder, tiny_federation(), settings, engine="in-process", seed=seed)


def models(made: Simulation) -> dict[str, bytes]:
    return {h.name: (h.arm_folder("federated") / "model.safetensors").read_bytes() for h in made.homes}


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    runs, told = [], []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        made, notes = simulation(tmp_path / name, seed), Notes()
        assert InProcess(made.homes, notes).run(made.arm("federated"))
        runs.append(models(made))
        told.append(notes)
    assert runs[0] == runs[1]
    assert told[0] == told[1]  # and everything happens at the same virtual time
    assert all(runs[0][name] != runs[2][name] for name in OWNERS)


def test_nobody_waits_for_the_slowest(tmp_path: Path) -> None:
    made, notes = simulation(tmp_path / "run", window=0.01), Notes()
    with InProcess(made.homes, notes, Pace(triples=10_000, slow={"cat": 50.0})) as engine:
        assert engine.run(made.arm("federated"))
    until = {name: [n["until"] for n in notes.of("work", owner=name)] for name in OWNERS}
    for fast in ("ant", "bee"):
        assert len(until[fast]) == 10
        assert notes.of("work", owner=fast)[-1]["epoch"] == made.settings.total_epochs
        assert until[fast][-1] < until["cat"][1]  # all their rounds are over before its first one is
    results = {home.name: home.result("federated") or {} for home in made.homes}
    assert results["cat"]["handshakes"] == {"ant": 1, "bee": 1}  # when it comes round, it gets what they reached
    assert results["cat"]["rounds"] >= 1


def test_the_clock_is_no_part_of_what_equals_compute(tmp_path: Path) -> None:
    """Owners that keep step do the same sums, however long everything takes."""
    runs = []
    for name, pace in (("quick", Pace()), ("slow", Pace(triples=10.0, latency=0.5, bandwidth=1e4))):
        made = simulation(tmp_path / name, window=1e6)
        assert InProcess(made.homes, Notes(), pace).run(made.arm("control"))
        runs.append({h.name: (h.arm_folder("control") / "model.safetensors").read_bytes() for h in made.homes})
    assert runs[0] == runs[1]


def test_a_lost_owner_stops_nobody(tmp_path: Path) -> None:
    whole, notes = simulation(tmp_path / "whole"), Notes()
    assert InProcess(whole.homes, notes).run(whole.arm("federated"))
    times = sorted({n["t"] for n in notes})
    for number, moment in enumerate([times[0], times[len(times) // 3], times[len(times) // 2], times[-2]]):
        made, told = simulation(tmp_path / str(number)), Notes()
        with InProcess(made.homes, told, losses={"bee": moment + 1e-9}) as engine:
            assert not engine.run(made.arm("federated"))
        assert [home.name for home in made.homes if home.result("federated") is None] == ["bee"]
        for name in ("ant", "cat"):
            assert [n["peer"] for n in told.of("lost", owner=name)] == ["bee"]
            assert told.of("work", owner=name)[-1]["epoch"] == made.settings.total_epochs
        with InProcess(made.homes, Notes()) as again:  # it comes back, and the arm can be finished
            assert again.run(made.arm("federated"))
        assert all(home.result("federated") for home in made.homes)
