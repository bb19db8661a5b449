"""Alignments are one-to-one and the same from either side."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.align import Common, find_common, read_links, same_labels
from fkge.align.links import one_to_one
from fkge.errors import GraphError, SettingsError
from fkge.graph import Graph, Vocabulary, tidy

LABELS = [f"x{i}" for i in range(7)]


def graph_of(labels: list[str], triples: list[tuple[int, int, int]], relations: tuple[str, ...] = ("r", "s")) -> Graph:
    facts = tidy(np.array(triples, np.int64).reshape(-1, 3))
    return Graph(Vocabulary(sorted(labels), "entity"), Vocabulary(relations, "relation"), {"train": facts})


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, unique=True))
    ids = st.integers(0, len(labels) - 1)
    return graph_of(labels, draw(st.lists(st.tuples(ids, st.integers(0, 1), ids), max_size=12)))


links = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), max_size=20)
Labelled = list[tuple[str, str]]


def labelled(a: Graph, b: Graph, common: tuple[Common, Common]) -> Labelled:
    return [(a.entities[i], b.entities[j]) for i, j in zip(*(c.entities.tolist() for c in common), strict=True)]


@given(graphs(), graphs(), links, st.randoms())
def test_find_common_is_one_to_one_symmetric_and_free_of_order(
    a: Graph, b: Graph, given_links: Labelled, random: object
) -> None:
    pairs = labelled(a, b, find_common(a, b, given_links))
    assert len({x for x, _ in pairs}) == len({y for _, y in pairs}) == len(pairs)
    assert set(pairs) <= set(given_links)

    shuffled = given_links * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert labelled(a, b, find_common(a, b, shuffled)) == pairs

    swapped = [(x, y) for y, x in labelled(b, a, find_common(b, a, [(y, x) for x, y in given_links]))]
    assert set(swapped) == set(pairs)
    if not {(y, x) for x, y in pairs if x != y} & set(pairs):  # mirror images are numbered as the first owner has them
        assert swapped == pairs

    # No link could still be added: each dropped link shares an end with one that was kept.
    ends_a, ends_b = {x for x, _ in pairs}, {y for _, y in pairs}
    known = {(x, y) for x, y in given_links if x in a.entities and y in b.entities}
    assert all(x in ends_a or y in ends_b for x, y in known)


def test_of_links_that_share_an_end_the_first_by_label_is_kept() -> None:
    a, b = graph_of(["p", "q"], []), graph_of(["b", "u", "v"], [])
    assert labelled(a, b, find_common(a, b, [("p", "v"), ("p", "u")])) == [("p", "u")]
    assert labelled(a, b, find_common(a, b, [("p", "v"), ("q", "b"), ("q", "v"), ("p", "u")])) == [
        ("q", "b"),
        ("p", "u"),
    ]
    assert one_to_one([("b", "a"), ("a", "b"), ("a", "c"), ("a", "b")]) == [("a", "b"), ("b", "a")]


@given(graphs(), graphs(), links)
def test_alignment_does_not_depend_on_triples(a: Graph, b: Graph, given_links: Labelled) -> None:
    bare = [replace(graph, splits={}) for graph in (a, b)]
    assert find_common(a, b, given_links) == find_common(*bare, given_links)


def test_relations_align_too_and_equal_labels_are_links() -> None:
    a = graph_of(["p", "q", "z"], [(0, 0, 1)], ("r", "t"))
    b = graph_of(["q", "u", "z"], [(0, 0, 1)], ("s", "t"))
    here, there = find_common(a, b, *same_labels(a, b))
    assert (here.entities.tolist(), there.entities.tolist()) == ([1, 2], [0, 2])
    assert (here.relations.tolist(), there.relations.tolist()) == ([1], [1])
    assert len(here) == 3


counts = st.integers(0, 60)


@given(counts, counts, st.floats(0.01, 1), st.integers(0, 2**32))
def test_both_sides_sample_the_same_positions(entities: int, relations: int, ratio: float, seed: int) -> None:
    rng = np.random.default_rng(1)
    here = Common(np.arange(entities), np.arange(relations))
    there = Common(rng.permutation(100)[:entities], rng.permutation(100)[:relations])
    some, others = here.sample(ratio, seed), there.sample(ratio, seed)
    assert np.array_equal(there.entities[some.entities], others.entities)
    assert np.array_equal(there.relations[some.relations], others.relations)
    assert len(some.entities) == min(entities, max(1, round(ratio * entities)))
    assert len(some.relations) == min(relations, max(1, round(ratio * relations)))
    more = here.sample(min(1.0, 2 * ratio), seed)
    assert set(some.entities.tolist()) <= set(more.entities.tolist())


def test_seeds_sample_differently_and_kinds_apart() -> None:
    common = Common(np.arange(50), np.arange(50))
    first, second = common.sample(0.3, 0), common.sample(0.3, 1)
    assert first != second
    assert first == common.sample(0.3, 0)
    assert not np.array_equal(first.entities, first.relations)


def test_only_leaves_out_a_kind_and_ids_stay_put() -> None:
    common = Common(np.arange(3), np.array([5, 1]))
    assert not len(common.only(("relation",)).entities)
    assert common.only(("relation",)).relations.tolist() == [5, 1]
    assert len(common.only(())) == 0
    with pytest.raises(ValueError, match="read-only"):
        common.entities[0] = 7
    for bad in ([1, 1], [-1, 2]):
        with pytest.raises(SettingsError, match="each once"):
            Common(np.array(bad), np.empty(0, np.int64))
    for ratio in (0.0, 1.1, float("nan")):
        with pytest.raises(SettingsError, match="ratio"):
            common.sample(ratio, 0)


def test_links_are_read_and_bad_lines_named(tmp_path: Path) -> None:
    text = "a\tÀ b\r\n\nc d\tC\n"
    (tmp_path / "links.tsv").write_bytes(text.encode())
    (tmp_path / "links.tsv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("links.tsv", "links.tsv.gz"):
        assert read_links(tmp_path / name) == [("a", "À b"), ("c d", "C")]
    for bad in ("a", "a\t", "\tb", "a\tb\tc"):
        (tmp_path / "bad.tsv").write_text(f"a\tb\n{bad}\n")
        with pytest.raises(GraphError, match=r"bad\.tsv:2: expected two labels"):
            read_links(tmp_path / "bad.tsv")
    with pytest.raises(GraphError, match=r"none\.tsv"):
        read_links(tmp_path / "none.tsv")
