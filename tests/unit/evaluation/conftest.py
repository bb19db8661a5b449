"""A small random graph, and tables for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from fkge.embed import Tables, model_class
from tests.unit.evaluation.rank_twin import ENTITIES, RELATIONS


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small matrices lose more to waking threads than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def facts() -> np.ndarray:
    """(n, 3) facts dense enough that most questions have several answers."""
    rng = np.random.default_rng(1)
    n = 400
    columns = (rng.integers(ENTITIES, size=n), rng.integers(RELATIONS, size=n), rng.integers(ENTITIES, size=n))
    return np.unique(np.stack(columns, axis=1), axis=0)


@pytest.fixture
def make_tables() -> Callable[..., Tables]:
    def make(name: str, *, dim: int = 6, dtype: torch.dtype = torch.float32, **options: object) -> Tables:
        model = model_class(name)(dim, **options)
        return Tables(model, ENTITIES, RELATIONS, seed=5, bound=0.8, dtype=dtype)

    return make
