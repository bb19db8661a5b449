"""`fkge new`: what it writes runs, by the commands it names."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "fkge", *words], cwd=cwd, text=True, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.long
def test_a_new_project_runs_by_the_three_commands_it_names(tmp_path: Path) -> None:
    told = run("new", "project", cwd=tmp_path).stdout
    commands = [shlex.split(line)[1:] for line in told.splitlines() if line.startswith("  fkge ")]
    assert [words[0] for words in commands] == ["simulate", "report", "predict"]
    simulated, reported, predicted = (run(*words, cwd=tmp_path) for words in commands)
    assert "project: facts that nobody else holds" in simulated.stdout
    assert (tmp_path / reported.stdout.splitlines()[-1]).is_file()
    assert "Danube  flows through  ?" in predicted.stdout


def test_its_readme_names_the_same_commands(tmp_path: Path) -> None:
    told = run("new", "project", cwd=tmp_path).stdout
    readme = (tmp_path / "project" / "README.md").read_text()
    named = re.findall(r"^fkge .*$", readme, flags=re.M)
    spoken = [line.strip().replace("project/", "") for line in told.splitlines() if line.startswith("  fkge ")]
    assert [shlex.split(line) for line in named] == [shlex.split(line) for line in spoken]
