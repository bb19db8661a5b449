"""Options, help texts and shell completion that several commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

LEARN, FEDERATE, SHOW, HELP = "One model", "A federation", "Results", "Help"
"""Headings of `fkge --help`."""

MODELS = ("TransE", "TransH", "TransR", "TransD", "DistMult", "ComplEx", "RotatE")
"""As in `fkge.embed.MODELS`, which takes seconds to import."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: each of their fields becomes an option of the command.

    Typer reads the signature of a command, so the function returned has one with the fields in place of the dataclass.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if (group := groups.get(parameter.name)) is None:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, parameter.KEYWORD_ONLY, default=f.default, annotation=types[f.name])
            for f in fields(group)
        ]

    @wraps(command)
    def call(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def example(*lines: str) -> str:
    """Return the end of a command's help: commands that work as they are, once the files they name exist."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([f"[bold]{title}[/]", *(line.replace("[", r"\[") for line in lines)])


def completing(*words: str) -> Callable[[str], list[str]]:
    """Return a completion function that offers those of `words` that start with what is typed."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def owners_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete to owners of the simulation that the command line names."""
    return completing(*_named(ctx).get("owners", ()))(incomplete)


def arms_of(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete to arms of the simulation that the command line names."""
    return completing(*_named(ctx).get("arms", ()))(incomplete)


def _named(ctx: typer.Context) -> dict[str, Any]:
    # While an option lacks its value, the parser has not assigned arguments yet: take the first one.
    return describe_simulation(Path(ctx.params.get("run") or next(iter(ctx.args), ".")))


def federations(incomplete: str) -> list[str]:
    """Complete to embedded federations."""
    from fkge.data import NAMES

    return completing(*NAMES)(incomplete)


def recipes(incomplete: str) -> list[str]:
    """Complete to recipes; the shell offers files by itself."""
    from fkge.recipes import names

    return completing(*names())(incomplete)


def config_file(given: Path | None) -> Path | None:
    """Return the file that --config names: a path, or a recipe of the package."""
    from fkge.recipes import find

    return None if given is None else find(given)


def describe_simulation(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's simulation.json; an empty dict if there is none that can be read."""
    try:
        found = json.loads((folder / "simulation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def choice(text: str, *words: str, **more: Any) -> Any:
    """Return a Typer option with help and completion to `words`."""
    return typer.Option(help=text, autocompletion=completing(*words), **more)


RunFolder = Annotated[
    Path, typer.Argument(help="A folder made by `fkge train`, or RUN/arms/ARM/OWNER of a simulation.")
]
SimulationFolder = Annotated[Path, typer.Argument(help="A folder made by `fkge simulate` or `fkge demo`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Device = Annotated[str, choice("cpu, cuda, cuda:1 …; auto takes a GPU if there is one.", "auto", "cpu", "cuda")]
Model = Annotated[str | None, choice(f"{', '.join(MODELS)}.", *MODELS)]
Config = Annotated[
    Path | None,
    typer.Option(help="Settings: a TOML file, or the name of a recipe, such as rotate or atlas.",
                 autocompletion=recipes),
]  # fmt: skip
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of all random numbers.", show_default="0")]
