"""Relation categories of Bordes et al. 2013: how many tails a head has, and how many heads a tail."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from fkge.evaluation.ranking import Ranks, Ties, metrics
from fkge.graph.graph import HEAD, RELATION, TAIL

CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
UNSEEN = "unseen"
"""The category of a relation without a training triple."""


class CategoryMetrics(TypedDict):
    """Metrics of the triples whose relations are of one category: over both sides, of predicting heads, of tails."""

    triples: int
    both: dict[str, float]
    head: dict[str, float]
    tail: dict[str, float]


def relation_categories(train: npt.NDArray[Any], relations: int, threshold: float = 1.5) -> npt.NDArray[np.str_]:
    """Return the category of each relation, (relations,) of `CATEGORIES` or `UNSEEN`.

    ``1-n`` has `threshold` or more tails per head on average, and fewer heads per tail.

    Args:
        train: (n, 3) head, relation, tail; duplicates count once.
    """
    triples = np.unique(np.asarray(train, np.int64).reshape(-1, 3), axis=0)
    facts = np.bincount(triples[:, RELATION], minlength=relations)

    def many(column: int) -> npt.NDArray[np.bool_]:
        """Whether a thing in this column is in several facts of a relation, on average."""
        distinct = np.unique(triples[:, [RELATION, column]], axis=0)
        return np.asarray(facts >= threshold * np.bincount(distinct[:, 0], minlength=relations))

    names = np.array(CATEGORIES)[many(HEAD) + 2 * many(TAIL)]
    return np.asarray(np.where(facts > 0, names, UNSEEN))


def metrics_by_category(
    ranks: Ranks, triples: npt.NDArray[Any], categories: npt.NDArray[np.str_], ties: Ties = "realistic"
) -> dict[str, CategoryMetrics]:
    """Return metrics of each category that has triples.

    Args:
        ranks: of `triples` (n, 3).
        categories: (relations,) from `relation_categories`.
        ties: which rank a tie gives.
    """
    of = categories[np.asarray(triples, np.int64).reshape(-1, 3)[:, RELATION]]
    groups = {category: ranks[of == category] for category in (*CATEGORIES, UNSEEN)}
    return {
        category: {
            "triples": len(some), "both": metrics(some, ties), "head": metrics(some, ties, "head"),
            "tail": metrics(some, ties, "tail"),
        }
        for category, some in groups.items() if len(some)
    }  # fmt: skip
