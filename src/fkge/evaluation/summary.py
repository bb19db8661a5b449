"""`evaluate` computes all metrics of a model on one graph, for `fkge train` and `fkge evaluate`. Owners of a federation
are scored by `fkge.federation.owner.finish`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

from fkge.embed import Tables
from fkge.errors import SettingsError, did_you_mean
from fkge.evaluation.categories import CategoryMetrics, metrics_by_category, relation_categories
from fkge.evaluation.classification import classify
from fkge.evaluation.known import Known, TypeConstraint
from fkge.evaluation.ranking import Ties, metrics, rank
from fkge.evaluation.scoring import MEMORY
from fkge.graph.graph import Graph
from fkge.progress import SILENT, Progress

_Rates = TypedDict("_Rates", {"mr": float, "mrr": float, "hits@1": float, "hits@3": float, "hits@10": float})


class Metrics(_Rates):
    """Metrics of one split, with accuracy of triple classification, and by relation category (1-1, 1-n, n-1, n-n)."""

    accuracy: NotRequired[float]
    categories: NotRequired[dict[str, CategoryMetrics]]


def evaluate(
    tables: Tables,
    graph: Graph,
    splits: Sequence[str] = ("valid", "test"),
    *,
    ties: Ties = "realistic",
    raw: bool = False,
    type_constraint: bool = False,
    categories: bool = False,
    accuracy: bool = True,
    seed: int = 0,
    memory: float = MEMORY,
    kernels: bool = True,
    progress: Progress = SILENT,
) -> dict[str, Metrics]:
    """Return the metrics of link prediction and triple classification on `splits`; one without triples is left out.

    Args:
        tables: the model.
        graph: what it was trained on.
        splits: which of the graph's splits to score.
        ties: which rank a tie gives.
        raw: let known answers compete.
        type_constraint: only entities seen on a side of a relation compete there.
        categories: add the metrics of each relation category under ``categories``.
        accuracy: add triple classification; it is left out anyway if there are no valid triples.
        seed: of the negatives that triple classification draws.
        memory: MB to work in, in addition to the tables.
        kernels: use the compiled kernels where they run; the ranks are the same without.
        progress: shows how far ranking is.

    Returns:
        Metrics by split.

    Raises:
        SettingsError: the graph has no split of that name.
    """
    for name in splits:
        if name not in graph.splits:
            raise SettingsError(f"{graph.name} has no split {name!r}{did_you_mean(name, graph.splits)}")
    known = None if raw else Known.of(graph)
    constraint = TypeConstraint.of(graph) if type_constraint else None
    present = [name for name in splits if len(graph.splits[name])]
    out: dict[str, Metrics] = {}
    for name in present:
        ranks = rank(
            tables, graph.splits[name], known=known, candidates=constraint, entities=len(graph.entities),
            memory=memory, kernels=kernels, progress=progress,
        )  # fmt: skip
        out[name] = cast(Metrics, metrics(ranks, ties))
        if categories:
            of = relation_categories(graph.train, len(graph.relations))
            out[name]["categories"] = metrics_by_category(ranks, graph.splits[name], of, ties)
    if accuracy and len(graph.valid):
        for name, value in classify(tables, graph, splits=present, seed=seed, memory=memory).accuracy.items():
            out[name]["accuracy"] = value
    return out
