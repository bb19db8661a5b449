"""A search ends with a recipe that is as good as its best trial, can be stopped and continued, and refuses mistakes."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import EngineError, RunError, SettingsError
from fkge.experiment.training_run import Run
from fkge.federation import FederationSettings
from fkge.files import FileLock
from fkge.graph import load_graph
from fkge.settings import TrainSettings
from fkge.tune import study as module
from fkge.tune.spec import PhaseResult, Spec, TrialRow, TuneResult
from fkge.tune.study import Tuning
from fkge.tune.worker import run_trials
from tests.conftest import random_graph, tiny_federation
from tests.unit.tune.conftest import QUICK, new_search, quick_start, tiny_start


def result_of(tuning: Tuning) -> TuneResult:
    return TuneResult.read(tuning.folder / "result.json", "")


def test_the_recipe_reaches_what_the_search_says(searched: Tuning, tmp_path: Path) -> None:
    found = result_of(searched)
    best = found.phases[0].winner
    assert found.finished
    assert best is not None
    assert best.score == max(row.score for row in found.phases[0].trials if row.score is not None)
    start = found.phases[0].trials[0]
    assert start.settings["dim"] == 8
    assert start.score is not None
    assert best.score >= start.score
    settings = TrainSettings.load(searched.folder / "recipe.toml", device="cpu", seed=searched.spec.seed)
    assert {key: getattr(settings, key) for key in QUICK} == QUICK
    if best.state == "complete" and best.epochs == settings.epochs:
        result = Run.create(tmp_path / "run", load_graph(searched.folder / "graph.safetensors"), settings).train()
        assert result is not None
        assert result.splits["valid"].mrr == pytest.approx(best.score, abs=1e-9)
        assert found.test is not None
        assert result.splits["test"].mrr == pytest.approx(found.test["mrr"], abs=1e-9)


def test_the_recipe_says_where_it_comes_from(searched: Tuning) -> None:
    text = (searched.folder / "recipe.toml").read_text()
    for part in ("random (random.tsv)", "Validation MRR: 0.", "budget: 0.05 minutes", "seed 0", "fkge 0."):
        assert part in text
    assert not re.search(r"\btest\b", text, re.IGNORECASE)  # "learn fastest" may be there


def test_a_finished_search_is_not_searched_again(searched: Tuning) -> None:
    before = result_of(searched)
    again = Tuning.open(searched.folder).run()
    assert len(again.phases[0].trials) == len(before.phases[0].trials)
    assert again.test == before.test


def test_stopped_and_continued(tmp_path: Path) -> None:
    tuning = new_search(tmp_path / "run", seconds=30.0)
    began = time.monotonic()
    found = tuning.run(stop=lambda: time.monotonic() > began + 1.0)
    assert not found.finished
    assert found.test is None, "while there is something left to choose, nobody looks at the test triples"
    assert found.recipe is not None
    assert "continue it: fkge tune --resume run" in (tmp_path / "run" / "tune.html").read_text()
    spent = tuning.spent()["train"]
    assert 0.5 < spent < 10
    resumed = Tuning.open(tmp_path / "run", minutes=(spent + 1.0) / 60).run()
    assert resumed.finished
    assert len(resumed.phases[0].trials) > len(found.phases[0].trials)
    assert resumed.phases[0].seconds == pytest.approx(spent + 1.0, abs=3.0)
    trials = [row for row in resumed.phases[0].trials if row.state == "cut"]
    assert len(trials) <= 2


def test_a_graph_without_validation_triples(tmp_path: Path) -> None:
    graph = random_graph()
    bare = replace(graph, splits={"train": graph.train})
    tuning = new_search(tmp_path / "run", bare)
    found = tuning.run()
    best = found.phases[0].winner
    assert best is not None
    assert found.test is None
    settings = TrainSettings.load(tmp_path / "run" / "recipe.toml")
    assert settings.epochs == best.best_epoch, "`fkge train` would not know when to stop"


def test_a_federation_gets_half_the_time_alone(tmp_path: Path) -> None:
    fixed = {"train.model": "DistMult", "train.dim": 8, "exchanges": 4, "train.device": "cpu"}
    start = tiny_start(train={"model": "DistMult", "loss": "1vsall"})
    tuning = Tuning.create(tmp_path / "run", tiny_federation(), start, fixed, minutes=3 / 60, seed=5)
    found = tuning.run()
    lone, federated = found.phases
    assert (lone.phase, federated.phase) == ("lone", "federated")
    assert lone.seconds == pytest.approx(federated.seconds, abs=2.0)
    assert lone.winner is not None
    assert federated.winner is not None
    assert "aggregate" in federated.winner.parameters
    assert "aggregate" not in lone.winner.parameters
    assert federated.trials[0].settings["train.lr"] == 0.05, "the start"
    assert found.test is None
    for file in ("recipe.toml", "lone.toml"):
        settings = FederationSettings.load(tmp_path / "run" / file)
        assert (settings.train.model, settings.train.dim, settings.exchanges) == ("DistMult", 8, 4)


def test_every_trial_failing_is_an_error(tmp_path: Path) -> None:
    tuning = Tuning.create(
        tmp_path / "run", random_graph(), quick_start(model="ComplEx", relation_weight=0.5),
        {**QUICK, "model": "RotatE", "relation_weight": 0.5}, minutes=1 / 60,
    )  # fmt: skip
    tuning.spec.start["model"] = "RotatE"
    with pytest.raises(SettingsError, match="every trial failed; the last one: relation_weight: RotatE cannot"):
        tuning.run()


@pytest.mark.parametrize(
    ("state", "seconds", "best", "hurried"),
    [("complete", 9.9, 5, True), ("complete", 9.9, 4, False), ("complete", 2.0, 5, False), ("cut", 2.0, 5, True)],
)
def test_a_best_trial_that_still_improved_is_told(state: Any, seconds: float, best: int, hurried: bool) -> None:
    row = TrialRow(
        number=0, state=state, score=0.5, why="", epochs=5, best_epoch=best, seconds=seconds, at=1.0, parameters={},
        settings={},
    )  # fmt: skip
    assert row.hurried(10.0) == hurried
    phase = PhaseResult(phase="train", seconds=10.0, trials=[row], best=0, importance={}, hurried=hurried)
    found = TuneResult(kind="graph", name="g", source="g", seed=0, minutes=1.0, finished=True, phases=[phase])
    assert ("may not be the best when trained to the end" in found.warning) == hurried


def test_folders_that_are_taken_foreign_or_busy(searched: Tuning, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="Continue it: fkge tune --resume"):
        new_search(searched.folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(RunError, match=r"exists already\. Choose another --out"):
        new_search(tmp_path / "other")
    with pytest.raises(RunError, match="holds no search"):
        Tuning.open(tmp_path / "other")
    tuning = new_search(tmp_path / "busy")
    with FileLock(tmp_path / "busy" / "lock"), pytest.raises(RunError, match="searched by another process"):
        tuning.run()
    (tmp_path / "busy" / "tune.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        Tuning.open(tmp_path / "busy")


def test_the_best_trial_is_kept(searched: Tuning) -> None:
    kept = json.loads((searched.folder / "best" / "train" / "best.json").read_text())
    best = result_of(searched).phases[0].winner
    assert best is not None
    assert (kept["number"], kept["score"]) == (best.number, best.score)


def test_progress_names_the_best_so_far(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []

    class Task:
        def advance(self, amount: int, **shown: float | str) -> None:
            lines.append(shown)

    class Bars:
        def task(self, name: str, total: int | None, unit: str = "") -> Any:
            assert (name, total, unit) == ("tuning", 2, "s")
            return nullcontext(Task())

    new_search(tmp_path / "run", seconds=2.0).run(progress=Bars())
    told = [shown for shown in lines if "best" in shown]
    assert told
    assert all(isinstance(shown["best"], float) and "DistMult" in str(shown["with"]) for shown in told)


def test_processes_that_die_are_replaced_and_then_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        pid, exitcode, started = 1, -9, 0

        def __init__(self, **given: object) -> None:
            Process.started += 1

        def start(self) -> None:
            pass

        def is_alive(self) -> bool:
            return False

        def join(self) -> None:
            pass

    class Context:
        Process: Any = None

        @staticmethod
        def Event() -> Any:
            return threading.Event()

    Context.Process = Process
    monkeypatch.setattr(module.multiprocessing, "get_context", lambda kind: Context)
    tuning = new_search(tmp_path / "run", jobs=2)
    with pytest.raises(EngineError, match=r"4 processes that ran trials died .* exit code -9.*--jobs 1"):
        tuning.run()
    assert Process.started == 5


def test_a_worker_stops_when_told(tmp_path: Path) -> None:
    tuning = new_search(tmp_path / "run", seconds=60.0)
    run_trials(tuning.folder, tuning.spec, "train", origin=time.monotonic(), stop=lambda: True)
    assert isinstance(tuning.spec, Spec)
    assert tuning.result().phases[0].trials == []
