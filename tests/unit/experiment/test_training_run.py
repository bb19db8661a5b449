"""Run folders: whole or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.experiment.training_run import Run
from fkge.graph import Graph
from fkge.results import TrainingResult
from fkge.settings import TrainSettings
from tests.conftest import random_graph

SMALL = TrainSettings(dim=6, batch=50, negatives=4, epochs=3, validate_every=1, device="cpu")


def test_a_run_holds_all_it_needs(graph: Graph, tmp_path: Path) -> None:
    result = Run.create(tmp_path / "run", graph, SMALL).train()
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    run = Run.open(moved)
    assert run.graph.fingerprint == graph.fingerprint
    assert run.settings == SMALL
    assert run.result == result
    assert run.train() == result  # finished: nothing is computed again
    assert result is not None
    assert run.evaluate() == result.to_json("valid", "test")


def test_folders_that_are_no_runs(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run folder"):
        Run.open(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("years of work")
    with pytest.raises(RunError, match="Choose another"):
        Run.create(tmp_path / "full", graph, SMALL)
    run = Run.create(tmp_path / "new", graph, SMALL)
    with pytest.raises(RunError, match="has no model yet"):
        run.load()


def test_no_going_on_with_another_graph_or_other_settings(graph: Graph, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", graph, SMALL)
    run.check_same(random_graph(), {"dim": 6, "device": "cuda"})
    with pytest.raises(RunError, match="another graph"):
        run.check_same(random_graph(seed=1), {})
    with pytest.raises(RunError, match=r"lr = 0\.002, not 0\.1"):
        run.check_same(None, {"lr": 0.1})


def test_a_model_of_another_graph_is_noticed(graph: Graph, tmp_path: Path) -> None:
    Run.create(tmp_path / "a", graph, SMALL).train()
    Run.create(tmp_path / "b", random_graph(entities=30), SMALL).train()
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(RunError, match="belongs to another graph"):
        Run.open(tmp_path / "a").load()


def test_validation_of_a_sample_is_the_same_each_time(graph: Graph, tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"validation_triples": 7, "epochs": 2})
    first = Run.create(tmp_path / "a", graph, settings)
    second = Run.create(tmp_path / "b", graph, settings)
    first.train()
    second.train()
    assert first.trace.read() == second.trace.read()


def test_a_graph_without_valid_triples_trains_to_the_end(graph: Graph, tmp_path: Path) -> None:
    bare = Graph(graph.entities, graph.relations, {"train": graph.train, "test": graph.test})
    result = Run.create(tmp_path / "run", bare, SMALL).train()
    assert result is not None
    assert result.best_epoch == 3
    assert list(result.splits) == ["test"]
    assert result.splits["test"].accuracy is None  # there is nothing to set its thresholds by


def test_a_result_says_its_version(graph: Graph, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", graph, SMALL)
    result = run.train()
    assert result is not None
    file = tmp_path / "run" / "result.json"
    written = json.loads(file.read_text())
    assert written == result.to_json()
    assert written["version"] == TrainingResult.VERSION
    without = {key: value for key, value in written.items() if key != "version"}
    file.write_text(json.dumps(without))  # as fkge 0.1.0 wrote it
    assert run.result == result.model_copy(update={"version": 1})
    assert run.result.to_json() == without
    for damage, message in (({"version": 99}, "of version 99.*Update fkge"), ({"epochs": "x"}, "epochs: .*damaged")):
        file.write_text(json.dumps(written | damage))
        with pytest.raises(RunError, match=message):
            _ = run.result
