"""Linked rows start alike to the bit, others independently."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.align import Common, Tokens, agree_on_tokens, clusters, initial_vectors
from fkge.align.links import KINDS, Kind
from fkge.errors import SettingsError
from fkge.graph import Graph, Vocabulary

NONE = np.empty(0, np.int64)


def rows(entities: int, relations: int = 2) -> dict[Kind, int]:
    return {"entity": entities, "relation": relations}


def test_a_token_depends_on_seed_kind_and_row_alone() -> None:
    graphs = [Graph(Vocabulary(labels), Vocabulary(["r"]), {}) for labels in (["a", "b"], ["x", "y"])]
    first, second = (Tokens.draw(graph, 7) for graph in graphs)
    assert all(np.array_equal(first[kind], second[kind]) for kind in KINDS)  # labels have no part in it
    more = Tokens.draw(rows(50, 50), 7)
    assert np.array_equal(more["entity"][:2], first["entity"])
    assert first["entity"].dtype == np.uint64
    other = Tokens.draw(rows(50, 50), 8)
    everything = np.concatenate([t[kind] for t in (more, other) for kind in KINDS])
    assert len(np.unique(everything)) == 200
    assert len(Tokens.draw(rows(0, 0), 0)["entity"]) == 0
    for seed in (-1, 2**64):
        with pytest.raises(SettingsError, match="seed"):
            Tokens.draw(rows(1), seed)


def test_tokens_are_the_same_on_every_machine() -> None:
    """Philox4x64-10 (Salmon et al. 2011) in Python's own integers: four rows to a block, blocks counted from 1."""
    mask = 2**64 - 1

    def block(number: int, key: tuple[int, int]) -> tuple[int, ...]:
        x, (k0, k1) = (number, 0, 0, 0), key
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
            x = (b >> 64) ^ x[1] ^ k0, b & mask, (a >> 64) ^ x[3] ^ k1, a & mask
            k0, k1 = k0 + 0x9E3779B97F4A7C15 & mask, k1 + 0xBB67AE8584CAA73B & mask
        return x

    for seed in (0, 12345, mask):
        drawn = Tokens.draw(rows(7, 5), seed)
        for number, kind in enumerate(("entity", "relation")):
            key = seed, int.from_bytes(b"\0tokens", "little") + number
            expected = [*block(1, key), *block(2, key)]
            assert drawn[kind].tolist() == expected[: len(drawn[kind])]  # type: ignore[index]


