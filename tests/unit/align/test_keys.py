"""What two owners find privately is what anybody who saw both would find."""

from __future__ import annotations

import unicodedata
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.align import (
    Common,
    Keys,
    OverlapError,
    PsiSettings,
    find_common,
    label_keys,
    owner_keys,
    private_common,
    same_labels,
)
from fkge.align.keys import NORMALISATION, normalise
from fkge.align.psi import Normalisation
from fkge.errors import SettingsError
from fkge.graph import Graph, Vocabulary, tidy

DEFAULT = PsiSettings.build({})
PLAIN = [f"x{i}" for i in range(7)]
VARIANTS = ["café", "cafe\u0301", " café", "ﬁg", "fig", "a b", "a\u00a0 b", "A b", "\u3000", "Ｘ1", "x1"]
Links = list[tuple[str, str]]


def graph_of(entities: list[str], relations: list[str] | None = None) -> Graph:
    return Graph(Vocabulary(sorted(entities)), Vocabulary(sorted(relations or [])), {})


def label_lists(pool: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(pool), unique=True)


def link_lists(pool: list[str]) -> st.SearchStrategy[Links]:
    return st.lists(st.tuples(st.sampled_from(pool), st.sampled_from(pool)), max_size=20)


@settings(deadline=None, max_examples=40)
@given(label_lists(PLAIN), label_lists(PLAIN), link_lists(PLAIN), link_lists(PLAIN), st.booleans())
def test_private_common_is_find_common(
    here: list[str], there: list[str], entity_links: Links, relation_links: Links, same: bool
) -> None:
    a, b = graph_of(here, here), graph_of(there, there)
    known = same_labels(a, b) if same else ([], [])
    expected = find_common(a, b, [*known[0], *entity_links], [*known[1], *relation_links])
    keys = [owner_keys(graph, side, entity_links, relation_links) for side, graph in ((0, a), (1, b))]
    if same:
        keys = [one | label_keys(graph) for one, graph in zip(keys, (a, b), strict=True)]
    found = private_common(keys[0], keys[1], DEFAULT)
    assert found == expected


def merged(labels: Vocabulary, normalisation: Normalisation) -> tuple[list[str], dict[str, int]]:
    """A slow, plain account of normalised labels: sorted, with the smallest id of those that are alike."""
    ids: dict[str, int] = {}
    for i in reversed(range(len(labels))):
        ids[normalise(labels[i], normalisation)] = i
    ids.pop("", None)
    return sorted(ids), ids


@settings(deadline=None, max_examples=60)
@given(
    label_lists(VARIANTS), label_lists(VARIANTS), link_lists(VARIANTS), st.sampled_from(["nfkc-1", "nfkc-fold-1"])
)  # fmt: skip
def test_up_to_normalisation_too(here: list[str], there: list[str], links: Links, name: str) -> None:
    rule = cast(Normalisation, name)
    a, b = graph_of(here), graph_of(there)
    (labels_a, ids_a), (labels_b, ids_b) = merged(a.entities, rule), merged(b.entities, rule)
    plain = [(normalise(x, rule), normalise(y, rule)) for x, y in links]
    clean_a, clean_b = graph_of(labels_a), graph_of(labels_b)
    expected = find_common(clean_a, clean_b, plain)
    got = private_common(
        owner_keys(a, 0, links, (), rule), owner_keys(b, 1, links, (), rule), PsiSettings.build({"normalisation": rule})
    )
    assert got[0].entities.tolist() == [ids_a[labels_a[i]] for i in expected[0].entities]
    assert got[1].entities.tolist() == [ids_b[labels_b[i]] for i in expected[1].entities]


def test_either_may_be_the_larger_and_each_computes_its_own_side() -> None:
    few, many = graph_of(PLAIN[:2]), graph_of(PLAIN)
    for a, b in ((few, many), (many, few)):
        assert private_common(label_keys(a), label_keys(b), DEFAULT) == find_common(a, b, *same_labels(a, b))
    keys = label_keys(many)
    assert keys.common({"entity": ["x1\tx1"]}) == Common(np.array([1]), np.empty(0, np.int64))


