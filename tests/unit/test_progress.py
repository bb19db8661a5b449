"""Progress in a notebook and in a log."""

from __future__ import annotations

from typing import Any

import pytest

from fkge import progress
from fkge.progress import SILENT


def test_a_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(text: str) -> Any:
        shown.append(text)
        return shown.append

    task_in_notebook = progress.in_notebook(display)
    with task_in_notebook("finished at once", 4) as task:
        task.advance(4)
    assert shown == []
    monkeypatch.setattr(progress, "SECONDS_BEFORE_FIRST_DRAWING", 0.0)
    with task_in_notebook("training", 4) as task:
        task.advance(1, mrr=0.25)
        with task_in_notebook("ranking", 10) as inner:
            inner.advance(10)
        task.advance(3)
    assert shown[0].startswith("training  ██████░░░")
    assert shown[-1].startswith(f"training  {'█' * 24} 100%")
    assert shown[-1].endswith("mrr 0.2500")
    assert not any("ranking" in text for text in shown)
    with task_in_notebook("reading", None) as task:
        task.advance(5)
    assert shown[-1].split() == ["reading", "0:00"]


def test_a_log_gets_a_line_for_each_validation(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.show_progress() as reporter, reporter.task("training", 10) as task:
        task.advance(5)
        task.advance(0, mrr=0.5)
    assert capsys.readouterr().err == "training: mrr 0.5000\n"
    with progress.show_progress(False) as reporter:
        assert reporter is SILENT