def test_bits_of_tokens_are_fair_and_rows_independent() -> None:
    """Each of 64 bits and each pair of neighbouring rows; six standard deviations, 3·10⁻⁷ over all of them."""
    n = 20_000

    def worst(tokens: npt.NDArray[np.uint64]) -> float:
        bits = (tokens[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
        changes = bits[1:] != bits[:-1]
        return float(max(abs(2 * x.mean(axis=0) - 1).max() * len(x) ** 0.5 for x in (bits, changes)))

    assert worst(Tokens.draw(rows(n), 1)["entity"]) < 6
    assert worst(np.arange(n, dtype=np.uint64)) > 6


def test_equal_labels_start_equal_only_with_a_link() -> None:
    graph = Graph(Vocabulary(["a", "b", "c"]), Vocabulary(["r"]), {})
    tokens = {name: Tokens.draw(graph, seed) for seed, name in enumerate("xy")}
    assert not np.intersect1d(tokens["x"]["entity"], tokens["y"]["entity"]).size
    agree_on_tokens(tokens, {("x", "y"): (Common(np.array([0, 1]), NONE), Common(np.array([0, 2]), NONE))})
    assert np.array_equal(tokens["x"]["entity"][[0, 1]], tokens["y"]["entity"][[0, 2]])
    assert len(np.unique([*tokens["x"]["entity"], *tokens["y"]["entity"]])) == 4  # b and c are others elsewhere


@pytest.mark.parametrize("backwards", [False, True])
def test_a_chain_of_owners_agrees_within_its_length(backwards: bool) -> None:
    names = [f"owner{i}" for i in range(6)]
    tokens = {name: Tokens.draw(rows(40), seed) for seed, name in enumerate(names)}
    rng = np.random.default_rng(0)
    pairs = {}
    for a, b in itertools.pairwise(names):
        pairs[a, b] = tuple(Common(rng.permutation(40)[:30], np.array([0])) for _ in "ab")
    if backwards:
        pairs = dict(reversed(pairs.items()))
    rounds = agree_on_tokens(tokens, pairs)  # type: ignore[arg-type]
    assert rounds <= len(names)
    assert len({int(tokens[name]["relation"][0]) for name in names}) == 1
    assert len({int(tokens[name]["relation"][1]) for name in names}) == 6


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(0, 10_000))
def test_vectors_are_equal_exactly_on_linked_rows(owners: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"o{i}" for i in range(owners)]
    tokens = {name: Tokens.draw(rows(25), number) for number, name in enumerate(names)}
    pairs, ids = {}, {}
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            n = int(rng.integers(0, 8))
            ids[a, b] = rng.permutation(25)[:n], rng.permutation(25)[:n]
            pairs[a, b] = Common(ids[a, b][0], NONE), Common(ids[a, b][1], NONE)
    agree_on_tokens(tokens, pairs)
    numbers, count = clusters(dict.fromkeys(names, 25), ids)
    vectors = np.concatenate([initial_vectors(tokens[name]["entity"], 4, 0.5, seed) for name in names])
    same_thing = np.concatenate([numbers[name] for name in names])
    equal = (vectors[:, None] == vectors[None]).all(2)
    assert np.array_equal(equal, same_thing[:, None] == same_thing[None])
    assert len(np.unique(vectors, axis=0)) == count


def test_wrong_messages_are_refused_and_change_nothing() -> None:
    tokens = Tokens.draw(rows(5), 0)
    common = Common(np.array([0, 3]), np.array([1]))
    before = tokens["entity"].copy()
    good = tokens.of(common)
    zero = np.zeros(2, np.uint64)
    for bad in (
        {"entity": zero},
        {"entity": zero[:1], "relation": good["relation"]},
        {"entity": zero.astype(np.int64), "relation": good["relation"]},
    ):
        with pytest.raises(SettingsError, match="uint64 tokens"):
            tokens.merge(common, bad)  # type: ignore[arg-type]
    assert np.array_equal(tokens["entity"], before)
    assert not tokens.merge(common, good)
    assert tokens.merge(common, {**good, "entity": zero})


def test_a_row_depends_on_seed_and_token_alone() -> None:
    tokens = np.random.default_rng(0).integers(2**64, size=3000, dtype=np.uint64)
    vectors = initial_vectors(tokens, 48, 0.3, 7)
    assert vectors.dtype == np.float32
    assert np.abs(vectors).max() <= np.float32(0.3)
    order = np.random.default_rng(1).permutation(3000)
    assert np.array_equal(initial_vectors(tokens[order], 48, 0.3, 7), vectors[order])
    assert np.array_equal(initial_vectors(tokens[5:6], 48, 0.3, 7), vectors[5:6])
    assert not (initial_vectors(tokens, 48, 0.3, 8) == vectors).any(axis=1).any()


def test_the_numbers_are_the_same_on_every_machine() -> None:
    """Golden: computed once with Python's own integers, below; no release may change them."""
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        return z ^ (z >> 31)

    for seed, token in ((0, 0), (3, 12345), (10**30, mask)):
        salt = int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "little")
        start = mix(mix(token) + salt & mask)
        expected = []
        for j in range(1, 6):
            unit = (mix(start + j * 0x9E3779B97F4A7C15 & mask) >> 11) * 2.0**-52
            expected.append(np.float32((unit - 1) * 0.25))
        got = initial_vectors(np.array([token], np.uint64), 5, 0.25, seed)
        assert got[0].tolist() == [float(x) for x in expected]


@pytest.mark.parametrize("tokens", ["drawn", "counted"])
def test_vectors_are_uniform_and_independent(tokens: str) -> None:
    """Even of tokens that follow each other, which a weak hash would show."""
    n, width = 4000, 32
    given_tokens = Tokens.draw(rows(n), 0)["entity"] if tokens == "drawn" else np.arange(n, dtype=np.uint64)
    x = initial_vectors(given_tokens, width, 1.0, 0).astype(np.float64)
    # Kolmogorov-Smirnov over all numbers, 1e-6 level: 2.7 / √N.
    flat = np.sort((x.ravel() + 1) / 2)
    assert np.abs(flat - (np.arange(flat.size) + 0.5) / flat.size).max() < 2.7 / flat.size**0.5
    # Correlations of columns, of neighbouring rows, and between seeds: the largest of many normal numbers.
    columns = np.corrcoef(x.T) - np.eye(width)
    assert np.abs(columns).max() < 5.5 / n**0.5
    assert abs(np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]) < 5 / x.size**0.5
    y = initial_vectors(given_tokens, width, 1.0, 1).astype(np.float64)
    assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 5 / x.size**0.5
    # And the same test sees what is wrong with a mere product.
    weak = (np.arange(n, dtype=np.float64)[:, None] * np.arange(1, width + 1) * 0.6180339887) % 1.0
    assert abs(np.corrcoef(weak[:-1].ravel(), weak[1:].ravel())[0, 1]) > 5 / x.size**0.5


def test_impossible_requests_are_refused() -> None:
    for width, bound, seed in ((0, 1.0, 0), (3, 0.0, 0), (3, 1.0, -1)):
        with pytest.raises(SettingsError, match="initial_vectors needs"):
            initial_vectors(np.zeros(1, np.uint64), width, bound, seed)
