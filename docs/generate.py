"""Generate the reference pages of commands, settings, losses and exit codes from the program.

``python docs/generate.py`` writes them; with ``--check`` it lists those that are out of date and fails.
"""

from __future__ import annotations

import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.text import Text
from typer.core import TyperArgument, TyperGroup

from fkge.settings import Settings

FOLDER = Path(__file__).parent / "reference"
GENERATED = "<!-- Written by docs/generate.py; change what it reads, not this page. -->"

COMMANDS = """\
`fkge COMMAND --help` says the same. Answers go to standard output, progress to standard error. `--json` prints one
JSON object as the last line of standard output. [Exit codes](exit-codes.md) are numbered."""

SETTINGS = """\
A TOML file (`--config FILE`, or the name of a [recipe](#recipes)), then `--set key=value`, each over what was there
before. In a federation `train.key=value` and `[train]` reach the owners' training. An unknown key is an error that
names the nearest ones. Every run folder keeps its settings, all explained, in `settings.toml`."""

LOSSES = """\
What `loss`, `model` and the settings beside them do together. What is not possible is an error before training begins.

- `margin` (ranking), `sigmoid` (self-adversarial) and `sampled` compare a positive with `negatives` drawn entities.
  `sampled` is cross-entropy; the logarithm of how many entities each negative stands for is added to its score.
- `1vsall` and `kvsall` compare a question, (h, r, ?) or (?, r, t), with every entity. `1vsall` is the cross-entropy of
  each answer, and up to `share` answers of a question share its scores; with `kvsall` the target is uniform over all
  answers. There are no negatives: `negatives`, `corruption`, `filtered` and `temperature` do nothing, and `margin` only
  counts in the scale of the initial values.
- `precision` is of the matrix products, where scores are dot products. `auto` takes bfloat16 where the processor has
  it, so figures differ slightly between processors; `float32` is the same on all that have the same libraries."""

REGULARIZERS = """\
`regularization` times the sum over the rows of a triple, once for each positive; of `1vsall` and `kvsall` once for each
answer's question, with the answer's weight. `l3` is Σ|x|³. `n3` takes the moduli of complex numbers, so it differs
where the table above says complex. `f2` is Σ x². Only `l3` is compiled: others train by autograd on the CPU."""

RECIPROCAL = """\
With `reciprocal = true` each relation has a second row, its inverse: (?, r, t) is asked as (t, r⁻¹, ?). A triple's
score is the mean of both. Peers see both rows as one vector. With negatives such a model trains by autograd, on the CPU
and on a GPU; with `1vsall` and `kvsall` it is as fast as without. It has no differential privacy."""


def pages() -> dict[Path, str]:
    """Return the text of every page."""
    made = {"cli.md": commands(), "settings.md": settings(), "losses.md": losses(), "exit-codes.md": exits()}
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
    yield from ("# Command line", "", GENERATED, "")
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
    """Yield (panel, words, command) of every command that is not a group."""
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
    shown = getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        return shown if " " in shown else f"`{shown}`"
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

    yield from ("# Settings", "", GENERATED, "")
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
    """Return the type in words, and the range."""
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

    yield from ("", "## Recipes", "", "Settings that performed best, by name: `--config NAME`.", "")
    yield from table("name", "for", "what it is")
    for name, path in names().items():
        lines = itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
        what = re.split(r"\. |: *fkge|[.:]$", " ".join(line.strip("# ") for line in lines))[0]
        yield row(f"`{name}`", "`fkge simulate`" if path.parent.name == "federations" else "`fkge train`", what)


# -- losses and models -------------------------------------------------------------------------------


