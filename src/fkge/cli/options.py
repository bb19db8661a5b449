"""Words that several commands share: their options, their help, what a shell completes them to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

LEARN, FEDERATE, SHOW, HELP = "One model", "A federation", "What came of it", "Help"
"""Headings of `fkge --help`."""

MODELS = ("TransE", "TransH", "TransR", "TransD", "DistMult", "ComplEx", "RotatE")
"""As in `fkge.embed.MODELS`, which takes seconds to import."""


def example(*lines: str) -> str:
    """The end of a command's help: commands that work as they stand, once there is what they name."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([f"[bold]{title}[/]", *(line.replace("[", r"\[") for line in lines)])


def completing(*words: str) -> Callable[[str], list[str]]:
    """What a shell offers: those of `words` that begin with what is typed."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def owners_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Owners of the simulation that the command names, for a shell."""
    return [name for name in _named(ctx).get("owners", ()) if name.startswith(incomplete)]


def arms_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Arms of the simulation that the command names, for a shell."""
    return [name for name in _named(ctx).get("arms", ()) if name.startswith(incomplete)]


def _named(ctx: typer.Context) -> dict[str, Any]:
    """What a half-typed command names: while an option lacks its value, words are not told apart yet."""
    return about(Path(ctx.params.get("run") or next(iter(ctx.args), ".")))


def federations(incomplete: str) -> list[str]:
    """Embedded federations, for a shell."""
    from fkge.data import NAMES

    return completing(*NAMES)(incomplete)


def recipes(incomplete: str) -> list[str]:
    """Recipes, for a shell; it offers files by itself."""
    from fkge.recipes import names

    return completing(*names())(incomplete)


def config_file(given: Path | None) -> Path | None:
    """The file that --config names: a path, or a recipe that comes with the package."""
    from fkge.recipes import find

    return None if given is None else find(given)


def about(folder: Path) -> dict[str, Any]:
    """What a simulation's folder says of itself; nothing if it is none."""
    try:
        told = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


RunFolder = Annotated[
    Path, typer.Argument(help="A folder made by `fkge train`, or RUN/arms/ARM/OWNER of a simulation.")
]
SimulationFolder = Annotated[Path, typer.Argument(help="A folder made by `fkge simulate` or `fkge demo`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Device = Annotated[
    str,
    typer.Option(
        help="cpu, cuda, cuda:1 …; auto takes a GPU if there is one.", autocompletion=completing("auto", "cpu", "cuda")
    ),
]
Model = Annotated[str | None, typer.Option(help=f"{', '.join(MODELS)}.", autocompletion=completing(*MODELS))]
Config = Annotated[
    Path | None,
    typer.Option(help="Settings: a TOML file, or a recipe's name, such as rotate or atlas.", autocompletion=recipes),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of everything random.", show_default="0")]
