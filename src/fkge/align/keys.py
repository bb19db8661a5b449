"""Alignment between owners that do not show each other their labels.

An owner's keys with one partner are texts that the partner would write alike: a link of a file that both hold, as its
two labels, or a label of its own. The owners intersect their keys (`fkge.align.psi`); of each common key both know
the two labels, so each resolves rival links by itself, by the same rule as `find_common`.

Keys are made of the graph that is passed in: leave the confidential triples out of it, and an entity that occurs in
these alone never has a key.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fkge.align.links import KINDS, Common, Ids, Kind, Link, one_to_one
from fkge.align.psi import Normalisation, PsiClient, PsiHost, PsiSettings
from fkge.errors import SettingsError
from fkge.graph.graph import Graph, Vocabulary
from fkge.progress import SILENT, Progress

NORMALISATION: Normalisation = "nfkc-1"


def normalise(label: str, normalisation: Normalisation = NORMALISATION) -> str:
    """Return a label as it is compared: Unicode's NFKC form, white space stripped and collapsed to single spaces.

    Case stays, because URIs that differ in it are different; ``nfkc-fold-1`` folds it too. The name is in the first
    message of an intersection, so a changed rule needs a new name. Letters that one side's Python is too old to know
    may not match.
    """
    text = unicodedata.normalize("NFKC", label)
    if normalisation == "nfkc-fold-1":
        before = None
        while text != before:  # folding can undo the form, and the form the folding
            before, text = text, unicodedata.normalize("NFKC", text.casefold())
    return " ".join(text.split())


@dataclass(frozen=True)
class Keys:
    """The keys that one owner puts into the intersection with one partner.

    Attributes:
        entities, relations: this owner's id by key; a key is two normalised labels with a tab between, that of the
            first owner in front, which is agreed on beforehand.
        normalisation: the rule that normalised the labels.
    """

    entities: Mapping[str, int] = field(default_factory=dict)
    relations: Mapping[str, int] = field(default_factory=dict)
    normalisation: Normalisation = NORMALISATION

    def __or__(self, other: Keys) -> Keys:
        """Return the keys of both, which must be of one owner's graph and one normalisation (`SettingsError`)."""
        if self.normalisation != other.normalisation:
            raise SettingsError(f"keys by {self.normalisation!r} and by {other.normalisation!r} do not go together")
        entities, relations = {**self.entities, **other.entities}, {**self.relations, **other.relations}
        return Keys(entities, relations, self.normalisation)

    def of(self, kind: Kind) -> Mapping[str, int]:
        """Return the keys of one kind, with this owner's ids."""
        return self.entities if kind == "entity" else self.relations

    def common(self, found: Mapping[Kind, Iterable[str]]) -> Common:
        """Return this owner's side of the alignment, from the keys that both hold."""

        def ids(kind: Kind) -> Ids:
            kept = one_to_one(_ends(key) for key in found.get(kind, ()))
            return np.array([self.of(kind)["\t".join(link)] for link in kept], np.int64)

        return Common(ids("entity"), ids("relation"))


def owner_keys(
    graph: Graph,
    side: Literal[0, 1],
    entity_links: Iterable[Link] = (),
    relation_links: Iterable[Link] = (),
    normalisation: Normalisation = NORMALISATION,
) -> Keys:
    """Return keys from links that both owners hold: those whose end on this `side` is in `graph`.

    Of labels of one graph that are the same once normalised, the first in the graph's order stands for all.

    Args:
        graph: this owner's graph.
        side: which end of each link is this owner's.
        entity_links, relation_links: pairs (label of the first owner, label of the second).
        normalisation: how labels are made comparable.
    """

    def keys(labels: Vocabulary, links: Iterable[Link]) -> dict[str, int]:
        own = _own(labels, normalisation)
        pairs = ((normalise(x, normalisation), normalise(y, normalisation)) for x, y in links)
        return {"\t".join(pair): own[pair[side]] for pair in pairs if pair[side] in own}

    return Keys(keys(graph.entities, entity_links), keys(graph.relations, relation_links), normalisation)


def label_keys(graph: Graph, normalisation: Normalisation = NORMALISATION) -> Keys:
    """Return keys from an owner's own labels, for owners that name the same things alike; the same on both sides."""

    def keys(labels: Vocabulary) -> dict[str, int]:
        return {f"{label}\t{label}": i for label, i in _own(labels, normalisation).items()}

    return Keys(keys(graph.entities), keys(graph.relations), normalisation)


def private_common(a: Keys, b: Keys, settings: PsiSettings, progress: Progress = SILENT) -> tuple[Common, Common]:
    """Return the two sides of an alignment, found as two owners find it, with both roles in this process.

    The owner with fewer keys is the client, which costs less. A minimum overlap applies to entities, and relations are
    intersected only if it is met.

    Args:
        a, b: the keys of the two owners.
        settings: the limits of both.
        progress: where the messages are reported.

    Raises:
        OverlapError: too few entity keys are common.
        SettingsError: keys and settings differ in normalisation.
    """
    for keys in (a, b):
        if keys.normalisation != settings.normalisation:
            raise SettingsError(f"keys are by {keys.normalisation!r}, the settings by {settings.normalisation!r}")
    found: dict[Kind, list[str]] = {}
    for kind in KINDS:
        few, many = sorted((a.of(kind), b.of(kind)), key=len)
        bounds = settings if kind == "entity" else settings.model_copy(update={"min_overlap": 0})
        client, host = PsiClient(few, bounds, kind), PsiHost(many, bounds, kind)
        with progress.task(f"intersecting {kind} keys", None, "messages") as task:
            message: bytes | None = client.start()
            turns = itertools.cycle((host, client))
            while message is not None:
                task.advance(1)
                message = next(turns).step(message)
        if client.refused is not None:
            raise client.refused
        assert client.found is not None
        assert client.found == host.found
        found[kind] = client.found
    return a.common(found), b.common(found)


def _own(labels: Vocabulary, normalisation: Normalisation) -> dict[str, int]:
    """Return ids by normalised label: the first of several alike, and none for a label of which nothing is left."""
    out: dict[str, int] = {}
    for i, label in enumerate(labels):
        if text := normalise(label, normalisation):
            out.setdefault(text, i)
    return out


def _ends(key: str) -> Link:
    first, _, second = key.partition("\t")
    return first, second