def losses() -> Iterator[str]:
    from fkge.embed import MODELS
    from fkge.embed.losses import LOSSES as known

    yield from ("# Losses and models", "", GENERATED, "")
    yield LOSSES
    yield from ("", "## Losses", "")
    yield from table(
        "loss", "compares with", "models", "`smoothing`, `dropout`", "`relation_weight`", "CPU", "GPU",
        "differential privacy",
    )  # fmt: skip
    for name, loss in known.items():
        every = loss.all_entities
        cpu = "matrix products or autograd" if every else "compiled" if loss.compiled else "autograd"
        yield row(
            f"`{name}`", "all entities" if every else "drawn negatives", _models(_trains, loss=name),
            _yes(every), _models(_trains, loss=name, relation_weight=1.0) if every else "no", cpu,
            "matrix products or autograd" if every else "recorded step or autograd",
            _models(_private, loss=name),
        )  # fmt: skip
    yield from ("", "## Models", "")
    yield from table(
        "model", "complex", "`1vsall`, `kvsall`", "`relation_weight`", "`reciprocal`", "compiled on the CPU",
        "recorded on a GPU", "differential privacy",
    )  # fmt: skip
    for name in MODELS:
        possible = (_trains(_plain_settings(model=name, **x)) for x in (
            {"loss": "1vsall"}, {"loss": "1vsall", "relation_weight": 1.0}, {"reciprocal": True},
        ))  # fmt: skip
        s = _plain_settings(model=name)
        products, predicts, reciprocal = possible
        how = "matrix products" if _tables(s).model.comparison == "dot" else "autograd"
        yield row(
            name, _complex(s), how if products else "no", _yes(predicts), _yes(reciprocal), _yes(_compiled(s)),
            _yes(_recorded(s)), _yes(_private(s)),
        )  # fmt: skip
    yield from ("", "## Regularisers", "", REGULARIZERS, "", "## Reciprocal relations", "", RECIPROCAL)


def _plain_settings(**changes: Any) -> Any:
    from fkge.settings import TrainSettings

    return TrainSettings(**{"dim": 2, "device": "cpu", **changes})


def _tables(s: Any) -> Any:
    from fkge.embed import make_tables

    return make_tables(s, 4, 2)


def _trains(s: Any) -> bool:
    """Whether there is a training step for these settings."""
    from fkge.embed.losses import find_loss
    from fkge.embed.softmax import SoftmaxStep
    from fkge.errors import SettingsError

    try:
        tables = _tables(s)
        if find_loss(s.loss).all_entities:
            SoftmaxStep(tables, s)
    except SettingsError:
        return False
    return True


def _private(s: Any) -> bool:
    from fkge.embed.dp_gradients import make_gradients
    from fkge.errors import SettingsError

    try:
        make_gradients(_tables(s), s, 1.0, learn=True)
    except SettingsError:
        return False
    return True


def _compiled(s: Any) -> bool:
    from fkge.embed.kernels import can_run

    return can_run(_tables(s), s)


def _recorded(s: Any) -> bool:
    from fkge.embed.cuda_graphs import can_record

    return can_record(_tables(s).model)


def _complex(s: Any) -> str:
    names = [name for name, spec in _tables(s).model.tables().items() if spec.complex]
    return " and ".join({"entity": "entities", "relation": "relations"}[name] for name in names)


def _models(holds: Callable[[Any], bool], **changes: Any) -> str:
    """The models for which something holds, in words."""
    from fkge.embed import MODELS

    names = [name for name in MODELS if holds(_plain_settings(model=name, **changes))]
    return "all" if len(names) == len(MODELS) else ", ".join(names) or "no"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


# -- exit codes --------------------------------------------------------------------------------------


def exits() -> Iterator[str]:
    from fkge.cli.exit_codes import pages as exit_pages

    yield from ("# Exit codes", "", GENERATED, "")
    yield "An error is one line on standard error and a number. `fkge errors NUMBER` prints the same explanation."
    yield from ("", *table("code", "meaning"))
    yield from (row(f"[{code}](#{code})", page.title) for code, page in exit_pages().items())
    for code, page in exit_pages().items():
        yield from ("", f"## {code}", "", f"**{page.title.capitalize()}.** {page.means}")
        for title, lines in (("Usual causes", page.causes), ("What to do", page.ways_out)):
            if lines:
                yield from ("", f"{title}:", "", *(f"- {line}" for line in lines))


if __name__ == "__main__":
    main()
