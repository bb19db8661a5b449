"""Small federations, scripts and interruptions for the tests of the Python interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fkge.graph import Graph
from fkge.progress import SILENT
from tests.conftest import OWNERS, arc, tiny_settings

SMALL: dict[str, Any] = {"dim": 6, "batch": 50, "negatives": 4, "epochs": 3, "validate_every": 1, "device": "cpu"}


QUICK: dict[str, Any] = {**tiny_settings(exchanges=2).model_dump(), "engine": "in-process", "progress": False}


METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"}


def owners(names: tuple[str, ...] = OWNERS[:2]) -> dict[str, Graph]:
    return {name: arc(name, 20 * i) for i, name in enumerate(names)}


def script(text: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    (cwd / "script.py").write_text(text)
    done = subprocess.run([sys.executable, "script.py"], cwd=cwd, text=True, capture_output=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@contextmanager
def interrupting(monkeypatch: pytest.MonkeyPatch, during: str, after: int = 1) -> Iterator[None]:
    """A real Ctrl-C to this process after so many reports of one task."""

    class Impatient:
        reports = 0

        @contextmanager
        def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Any]:
            with SILENT.task(name, total, unit) as nobody:
                yield self if name == during else nobody

        def advance(self, amount: int, **shown: float | str) -> None:
            self.reports += 1
            if self.reports == after:
                os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def drawn(shown: bool) -> Iterator[Any]:
        yield Impatient()

    with monkeypatch.context() as patch:
        for room in ("models", "federations"):
            patch.setattr(f"fkge.api.{room}.show_progress", drawn)
        yield
