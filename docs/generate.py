"""Writes the pages that say what the program says of itself: commands, settings, exit codes.

``python docs/generate.py`` writes them; with ``--check`` it says which are out of date, and fails if one is.
"""

from __future__ import annotations

import itertools
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.text import Text
from typer.core import TyperArgument, TyperGroup

from fkge.settings import Settings

FOLDER = Path(__file__).parent / "reference"
AGAIN = "<!-- Written by docs/generate.py; change what it reads, not this page. -->"

COMMANDS = """\
`fkge COMMAND --help` says the same. Answers go to standard output, progress to standard error. `--json` prints one
JSON object as the last line of standard output. [Exit codes](exit-codes.md) are numbered."""

SETTINGS = """\
A TOML file (`--config FILE`, or the name of a [recipe](#recipes)), then `--set key=value`, each over what was there
before. In a federation `train.key=value` and `[train]` reach the owners' training. An unknown key is an error that
names the nearest ones. Every run folder keeps its settings, all explained, in `settings.toml`."""


def pages() -> dict[Path, str]:
    """Every page, as it should be."""
    made = {"cli.md": commands(), "settings.md": settings(), "exit-codes.md": exits()}
    return {FOLDER / name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def main() -> None:
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text}
    if "--check" in sys.argv[1:]:
        names = ", ".join(f"docs/reference/{path.name}" for path in stale)
        sys.exit(f"{names}: out of date; write anew: python docs/generate.py" if stale else 0)
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote docs/reference/{path.name}")


def row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def table(*head: str) -> list[str]:
    return [row(*head), "|" + "---|" * len(head)]


# -- commands ----------------------------------------------------------------------------------------


def commands() -> Iterator[str]:
    from fkge.cli import app

    root = typer.main.get_command(app)
    yield from ("# Command line", "", AGAIN, "")
    yield COMMANDS
    assert isinstance(root, TyperGroup)
    found = list(_walk("fkge", root))
    panels = dict.fromkeys(panel for panel, _, _ in found)
    for panel in panels:
        yield from ("", f"## {panel}")
        for where, path, command in found:
            if where == panel:
                yield from _command(path, command)


def _walk(path: str, group: TyperGroup, panel: str = "") -> Iterator[tuple[str, str, Any]]:
    """(panel, words, command) of every command that does something."""
    for name, command in group.commands.items():
        where = panel or str(getattr(command, "rich_help_panel", "") or "Commands")
        if isinstance(command, TyperGroup):
            yield from _walk(f"{path} {name}", command, where)
        else:
            yield where, f"{path} {name}", command


def _command(path: str, command: Any) -> Iterator[str]:
    shown = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = [_word(p) for p in shown if isinstance(p, TyperArgument)]
    yield from ("", f"### {path}", "", _plain(command.help), "", f"`{' '.join([path, *arguments, '[OPTIONS]'])}`", "")
    yield from table("", "default", "meaning")
    for p in shown:
        yield row(f"`{_word(p) if isinstance(p, TyperArgument) else _option(p)}`", _default(p), p.help or "")
    lines = [line for line in _plain(command.epilog).splitlines() if line.startswith("fkge ")]
    yield from ("", "```sh", *lines, "```")


def _word(argument: Any) -> str:
    name: str = argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    names = ", ".join(option.opts) + "".join(f", {name}" for name in option.secondary_opts)
    kind = {Path: "PATH", int: "NUMBER", float: "NUMBER"}.get(option.type_descriptor.annotation, "TEXT")
    return names if option.is_flag else f"{names} {kind}"


def _default(parameter: Any) -> str:
    told = getattr(parameter, "show_default", None)
    if isinstance(told, str):
        return told if " " in told else f"`{told}`"
    if getattr(parameter, "required", False):
        return "*needed*"
    if parameter.default is None or parameter.default is False:
        return ""
    if parameter.default is True:
        return "on"
    return f"`{parameter.default}`"


def _plain(text: str | None) -> str:
    return Text.from_markup(text or "").plain.strip()


# -- settings ----------------------------------------------------------------------------------------


def settings() -> Iterator[str]:
    from fkge.federation import FederationSettings
    from fkge.settings import TrainSettings

    yield from ("# Settings", "", AGAIN, "")
    yield SETTINGS
    yield from ("", "## Training", "")
    yield "For `fkge train`, at the top of the file; for `fkge simulate`, under `[train]`."
    yield from _fields(TrainSettings)
    yield from ("", "## Federation", "", "For `fkge simulate`, at the top of the file.")
    yield from _fields(FederationSettings)
    for name, section in FederationSettings.sections().items():
        if section is not TrainSettings:
            about = FederationSettings.model_fields[name].description or ""
            yield from ("", f"## [{name}]", "", about[:1].upper() + about[1:] + ".")
            yield from _fields(section)
    yield from _recipes()


def _fields(kind: type[Settings]) -> Iterator[str]:
    yield from ("", *table("key", "values", "default", "meaning"))
    for key, field in kind.model_fields.items():
        if key not in kind.sections():
            default = "none" if field.default is None else f"`{_toml(field.default)}`"
            yield row(f"`{key}`", _values(field), default, field.description or "")


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _values(field: FieldInfo) -> str:
    """The type in words, and the range."""
    signs = {"Ge": ("≥", "ge"), "Gt": (">", "gt"), "Le": ("≤", "le"), "Lt": ("<", "lt")}
    limits = [
        f"{signs[type(m).__name__][0]} {getattr(m, signs[type(m).__name__][1]):,}"
        for m in field.metadata
        if type(m).__name__ in signs
    ]
    return ", ".join([_type(field.annotation), *limits])


def _type(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(f"`{_toml(value)}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(k) for k in inner if k is not type(None))
    if origin is tuple:
        return f"list of {_type(inner[0])}s"
    return {int: "whole number", float: "number", bool: "`true`, `false`", str: "text"}[kind]


def _recipes() -> Iterator[str]:
    from fkge.recipes import names

    yield from ("", "## Recipes", "", "Settings that won, by name: `--config NAME`.", "")
    yield from table("name", "for", "what it is")
    for name, path in names().items():
        lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
        what = re.split(r"\. |: *fkge|[.:]$", " ".join(line.strip("# ") for line in lines))[0]
        yield row(f"`{name}`", "`fkge simulate`" if path.parent.name == "federations" else "`fkge train`", what)


# -- exit codes --------------------------------------------------------------------------------------


def exits() -> Iterator[str]:
    from fkge.cli.exits import PAGES

    yield from ("# Exit codes", "", AGAIN, "")
    yield "A mistake gets one line on standard error and a number. `fkge errors NUMBER` prints what stands here."
    yield from ("", *table("code", "meaning"))
    yield from (row(f"[{code}](#{code})", page.title) for code, page in PAGES.items())
    for code, page in PAGES.items():
        yield from ("", f"## {code}", "", f"**{page.title.capitalize()}.** {page.means}")
        for title, lines in (("Usual causes", page.causes), ("Ways out", page.ways_out)):
            if lines:
                yield from ("", f"{title}:", "", *(f"- {line}" for line in lines))


if __name__ == "__main__":
    main()
