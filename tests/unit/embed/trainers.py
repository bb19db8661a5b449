"""Small trainers, with and without differential privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fkge.embed import DpSettings, DpTrainer, Trainer, make_tables
from fkge.settings import TrainSettings
from tests.conftest import random_graph

GRAPH = random_graph()
TRAIN = torch.from_numpy(GRAPH.train.copy()).long()
BASE: dict[str, Any] = {"dim": 6, "batch": 32, "negatives": 5, "lr": 0.02, "margin": 2.0, "init": 0.5, "device": "cpu"}
TRIPLES = np.unique(np.random.default_rng(0).integers([40, 5, 40], size=(300, 3)), axis=0)
DP_BASE: dict[str, Any] = {"dim": 6, "init": 0.5, "margin": 2.0, "device": "cpu"}


def trainer_of(**changes: Any) -> Trainer:
    base = {"dim": 6, "batch": 50, "negatives": 4, "device": "cpu", "epochs": 8, "validate_every": 1, "patience": 3}
    s = TrainSettings(**{**base, **changes})
    return Trainer(make_tables(s, 40, 5), GRAPH.train, s)


def dp_trainer_of(
    triples: Any = TRIPLES, shape: tuple[int, int] = (40, 5), train: dict[str, Any] | None = None, key: int = 0,
    dtype: torch.dtype = torch.float32, **private: Any,
) -> DpTrainer:  # fmt: skip
    s = TrainSettings(**(DP_BASE | (train or {})))
    tables = make_tables(s, *shape, dtype)
    return DpTrainer(tables, triples, s, DpSettings(**private), torch.Generator().manual_seed(key))
