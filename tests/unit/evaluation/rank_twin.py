"""The slow honest twin of `rank`."""

from __future__ import annotations

import numpy as np
import torch

from fkge.embed import Tables
from fkge.evaluation import Known, Ranks, TypeConstraint, score_triples

ENTITIES, RELATIONS = 40, 4
"""Of the graph in this folder's tests."""

CASES = [
    ("TransE", {"norm": 1}),
    ("TransE", {"norm": 2}),
    ("TransE", {"norm": 1, "normalize": True}),
    ("TransH", {"norm": 1}),
    ("TransH", {"norm": 2}),
    ("TransR", {"norm": 1, "relation_dim": 5}),
    ("TransR", {"norm": 2, "normalize": True}),
    ("TransD", {"norm": 1, "relation_dim": 7}),
    ("TransD", {"norm": 2, "relation_dim": 4}),
    ("DistMult", {}),
    ("ComplEx", {}),
    ("RotatE", {}),
]
"""Models and their options."""


def in_float64(tables: Tables) -> Tables:
    """The same numbers as float64 tables."""
    twin = Tables(tables.model, tables.entities, tables.relations, dtype=torch.float64)
    twin.load(tables.export(state=False))
    return twin


def is_known(known: Known, head: int, relation: int, tail: int) -> bool:
    """Whether a triple is a fact."""
    (first,), (last,) = known.spans("tail", torch.tensor([head]), torch.tensor([relation]))
    return tail in known.values("tail")[first:last]


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
            rivals -= {e for e in everyone if known and is_known(known, *asked[e])} | {true}
            score, others = scores[true], [scores[e] for e in rivals]
            above = sum(not (other <= score + tie) for other in others)
            below = sum(other < score - tie for other in others)
            optimistic[i, column] = 1 + above
            pessimistic[i, column] = 1 + len(others) - below
    return Ranks(optimistic, pessimistic)


def assert_same(a: Ranks, b: Ranks) -> None:
    np.testing.assert_array_equal(a.optimistic, b.optimistic)
    np.testing.assert_array_equal(a.pessimistic, b.pessimistic)
