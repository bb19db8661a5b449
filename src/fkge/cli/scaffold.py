"""`fkge new`: a project that runs as it is, to be changed into one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from fkge.errors import RunError
from fkge.trace import write_atomically

if TYPE_CHECKING:
    from fkge.settings import Settings

_PROJECT = Path(__file__).parent / "project"

CHOSEN: dict[str, Any] = {
    "initial_epochs": 0, "exchanges": 20, "epochs": 3, "test_every": 4, "start": "together", "translate": "frame",
    "train": {"model": "TransE", "dim": 32, "lr": 0.01, "negatives": 16, "batch": 64, "device": "cpu"},
    "privacy": {"mode": "none"},
    "private": {"epochs": 40},
}  # fmt: skip
"""What the project's settings say aloud; the rest stands there as a comment."""

_HEAD = """\
# How the owners train and exchange. What is not a comment is in force; the lines below it are all there is besides,
# with their defaults. `--set key=value` and `--set section.key=value` override this file for one run.

"""


def write_project(folder: Path) -> list[str]:
    """Make `folder`, which must be new or empty. Returns what to tell its owner."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: is there already; name a folder that is not")
    from fkge.federation import FederationSettings

    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(_PROJECT.iterdir()):
        if file.is_file():
            write_atomically(folder / file.name, file.read_bytes())
    text = _HEAD + "\n".join(readable(FederationSettings, CHOSEN)) + "\n"
    write_atomically(folder / "settings.toml", text.encode())
    federation, settings, run, model = (
        quote(str(folder / name))
        for name in ("federation.toml", "settings.toml", "run", "run/arms/federated/gazetteer")
    )
    return [
        f"{folder}: a federation of two owners; README.md says what is what. Run it:",
        f"  fkge simulate {federation} --config {settings} --out {run}",
        f"  fkge report {run}",
        f"  fkge predict {model} --head Danube --relation 'flows through'",
    ]


def readable(kind: type[Settings], chosen: Mapping[str, Any]) -> Iterator[str]:
    """Settings as lines of TOML: those that are chosen first, all others as comments, sections last."""
    sections = kind.sections()
    default = {key: field.get_default(call_default_factory=True) for key, field in kind.model_fields.items()}
    for key in sorted((key for key in default if key not in sections), key=lambda key: key not in chosen):
        value = chosen.get(key, default[key])
        yield f"# {kind.model_fields[key].description}"
        yield ("" if key in chosen else "# ") + (f"{key} = (none)" if value is None else f"{key} = {_toml(value)}")
    for key in sorted(sections, key=lambda key: key not in chosen):
        yield ""
        yield f"# {kind.model_fields[key].description}"
        yield f"[{key}]"
        yield from readable(sections[key], chosen.get(key, {}))


def _toml(value: Any) -> str:
    import json

    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
