"""What a federation holds, in figures: for each owner and for each two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from fkge.data.facts import SPLITS, Fact, Recipe, entities


def figures(
    recipe: Recipe, owners: Mapping[str, Mapping[str, list[Fact]]], versions: Mapping[str, str]
) -> dict[str, Any]:
    """The description of a federation, for JSON.

    Args:
        recipe: what it was made by.
        owners: each owner's splits.
        versions: of the packages it was made from.
    """
    facts = {owner: {fact for part in splits.values() for fact in part} for owner, splits in owners.items()}
    return {
        "name": recipe.name,
        "about": recipe.about,
        "owners": {owner: _owner(recipe, owner, splits, versions) for owner, splits in owners.items()},
        "pairs": [{"between": [a, b]} | _pair(facts[a], facts[b]) for a, b in combinations(facts, 2)],
    }


def _owner(recipe: Recipe, owner: str, splits: Mapping[str, list[Fact]], versions: Mapping[str, str]) -> dict[str, Any]:
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


def _pair(a: set[Fact], b: set[Fact]) -> dict[str, Any]:
    shared = entities(a) & entities(b)
    relations = {r for _, r, _ in a} & {r for _, r, _ in b}
    return {
        "entities": len(shared),
        "by_kind": dict(sorted(Counter(entity.partition(":")[0] for entity in shared).items())),
        "relations": sorted(relations),
        "same_facts": len(a & b),
    }
