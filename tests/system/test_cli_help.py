"""Help, version and shell completion."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fkge.cli import app
from fkge.cli.options import FEDERATE, HELP, LEARN, SHOW
from fkge.experiment.results import Specification

ROOT: Any = typer.main.get_command(app)


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


COMMANDS = list(walk(ROOT))


def help_of(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def examples(text: str) -> list[str]:
    """The commands under "Example"."""
    _, _, after = text.partition("Example")
    return [line.strip() for line in after.splitlines() if line.strip().startswith("fkge ")]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: "fkge " + " ".join(path))
def test_every_command_ends_its_help_with_examples_that_parse(path: tuple[str, ...]) -> None:
    found = examples(help_of(path))
    assert found
    for line in found:
        command, words = ROOT, shlex.split(line)[1:]
        context: Any = command.make_context("fkge", list(words), resilient_parsing=False)
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, list(words), parent=context)
        if path and not hasattr(ROOT.commands[path[0]], "commands") and path != ("new",):
            assert f"fkge {' '.join(path)}" in line, "an example is of the command that shows it"


def test_without_arguments_help_lists_commands_by_panel() -> None:
    done = CliRunner().invoke(app, [], env={"COLUMNS": "100"})
    places = [done.output.index(f"─ {panel} ─") for panel in (LEARN, FEDERATE, SHOW, HELP)]
    assert places == sorted(places)
    names = {path[0] for path in COMMANDS if path}
    assert all(re.search(rf"│ {name} ", done.output) for name in names)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fkge", *words], text=True, capture_output=True, timeout=60,
        env={**os.environ, **environment}, check=False,
    )  # fmt: skip


def test_version() -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"fkge {version('fkge')}\n"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; sys.argv = ['fkge', 'simulate', '--help']\n"
        "from fkge.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'numba', 'fastapi', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fkge tra", ["train", "track"]),
        ("fkge train g --model Ro", ["RotatE"]),
        ("fkge train g --config trans", ["transd", "transe", "transh", "transr"]),
        ("fkge simulate atl", ["atlas"]),
        ("fkge demo mic", ["microbes"]),
        ("fkge export RUN --to n", ["numpy"]),
        ("fkge export RUN --owner be", ["bee"]),
        ("fkge audit RUN --owner a", ["ant"]),
    ],
)
def test_a_shell_completes(line: str, offered: list[str], tmp_path: Path) -> None:
    owners, arms = ["ant", "bee"], ["federated"]
    spec = Specification(federation="f", owners=owners, arms=arms, engine="in-process", seed=0, two_tracks=False)
    spec.write(tmp_path / "simulation.json")
    line = line.replace("RUN", str(tmp_path))
    count = str(len(line.split()) - 1)
    done = run(_FKGE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=count)
    assert done.stdout.split() == offered, done.stderr


def test_an_exit_code_has_a_page() -> None:
    done = CliRunner().invoke(app, ["errors", "13"], env={"COLUMNS": "100"})
    assert done.stdout.startswith("13: a folder is not what the command needs")
    assert "What to do" in done.stdout
    everything = CliRunner().invoke(app, ["errors"], env={"COLUMNS": "100"})
    assert "the disk is full" in everything.stdout
    assert "stopped on request" in everything.stdout


def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fkge", "errors"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
