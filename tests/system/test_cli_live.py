"""The live view on a real terminal, and what there is where there is none."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from fkge.cli.scaffold import write_project

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command on a terminal of its own: standard output and error both."""

    def __init__(self, words: list[str], cwd: Path, columns: int = 80, lines: int = 24) -> None:
        self.seen = ""
        self._changed = threading.Condition()
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fkge", *words], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**environment, "TERM": "xterm-256color"}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, ours: int) -> None:
        data = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # nobody holds the other end any more
                chunk = b""
            data += chunk
            with self._changed:
                self.seen = data.decode(errors="replace")
                self._changed.notify_all()
            if not chunk:
                os.close(ours)
                return

    def wait_for(self, pattern: str, timeout: float = 120) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(pattern, ANSI.sub("", self.seen)), timeout)
        assert found, self.seen[-3000:]

    def end(self, timeout: float = 180) -> tuple[int, str]:
        """Its exit code and all that was on the screen, without colours."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code, ANSI.sub("", self.seen)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path / "project")
    return tmp_path / "project"


RUN = ["simulate", "federation.toml", "--config", "settings.toml", "--out", "run"]


def test_a_table_of_owners_grows_and_gives_way_to_the_result(project: Path) -> None:
    terminal = Terminal([*RUN, "--set", "exchanges=60"], project)
    terminal.wait_for(r"project  control \(arm 1 of 2\)")
    terminal.wait_for(r"project  federated \(arm 2 of 2\)")
    code, seen = terminal.end()
    assert code == 0, seen
    assert "Traceback" not in seen
    drawn = [line for line in re.split(r"[\r\n]+", seen) if line.startswith(("gazetteer ", "almanac ", "owner "))]
    assert max(cell_len(line) for line in drawn) <= 80
    # Which of them a frame catches is the clock's business.
    assert re.search(r"(gazetteer|almanac) (learned from|better|no better|first score).*0\.\d+", seen)
    assert re.search(r"owner +does +epochs +MRR best", seen)
    assert "Δ ctrl" not in seen, "owners with a policy are tested on other facts than their controls"
    assert "project: facts that nobody else holds" in seen


@pytest.mark.long
def test_ctrl_c_under_the_live_view_loses_nothing(project: Path) -> None:
    whole = Terminal([*RUN[:-1], "whole", "--engine", "in-process", "--json"], project)
    code, seen = whole.end()
    assert code == 0, seen
    terminal = Terminal([*RUN, "--engine", "in-process"], project)
    terminal.wait_for(r"project  control \(arm 1 of 2\)")
    os.killpg(terminal.process.pid, signal.SIGINT)  # as a terminal does: to everybody there
    code, seen = terminal.end()
    assert code == 130, seen
    assert "stopping at the next safe point" in seen
    assert "stopped; nothing is lost. Resume with: fkge simulate --resume run" in seen
    assert "Traceback" not in seen
    code, seen = Terminal(["simulate", "--resume", "run"], project).end()
    assert code == 0, seen
    results: list[dict[str, Any]] = [
        json.loads((project / name / "results.json").read_text()) for name in ("whole", "run")
    ]
    scores = [{name: owner["arms"]["federated"]["test"] for name, owner in r["owners"].items()} for r in results]
    assert scores[0] == scores[1]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fkge", *words], cwd=cwd, text=True, capture_output=True, timeout=300, check=False
    )


@pytest.mark.long
def test_without_a_terminal_there_are_plain_lines_or_none(project: Path) -> None:
    told = run(*RUN, "--set", "exchanges=2", cwd=project)
    assert told.returncode == 0, told.stderr
    assert "\x1b" not in told.stderr + told.stdout
    assert told.stderr.startswith("gazetteer: 86 entities, 4 relations, ")
    quiet = run("simulate", "--resume", "run", "--quiet", "--json", cwd=project)
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["federation"] == "project"
