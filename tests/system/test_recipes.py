"""Recipes reach what OpenKE published for FB15k-237, on its official split. Minutes each, on one CPU thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.experiment.training_run import Run
from fkge.graph import read_graph
from fkge.settings import TrainSettings

RECIPES = Path(__file__).resolve().parents[2] / "src" / "fkge" / "recipes"


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "published"), [("transe", 0.476), ("distmult", 0.419), ("complex", 0.426)])
def test_filtered_hits_at_10_on_fb15k237(recipe: str, published: float, shared_data: Path, tmp_path: Path) -> None:
    graph = read_graph(shared_data / "fb15k237")
    settings = TrainSettings.load(RECIPES / f"{recipe}.toml", device="cpu")
    if settings.loss == "1vsall":  # of which a few epochs do, and each takes long
        settings = settings.model_copy(update={"epochs": 3, "validate_every": 3})
    result = Run.create(tmp_path / "run", graph, settings).train()
    assert result is not None
    assert result.splits["test"].hits_at_10 >= published
