"""A small random graph, tables for it, and the slow honest twin of `rank`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from fkge.embed import Tables, model_class
from fkge.evaluate import Known, Ranks, TypeConstraint, score_triples

ENTITIES, RELATIONS = 40, 4


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


def in_float64(tables: Tables) -> Tables:
    """The same numbers as float64 tables."""
    twin = Tables(tables.model, tables.entities, tables.relations, dtype=torch.float64)
    twin.load(tables.export(state=False))
    return twin


def slow_rank(
    tables: Tables,
    triples: np.ndarray,
    known: Known | None,
    candidates: TypeConstraint | None = None,
    *,
    tie: float = 1e-12,
    entities: int | None = None,
) -> Ranks:
    """Ranks one question at a time, every score in float64; scores closer than `tie` are ties."""
    tables = in_float64(tables)
    optimistic, pessimistic = np.zeros((len(triples), 2), np.int64), np.zeros((len(triples), 2), np.int64)
    for i, (head, relation, tail) in enumerate(np.asarray(triples).tolist()):
        for column, (side, true) in enumerate((("head", head), ("tail", tail))):
            everyone = range(tables.entities)
            asked = [(e, relation, tail) if side == "head" else (head, relation, e) for e in everyone]
            scores = score_triples(tables, np.array(asked)).tolist()
            rivals = set(everyone[:entities])
            if candidates is not None:
                rivals &= set(candidates.candidates(side, relation).tolist())
            rivals -= {e for e in everyone if known and asked[e] in known} | {true}
            score, others = scores[true], [scores[e] for e in rivals]
            above = sum(not (other <= score + tie) for other in others)
            below = sum(other < score - tie for other in others)
            optimistic[i, column] = 1 + above
            pessimistic[i, column] = 1 + len(others) - below
    return Ranks(optimistic, pessimistic)
