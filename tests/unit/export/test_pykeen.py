"""Models exported for PyKEEN: same scores and answers there."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.errors import ExportError, RunError
from fkge.evaluation import predict, score_triples
from fkge.export import export, load_pykeen
from tests.conftest import random_graph
from tests.unit.export.conftest import make, odd_graph

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


@pytest.fixture
def quiet() -> Any:
    """PyKEEN's dependencies warn of their own affairs while they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pykeen.models")
        yield


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("case", CASES)
def test_pykeen_gives_the_same_scores(case: str, tmp_path: Path) -> None:
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
def test_pykeen_predicts_the_same_answers(tmp_path: Path) -> None:
    from pykeen.predict import predict_target

    run = make(tmp_path / "run", odd_graph(), model="RotatE")
    model, factory = load_pykeen(export(run.folder, tmp_path / "pykeen", "pykeen"))
    theirs = predict_target(model=model, head="a b", relation="r1", triples_factory=factory).df
    ours = predict(run.load("cpu"), run.graph, head="a b", relation="r1", top=40, exclude_known=False)
    assert theirs["tail_label"].tolist() == [answer.label for answer in ours]
    assert theirs["score"].tolist() == pytest.approx([answer.score for answer in ours], rel=1e-5)


@pytest.mark.parametrize("model", ["TransH", "TransR"])
def test_refuses_a_model_that_pykeen_does_not_have(model: str, tmp_path: Path) -> None:
    run = make(tmp_path / "run", random_graph(), model=model, normalize=True)
    with pytest.raises(ExportError, match=f"{model} with normalize .* no model of PyKEEN does"):
        export(run.folder, tmp_path / "pykeen", "pykeen")
    assert not (tmp_path / "pykeen").exists()


@pytest.mark.parametrize("model", ["ComplEx", "DistMult", "RotatE", "TransE"])
def test_refuses_reciprocal_models(model: str, tmp_path: Path) -> None:
    run = make(tmp_path / "run", random_graph(), model=model, reciprocal=True)
    with pytest.raises(ExportError, match="the mean over a relation and its inverse"):
        export(run.folder, tmp_path / "pykeen", "pykeen")
    assert not (tmp_path / "pykeen").exists()


@pytest.mark.usefixtures("quiet")
def test_refuses_to_load_what_is_no_export_for_pykeen(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no model exported for PyKEEN"):
        load_pykeen(tmp_path)
    (tmp_path / "model.json").write_text('{"format": "fkge.pykeen.0"}')
    with pytest.raises(RunError, match=r"says 'fkge\.pykeen\.0'"):
        load_pykeen(tmp_path)
