from __future__ import annotations

import json

import numpy as np
import pytest

import fkge.evaluation
from fkge.errors import SettingsError
from fkge.evaluation import Known, TypeConstraint, classify, evaluate, metrics, rank
from fkge.graph.graph import Graph, Vocabulary
from tests.unit.evaluation.rank_twin import ENTITIES, RELATIONS


@pytest.fixture
def graph(facts) -> Graph:
    facts = np.random.default_rng(3).permutation(facts)
    splits = {"train": facts[:250], "valid": facts[250:300], "test": facts[300:], "extra": facts[:20]}
    entities = Vocabulary([f"e{i:02}" for i in range(ENTITIES)], "entity")
    return Graph(entities, Vocabulary("abcd"[:RELATIONS], "relation"), splits)


def test_plain_numbers(make_tables, graph):
    tables = make_tables("TransE")
    got = evaluate(tables, graph)
    assert list(got) == ["valid", "test"]
    for split in got.values():
        assert list(split) == ["mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"]
        assert all(type(x) is float for x in split.values())
    known = Known.of(graph)
    assert got["test"]["mrr"] == metrics(rank(tables, graph.test, known=known))["mrr"]
    assert got["valid"]["accuracy"] == classify(tables, graph).accuracy["valid"]
    json.dumps(got, allow_nan=False)


def test_options(make_tables, graph):
    tables = make_tables("TransH")
    plain = evaluate(tables, graph, ["test"])["test"]
    raw = evaluate(tables, graph, ["test"], raw=True)["test"]
    typed = evaluate(tables, graph, ["test"], type_constraint=True, ties="optimistic")["test"]
    assert raw["mr"] > plain["mr"]
    types = TypeConstraint.of(graph)
    expected = rank(tables, graph.test, known=Known.of(graph), candidates=types)
    assert typed["mr"] == metrics(expected, "optimistic")["mr"]
    assert "accuracy" not in evaluate(tables, graph, ["extra"], accuracy=False)["extra"]
    by_category = evaluate(tables, graph, ["test"], categories=True)["test"]["categories"]
    assert sum(c["triples"] for c in by_category.values()) == len(graph.test)


def test_virtual_rows_do_not_show(make_tables, graph):
    tables = make_tables("TransE")
    before = evaluate(tables, graph)
    tables.append("entity", tables["entity"][:5])
    assert evaluate(tables, graph) == before
    raw = evaluate(tables, graph, raw=True)
    tables.truncate("entity", ENTITIES)
    assert evaluate(tables, graph, raw=True) == raw


def test_missing_splits(make_tables, graph):
    tables = make_tables("TransE")
    bare = Graph(graph.entities, graph.relations, {"train": graph.train, "test": graph.test})
    got = evaluate(tables, bare)
    assert list(got) == ["test"]
    assert "accuracy" not in got["test"]
    with pytest.raises(SettingsError, match="did you mean test"):
        evaluate(tables, graph, ["tset"])


def test_public_surface():
    exported = {name for name in vars(fkge.evaluation) if not name.startswith("_")}
    modules = {
        "categories", "classification", "counting", "geometry", "kernels", "known", "queries",
        "ranking", "scoring", "significance", "summary",
    }  # fmt: skip
    assert exported - modules == {
        "Known", "Metrics", "Neighbor", "Prediction", "Ranks", "TypeConstraint", "classify", "evaluate",
        "fit_thresholds", "mean_interval", "metrics", "metrics_by_category",
        "neighbors", "paired_bootstrap", "predict", "rank", "relation_categories", "score_triples",
    }  # fmt: skip
