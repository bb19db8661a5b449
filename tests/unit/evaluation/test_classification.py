from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fkge.embed import Tables, model_class
from fkge.errors import SettingsError
from fkge.evaluation import classify, fit_thresholds
from fkge.evaluation.classification import Negatives
from fkge.graph.graph import Graph, Vocabulary


def make_graph(splits, entities=30, relations=3) -> Graph:
    return Graph(
        Vocabulary([f"e{i:02}" for i in range(entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(relations)], "relation"),
        {name: np.array(triples, np.int32) for name, triples in splits.items()},
    )


@pytest.fixture
def graph() -> Graph:
    rng = np.random.default_rng(0)
    triples = np.unique(rng.integers((30, 2, 30), size=(400, 3)), axis=0)  # relation 2 has no triples
    triples = rng.permutation(triples)
    return make_graph({"train": triples[:200], "valid": triples[200:280], "test": triples[280:]})


def tables_of(graph: Graph, name="TransE") -> Tables:
    return Tables(model_class(name)(5), len(graph.entities), len(graph.relations), seed=2, bound=1.0)


def brute_force(score, label):
    """The best threshold of one relation by trying all: accuracy, then gap, then the lowest."""
    distinct = sorted(set(score))
    options = [(distinct[0] - 1, 0.0), (distinct[-1] + 1, 0.0)]
    options += [((a + b) / 2, b - a) for a, b in itertools.pairwise(distinct)]
    accuracy = {t: sum((s > t) == y for s, y in zip(score, label, strict=True)) for t, _ in options}
    return max(options, key=lambda o: (accuracy[o[0]], o[1], -o[0]))[0]


# Whole numbers, so that midpoints and gaps are exact and ties abound.
triples_drawn = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-6, 6).map(float), st.booleans()), min_size=1, max_size=30
)


@given(triples_drawn)
def test_thresholds_are_the_best_there_are(drawn):
    relation, score, label = (np.array(x) for x in zip(*drawn, strict=True))
    got, fallback = fit_thresholds(relation, score, label, 4)
    assert fallback == brute_force(score.tolist(), label.tolist())
    for r in range(4):
        of = relation == r
        assert got[r] == (brute_force(score[of].tolist(), label[of].tolist()) if of.any() else fallback)


@given(st.lists(st.tuples(st.floats(-(2.0**100), 2.0**100, width=32), st.booleans()), min_size=1, max_size=20))
def test_thresholds_separate_any_floats(drawn):
    """Accuracy is the best that any cut between distinct scores gives, also where there is no midpoint."""
    score, label = (np.array(x) for x in zip(*drawn, strict=True))
    (got,), _ = fit_thresholds(np.zeros(len(score), np.int64), score, label, 1)
    cuts = [-np.inf, *sorted(set(score.tolist()))]
    best = max(((score > cut) == label).sum() for cut in cuts)
    assert np.isfinite(got)
    assert ((score > got) == label).sum() == best


def test_neighbouring_floats():
    low = 1.0
    high = np.nextafter(low, 2)
    (got,), _ = fit_thresholds(np.zeros(2, np.int64), np.array([low, high]), np.array([False, True]), 1)
    assert low <= got < high


def test_negatives_are_false_and_differ_on_one_side(graph):
    negatives = Negatives(graph, seed=1)
    got = negatives.draw(graph.test, "test")
    assert len(got) == len(graph.test)
    facts = set(map(tuple, graph.facts.tolist()))
    assert not any(tuple(t) in facts for t in got.tolist())
    changed = got != graph.test
    assert (changed.sum(1) == 1).all()
    assert not changed[:, 1].any()
    assert 0.3 < changed[:, 0].mean() < 0.7
    np.testing.assert_array_equal(got, Negatives(graph, seed=1).draw(graph.test, "test"))
    assert (got != Negatives(graph, seed=2).draw(graph.test, "test")).any()


def test_negatives_turn_to_the_other_side_or_give_up():
    everything = [(0, 0, e) for e in range(4)]  # (0, r, ?) is always true; heads 1–3 are free
    graph = make_graph({"train": everything, "valid": everything}, entities=4, relations=1)
    got = Negatives(graph, 0).draw(graph.valid, "valid")
    assert len(got) == 4
    assert (got[:, 0] != 0).all()
    full = [(h, 0, t) for h in range(3) for t in range(3)]
    graph = make_graph({"train": full}, entities=3, relations=1)
    assert len(Negatives(graph, 0).draw(graph.train, "train")) == 0


def test_a_perfect_model_is_perfect():
    """Facts e → e and scores −|h − t|: every negative scores below every positive."""
    loops = [(e, 0, e) for e in range(30)]
    graph = make_graph({"train": loops[:10], "valid": loops[10:20], "test": loops[20:]}, relations=1)
    tables = Tables(model_class("TransE")(1), 30, 1)
    tables["entity"][:, 0] = torch.arange(30) * 1.0
    tables["relation"].zero_()
    got = classify(tables, graph)
    assert got.accuracy == {"valid": 1.0, "test": 1.0}
    assert -30 < got.thresholds[0] < 0


def test_accuracy_is_that_of_the_thresholds(graph):
    tables = tables_of(graph)
    got = classify(tables, graph, seed=3)
    assert got.accuracy["valid"] > 0.55  # fitted to it
    assert got.thresholds.shape == (3,)
    assert got.thresholds[2] == got.fallback
    assert np.isnan(got.per_relation["test"][2])
    weights = np.bincount(graph.test[:, 1], minlength=3)[:2]
    assert np.average(got.per_relation["test"][:2], weights=weights) == pytest.approx(got.accuracy["test"])
    assert classify(tables, graph, seed=3).accuracy == got.accuracy


def test_a_diverged_model_is_no_better_than_chance(graph):
    tables = tables_of(graph)
    tables["entity"].fill_(float("nan"))
    assert classify(tables, graph).accuracy == {"valid": 0.5, "test": 0.5}


def test_needs_a_validation_split(graph):
    bare = make_graph({"train": graph.train, "test": graph.test})
    with pytest.raises(SettingsError, match="valid"):
        classify(tables_of(bare), bare)
