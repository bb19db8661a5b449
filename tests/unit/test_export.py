"""Exports open in the programs they are meant for, and say there what they say here."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.conftest import OWNERS, random_graph, tiny_federation, tiny_settings

import fkge.errors
from fkge.embed import make_tables, save_model
from fkge.errors import ExportError, FkgeError, MissingLibraryError, RunError
from fkge.evaluation import neighbors, predict, score_triples
from fkge.export import FORMATS, escape, export, frame, load_pykeen, locate, unescape
from fkge.graph import Graph, Vocabulary
from fkge.runs import Run
from fkge.settings import TrainSettings
from fkge.simulations import Simulation

ODD = ["a b", "100%", "%20", "tab\tnew\nline", "  ", "né\u00a0e\u2003x", "", "日本", '"quoted", too', "1 2 3", "a%20b"]

CASES: dict[str, dict[str, Any]] = {
    "TransE L1": {"model": "TransE"},
    "TransE L2": {"model": "TransE", "norm": 2},
    "TransE at unit length": {"model": "TransE", "normalize": True},
    "TransH L1": {"model": "TransH"},
    "TransH L2": {"model": "TransH", "norm": 2},
    "TransR L1": {"model": "TransR", "relation_dim": 5},
    "TransR L2": {"model": "TransR", "norm": 2},
    "TransD L1": {"model": "TransD"},
    "TransD L2, wider": {"model": "TransD", "norm": 2, "relation_dim": 12},
    "TransD L2, narrower": {"model": "TransD", "norm": 2, "relation_dim": 5, "normalize": True},
    "DistMult": {"model": "DistMult"},
    "ComplEx": {"model": "ComplEx"},
    "RotatE": {"model": "RotatE"},
}


def odd_graph() -> Graph:
    """A random graph with labels that formats stumble over."""
    graph = random_graph()
    labels = sorted([*ODD, *(f"e{i:03}" for i in range(len(graph.entities) - len(ODD)))])
    return Graph(Vocabulary(labels, "entity"), graph.relations, graph.splits, name="odd")


def make(folder: Path, graph: Graph, **changes: Any) -> Run:
    """A run with vectors drawn at random, far from each other, all tables alike."""
    settings = TrainSettings.build({"dim": 8, "device": "cpu", **changes})
    run = Run.create(folder, graph, settings)
    tables = make_tables(settings, len(graph.entities), len(graph.relations))
    generator = torch.Generator().manual_seed(3)
    for kind in ("entity", "relation"):
        for name in tables.names(kind):
            tables[name].copy_(torch.randn(tables[name].shape, generator=generator))
    save_model(folder / "model.safetensors", tables, settings)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make(tmp_path / "run", odd_graph(), model="TransD", relation_dim=5)


# -- PyKEEN ----------------------------------------------------------------------------------------


@pytest.fixture
def quiet() -> Any:
    """PyKEEN's dependencies warn of their own affairs while they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pykeen.models")
        yield


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("case", CASES)
def test_pykeen_scores_alike(case: str, tmp_path: Path) -> None:
    run = make(tmp_path / "run", random_graph(), **CASES[case])
    model, factory = load_pykeen(export(run.folder, tmp_path / "pykeen", "pykeen"))
    tables, graph = run.load("cpu"), run.graph
    ours = score_triples(tables, graph.facts)
    with torch.no_grad():
        theirs = model.score_hrt(torch.tensor(graph.facts, dtype=torch.long)).squeeze(1)
    assert ours.std() > 0.1
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    assert factory.entity_to_id == {label: i for i, label in enumerate(graph.entities)}
    assert factory.relation_to_id == {label: i for i, label in enumerate(graph.relations)}
    assert factory.num_triples == 0


@pytest.mark.usefixtures("quiet")
def test_pykeen_answers_alike(tmp_path: Path) -> None:
    from pykeen.predict import predict_target

    run = make(tmp_path / "run", odd_graph(), model="RotatE")
    model, factory = load_pykeen(export(run.folder, tmp_path / "pykeen", "pykeen"))
    theirs = predict_target(model=model, head="a b", relation="r1", triples_factory=factory).df
    ours = predict(run.load("cpu"), run.graph, head="a b", relation="r1", top=40, exclude_known=False)
    assert theirs["tail_label"].tolist() == [answer.label for answer in ours]
    assert theirs["score"].tolist() == pytest.approx([answer.score for answer in ours], rel=1e-5)


@pytest.mark.parametrize("model", ["TransH", "TransR"])
def test_what_pykeen_has_no_equal_of(model: str, tmp_path: Path) -> None:
    run = make(tmp_path / "run", random_graph(), model=model, normalize=True)
    with pytest.raises(ExportError, match=f"{model} with normalize .* no model of PyKEEN does"):
        export(run.folder, tmp_path / "pykeen", "pykeen")
    assert not (tmp_path / "pykeen").exists()


