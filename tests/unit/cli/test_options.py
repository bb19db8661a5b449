"""Shell completion offers what exists; options can be grouped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from fkge.cli import options, outputs
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
    @options.with_option_groups
    def draw(name: str, deep: bool = False, *, size: Size) -> None:
        """Draw."""
        seen.extend([name, deep, size])

    done = CliRunner().invoke(app, ["box", "--rows", "2", "--deep"])
    assert done.exit_code == 0, done.output
    assert seen == ["box", True, Size(3, 2)]
    assert "--width" in CliRunner().invoke(app, ["--help"]).output