def test_mirror_images_are_numbered_alike_by_both() -> None:
    a, b = graph_of(["p", "q"]), graph_of(["p", "q", "z"])
    links = [("q", "p"), ("p", "q")]
    found = private_common(owner_keys(a, 0, links), owner_keys(b, 1, links), DEFAULT)
    assert found == find_common(a, b, links)
    assert [c.entities.tolist() for c in found] == [[0, 1], [1, 0]]


def test_only_what_is_in_the_graph_has_a_key() -> None:
    """A graph of shareable triples has no labels of confidential ones; what it has not, the partner cannot meet."""
    whole = graph_of(["open", "secret"])
    shareable = graph_of(["open"])
    links = [("open", "o"), ("secret", "s"), ("nowhere", "n")]
    assert set(owner_keys(whole, 0, links).entities) == {"open\to", "secret\ts"}
    assert owner_keys(shareable, 0, links) == Keys({"open\to": 0})
    assert owner_keys(graph_of(["o", "s"]), 1, links).entities == {"open\to": 0, "secret\ts": 1}
    assert label_keys(shareable) == Keys({"open\topen": 0})
    assert len(private_common(owner_keys(shareable, 0, links), owner_keys(graph_of(["s"]), 1, links), DEFAULT)[0]) == 0


def test_a_minimum_is_asked_of_entities() -> None:
    a, b = graph_of(["p", "q"], ["r"]), graph_of(["q", "z"], ["r"])
    keys = label_keys(a), label_keys(b)
    with pytest.raises(OverlapError, match="1 entity keys in common, fewer than the 2"):
        private_common(*keys, PsiSettings.build({"min_overlap": 2}))
    assert len(private_common(*keys, PsiSettings.build({"min_overlap": 1}))[0]) == 2
    none = label_keys(graph_of(["p", "q"])), label_keys(graph_of(["q"]))
    assert len(private_common(*none, PsiSettings.build({"min_overlap": 1}))[0]) == 1  # no relations: no matter


def test_rules_that_differ_are_refused() -> None:
    graph = graph_of(["p"])
    folded = label_keys(graph, "nfkc-fold-1")
    with pytest.raises(SettingsError, match="keys are by 'nfkc-fold-1'"):
        private_common(label_keys(graph), folded, DEFAULT)
    with pytest.raises(SettingsError, match="do not go together"):
        label_keys(graph) | folded


def test_labels_are_normalised() -> None:
    assert normalise("  a \t\u00a0b\n") == "a b"
    assert normalise("cafe\u0301") == normalise("café") == "café"
    assert normalise("ﬁg Ｘ1") == "fig X1"
    assert normalise("http://x/Straße") == "http://x/Straße"  # URIs that differ in case are different
    assert normalise("http://x/Straße", "nfkc-fold-1") == "http://x/strasse"
    assert normalise(" \u3000") == ""
    assert NORMALISATION == "nfkc-1"


@pytest.mark.parametrize("rule", ["nfkc-1", "nfkc-fold-1"])
def test_normalising_twice_changes_nothing(rule: Normalisation) -> None:
    for i in (*range(0xD800), *range(0xE000, 0x20000)):
        for text in (chr(i), f"a{chr(i)}\u0301 b"):
            once = normalise(text, rule)
            assert normalise(once, rule) == once, (hex(i), unicodedata.name(chr(i), "?"))
            assert "\t" not in once


def test_alignment_does_not_depend_on_triples() -> None:
    labels = Vocabulary(["p", "q"])
    bare = Graph(labels, Vocabulary(["r"]), {})
    full = Graph(labels, Vocabulary(["r"]), {"train": tidy(np.array([[0, 0, 1], [1, 0, 0]]))})
    assert label_keys(bare) == label_keys(full)
