"""Fitting: what is best, when it stops, and that an interruption changes nothing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.embed import (
    MODELS,
    FitState,
    Trainer,
    fit,
    load_checkpoint,
    save_checkpoint,
)
from fkge.errors import SettingsError
from tests.unit.embed.trainers import trainer_of


class Memory:
    """Keeps what a fit hands out."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.states: list[FitState] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def best(self, trainer: Trainer) -> None:
        self.kept.append(trainer.epoch)

    def checkpoint(self, trainer: Trainer, state: FitState) -> None:
        self.states.append(state)

    def event(self, name: str, **fields: Any) -> None:
        self.events.append((name, fields))


def test_best_by_validation_decay_and_patience() -> None:
    trainer, memory = trainer_of(epochs=100, patience=2, decay=0.5), Memory()
    scores = iter([0.1, 0.3, 0.2, 0.4, 0.4, 0.1])
    state = fit(trainer, memory, validate=lambda: next(scores))
    assert state is not None
    assert memory.kept == [1, 2, 4]
    assert (state.best_epoch, state.best_score, trainer.epoch) == (4, 0.4, 6)  # an equal score is not better
    assert trainer.lr_scale == 0.5**3


def test_without_validation_the_last_tables_are_kept() -> None:
    trainer, memory = trainer_of(epochs=3), Memory()
    state = fit(trainer, memory)
    assert state is not None
    assert (memory.kept, state.best_epoch, trainer.epoch) == ([3], 3, 3)


def test_the_last_epoch_is_validated_even_off_the_beat() -> None:
    trainer, memory = trainer_of(epochs=5, validate_every=3), Memory()
    fit(trainer, memory, validate=lambda: 1.0)
    assert [f["epoch"] for name, f in memory.events if name == "validated"] == [3, 5]


def test_divergence_is_said() -> None:
    trainer = trainer_of(model="DistMult", optimizer="sgd", lr=1e30, loss="sigmoid")
    with pytest.raises(SettingsError, match=r"diverged in epoch \d+.*lower lr"):
        fit(trainer, Memory())


NEGATIVES = {"filtered": True, "corruption": "bernoulli"}
WAYS: list[dict[str, Any]] = [
    *({"model": model, **NEGATIVES} for model in MODELS),
    {"model": "ComplEx", "loss": "sampled", "reciprocal": True, **NEGATIVES},
    {
        "model": "ComplEx", "loss": "1vsall", "reciprocal": True, "dropout": 0.3, "batch": 120, "optimizer": "adagrad",
        "smoothing": 0.1, "regularization": 0.01, "regularizer": "n3", "relation_weight": 0.5,
    },
    {"model": "TransE", "loss": "kvsall", "dropout": 0.3, "batch": 60},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way['model']} {way.get('loss', 'sigmoid')}")
def test_stopped_anywhere_and_resumed_it_ends_in_the_same_bits(
    way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fkge.embed.batches.CHUNK_IDS", 600)  # several chunks an epoch
    changes = {**way, "epochs": 4}

    class OnDisk(Memory):
        def checkpoint(self, trainer: Trainer, state: FitState) -> None:
            save_checkpoint(tmp_path / "c", trainer, asdict(state))

    def score_of(trainer: Trainer) -> float:
        return float(trainer.tables["entity"].double().sum())

    straight = trainer_of(**changes)
    whole = fit(straight, Memory(), validate=lambda: score_of(straight))

    stops = 0
    while True:
        trainer = trainer_of(**changes)
        state = FitState(**load_checkpoint(tmp_path / "c", trainer)) if stops else None
        polls = 0

        def stop() -> bool:
            nonlocal polls
            polls += 1
            return polls > 2

        done = fit(trainer, OnDisk(), state=state, validate=lambda: score_of(trainer), stop=stop)  # noqa: B023
        if done is not None:
            break
        stops += 1
    assert stops > 4
    assert whole is not None
    assert (done.best_score, done.best_epoch, done.stale) == (whole.best_score, whole.best_epoch, whole.stale)
    for name, tensor in straight.tables.export(state=True).items():
        assert torch.equal(tensor, trainer.tables.export(state=True)[name]), name


def test_a_linear_schedule_ends_at_its_share() -> None:
    trainer, memory = trainer_of(epochs=5, schedule="linear", decay=0.2, lr=0.1, patience=1), Memory()
    fit(trainer, memory)
    rates = [fields["lr"] for name, fields in memory.events if name == "epoch"]
    assert rates == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.02])


def test_a_linear_schedule_does_not_heed_validation() -> None:
    trainer, memory = trainer_of(epochs=3, schedule="linear", decay=0.5, lr=0.1, patience=0), Memory()
    fit(trainer, memory, validate=lambda: 0.0)
    rates = [fields["lr"] for name, fields in memory.events if name == "epoch"]
    assert rates == pytest.approx([0.1, 0.075, 0.05])
