"""Exported files open in the programs they are meant for, with the same vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fkge.errors import ExportError, FkgeError
from fkge.evaluation import neighbors
from fkge.experiment.training_run import Run
from fkge.export import escape, export, unescape
from fkge.export.files import frame_of
from fkge.graph import Graph, Vocabulary
from tests.conftest import random_graph
from tests.unit.export.conftest import ODD, make


def test_gensim_finds_the_same_neighbours(run: Run, tmp_path: Path) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    vectors = keyed.load_word2vec_format(str(export(run.folder, tmp_path / "v.txt", "word2vec")), binary=False)
    tables, labels = run.load("cpu"), list(run.graph.entities)
    assert [unescape(word) for word in vectors.index_to_key] == labels
    np.testing.assert_array_equal(vectors.vectors, tables["entity"].numpy())
    for label in ODD:
        ours = neighbors(tables, run.graph, label, top=5)
        theirs = vectors.most_similar(escape(label), topn=5)
        assert [unescape(word) for word, _ in theirs] == [n.label for n in ours]
        assert [cosine for _, cosine in theirs] == pytest.approx([n.similarity for n in ours], abs=1e-6)


def test_escaped_labels_are_words_and_come_back() -> None:
    assert escape("New York") == "New%20York"
    assert escape("100%") == "100%25"
    assert escape("Zürich_(city)") == "Zürich_(city)"
    for label in ODD:
        word = escape(label)
        assert word.split() == ([word] if word else [])
        assert unescape(word) == label


def same(run: Run, got: dict[str, Any]) -> None:
    """`got` is every table of the run, by name."""
    tables = run.load("cpu")
    names = [name for kind in ("entity", "relation") for name in tables.names(kind)]
    assert sorted(got) == sorted(names)
    for name in names:
        np.testing.assert_array_equal(got[name], tables[name].numpy())


def test_numpy_opens_in_numpy(run: Run, tmp_path: Path) -> None:
    with np.load(export(run.folder, tmp_path / "v.npz", "numpy"), allow_pickle=False) as file:
        got = dict(file)
    assert got.pop("entities").tolist() == list(run.graph.entities)
    assert got.pop("relations").tolist() == list(run.graph.relations)
    same(run, got)


def test_numpy_refuses_labels_that_an_array_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = sorted([f"e{i}" for i in range(39)] + ["x\0"])
    graph = random_graph()
    run = make(tmp_path / "run", Graph(Vocabulary(labels, "entity"), graph.relations, graph.splits))
    with pytest.raises(ExportError, match="ends in NUL"):
        export(run.folder, tmp_path / "v.npz", "numpy")
    monkeypatch.setattr("fkge.export.files.LARGEST", 400)
    with pytest.raises(ExportError, match="the longest label has 3 characters"):
        export(run.folder, tmp_path / "v.npz", "numpy")
    assert not (tmp_path / "v.npz").exists()


def test_safetensors_opens_with_its_labels(run: Run, tmp_path: Path) -> None:
    path = export(run.folder, tmp_path / "v.safetensors", "safetensors")
    same(run, load_file(path))
    labels = json.loads((tmp_path / "v.safetensors.labels.json").read_text(encoding="utf-8"))
    assert labels == {"entities": list(run.graph.entities), "relations": list(run.graph.relations)}


def test_parquet_opens_in_pandas(run: Run, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow.parquet")
    folder = export(run.folder, tmp_path / "v", "parquet")
    got: dict[str, Any] = {}
    for kind, labels in (("entity", run.graph.entities), ("relation", run.graph.relations)):
        table = pd.read_parquet(folder / f"{kind}.parquet")
        assert table.pop("label").tolist() == list(labels)
        assert set(table.pop("kind")) == {kind}
        got |= {kind if name == "vector" else name: np.stack(table[name]) for name in table}
        schema = pa.read_schema(folder / f"{kind}.parquet")
        assert schema.field("vector").type.list_size == len(got[kind][0])
    same(run, got)


def test_frame_is_indexed_by_labels(run: Run) -> None:
    pytest.importorskip("pandas")
    tables = run.load("cpu")
    entities, relations = frame_of(tables, run.graph), frame_of(tables, run.graph, "relation")
    np.testing.assert_array_equal(entities.loc["a b"], tables["entity"][run.graph.entities.id("a b")])
    np.testing.assert_array_equal(relations.to_numpy(), tables["relation"])
    assert list(entities.index) == list(run.graph.entities)
    assert (entities.index.name, relations.index.name) == ("entity", "relation")
    with pytest.raises(FkgeError, match="did you mean entity"):
        frame_of(tables, run.graph, "entitty")  # type: ignore[arg-type]


def test_inverse_rows_are_exported_beside_the_relations(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow.parquet")
    run = make(tmp_path / "run", random_graph(), model="ComplEx", reciprocal=True)
    tables = run.load("cpu")
    tensors = load_file(export(run.folder, tmp_path / "x.safetensors", "safetensors"))
    assert {name: tuple(t.shape) for name, t in tensors.items()} == {
        "entity": (40, 16), "relation": (5, 16), "inverse": (5, 16)
    }  # fmt: skip
    with np.load(export(run.folder, tmp_path / "x.npz", "numpy")) as arrays:
        assert np.array_equal(arrays["inverse"], tables["inverse"].numpy())
    read = pd.read_parquet(export(run.folder, tmp_path / "parquet", "parquet") / "relation.parquet")
    assert list(read.columns) == ["label", "kind", "vector", "inverse"]
    assert np.array_equal(np.stack(read["inverse"]), tables["inverse"].numpy())
    relations = frame_of(tables, run.graph, "relation")  # what peers see
    assert np.array_equal(relations.to_numpy(), np.hstack([tables["relation"].numpy(), tables["inverse"].numpy()]))
