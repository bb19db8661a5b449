"""Searches of a second, on graphs and federations that are learnt in less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fkge.graph import Graph
from fkge.settings import TrainSettings
from fkge.tune.study import Tuning
from tests.conftest import random_graph, tiny_settings

QUICK: dict[str, Any] = {"model": "DistMult", "loss": "1vsall", "epochs": 4, "device": "cpu"}


def quick_start(**changes: Any) -> TrainSettings:
    """Settings of a training of some milliseconds."""
    values = {**QUICK, "dim": 8, "batch": 128, "validate_every": 1, "optimizer": "adagrad", "lr": 0.1, **changes}
    return TrainSettings.build(values)


def new_search(folder: Path, graph: Graph | None = None, seconds: float = 1.0, **more: Any) -> Tuning:
    """A search of a small graph."""
    return Tuning.create(folder, graph or random_graph(), quick_start(), QUICK, minutes=seconds / 60, **more)


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """A finished search; do not change it."""
    tuning = new_search(tmp_path_factory.mktemp("searches") / "random", seconds=3.0, name="random.tsv")
    tuning.run()
    return tuning


def tiny_start(**changes: Any) -> Any:
    """Settings of a federation of a second."""
    return tiny_settings(exchanges=4, initial_epochs=0, **changes)
