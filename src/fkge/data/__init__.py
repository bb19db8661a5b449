"""Federations that come with the package: built on first use from other packages' data, kept in a cache.

- ``atlas``: six owners of facts about the world's places, countries, languages and currencies.
- ``microbes``: two laboratories, each with the metabolism of its bacterium.
- ``bio``: two clinics, a gene bank, a drug maker and the orders of diseases and pathways.

`build` gives the TOML file of one, for `read_federation`; `describe` says what is in it and whose data it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fkge.data.about import figures
from fkge.data.cache import cached, key_of
from fkge.data.facts import SPLITS, Recipe, split
from fkge.errors import UnknownLabelError
from fkge.trace import SILENT, Progress, write_atomically


def _atlas() -> Recipe:
    from fkge.data.atlas import ATLAS

    return ATLAS


def _microbes() -> Recipe:
    from fkge.data.microbes import MICROBES

    return MICROBES


def _bio() -> Recipe:
    from fkge.data.bio import BIO

    return BIO


_RECIPES: dict[str, Callable[[], Recipe]] = {"atlas": _atlas, "microbes": _microbes, "bio": _bio}

NAMES = tuple(_RECIPES)
"""What there is."""

_FILE = "federation.toml"
_ABOUT = "about.json"


def recipe(name: str) -> Recipe:
    """How `name` is made."""
    if name not in _RECIPES:
        raise UnknownLabelError("embedded federation", name, NAMES)
    return _RECIPES[name]()


def build(name: str, progress: Progress = SILENT) -> Path:
    """The TOML file of an embedded federation, built if it is not in the cache yet.

    Raises:
        UnknownLabelError: there is no such federation.
        DataError: what it is made from is not installed and cannot be had.
    """
    made_by = recipe(name)
    versions = dict(made_by.versions())

    def fill(folder: Path) -> None:
        owners = {
            owner: split(facts, owner, made_by.shares, made_by.seed) for owner, facts in made_by.facts(progress).items()
        }
        for owner, splits in owners.items():
            (folder / owner).mkdir()
            for part in SPLITS:
                text = "".join("\t".join(fact) + "\n" for fact in splits[part])
                write_atomically(folder / owner / f"{part}.tsv", text.encode())
        about = json.dumps(figures(made_by, owners, versions), ensure_ascii=False, indent=1)
        write_atomically(folder / _ABOUT, about.encode())
        write_atomically(folder / _FILE, _toml(name, list(owners)).encode())

    return cached(f"{name}-{key_of(name, versions)}", fill) / _FILE


def describe(name: str, progress: Progress = SILENT) -> dict[str, Any]:
    """What is in an embedded federation and whose data it is; built if need be.

    Returns:
        ``name``, ``about``; ``owners``: by name, ``package``, ``version``, ``licence``, ``attribution``, ``entities``,
        ``relations``, ``triples`` (by split) and ``by_relation``; ``pairs``: for each two owners ``between``,
        ``entities`` that they share, also ``by_kind``, shared ``relations``, and ``same_facts``, those that both hold,
        over all splits.
    """
    about: dict[str, Any] = json.loads((build(name, progress).parent / _ABOUT).read_text(encoding="utf-8"))
    return about


def _toml(name: str, owners: list[str]) -> str:
    """The federation's file: equal labels are the same thing, between any two owners."""
    lines = [f'name = "{name}"']
    lines += [f'\n[owners.{owner}]\ngraph = "{owner}"' for owner in owners]
    lines += [
        f'\n[[links]]\nbetween = ["{a}", "{b}"]\nsame = true' for i, a in enumerate(owners) for b in owners[i + 1 :]
    ]
    return "\n".join(lines) + "\n"
