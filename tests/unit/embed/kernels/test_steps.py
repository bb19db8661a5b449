"""Compiled steps compared with steps by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fkge.embed import MODELS, Trainer, make_tables
from fkge.embed.models import Relations, TransE
from fkge.embed.steps import AutogradStep, make_step
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import BASE, TRAIN

KERNELS = [
    ("TransE", 1),
    ("TransE", 2),
    ("TransH", 1),
    ("TransH", 2),
    ("TransR", 1),
    ("TransR", 2),
    ("TransD", 1),
    ("TransD", 2),
    ("DistMult", 1),
    ("ComplEx", 1),
    ("RotatE", 1),
]


@pytest.mark.parametrize(("batch", "negatives", "share"), [(32, 5, 1), (30, 6, 4), (1, 1, 1)])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("loss", ["margin", "sigmoid"])
@pytest.mark.parametrize(("model", "norm"), KERNELS)
def test_kernels_equal_their_slow_twins(
    model: str, norm: int, loss: str, optimizer: str, batch: int, negatives: int, share: int
) -> None:
    changes = {"batch": batch, "negatives": negatives, "share": share}
    results = []
    for kernels in (True, False):
        s = TrainSettings(
            model=model, norm=norm, loss=loss, optimizer=optimizer, kernels=kernels,
            regularization=0.01 if share > 1 else 0.0, filtered=share > 1, **{**BASE, **changes},
        )  # type: ignore[arg-type]  # fmt: skip
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        trainer = Trainer(tables, TRAIN[:120], s)
        losses = [trainer.run_epoch() for _ in range(2)]
        results.append((losses, tables.export(state=True)))
    (fast_losses, fast), (slow_losses, slow) = results
    assert fast_losses == pytest.approx(slow_losses, rel=1e-9)
    assert fast.keys() == slow.keys()
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], atol=1e-9, rtol=1e-7, msg=name)


def test_kernels_are_used_where_they_exist() -> None:
    for model in MODELS:
        s = TrainSettings(model=model, **BASE)
        kind = type(make_step(make_tables(s, 4, 2), s)).__name__
        expected = {"TransH": "ProjectedStep", "TransR": "ProjectedStep", "TransD": "ProjectedStep"}
        assert kind == expected.get(model, "KernelStep")
        flagged = s.model_copy(update={"normalize": True})
        if model.startswith("Trans"):
            assert type(make_step(make_tables(flagged, 4, 2), flagged)).__name__ == "AutogradStep"


@pytest.mark.parametrize("model", ["DistMult", "TransH"])
def test_a_positive_beyond_doubt_does_not_stop_its_negatives(model: str) -> None:
    """The gradient of a perfect positive underflows to zero; that of its negatives must still reach the query."""
    moved = []
    for kernels in (True, False):
        s = TrainSettings(model=model, optimizer="sgd", kernels=kernels, filtered=False, **{**BASE, "margin": 2000.0})
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        trainer = Trainer(tables, TRAIN, s)
        before = tables["relation"].clone()
        trainer.run_epoch()
        moved.append(tables["relation"] - before)
    assert moved[0].abs().max() > 0
    torch.testing.assert_close(*moved)


def test_a_model_made_of_another_does_not_inherit_its_kernel() -> None:
    class Scaled(TransE):
        def project(self, entities: Any, relations: Relations) -> torch.Tensor:
            return 2 * entities["entity"]

    class Measured(TransE):
        def similarity(self, query: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
            return -torch.cdist(query, candidates, p=3.0)

    s = TrainSettings(**BASE)
    assert type(make_step(Tables(Scaled(6), 4, 2), s)) is AutogradStep
    assert Scaled(6, norm=2).comparison == "l2"
    assert (Measured(6).kernel, Measured(6, norm=2).comparison) == (None, "own")