@pytest.mark.usefixtures("quiet")
def test_what_is_no_export_for_pykeen(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no model that was exported for PyKEEN"):
        load_pykeen(tmp_path)
    (tmp_path / "model.json").write_text('{"format": "fkge.pykeen.0"}')
    with pytest.raises(RunError, match=r"says 'fkge\.pykeen\.0'"):
        load_pykeen(tmp_path)


# -- gensim ----------------------------------------------------------------------------------------


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


def test_words_and_labels() -> None:
    assert escape("New York") == "New%20York"
    assert escape("100%") == "100%25"
    assert escape("Zürich_(city)") == "Zürich_(city)"
    for label in ODD:
        word = escape(label)
        assert word.split() == ([word] if word else [])
        assert unescape(word) == label


# -- NumPy, Parquet, safetensors, pandas -----------------------------------------------------------


def same(run: Run, got: dict[str, Any]) -> None:
    """`got` is every table of the run, by name."""
    tables = run.load("cpu")
    names = [name for kind in ("entity", "relation") for name in tables.names(kind)]
    assert sorted(got) == sorted(names)
    for name in names:
        np.testing.assert_array_equal(got[name], tables[name].numpy())


def test_numpy(run: Run, tmp_path: Path) -> None:
    with np.load(export(run.folder, tmp_path / "v.npz", "numpy"), allow_pickle=False) as file:
        got = dict(file)
    assert got.pop("entities").tolist() == list(run.graph.entities)
    assert got.pop("relations").tolist() == list(run.graph.relations)
    same(run, got)


def test_labels_that_an_array_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = sorted([f"e{i}" for i in range(39)] + ["x\0"])
    graph = random_graph()
    run = make(tmp_path / "run", Graph(Vocabulary(labels, "entity"), graph.relations, graph.splits))
    with pytest.raises(ExportError, match="ends in NUL"):
        export(run.folder, tmp_path / "v.npz", "numpy")
    monkeypatch.setattr("fkge.export.files._LARGEST", 400)
    with pytest.raises(ExportError, match="the longest label has 3 characters"):
        export(run.folder, tmp_path / "v.npz", "numpy")
    assert not (tmp_path / "v.npz").exists()


def test_safetensors(run: Run, tmp_path: Path) -> None:
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


def test_a_frame_of_vectors(run: Run) -> None:
    pytest.importorskip("pandas")
    tables = run.load("cpu")
    entities, relations = frame(run.folder), frame(run.folder, "relation")
    np.testing.assert_array_equal(entities.loc["a b"], tables["entity"][run.graph.entities.id("a b")])
    np.testing.assert_array_equal(relations.to_numpy(), tables["relation"])
    assert list(entities.index) == list(run.graph.entities)
    assert (entities.index.name, relations.index.name) == ("entity", "relation")
    with pytest.raises(FkgeError, match="did you mean entity"):
        frame(run.folder, "entitty")  # type: ignore[arg-type]


# -- what is asked for -----------------------------------------------------------------------------


def test_formats_are_files_or_folders_and_replace_what_was_there(run: Run, tmp_path: Path) -> None:
    for name in FORMATS:
        to = tmp_path / "out" / name
        assert export(run.folder, to, name) == to
        assert to.is_dir() == (name in ("parquet", "pykeen"))
        assert export(run.folder, to, name) == to  # replaced
    assert not list((tmp_path / "out").rglob("*.part"))


def test_mistakes(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FkgeError, match="there is no format 'parket'; did you mean parquet"):
        export(run.folder, tmp_path / "v", "parket")
    with pytest.raises(RunError, match="is no simulation and has no owners"):
        export(run.folder, tmp_path / "v", "numpy", owner="ant")
    with pytest.raises(RunError, match="no run folder"):
        export(tmp_path / "nowhere", tmp_path / "v", "numpy")
    (tmp_path / "file").write_text("mine")
    for name in ("parquet", "pykeen"):
        with pytest.raises(ExportError, match="is a file"):
            export(run.folder, tmp_path / "file", name)
    for name in ("numpy", "safetensors", "word2vec"):
        with pytest.raises(ExportError, match="is a folder"):
            export(run.folder, run.folder, name)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_library_that_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(fkge.errors.importlib, "import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"Parquet needs pyarrow, .* pip install 'fkge\[export\]'"):
        export(run.folder, tmp_path / "v", "parquet")
    with pytest.raises(MissingLibraryError, match=r"pip install 'fkge\[pandas\]'"):
        frame(run.folder)


def test_an_owner_of_a_simulation(tmp_path: Path) -> None:
    simulation = Simulation.create(
        tmp_path / "sim", tiny_federation(OWNERS[:2]), tiny_settings(exchanges=2), engine="in-process"
    )
    with pytest.raises(RunError, match="ant has not finished federated"):
        locate(tmp_path / "sim", "ant")
    simulation.run()
    for arm in ("federated", "control"):
        with np.load(export(tmp_path / "sim", tmp_path / arm, "numpy", owner="bee", arm=arm)) as got:
            expected = Run.open(tmp_path / "sim" / "arms" / arm / "bee").load("cpu")["entity"]
            np.testing.assert_array_equal(got["entity"], expected)
    with pytest.raises(RunError, match="whose vectors\\? It has ant, bee"):
        locate(tmp_path / "sim")
    with pytest.raises(FkgeError, match="no owner 'be'; did you mean bee"):
        locate(tmp_path / "sim", "be")
    with pytest.raises(FkgeError, match="no arm 'controll'; did you mean control"):
        locate(tmp_path / "sim", "bee", "controll")
