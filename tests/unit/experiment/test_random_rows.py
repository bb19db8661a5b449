"""Owners that send random vectors in place of their rows."""

from __future__ import annotations

from pathlib import Path

import torch

from fkge.experiment.arms import Arm
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.setup import create_stores
from fkge.federation import Plan
from tests.conftest import tiny_federation, tiny_settings


def test_updates_have_the_shape_and_scale_of_the_rows_and_nothing_else_of_them(tmp_path: Path) -> None:
    create_stores(tmp_path, tiny_federation(), tiny_settings(), seed=3)
    ant, _ = SimulatedOwner.open(tmp_path / "owners" / "ant").owner(
        Arm("random", Plan(2, 20, alone=False), random=True)
    )
    update, again = ant.make_update("bee", "frame"), ant.make_update("bee", "frame")
    own = ant.exchange.rows("bee")
    assert update.entity.shape == own["entity"].shape
    assert torch.equal(update.entity, again.entity)
    assert abs(float(torch.corrcoef(torch.stack([update.entity.ravel(), own["entity"].ravel()]))[0, 1])) < 0.3
    assert 0.5 < float(update.entity.std() / own["entity"].std()) < 2
    assert update.entity_moments is update.relation_moments is None


def test_random_rows_are_as_wide_as_those_with_inverses(tmp_path: Path) -> None:
    settings = tiny_settings(train={"model": "ComplEx", "reciprocal": True, "loss": "1vsall", "optimizer": "adagrad"})
    create_stores(tmp_path, tiny_federation(), settings, seed=3)
    ant, _ = SimulatedOwner.open(tmp_path / "owners" / "ant").owner(
        Arm("random", Plan(2, 20, alone=False), random=True)
    )
    assert ant.exchange.mode("bee") == "frame"
    update = ant.make_update("bee", "frame")
    assert (update.entity.shape[1], update.relation.shape[1]) == (16, 32)
