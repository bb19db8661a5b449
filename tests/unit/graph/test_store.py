"""`save_graph`, `load_graph`: what comes back is what went in, or an error that says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from fkge.errors import RunError
from fkge.graph import Graph, Vocabulary, load_graph, save_graph

ODD = ["\n", "a\tb", " ", "Ærø", "🦉🏛️", "\u2028line", 'quote"d', "x" * 300, "\x00nul"]


def odd_graph() -> Graph:
    return Graph(
        entities=Vocabulary(sorted(ODD), "entity"),
        relations=Vocabulary(["r\r\n", "σ²"], "relation"),
        splits={
            "train": np.array([[0, 0, 1], [8, 1, 2]], np.int32),
            "test_leaked": np.array([[3, 1, 4]], np.int32),
        },
        same_as=(("Ærø", "http://elsewhere/ærø"), ("🦉🏛️", "owl\n")),
        name="odd “one”",
        notes=("First note.", "Second\nnote."),
    )


def test_round_trip(tmp_path: Path) -> None:
    graph = odd_graph()
    save_graph(graph, tmp_path / "graph.safetensors")
    back = load_graph(tmp_path / "graph.safetensors")
    assert back.fingerprint == graph.fingerprint
    assert (back.entities, back.relations) == (graph.entities, graph.relations)
    assert (back.entities.kind, back.relations.kind) == ("entity", "relation")
    assert list(back.splits) == ["train", "valid", "test", "test_leaked"]
    assert (back.same_as, back.name, back.notes) == (graph.same_as, graph.name, graph.notes)
    assert [path.name for path in tmp_path.iterdir()] == ["graph.safetensors"]


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=20))
def test_round_trip_of_any_labels(tmp_path_factory: pytest.TempPathFactory, labels: set[str]) -> None:
    path = tmp_path_factory.mktemp("store") / "graph.safetensors"
    graph = Graph(Vocabulary(sorted(labels)), Vocabulary([]), {})
    save_graph(graph, path)
    assert load_graph(path).entities == graph.entities


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "graph.safetensors"
    graph = Graph(Vocabulary(["aa", "bb"]), Vocabulary(["r"]), {"train": np.array([[0, 0, 1]], np.int32)})
    save_graph(graph, path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :])
        with pytest.raises(RunError, match=r"graph\.safetensors: .* Read its source again"):
            load_graph(path)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_truncated_file(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "graph.safetensors"
    save_graph(odd_graph(), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RunError, match="damaged"):
        load_graph(path)


def test_foreign_files(tmp_path: Path) -> None:
    other = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(3, np.float32)}, other)
    with pytest.raises(RunError, match="not a graph"):
        load_graph(other)
    text = tmp_path / "notes.txt"
    text.write_text("a\tb\tc\n" * 10)
    with pytest.raises(RunError, match="damaged"):
        load_graph(text)
    with pytest.raises(RunError, match="no saved graph"):
        load_graph(tmp_path / "missing.safetensors")


def test_ids_out_of_range_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.safetensors"
    save_graph(Graph(Vocabulary(["a"]), Vocabulary(["r"]), {"test": np.array([[0, 0, 1]])}), path)
    with pytest.raises(RunError, match="split test holds ids out of range"):
        load_graph(path)
