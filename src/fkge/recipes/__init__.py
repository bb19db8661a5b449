"""Tuned settings as TOML files: one for each model, and one for each federation measured in the documentation.

A recipe's name can be given wherever the path of a settings file can: ``--config transe``, ``--config dbp5l``.
"""

from __future__ import annotations

from pathlib import Path

from fkge.errors import SettingsError, did_you_mean

_FOLDER = Path(__file__).parent


def names() -> dict[str, Path]:
    """Return the file of every recipe, by name."""
    files = sorted(_FOLDER.glob("*.toml")) + sorted(_FOLDER.glob("federations/*.toml"))
    return {file.stem: file for file in files}


def find(given: str | Path) -> Path:
    """Return the file that `given` names, a path or a recipe; raise `SettingsError` if it is neither."""
    path = Path(given)
    if path.exists() or path.suffix == ".toml" or len(path.parts) != 1:
        return path
    known = names()
    if path.name not in known:
        raise SettingsError(
            f"{given}: no such file, and no recipe either (there are {', '.join(known)})"
            f"{did_you_mean(path.name, known)}"
        )
    return known[path.name]
