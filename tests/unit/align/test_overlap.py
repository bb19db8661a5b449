"""Held-out facts that a partner trains on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.align import (
    Common,
    find_common,
    held_by_partner,
    held_splits,
    held_through_chains,
    read_links,
    same_labels,
    translation,
)
from fkge.errors import SettingsError
from fkge.graph import Graph, Vocabulary, read_graph
from tests.conftest import random_graph


@given(st.integers(0, 1000))
def test_agrees_with_the_slow_twin(seed: int) -> None:
    a, b = random_graph(12, 3, 150, seed), random_graph(12, 3, 150, seed + 1)
    sides = find_common(a, b, *same_labels(a, b))
    here, there = (side.sample(0.7, seed) for side in sides)
    to_b = dict(zip(here.entities.tolist(), there.entities.tolist(), strict=True))
    relation_to_b = dict(zip(here.relations.tolist(), there.relations.tolist(), strict=True))
    train = {tuple(t) for t in b.train.tolist()}
    expected = [(to_b.get(h), relation_to_b.get(r), to_b.get(t)) in train for h, r, t in a.test.tolist()]
    got = held_splits("a", {"a": a, "b": b}, {("b", "a"): (there, here)})
    assert got["test"].tolist() == expected
    assert got.keys() == {"valid", "test"}
    assert not held_splits("a", {"a": a, "b": b}, {})["test"].any()


def test_without_relations_nothing_translates() -> None:
    a = random_graph()
    everything = Common(np.arange(40), np.arange(5))
    pairs = {("a", "b"): (everything, everything)}
    assert held_splits("a", {"a": a, "b": a}, pairs)["test"].sum() == 0  # its own splits are disjoint
    identity = np.arange(40), np.arange(5)
    assert held_by_partner(a.test, *identity, a.test).all()
    assert not held_by_partner(a.test, identity[0], np.full(5, -1), a.test).any()
    assert held_by_partner(np.empty((0, 3)), *identity, a.test).shape == (0,)
    assert not held_by_partner(a.test, *identity, np.empty((0, 3))).any()


def test_sides_that_are_not_a_pair_are_refused() -> None:
    with pytest.raises(SettingsError, match="two sides of one alignment"):
        translation(Common(np.arange(3), np.arange(1)), Common(np.arange(2), np.arange(1)), "entity", 5)


def test_the_five_languages_were_cleaned_as_stated(shared_data: Path) -> None:
    folder = shared_data / "dbp5l"
    owners = ("el", "ja", "es", "fr", "en")
    graphs: dict[str, Graph] = {name: read_graph(folder / name) for name in owners}
    pairs = {}
    for file in sorted((folder / "aligned").glob("*.entities.tsv")):
        a, b = file.name.split(".")[0].split("__")
        relations = read_links(file.with_name(f"{a}__{b}.relations.tsv"))
        pairs[a, b] = find_common(graphs[a], graphs[b], read_links(file), relations)
        assert len(pairs[a, b][0].entities) > 1900
    for name in owners:
        held = held_splits(name, graphs, pairs)
        assert not held["test"].any()
        assert held["test_leaked"].all()
        assert 0.1 < held["valid"].mean() < 0.5  # nobody cleaned this one: keep the two parts apart


def test_a_fact_that_only_a_chain_of_links_shows() -> None:
    """a's x is linked to b's, b's to c's, and c holds the fact; a and c are not linked."""

    def one(train: list[tuple[int, int, int]], test: list[tuple[int, int, int]]) -> Graph:
        return Graph(
            Vocabulary([f"e{i}" for i in range(4)], "entity"), Vocabulary(["r0", "r1"], "relation"),
            {"train": np.array(train), "test": np.array(test)},
        )  # fmt: skip

    graphs = {
        "a": one([(0, 0, 1)], [(1, 0, 2), (2, 1, 3)]),
        "b": one([(0, 0, 3)], [(0, 1, 1)]),
        "c": one([(1, 0, 2), (0, 1, 1)], [(3, 1, 0)]),
    }
    every = Common(np.arange(4), np.arange(2))
    pairs = {("a", "b"): (every, every), ("b", "c"): (every, every)}
    assert not held_splits("a", graphs, pairs)["test"].any()
    found = held_through_chains(graphs, pairs)
    assert found["a"]["test"].tolist() == [True, False]
    assert found["b"]["test"].tolist() == held_splits("b", graphs, pairs)["test"].tolist() == [True]
    assert found["c"]["test"].tolist() == [False]
    cut = held_through_chains(graphs, {("a", "b"): (every, every)})
    assert not cut["a"]["test"].any()
