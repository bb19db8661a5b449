"""Options, help texts and shell completion that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from fkge.cli.console import console_progress
from fkge.cli.tables import Answer
from fkge.errors import RunError
from fkge.experiment.results import Specification

LEARN, FEDERATE, SHOW, NODE, HELP = "One model", "A federation", "Results", "A node", "Help"
"""Headings of `fkge --help`."""

MODELS = ("TransE", "TransH", "TransR", "TransD", "DistMult", "ComplEx", "RotatE")
"""As in `fkge.embed.MODELS`, which takes seconds to import."""


def example(*lines: str) -> str:
    """Return the end of a command's help: commands that work as they are, once the files they name exist."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([f"[bold]{title}[/]", *(line.replace("[", r"\[") for line in lines)])


class Commands(typer.Typer):
    """Commands under one heading of `fkge --help`; with a `help` text, the commands of a group."""

    def __init__(self, panel: str | None = None, help: str | None = None) -> None:
        super().__init__(help=help, no_args_is_help=help is not None)
        self._panel = panel

    def add(
        self, *examples: str, name: str | None = None, panel: str | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., None]]:
        """Return a decorator that makes a function a command, whose help ends with examples; see `readable_by_typer`.

        `name` and `panel` are the command's name and heading, where they are not the function's and the others'.
        """
        register = self.command(name, rich_help_panel=panel or self._panel, epilog=example(*examples))
        return lambda function: register(readable_by_typer(function))


def readable_by_typer(command: Callable[..., Any]) -> Callable[..., None]:
    """Return a command with a signature of options only, which Typer reads.

    A dataclass becomes an option for each of its fields. `progress` becomes --quiet, and is shown while the command
    runs. A command that returns an `Answer`, which is printed, gets --json.
    """
    hints = get_type_hints(command, include_extras=True)
    answers = hints.pop("return", None) is Answer
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    options: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            options |= {f.name: (types[f.name], f.default) for f in fields(groups[name])}
        elif name != "progress":
            options[name] = (hints[name], parameter.default)
    if answers:
        options["as_json"] = (AsJson, False)
    if "progress" in hints or (answers and "quiet" in options):
        options["quiet"] = options.pop("quiet", (Quiet, False))  # behind --json in the help

    @wraps(command)
    def call(**given: Any) -> None:
        as_json = given.pop("as_json") if answers else False
        for name, kind in groups.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind)})
        if "progress" in hints:
            with console_progress(given.pop("quiet")) as progress:
                answer = command(**given, progress=progress)
        else:
            answer = command(**given)
        if answers:
            answer.print(as_json)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d, annotation=t) for n, (t, d) in options.items()]
    )
    call.__annotations__ = {name: kind for name, (kind, _) in options.items()}
    return call


def completing(*words: str) -> Callable[[str], list[str]]:
    """Return a completion function that offers those of `words` that start with what is typed."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def _named(key: Literal["owners", "arms"]) -> Callable[[typer.Context, str], list[str]]:
    """Return a completion function that offers what the simulation has that the command line names."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        # While an option lacks its value, the parser has not assigned arguments yet: take the first one.
        folder = Path(ctx.params.get("run") or next(iter(ctx.args), "."))
        with suppress(OSError, RunError):
            return completing(*getattr(Specification.load(folder), key))(incomplete)
        return []

    return complete


owners_of, arms_of = _named("owners"), _named("arms")


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
