"""The journal survives processes that die, and tries again what they were at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fkge import errors
from fkge.errors import MissingLibraryError
from fkge.tune.journal import FEWEST, JOURNAL, Journal, best_of, require
from fkge.tune.spec import TrialRow
from tests.unit.tune.conftest import new_search


def row(number: int, score: float | None) -> TrialRow:
    return TrialRow(
        number=number, state="complete", score=score, why="", epochs=1, best_epoch=1, seconds=0.1, at=0.1,
        parameters={}, settings={},
    )  # fmt: skip


def journal_of(folder: Path) -> Journal:
    return Journal(folder, new_search(folder).spec)


def test_a_trial_that_died_is_tried_again_once(tmp_path: Path) -> None:
    journal = journal_of(tmp_path / "run")
    journal.start("train", [{"dim": 50}])
    for again in (1, 0):
        trial = journal.study("train").ask()
        assert trial.suggest_int("dim", 32, 400) == 50
        trial.set_user_attr("process", 1)
        assert journal.recover("train") == again
        assert journal.recover("train") == 0
    rows = journal.rows("train")
    assert [(found.state, found.why) for found in rows] == [("failed", "its process died")] * 2


def test_a_trial_that_was_cut_is_tried_again_each_time(tmp_path: Path) -> None:
    journal = journal_of(tmp_path / "run")
    journal.start("train", [{"dim": 50}])
    states = require().trial.TrialState
    for _ in range(3):
        study = journal.study("train")
        trial = study.ask()
        assert trial.suggest_int("dim", 32, 400) == 50
        trial.set_user_attr("ended", "cut")
        study.tell(trial, state=states.FAIL)
        assert journal.recover("train") == 1
    assert [found.state for found in journal.rows("train")] == ["cut"] * 3


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    spec = new_search(folder).spec
    journal = Journal(folder, spec)
    journal.start("train", [{"dim": 50}, {"dim": 60}])
    journal.study("train").ask().suggest_int("dim", 32, 400)
    with (folder / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    Journal.repair(folder)
    again = Journal(folder, spec)
    assert again.recover("train") == 1
    assert len(again.rows("train")) == 1
    Journal.repair(folder)
    (folder / JOURNAL).write_bytes(b'{"half')
    Journal.repair(folder)
    assert not (folder / JOURNAL).exists()
    Journal.repair(folder)


def test_the_same_trials_lead_to_the_same_proposal(tmp_path: Path) -> None:
    asked = []
    for name in ("a", "b"):
        journal = journal_of(tmp_path / name)
        journal.start("train", [])
        study = journal.study("train")
        for _ in range(3):
            journal.reseed(study)
            trial = study.ask()
            asked.append(trial.suggest_float("lr", 0.0, 1.0))
            study.tell(trial, asked[-1])
    assert asked[:3] == asked[3:]
    assert len(set(asked)) == 3


def test_importance_needs_trials(tmp_path: Path) -> None:
    journal = journal_of(tmp_path / "run")
    journal.start("train", [])
    study = journal.study("train")
    for i in range(3 * FEWEST):
        journal.reseed(study)
        trial = study.ask()
        good, idle = trial.suggest_float("good", 0.0, 1.0), trial.suggest_float("idle", 0.0, 1.0)
        assert 0 <= idle <= 1
        trial.set_user_attr("score", good)
        study.tell(trial, good)
        if i < FEWEST - 1:
            assert journal.importance("train") == {}
    told = journal.importance("train")
    assert list(told) == ["good", "idle"]
    assert sum(told.values()) == pytest.approx(1)


def test_the_best_is_the_first_of_equals() -> None:
    assert best_of([]) is None
    assert best_of([row(0, None)]) is None
    found = best_of([row(0, 0.1), row(1, 0.3), row(2, 0.3), row(3, None)])
    assert found is not None
    assert found.number == 1


def test_without_optuna_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(errors.importlib, "import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"fkge tune needs optuna, .* pip install 'fkge\[tune\]'"):
        require()


def test_optuna_is_imported_by_a_search_only() -> None:
    script = "import sys, fkge.cli, fkge.cli.tune, fkge.tune.study; print('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=True)
    assert done.stdout == "False\n"
