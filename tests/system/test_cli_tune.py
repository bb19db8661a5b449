"""``fkge tune`` as a person uses it: real processes, real signals, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fkge.cli import main
from fkge.settings import TrainSettings
from tests.conftest import random_graph
from tests.system.test_simulate import children, gone, write

QUICK = [
    word
    for setting in ("model=DistMult", "loss=1vsall", "dim=8", "epochs=20", "validate_every=2", "device=cpu")
    for word in ("--set", setting)
]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    write(random_graph(), tmp_path / "graph")
    return tmp_path


def command(*said: object) -> list[str]:
    return [sys.executable, "-m", "fkge", "tune", *map(str, said)]


def until(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def told(out: Path, word: str) -> int:
    """How often the journal has a word."""
    journal = out / "journal.log"
    return journal.read_text().count(word) if journal.exists() else 0


def test_killed_interrupted_and_continued(here: Path) -> None:
    out = here / "out"
    said = ("graph", "--minutes", 5, "--out", out, *QUICK)
    with subprocess.Popen(command(*said), cwd=here, text=True, stderr=subprocess.PIPE) as process:
        until(lambda: told(out, '"best_epoch"') >= 3, process)
        process.kill()
    before = told(out, '"best_epoch"')
    assert not (out / "recipe.toml").exists()

    with subprocess.Popen(command("--resume", out), cwd=here, text=True, stderr=subprocess.PIPE) as process:
        until(lambda: told(out, '"best_epoch"') >= before + 3, process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert f"recipe.toml has the best so far. Continue with: fkge tune --resume {out}" in err
    assert TrainSettings.load(out / "recipe.toml").model == "DistMult"
    assert "continue it: fkge tune --resume out" in (out / "tune.html").read_text()

    spent = json.loads((out / "spent.json").read_text())["train"]
    done = subprocess.run(
        command("--resume", out, "--minutes", (spent + 1) / 60, "--json"), cwd=here, text=True, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert result["finished"]
    assert set(result["test"]) >= {"mrr", "hits@10"}
    trials = result["phases"][0]["trials"]
    assert [trial["number"] for trial in trials] == list(range(len(trials)))
    assert not [trial for trial in trials if trial["state"] == "running"]
    assert spent + 0.9 < result["phases"][0]["seconds"] < spent + 20


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_processes_of_a_killed_search_leave_and_ctrl_c_reaches_all(here: Path) -> None:
    out = here / "out"
    said = ("graph", "--minutes", 5, "--jobs", 2, "--out", out, *QUICK)
    with subprocess.Popen(command(*said), cwd=here, text=True, stderr=subprocess.PIPE) as process:
        until(lambda: told(out, '"best_epoch"') >= 3, process)
        started = children(process.pid)
        assert len(started) >= 2
        process.kill()
    with subprocess.Popen(
        command("--resume", out), cwd=here, text=True, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        before = told(out, '"best_epoch"')
        until(lambda: told(out, '"best_epoch"') >= before + 3, process)
        assert all(gone(child) for child in started)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert (out / "recipe.toml").exists()


@pytest.mark.parametrize(
    ("said", "expected", "code"),
    [
        ([], "of what? fkge tune GRAPH", 2),
        (["graph", "--minutes", "0"], "minutes is 0; give the search some time", 12),
        (["graph", "--jobs", "100000"], "choose fewer", 12),
        (["graph", "--pruner", "middle"], "--pruner middle: there are median, hyperband and none", 2),
        (["graph", "--set", "dims=3"], "did you mean dim", 12),
        (["graph", "--set", "model=TransR", "--set", "loss=1vsall"], "use sampled, sigmoid or margin", 12),
        (["nothing"], "nothing", 11),
        (["nothing.toml"], "nothing.toml: no such file", 12),
        (["--resume", "nowhere"], "nowhere: holds no search", 13),
        (["graph", "--resume", "nowhere"], "leave the rest out", 2),
        (["--resume", "nowhere", "--set", "dim=3"], "leave the rest out", 2),
        (["atlas", "--set", "privacy.mode=dp", "--set", "privacy.epsilon=8"], "every trial would release vectors", 12),
    ],
)
def test_mistakes_get_one_line_and_a_number(
    said: list[str],
    expected: str,
    code: int,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["fkge", "tune", *said, "--out", "x", "--quiet"])
    with pytest.raises(SystemExit) as ended:
        main()
    err = capsys.readouterr().err
    assert expected in err
    assert ended.value.code == code
    assert len(err.strip().splitlines()) == 1
    assert not (here / "x").exists()
