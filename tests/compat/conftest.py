"""What version 0.1.0 wrote, unpacked: see `tests.compat.make`."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fkge.cli import main

ARCHIVE = Path(__file__).with_name("files-0.1.0.tar.xz")

Command = Callable[..., Any]


def answers(*beginning: str, about: str = "") -> list[Any]:
    """Commands that begin so, with the JSON that version 0.1.0 printed: parameters ``words`` and ``said`` of a test."""
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("answers.json")
        assert file is not None
        kept = json.load(file)
    found = [
        pytest.param(entry["words"], entry["said"], id=" ".join(entry["words"]))
        for entry in kept
        if tuple(entry["words"][: len(beginning)]) == beginning and any(about in word for word in entry["words"])
    ]
    assert found
    return found


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with ``runs/`` and ``nodes/`` in it; a test may change them."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def fkge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """``fkge(*words)`` runs a command in this process; with ``--json`` it returns what the command printed."""

    def run(*words: object) -> Any:
        monkeypatch.setattr(sys, "argv", ["fkge", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert ended.value.code in (0, None), (words, out, err)
        return json.loads(out.splitlines()[-1]) if "--json" in words else out

    return run


TIMES = ("seconds", "time", "run", "version")


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a JSON value by their paths, but for texts, and for what differs each time."""
    if isinstance(value, dict):
        return {
            k: v for key, inner in value.items() if key not in TIMES for k, v in flat(inner, f"{path}/{key}").items()
        }
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in flat(inner, f"{path}/{i}").items()}
    return {} if isinstance(value, str) and not path.endswith("/label") else {path: value}


def assert_says_again(now: Any, said: Any, closely: float = 1e-5) -> None:
    """All numbers and labels that were said are said again, as `closely` as that; there may be more.

    Args:
        closely: absolute and relative; the last digits of a float32 depend on the processor.
    """
    expected, found = flat(said), flat(now)
    assert expected
    assert sorted(expected.keys() - found.keys()) == []
    for path, value in expected.items():
        if isinstance(value, float):
            assert found[path] == pytest.approx(value, rel=closely, abs=closely), path
        else:
            assert found[path] == value, path
