"""`Graph`, `Vocabulary`, `tidy`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fkge.graph
from fkge.errors import UnknownLabelError
from fkge.graph import Graph, Vocabulary, tidy


def rows(largest: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.int32, st.tuples(st.integers(0, 40), st.just(3)), elements=st.integers(0, largest))


@given(rows(3) | rows(2**31 - 2))
def test_tidy_sorts_and_drops_duplicates(triples: np.ndarray) -> None:
    assert tidy(triples).tolist() == [list(row) for row in sorted(set(map(tuple, triples.tolist())))]


@given(rows(5))
def test_packed_and_columnwise_tidy_agree(triples: np.ndarray) -> None:
    if len(triples):
        np.testing.assert_array_equal(tidy(triples), np.unique(triples, axis=0))


def test_tidy_of_ids_too_large_to_pack() -> None:
    top = 2**31 - 2
    triples = np.array([[top, top, top], [0, top, 1], [top, top, top], [0, 0, top]], np.int32)
    assert tidy(triples).tolist() == [[0, 0, top], [0, top, 1], [top, top, top]]


def small(**changes: object) -> Graph:
    fields: dict[str, object] = {
        "entities": Vocabulary(["a", "b"], "entity"),
        "relations": Vocabulary(["r"], "relation"),
        "splits": {"train": np.array([[0, 0, 1]], np.int32)},
    }
    return Graph(**{**fields, **changes})  # type: ignore[arg-type]


def test_graph_always_has_the_three_splits_and_they_are_read_only() -> None:
    graph = small()
    assert list(graph.splits) == ["train", "valid", "test"]
    assert graph.valid.shape == (0, 3)
    with pytest.raises(ValueError, match="read-only"):
        graph.train[0, 0] = 1
    with pytest.raises(TypeError):
        graph.splits["train"] = graph.valid  # type: ignore[index]


@pytest.mark.parametrize(
    "changes",
    [
        {"entities": Vocabulary(["a", "c"])},
        {"entities": Vocabulary(["a", "b", "c"])},
        {"relations": Vocabulary(["s"])},
        {"splits": {"train": np.array([[1, 0, 0]], np.int32)}},
        {"splits": {"test": np.array([[0, 0, 1]], np.int32)}},
        {"splits": {"train": np.array([[0, 0, 1]], np.int32), "test_more": np.empty((0, 3), np.int32)}},
    ],
)
def test_fingerprint_changes_with_the_graph(changes: dict[str, object]) -> None:
    assert small().fingerprint == small(name="other", notes=("hm",)).fingerprint
    assert small(**changes).fingerprint != small().fingerprint


def test_vocabulary_is_a_sequence_with_ids() -> None:
    vocabulary = Vocabulary(["athens", "paris", "prague"], "entity")
    assert [vocabulary.id(label) for label in vocabulary] == [0, 1, 2]
    assert vocabulary[1] == "paris"
    assert vocabulary[1:] == ("paris", "prague")
    assert "rome" not in vocabulary
    with pytest.raises(UnknownLabelError, match=r"no entity 'pariss'; did you mean paris"):
        vocabulary.id("pariss")


def test_large_vocabulary_still_names_near_labels() -> None:
    vocabulary = Vocabulary([f"http://x/entity{i:06d}" for i in range(30_000)], "entity")
    with pytest.raises(UnknownLabelError, match=r"did you mean .*http://x/entity020000"):
        vocabulary.id("http://x/entity0200000")


def test_public_surface() -> None:
    modules = {
        "builder",
        "bundled",
        "graph",
        "openke",
        "policy",
        "rdf",
        "readers",
        "source",
        "split",
        "store",
        "tables",
    }
    public = {name for name in vars(fkge.graph) if not name.startswith("_")} - modules
    types = {"Graph", "Vocabulary", "Triples", "HEAD", "RELATION", "TAIL", "Policy", "Rule", "Shareable"}
    assert public == types | {"tidy", "read_graph", "sample_triples", "split_triples", "save_graph", "load_graph"}
