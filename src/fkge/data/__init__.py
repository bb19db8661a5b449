"""Federations that come with the package: built on first use from other packages' data, kept in a cache.

- ``atlas``: six owners of facts about the world's places, countries, languages and currencies.
- ``microbes``: two laboratories, each with the metabolism of its bacterium.
- ``bio``: two clinics, a gene bank, a drug maker and the hierarchies of diseases and pathways.

`build` returns the TOML file of one, for `read_federation`; `describe` its figures, sources and licences.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TypedDict, cast

from fkge.data.atlas import ATLAS
from fkge.data.bio import BIO
from fkge.data.cache import cached, key_of
from fkge.data.facts import SHARES, SPLITS, Fact, Recipe, entities, split
from fkge.data.microbes import MICROBES
from fkge.errors import UnknownLabelError
from fkge.files import write_atomically
from fkge.progress import SILENT, Progress

RECIPES = {recipe.name: recipe for recipe in (ATLAS, MICROBES, BIO)}
"""How the embedded federations are made, by name."""

NAMES = tuple(RECIPES)
"""Names of the embedded federations."""

_FILE = "federation.toml"
_DESCRIPTION = "about.json"


class OwnerDescription(TypedDict):
    """One owner: where its facts come from, and how many there are."""

    package: str
    version: str
    pinned: str
    licence: str
    attribution: str
    entities: int
    relations: int
    triples: dict[str, int]
    by_relation: dict[str, int]


class PairDescription(TypedDict):
    """Two owners: the entities they share, also by kind, the relations, and the facts that both hold in any split."""

    between: list[str]
    entities: int
    by_kind: dict[str, int]
    relations: list[str]
    same_facts: int


class Description(TypedDict):
    """A federation in figures."""

    name: str
    about: str
    owners: dict[str, OwnerDescription]
    pairs: list[PairDescription]


def recipe(name: str) -> Recipe:
    """Return how `name` is built; raise `UnknownLabelError` if there is no such federation."""
    if name not in RECIPES:
        raise UnknownLabelError("embedded federation", name, NAMES)
    return RECIPES[name]


def build(name: str, progress: Progress = SILENT) -> Path:
    """Return the TOML file of an embedded federation, built if it is not in the cache yet.

    Raises:
        UnknownLabelError: there is no such federation.
        DataError: a source is not installed and cannot be downloaded.
    """
    made_by = recipe(name)
    versions = dict(made_by.versions())

    def fill(folder: Path) -> None:
        found = made_by.facts(progress)
        owners = {owner: split(facts, owner, SHARES, made_by.seed) for owner, facts in found.items()}
        for owner, splits in owners.items():
            (folder / owner).mkdir()
            for part in SPLITS:
                text = "".join("\t".join(fact) + "\n" for fact in splits[part])
                write_atomically(folder / owner / f"{part}.tsv", text.encode())
        description = json.dumps(figures(made_by, owners, versions), ensure_ascii=False, indent=1)
        write_atomically(folder / _DESCRIPTION, description.encode())
        write_atomically(folder / _FILE, _toml(name, list(owners)).encode())

    return cached(f"{name}-{key_of(name, versions)}", fill) / _FILE


def describe(name: str, progress: Progress = SILENT) -> Description:
    """Return the figures, sources and licences of an embedded federation, built if it is not in the cache.

    Raises:
        UnknownLabelError: there is no such federation.
        DataError: a source is not installed and cannot be downloaded.
    """
    return cast(Description, json.loads((build(name, progress).parent / _DESCRIPTION).read_text(encoding="utf-8")))


def figures(recipe: Recipe, owners: Mapping[str, Mapping[str, list[Fact]]], versions: Mapping[str, str]) -> Description:
    """Compute the description of a federation.

    Args:
        recipe: how it was built.
        owners: each owner's splits.
        versions: of the packages it was built from.
    """
    facts = {owner: {fact for part in splits.values() for fact in part} for owner, splits in owners.items()}
    return {
        "name": recipe.name,
        "about": recipe.about,
        "owners": {owner: _owner(recipe, owner, splits, versions) for owner, splits in owners.items()},
        "pairs": [_pair(a, b, facts[a], facts[b]) for a, b in combinations(facts, 2)],
    }


def _owner(
    recipe: Recipe, owner: str, splits: Mapping[str, list[Fact]], versions: Mapping[str, str]
) -> OwnerDescription:
    origin = recipe.origins[owner]
    facts = [fact for part in splits.values() for fact in part]
    relations = Counter(r for _, r, _ in facts)
    return {
        "package": origin.package,
        "version": versions[origin.package],
        "pinned": origin.version,
        "licence": origin.licence,
        "attribution": origin.attribution,
        "entities": len(entities(facts)),
        "relations": len(relations),
        "triples": {name: len(splits[name]) for name in SPLITS},
        "by_relation": dict(sorted(relations.items(), key=lambda item: (-item[1], item[0]))),
    }


def _pair(a: str, b: str, facts_a: set[Fact], facts_b: set[Fact]) -> PairDescription:
    shared = entities(facts_a) & entities(facts_b)
    return {
        "between": [a, b],
        "entities": len(shared),
        "by_kind": dict(sorted(Counter(entity.partition(":")[0] for entity in shared).items())),
        "relations": sorted({r for _, r, _ in facts_a} & {r for _, r, _ in facts_b}),
        "same_facts": len(facts_a & facts_b),
    }


def _toml(name: str, owners: list[str]) -> str:
    """Return the federation's file: equal labels are the same thing, between any two owners."""
    lines = [f'name = "{name}"']
    lines += [f'\n[owners.{owner}]\ngraph = "{owner}"' for owner in owners]
    lines += [f'\n[[links]]\nbetween = ["{a}", "{b}"]\nsame = true' for a, b in combinations(owners, 2)]
    return "\n".join(lines) + "\n"
