"""Attacks are run by their names, in one order, and timed; an unknown one is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fkge.audit import attack_names
from fkge.audit.findings import Verdict
from fkge.audit.run import audit
from fkge.errors import RunError, SettingsError
from fkge.progress import Task


def test_only_what_was_asked_for_is_run_and_reported(simulated: Path) -> None:
    tasks: dict[str, tuple[int | None, Task]] = {}

    @contextmanager
    def task(name: str, total: int | None, unit: str = "") -> Iterator[Task]:
        tasks[name] = total, Task()
        yield tasks[name][1]

    progress: Any = SimpleNamespace(task=task)
    report = audit(
        simulated, only=["canaries", "non-interference", "canaries"], owner="cat", quick=True, progress=progress
    )
    assert list(report.sections) == ["canaries", "non-interference"]
    assert [found.verdict for found in report.sections.values()] == [Verdict.OPEN, Verdict.OPEN]
    assert all(found.seconds >= 0 for found in report.sections.values())
    assert (report.owner, report.quick, report.broken) == ("cat", True, False)
    assert report.peer in ("ant", "bee")
    total, counted = tasks["audit"]
    assert total == counted.done == 2
    told = json.loads(json.dumps(report.to_json()))
    assert told["privacy"]["mode"] == "none"


def test_the_order_is_that_of_the_names_whatever_was_asked_first(simulated: Path) -> None:
    report = audit(simulated, only=["non-interference", "canaries"], quick=True)
    assert list(report.sections) == [name for name in attack_names() if name in ("canaries", "non-interference")]


def test_an_unknown_attack_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"did you mean canaries.*there are .*membership"):
        audit(tmp_path / "none", only=["canary"])
    with pytest.raises(RunError):
        audit(tmp_path / "none", only=["canaries"])
