"""From claims to splits: cleaning, trimming and splitting facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.data import figures
from fkge.data.facts import SPLITS, Fact, Origin, Recipe, clean, entities, split, trim

labels = st.sampled_from([f"e:{i}" for i in range(12)])
facts = st.sets(st.tuples(labels, st.sampled_from(["r", "s", "t"]), labels), min_size=1, max_size=60)
shares = st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.1, 0.3, 0.6), (1.0, 0.0, 0.0)])


def test_clean() -> None:
    told = [("a", "r", "b"), ("a", "r", "b"), ("a", "r", None), (None, "r", "b"), ("a", "r", "a"), ("", "r", "b")]
    assert clean(told) == {("a", "r", "b")}


@given(facts, shares, st.integers(0, 3))
def test_a_split_is_a_partition_that_leaves_nothing_unseen(
    given: set[Fact], parts: tuple[float, float, float], seed: int
) -> None:
    made = split(given, "owner", parts, seed)
    assert list(made) == list(SPLITS)
    assert sorted(fact for name in SPLITS for fact in made[name]) == sorted(given)
    assert all(made[name] == sorted(made[name]) for name in SPLITS)
    assert entities(made["train"]) == entities(given)
    assert {r for _, r, _ in made["train"]} == {r for _, r, _ in given}
    for name, part in zip(SPLITS[1:], parts[1:], strict=True):
        assert len(made[name]) <= round(part * len(given))


@given(facts, st.randoms())
def test_a_split_does_not_depend_on_order(given: set[Fact], random: object) -> None:
    shuffled = sorted(given)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert split(shuffled, "owner", (0.6, 0.2, 0.2), 1) == split(given, "owner", (0.6, 0.2, 0.2), 1)


def test_owners_and_seeds_split_differently() -> None:
    given = {(f"e:{i}", "r", f"e:{(i * 7 + j) % 40}") for i in range(40) for j in range(5)}
    ways = [split(given, owner, (0.8, 0.1, 0.1), seed)["test"] for owner in ("a", "b") for seed in (0, 1)]
    assert len({tuple(way) for way in ways}) == 4
    assert {len(way) for way in ways} == {20}


def test_trim_keeps_entities_of_several_owners() -> None:
    hub = {(f"x:{i}", "r", "hub") for i in range(3)}
    mine = {*hub, ("x:0", "s", "x:1")}
    trimmed = trim({"mine": mine, "yours": {("x:2", "r", "y"), ("y", "s", "x:2")}}, degree=2)
    assert trimmed["mine"] == mine
    alone = trim({"mine": mine, "yours": {("y", "r", "z"), ("z", "s", "y")}}, degree=2)
    assert alone["mine"] == mine - {("x:2", "r", "hub")}


def test_trim_repeats_until_nothing_changes() -> None:
    chain = {(f"x:{i}", "r", f"x:{i + 1}") for i in range(9)}
    assert trim({"mine": chain, "yours": set()}, degree=2) == {"mine": set(), "yours": set()}


def test_figures_count_what_is_there() -> None:
    origin = Origin("package", "1", "MIT", "somebody")
    made_by = Recipe("pair", "Two.", {"a": origin, "b": origin}, lambda _: iter(()), dict)
    a = {"train": [("k:1", "r", "k:2"), ("k:2", "r", "k:3")], "valid": [("k:1", "s", "k:3")], "test": []}
    b = {"train": [("k:1", "r", "k:2")], "valid": [], "test": [("k:1", "s", "k:3"), ("k:9", "t", "k:1")]}
    told = figures(made_by, {"a": a, "b": b}, {"package": "2"})
    assert told["owners"]["a"]["version"] == "2"
    assert told["owners"]["a"]["pinned"] == "1"
    assert told["owners"]["a"]["entities"] == 3
    assert told["owners"]["a"]["by_relation"] == {"r": 2, "s": 1}
    assert told["owners"]["b"]["triples"] == {"train": 1, "valid": 0, "test": 2}
    pair = {"between": ["a", "b"], "entities": 3, "by_kind": {"k": 3}, "relations": ["r", "s"], "same_facts": 2}
    assert told["pairs"] == [pair]


def test_shares_are_kept_where_facts_allow() -> None:
    given = {(f"e:{i}", "r", f"e:{j}") for i in range(20) for j in range(20) if i != j}
    made = split(given, "owner", (0.8, 0.1, 0.1), 0)
    assert {name: len(part) for name, part in made.items()} == pytest.approx({"train": 304, "valid": 38, "test": 38})
