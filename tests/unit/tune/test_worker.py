"""A trial ends as what happened to it says, and the best one of all processes is kept."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

pytest.importorskip("optuna", reason="needs the extra tune")

from fkge.embed import load_model, make_tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from fkge.tune.journal import Journal
from fkge.tune.objective import Attempt, Limit, Report
from fkge.tune.spec import TrialRow
from fkge.tune.study import Tuning
from fkge.tune.worker import keep_best, read_best, run_trial, run_trials
from tests.unit.tune.conftest import new_search

Outcome = Callable[[TrainSettings, Report, Limit], Attempt]


@pytest.fixture
def search(tmp_path: Path) -> Tuning:
    """A search of a minute, of which nothing is done."""
    return new_search(tmp_path / "run", seconds=60.0, pruner="none")


def tried(search: Tuning, outcome: Outcome, spent: float = 0.0, stop: bool = False, **changes: Any) -> TrialRow:
    """Run one trial whose training is `outcome`, after so many seconds of the phase."""
    journal, spec = Journal(search.folder, search.spec), search.spec.model_copy(update=changes)
    trial = journal.study("train").ask()
    run_trial(
        search.folder, spec, spec.proposal("train"), outcome, trial, origin=monotonic() - spent, stop=lambda: stop
    )
    return journal.rows("train")[-1]


def reaching(score: float | None, **more: Any) -> Outcome:
    return lambda settings, report, limit: Attempt(score=score, epochs=4, best_epoch=3, **more)


@pytest.mark.parametrize(
    ("ended", "state"),
    [("epochs", "complete"), ("patience", "complete"), ("time", "complete"), ("pruned", "pruned"), ("cut", "cut")],
)
def test_how_a_training_ended_is_the_state_of_its_trial(search: Tuning, ended: Any, state: str) -> None:
    row = tried(search, reaching(0.25, ended=ended), spent=7.0)
    assert (row.state, row.score, row.epochs, row.best_epoch, row.why) == (state, 0.25, 4, 3, "")
    assert 7.0 <= row.at < 20.0
    assert row.settings["model"] == "DistMult"


def test_a_trial_that_fails_says_why_and_is_never_the_best(search: Tuning) -> None:
    def diverge(settings: TrainSettings, report: Report, limit: Limit) -> Attempt:
        raise SettingsError("the loss is no number; choose a smaller lr")

    assert tried(search, diverge).why == "the loss is no number; choose a smaller lr"
    row = tried(search, reaching(None, ended="cut"))
    assert (row.state, row.why) == ("failed", "there was no time for a validation")
    assert read_best(search.folder / "best" / "train") is None


def test_another_error_is_no_trial_that_failed(search: Tuning) -> None:
    """It is a bug, and must not look like bad settings."""

    def broken(settings: TrainSettings, report: Report, limit: Limit) -> Attempt:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tried(search, broken)


def test_a_trial_may_take_its_share_of_the_time_and_ends_with_the_search(search: Tuning) -> None:
    asked: list[str | None] = []

    def ask(settings: TrainSettings, report: Report, limit: Limit) -> Attempt:
        asked.append(limit())
        return Attempt(score=0.1)

    tried(search, ask)
    tried(search, ask, spent=61.0)
    tried(search, ask, stop=True)
    tried(search, ask, spent=-1.0, minutes=1e-9)
    assert asked == [None, "cut", "cut", "time"]


def test_validations_are_reported_and_may_prune(search: Tuning) -> None:
    told: list[bool] = []

    def validate(settings: TrainSettings, report: Report, limit: Limit) -> Attempt:
        told.extend(report(epoch, 0.1 * epoch) for epoch in (1, 2))
        return Attempt(score=0.2, epochs=2, best_epoch=2)

    tried(search, validate)
    assert told == [False, False]
    (trial,) = Journal(search.folder, search.spec).study("train").get_trials()
    assert trial.intermediate_values == {1: 0.1, 2: 0.2}


def test_the_best_of_all_is_kept_and_of_equals_the_first(search: Tuning, tmp_path: Path) -> None:
    folder, proposal = tmp_path / "best", search.spec.proposal("train")
    values = dict(proposal.start)
    assert read_best(folder) is None
    for number, score, best in ((4, 0.2, 4), (5, 0.1, 4), (6, 0.2, 4), (3, 0.2, 3), (7, 0.3, 7)):
        keep_best(folder, number, Attempt(score=score, best_epoch=2), values, proposal)
        kept = read_best(folder)
        assert kept is not None
        assert kept.number == best
    assert not (folder / "model.safetensors").exists()  # a federation has no one model
    assert proposal.settings(kept.settings) == proposal.settings(values)


def test_the_vectors_kept_are_those_of_the_best(search: Tuning, tmp_path: Path) -> None:
    proposal = search.spec.proposal("train")
    for number, score, entities in ((0, 0.1, 5), (1, 0.2, 6), (2, 0.15, 7)):
        tables = make_tables(proposal.settings(proposal.start), entities, 2)
        keep_best(tmp_path / "best", number, Attempt(score=score, tables=tables), proposal.start, proposal)
    tables, _ = load_model(tmp_path / "best" / "model.safetensors")
    assert len(tables["entity"]) == 6


def test_trials_run_until_they_are_stopped_each_by_this_process(search: Tuning) -> None:
    ended: list[int] = []
    run_trials(
        search.folder, search.spec, "train", origin=monotonic(), stop=lambda: len(ended) >= 2,
        ended=lambda: ended.append(1),
    )  # fmt: skip
    journal = Journal(search.folder, search.spec)
    assert [row.state for row in journal.rows("train")] == ["complete", "complete"]
    assert {trial.user_attrs["process"] for trial in journal.study("train").get_trials()} == {os.getpid()}


@pytest.mark.parametrize("spent", [60.0, 59.0, math.inf])
def test_no_trial_begins_that_would_have_no_time(search: Tuning, spent: float) -> None:
    """Seconds at the end of the search are too few for one more, unless it is the first."""
    first = spent == 59.0
    tried(search, reaching(0.2)) if first else None
    run_trials(search.folder, search.spec, "train", origin=monotonic() - spent, stop=lambda: False)
    assert len(Journal(search.folder, search.spec).rows("train")) == first
