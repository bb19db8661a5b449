"""Shell completion offers what exists; options can be grouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fkge.cli import options, outputs
from fkge.cli.console import ConsoleProgress
from fkge.cli.tables import Answer
from fkge.embed import MODELS
from fkge.export import FORMATS


def test_models_and_formats_are_those_that_there_are() -> None:
    assert set(options.MODELS) == set(MODELS)
    assert set(outputs.FORMATS) == set(FORMATS)


def test_an_example_is_shown_as_it_is_typed() -> None:
    assert options.example("fkge x [y]") == "[bold]Example:[/]\n\nfkge x \\[y]"


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="Columns.")] = 3
    height: Annotated[int | None, typer.Option("--rows", help="Rows.")] = None


def test_a_group_of_options_is_options_of_the_command() -> None:
    app, seen = typer.Typer(), list[object]()

    @app.command()
    @options.readable_by_typer
    def draw(name: str, deep: bool = False, *, size: Size) -> None:
        """Draw."""
        seen.extend([name, deep, size])

    done = CliRunner().invoke(app, ["box", "--rows", "2", "--deep"])
    assert done.exit_code == 0, done.output
    assert seen == ["box", True, Size(3, 2)]
    assert "--width" in CliRunner().invoke(app, ["--help"]).output


def test_an_answer_is_printed_as_text_or_as_json() -> None:
    app = options.Commands()

    @app.add("fkge add 1 2")
    def add(numbers: list[int], *, progress: ConsoleProgress) -> Answer:
        """Add."""
        progress.say("adding")
        return Answer({"sum": sum(numbers)}, [f"the sum is {sum(numbers)}"], code=len(numbers))

    done = CliRunner().invoke(app, ["1", "2"])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "the sum is 3\n", "adding\n")
    done = CliRunner().invoke(app, ["4", "--json", "--quiet"])
    assert (done.exit_code, done.stdout, done.stderr) == (1, '{"sum": 4}\n', "")
