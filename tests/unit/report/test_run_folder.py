"""What a report reads from a folder: a simulation or a training, finished or not, and nothing that is neither."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.experiment.results import FILE
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.report.run_folder import SimulationRun, TrainingRun, clock_of, read
from fkge.settings import TrainSettings
from tests.conftest import OWNERS, random_graph, tiny_federation, tiny_settings

SMALL = TrainSettings(dim=4, batch=50, negatives=4, epochs=2, validate_every=1, device="cpu")
SHORT = {"initial_epochs": 0, "exchanges": 2, "epochs": 1, "test_every": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished simulation, one that has not begun, and a training; do not change them."""
    folder = tmp_path_factory.mktemp("runs")
    make = {"settings": tiny_settings(**SHORT), "baselines": (), "engine": "in-process"}
    assert Simulation.create(folder / "done", tiny_federation(OWNERS[:2]), **make).run() is not None
    Simulation.create(folder / "new", tiny_federation(OWNERS[:2]), **make)
    Run.create(folder / "training", random_graph(), SMALL).train()
    return folder


def test_a_finished_simulation(runs: Path) -> None:
    found = read(runs / "done")
    assert isinstance(found, SimulationRun)
    assert (found.finished, found.running, found.arm) == (True, False, "federated")
    assert found.clock == "seconds of the engine's own clock"
    assert found.shares == {"ant": {"bee": 20}, "bee": {"ant": 20}}
    assert "exchanges = 2" in found.settings
    assert found.result.engine == "in-process"
    assert found.history.stages["federated"].over


def test_a_simulation_that_has_not_begun_tells_what_it_knows(runs: Path) -> None:
    found = read(runs / "new")
    assert isinstance(found, SimulationRun)
    assert (found.finished, found.running, found.arm) == (False, False, None)
    assert found.shares == {"ant": {"bee": 20}, "bee": {"ant": 20}}
    assert found.history.stages == {}


def test_a_simulation_that_is_run_now_says_so(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "new", tmp_path / "new")
    simulation, seen = Simulation.open(tmp_path / "new"), list[bool]()

    def stop() -> bool:
        found = read(tmp_path / "new")
        assert isinstance(found, SimulationRun)
        seen.append(found.running and not found.finished)
        return True

    simulation.run(stop=stop)
    assert seen
    assert all(seen)
    after = read(tmp_path / "new")
    assert isinstance(after, SimulationRun)
    assert not after.running


def test_a_training_finished_and_not(runs: Path, tmp_path: Path) -> None:
    found = read(runs / "training")
    assert isinstance(found, TrainingRun)
    assert found.result is not None
    assert [event.epoch for event in found.validations] == [1, 2]
    assert "dim = 4" in found.settings
    shutil.copytree(runs / "training", tmp_path / "training")
    (tmp_path / "training" / "result.json").unlink()
    unfinished = read(tmp_path / "training")
    assert isinstance(unfinished, TrainingRun)
    assert unfinished.result is None
    assert unfinished.validations == found.validations


def test_what_is_no_run_is_refused_with_a_way_out(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        read(tmp_path / "none")
    with pytest.raises(RunError, match="holds no run"):
        read(tmp_path)
    for part in ("owners", "arms/federated/ant"):
        with pytest.raises(RunError, match=r"is part of the simulation in .*done; report on that: fkge report"):
            read(runs / "done" / part)
    (tmp_path / "settings.toml").touch()
    with pytest.raises(RunError, match="holds no run"):  # half of a training
        read(tmp_path)


@pytest.mark.parametrize(
    ("run", "file", "text"),
    [
        ("done", FILE, "{"), ("done", FILE, "{}"), ("new", "simulation.json", "[]"),
        ("training", "result.json", "nonsense"), ("training", "trace.jsonl", '{"event": "validated"}\n{}\n'),
        ("done", "settings.toml", None),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_refused(runs: Path, tmp_path: Path, run: str, file: str, text: str | None) -> None:
    shutil.copytree(runs / run, tmp_path / run)
    if text is None:
        (tmp_path / run / file).unlink()
    else:
        (tmp_path / run / file).write_text(text)
    with pytest.raises(RunError, match=str(tmp_path) if file != "trace.jsonl" else "trace"):
        read(tmp_path / run)


def test_another_version_of_results_is_refused(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "done", tmp_path / "done")
    path = tmp_path / "done" / FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 10**6}))
    with pytest.raises(RunError):
        read(tmp_path / "done")


def test_only_engines_with_one_clock_have_their_own_time() -> None:
    clocks = {engine: clock_of(engine) for engine in ("processes", "in-process", "ray", "nodes")}
    assert {engine for engine, clock in clocks.items() if "own clock" in clock} == {"in-process", "ray"}
