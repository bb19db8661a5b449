"""`split_triples`: a partition, of the asked sizes, that leaves nothing unseen, whatever the order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.errors import SettingsError
from fkge.graph import HEAD, RELATION, TAIL, split_triples, tidy


@st.composite
def triple_sets(draw: st.DrawFn) -> np.ndarray:
    entity, relation = st.integers(0, 12), st.integers(0, 3)
    rows = draw(st.lists(st.tuples(entity, relation, entity), min_size=1, max_size=80))
    return np.array(rows, np.int32)


fractions = st.sampled_from([(0.9, 0.05, 0.05), (0.5, 0.25, 0.25), (0.2, 0.8, 0.0), (0.1, 0.3, 0.6), (1, 0, 0)])
seeds = st.integers(0, 2**32)


def as_set(triples: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, triples.tolist()))


@given(triple_sets(), seeds, fractions, st.booleans())
def test_partition(triples: np.ndarray, seed: int, shares: tuple[float, float, float], unseen: bool) -> None:
    parts = split_triples(triples, seed=seed, fractions=shares, allow_unseen=unseen)
    assert set.union(*map(as_set, parts)) == as_set(triples)
    assert sum(map(len, parts)) == len(as_set(triples))
    for part in parts:
        assert part.dtype == np.int32
        np.testing.assert_array_equal(part, tidy(part))


@given(triple_sets(), seeds, fractions)
def test_train_has_every_entity_and_relation(
    triples: np.ndarray, seed: int, shares: tuple[float, float, float]
) -> None:
    train, *_ = split_triples(triples, seed=seed, fractions=shares)
    assert set(train[:, [HEAD, TAIL]].flat) == set(triples[:, [HEAD, TAIL]].flat)
    assert set(train[:, RELATION]) == set(triples[:, RELATION])


@given(triple_sets(), seeds, fractions, st.booleans(), st.randoms(use_true_random=False))
def test_order_of_input_does_not_matter(
    triples: np.ndarray, seed: int, shares: tuple[float, float, float], unseen: bool, random: object
) -> None:
    shuffled = triples.tolist() + triples.tolist()[:3]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = split_triples(triples, seed=seed, fractions=shares, allow_unseen=unseen)
    other = split_triples(np.array(shuffled), seed=seed, fractions=shares, allow_unseen=unseen)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@given(triple_sets(), seeds, fractions)
def test_sizes_are_exact_when_anything_may_be_held_out(
    triples: np.ndarray, seed: int, shares: tuple[float, float, float]
) -> None:
    train, valid, test = split_triples(triples, seed=seed, fractions=shares, allow_unseen=True)
    n = len(as_set(triples))
    assert len(train) >= 1
    asked_valid, asked_test = int(shares[1] * n + 0.5), int(shares[2] * n + 0.5)
    if asked_valid + asked_test < n:
        assert (len(valid), len(test)) == (asked_valid, asked_test)


@given(triple_sets(), seeds, fractions)
def test_nothing_is_kept_in_train_without_need(
    triples: np.ndarray, seed: int, shares: tuple[float, float, float]
) -> None:
    """The slow honest twin: pin row by row; what is not pinned is held out up to the share asked for."""
    _, valid, test = split_triples(triples, seed=seed, fractions=shares)
    rows = tidy(triples)[np.random.default_rng(seed).permutation(len(as_set(triples)))].tolist()
    seen: set[tuple[str, int]] = set()
    free = 0
    for head, relation, tail in rows:
        held = {("e", head), ("r", relation), ("e", tail)}
        free += held <= seen
        seen |= held
    asked = sum(int(share * len(rows) + 0.5) for share in shares[1:])
    assert len(valid) + len(test) == min(asked, free)


def test_dense_graph_gets_exact_shares_and_seeds_differ() -> None:
    triples = np.array([(h, r, t) for h in range(20) for r in range(5) for t in range(20)], np.int32)
    train, valid, test = split_triples(triples, seed=1, fractions=(0.8, 0.15, 0.05))
    assert (len(train), len(valid), len(test)) == (1600, 300, 100)
    other = split_triples(triples, seed=2, fractions=(0.8, 0.15, 0.05))[2]
    assert as_set(test) != as_set(other)


def test_a_chain_cannot_be_held_out() -> None:
    chain = np.array([(i, 0, i + 1) for i in range(0, 20, 2)], np.int32)
    train, valid, test = split_triples(chain, seed=0, fractions=(0.5, 0.25, 0.25))
    assert (len(train), len(valid), len(test)) == (10, 0, 0)
    train, valid, test = split_triples(chain, seed=0, fractions=(0.6, 0.2, 0.2), allow_unseen=True)
    assert (len(train), len(valid), len(test)) == (6, 2, 2)


def test_no_triples_give_empty_splits() -> None:
    assert [len(part) for part in split_triples(np.empty((0, 3), np.int32), seed=0)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((0.9, 0.05, 0.06), "sum to 1"),
        ((0.0, 0.5, 0.5), "train"),
        ((1.1, -0.1, 0.0), "negative"),
        ((float("nan"), 0.5, 0.5), "numbers"),
        ((0.9, 0.1), "three"),
    ],
)
def test_bad_fractions(shares: tuple[float, float, float], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        split_triples(np.array([[0, 0, 1]], np.int32), seed=0, fractions=shares)


def test_negative_seed() -> None:
    with pytest.raises(SettingsError, match="seed"):
        split_triples(np.array([[0, 0, 1]], np.int32), seed=-1)
