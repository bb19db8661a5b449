"""What engines have in common: which owners have no result yet, where recordings go, and arms with a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fkge.experiment.arms import Arm
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.simulation import Simulation
from fkge.federation.driver import Stop
from tests.conftest import OWNERS, EventLog, tiny_federation, tiny_settings


class Idle(Engine):
    """Runs nobody; tells what is left to do, and where it would be recorded."""

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        self.left = {name: self._recording(name) for name in sorted(self._unfinished(arm.name))}
        return not self.left


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """Created, with an arm that needs a server; do not change it."""
    folder = tmp_path_factory.mktemp("simulations") / "run"
    settings = tiny_settings(initial_epochs=0, exchanges=1)
    return Simulation.create(folder, tiny_federation(OWNERS[:2]), settings, baselines=("fede",))


def test_only_owners_without_a_result_are_left(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(), baselines=())
    arm = made.arm("federated")
    folder = made.owners[0].workspace(arm.name).folder
    folder.mkdir(parents=True)
    (folder / "result.json").touch()
    with Idle(made.owners, EventLog()) as engine:
        assert not engine.run(arm)
        assert engine.left == {OWNERS[1]: None}
        other = made.owners[1].workspace(arm.name).folder
        other.mkdir(parents=True)
        (other / "result.json").touch()
        assert engine.run(arm)


def test_each_owner_has_a_recording_of_its_own(simulation: Simulation, tmp_path: Path) -> None:
    engine = Idle(simulation.owners, EventLog(), recordings=tmp_path)
    engine.run(simulation.arm("federated"))
    assert engine.left == {name: tmp_path / f"{name}.tape" for name in OWNERS[:2]}


def test_a_base_engine_runs_no_arm(simulation: Simulation) -> None:
    bare: Any = Engine
    with pytest.raises(TypeError, match="abstract"):
        bare(simulation.owners, EventLog())


def test_arms_with_a_server_begin_one_after_the_other_until_it_is_stopped(simulation: Simulation) -> None:
    engine, events = Idle(simulation.owners, EventLog()), EventLog()
    engine.central(("fede", "no such arm"), stop=lambda: True)
    assert events == []
    engine.central(())
    with pytest.raises(Exception, match="no such arm"):
        engine.central(("no such arm",))


def test_nobody_asks_to_stop() -> None:
    assert never() is False
