"""Everything that is measured about a model on a graph, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fkge.embed import Tables
from fkge.errors import SettingsError, did_you_mean
from fkge.evaluation.categories import metrics_by_category, relation_categories
from fkge.evaluation.classification import classify
from fkge.evaluation.known import Known, TypeConstraint
from fkge.evaluation.ranking import Ties, metrics, rank
from fkge.evaluation.scoring import MEMORY
from fkge.graph.graph import Graph
from fkge.trace import SILENT, Progress


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
    known: Known | None = None,
    memory: float = MEMORY,
    kernels: bool = True,
    progress: Progress = SILENT,
) -> dict[str, dict[str, Any]]:
    """Link prediction and triple classification on `splits`; a split without triples is left out.

    Args:
        ties: which rank a tie gives.
        raw: let known answers compete.
        type_constraint: only entities seen on a side of a relation compete there.
        categories: add the metrics of each relation category under ``categories``.
        accuracy: add triple classification; it is left out anyway if there are no valid triples.
        seed: of the negatives that triple classification draws.
        known: `Known.of(graph)`, where a caller has it at hand.

    Returns:
        ``{split: {"mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"}}`` as floats.
    """
    for name in splits:
        if name not in graph.splits:
            raise SettingsError(f"{graph.name} has no split {name!r}{did_you_mean(name, graph.splits)}")
    if not raw and known is None:
        known = Known.of(graph)
    constraint = TypeConstraint.of(graph) if type_constraint else None
    present = [name for name in splits if len(graph.splits[name])]
    out: dict[str, dict[str, Any]] = {}
    for name in present:
        ranks = rank(
            tables,
            graph.splits[name],
            known=None if raw else known,
            candidates=constraint,
            entities=len(graph.entities),
            memory=memory,
            kernels=kernels,
            progress=progress,
        )
        out[name] = dict(metrics(ranks, ties))
        if categories:
            of = relation_categories(graph.train, len(graph.relations))
            out[name]["categories"] = metrics_by_category(ranks, graph.splits[name], of, ties)
    if accuracy and len(graph.valid):
        found = classify(tables, graph, splits=present, seed=seed, memory=memory).accuracy
        for name, value in found.items():
            out[name]["accuracy"] = value
    return out
