"""An owner stepped by an engine: it trains when told and reacts with messages."""

from __future__ import annotations

from pathlib import Path

from fkge.experiment.engines.stepped import RoundOver, Start, SteppedOwner
from fkge.experiment.owners import ArmJob
from fkge.experiment.simulation import Simulation
from tests.conftest import OWNERS, EventLog, tiny_federation, tiny_settings


def test_trains_first_and_then_sends_what_it_has_learned(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(), baselines=())
    ant = SteppedOwner(ArmJob(made.owners[0], made.arm("federated")), EventLog(), attend=lambda: False)
    started = ant.step(Start())
    assert (started.posts, started.at_rest) == ([], False)
    report = ant.train()
    assert report is not None
    assert report.epochs == started.epochs == ant.owner.trainer.epoch
    reaction = ant.step(RoundOver())
    assert reaction.epochs is None
    assert [peer for peer, _, _ in reaction.posts] == ["bee"]
    assert all(size == len(data) for _, size, data in reaction.posts)
