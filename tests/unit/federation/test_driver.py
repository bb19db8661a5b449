"""The driver of one owner: when it saves, pauses, stops and concludes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fkge.experiment.owners import ArmJob
from fkge.experiment.simulation import Simulation
from fkge.federation import driver as module
from fkge.federation.driver import Driver
from fkge.owner_events import Emit, EpochReached
from tests.conftest import OWNERS, EventLog, tiny_federation, tiny_settings


def lone_owner(folder: Path, emit: Emit | None = None, **options: Any) -> Driver:
    """An owner that trains without peers, in many chunks."""
    settings = tiny_settings(exchanges=2, train={"batch": 8})
    made = Simulation.create(folder / "run", tiny_federation(OWNERS[:2]), settings, engine="in-process")
    job = ArmJob(made.owners[0], made.arm("control"))
    return Driver(job, lambda peer, data: None, EventLog() if emit is None else emit, progress_seconds=0.0, **options)


def test_rounds_until_all_epochs_are_spent_then_concludes(tmp_path: Path) -> None:
    events = EventLog()
    driver = lone_owner(tmp_path, events)
    assert not driver.round_due
    driver.begin()
    while driver.round_due:
        report = driver.train()
        assert report is not None
        assert driver.round_over
        driver.finish()
        assert not driver.round_over
    assert driver.participant.protocol.over
    assert driver.owner.spent
    assert events.of("progress")
    assert not driver.concluded
    assert driver.conclude()
    assert driver.concluded


def test_saves_when_due_and_never_after_the_best_vectors_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = lone_owner(tmp_path)
    driver.begin()
    driver.train()
    checkpoint = tmp_path / "run" / "arms" / "control" / OWNERS[0] / "checkpoint.safetensors"
    assert not checkpoint.exists()  # the last time is not a while ago
    monkeypatch.setattr(module, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    driver.save_if_due()
    assert checkpoint.exists()
    driver.restore_best()
    before = checkpoint.read_bytes()
    driver.owner.tables["entity"].zero_()
    driver.save()
    assert checkpoint.read_bytes() == before


def test_stop_leaves_the_round_where_it_is(tmp_path: Path) -> None:
    driver = lone_owner(tmp_path, attend=lambda: True)
    driver.begin()
    assert driver.train() is None
    assert not driver.round_over
    other = lone_owner(tmp_path / "other")
    other.begin()
    other.stop()
    assert other.train() is None
    assert other.stopped


def test_a_paused_training_saves_and_waits_for_resume(tmp_path: Path) -> None:
    reached = threading.Event()
    driver = lone_owner(tmp_path, lambda event: reached.set() if isinstance(event, EpochReached) else None)
    driver.begin()
    driver.pause()
    training = threading.Thread(target=driver.train)
    training.start()
    assert reached.wait(60)
    assert driver.paused
    assert not driver.round_over
    driver.resume()
    training.join(60)
    assert driver.round_over
    assert (tmp_path / "run" / "arms" / "control" / OWNERS[0] / "checkpoint.safetensors").exists()
