"""Where work is done, what it is told, and how it ends early."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from fkge.recipes import find
from fkge.settings import Settings, read_toml

Recipe = str | Path | Mapping[str, Any]
S = TypeVar("S", bound=Settings)


class _Temporary:
    """A folder that goes when nobody holds this any more, or when Python ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fkge-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def workplace(out: str | Path | None) -> tuple[Path, object]:
    """Where to work, and what to hold on to meanwhile."""
    if out is not None:
        return Path(out), None
    temporary = _Temporary()
    return temporary.folder, temporary


def interrupted(call: str, out: str | Path | None) -> KeyboardInterrupt:
    if out is None:
        return KeyboardInterrupt("stopped; it was in a temporary folder, which is gone. Say out=… to keep what is done")
    return KeyboardInterrupt(f"stopped; nothing is lost. Go on with: {call}, out={str(out)!r}, resume=True)")


def merged(cls: type[S], recipe: Recipe | None, given: Mapping[str, Any]) -> S:
    """Settings of a recipe, and over them those given; of a section, only those it names."""
    values = dict(recipe) if isinstance(recipe, Mapping) else {} if recipe is None else read_toml(find(recipe))
    for key, value in given.items():
        section = key in cls.sections() and isinstance(value, Mapping)
        values[key] = {**values.get(key, {}), **value} if section else value
    return cls.build(values)
