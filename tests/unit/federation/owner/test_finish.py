"""Scores of an owner's final vectors."""

from __future__ import annotations

import numpy as np

from fkge.evaluation import Known, metrics, rank
from fkge.federation.owner import Owner, finish
from tests.unit.federation.pairs import TWO, federation_settings


def test_scores_all_test_triples_and_the_parts_that_are_not_empty() -> None:
    graph, owner = TWO["a"], Owner("a", TWO["a"], federation_settings())
    some = np.arange(len(graph.test)) < 5
    parts = {"all": np.ones(len(graph.test), bool), "some": some, "none": np.zeros(len(graph.test), bool)}
    report, ranks = finish.score(owner.tables, graph, parts, owner.activity)
    assert list(report.test) == ["all", "some"]
    assert report.test["some"].triples == 5
    assert report.test["all"].mrr == metrics(ranks)["mrr"]
    assert report.valid.mrr == metrics(rank(owner.tables, graph.valid, known=Known.of(graph)))["mrr"]
    assert (report.private, report.privacy, report.epsilon) == (None, None, None)
