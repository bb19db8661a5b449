"""The job of an owner in production, from its store to its results."""

from __future__ import annotations

from pathlib import Path

from fkge.federation import Plan
from fkge.federation.owner.job import ProductionJob
from fkge.federation.owner.store import create_store
from fkge.federation.owner.workspace import Workspace
from tests.conftest import EventLog, tiny_federation, tiny_settings


def test_opens_an_owner_and_writes_its_results(tmp_path: Path) -> None:
    store = create_store(tmp_path, "ant", tiny_federation().members["ant"], tiny_settings(), seed=0, secret=1)
    job = ProductionJob(store, Workspace(tmp_path / "training"), Plan(2, 4, alone=True))
    assert job.protocol_config().train_alone
    owner, trained = job.open()
    assert not trained
    while not owner.spent:
        owner.improve(initial=owner.trainer.epoch == 0)
    log = EventLog()
    assert job.conclude(owner, log, stop=lambda: False)
    assert [event["event"] for event in log] == ["state", "concluded"]
    report = job.workspace.report()
    assert report is not None
    assert report.epochs == 4
    assert report.best_score == owner.activity.best_score
