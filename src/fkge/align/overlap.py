"""Masks of an owner's held-out facts that another owner trains on.

A model's gain on those shows that it passes on a partner's fact, which is both the user's benefit and a leak; its gain
on the rest was learned from the federation. Vectors travel through third owners too, so a fact has no copy only if no
chain of links leads to one (`held_through_chains`).

What a model gains on those is a partner's fact passed on: the user's benefit, and the leak. What it gains on the rest
it learned from the federation. Vectors travel through third owners too, so a fact has no copy only if no chain of links
leads to one (`held_through_chains`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fkge.align.clusters import clusters
from fkge.align.links import KINDS, Common, Ids, Kind, Pairs
from fkge.errors import SettingsError
from fkge.graph.graph import Graph, among, renamed

Mask = npt.NDArray[np.bool_]


def translation(own: Common, partner: Common, kind: Kind, rows: int) -> Ids:
    """Return for each of an owner's rows the partner's id of the same thing, −1 where there is none.

    Args:
        own, partner: the two sides of one alignment; `SettingsError` if they differ in length.
        kind: entities or relations.
        rows: how many of them the owner has.

    Returns:
        (rows,) int64.
    """
    if len(own.ids(kind)) != len(partner.ids(kind)):
        raise SettingsError(
            f"{len(own.ids(kind))} aligned {kind} rows here and {len(partner.ids(kind))} at the partner: "
            "these are not two sides of one alignment"
        )
    out = np.full(rows, -1, np.int64)
    out[own.ids(kind)] = partner.ids(kind)
    return out


def held_by_partner(triples: npt.NDArray[Any], entities: Ids, relations: Ids, partner_train: npt.NDArray[Any]) -> Mask:
    """Return which triples are, translated, in the partner's training set.

    Args:
        triples: (k, 3) head, relation, tail in the owner's ids.
        entities, relations: the partner's id of each of the owner's, −1 for none; see `translation`.
        partner_train: (n, 3) in the partner's ids.

    Returns:
        (k,) bool; False for a triple with a part that does not translate.
    """
    return among(renamed(np.asarray(triples, np.int64), entities, relations), partner_train)


def held_splits(owner: str, graphs: Mapping[str, Graph], pairs: Pairs) -> dict[str, Mask]:
    """Return which held-out triples of `owner` are in the training set of a partner that is aligned with it directly.

    Args:
        owner: a name in `graphs`.
        graphs: the graphs of all owners.
        pairs: their alignments.

    Returns:
        For every split but ``train`` (triples,) bool.
    """
    own = graphs[owner]
    held = {name: np.zeros(len(triples), np.bool_) for name, triples in own.splits.items() if name != "train"}
    for names, sides in pairs.items():
        if owner not in names:
            continue
        here, there = (0, 1) if names[0] == owner else (1, 0)
        entities = translation(sides[here], sides[there], "entity", len(own.entities))
        relations = translation(sides[here], sides[there], "relation", len(own.relations))
        for name, mask in held.items():
            mask |= held_by_partner(own.splits[name], entities, relations, graphs[names[there]].train)
    return held


def held_through_chains(graphs: Mapping[str, Graph], pairs: Pairs) -> dict[str, dict[str, Mask]]:
    """Return which held-out triples of each owner are in another's training set, by links through any chain of owners.

    This needs every alignment, which a simulation knows and an owner does not.

    Returns:
        For every owner and every split but ``train`` (triples,) bool. Includes what `held_splits` finds.
    """
    ids: dict[Kind, dict[str, Ids]] = {}
    for kind in KINDS:
        sizes = {name: len(g.entities if kind == "entity" else g.relations) for name, g in graphs.items()}
        sides = {names: (a.ids(kind), b.ids(kind)) for names, (a, b) in pairs.items()}
        ids[kind], _ = clusters(sizes, sides)
    trains = {name: renamed(g.train, ids["entity"][name], ids["relation"][name]) for name, g in graphs.items()}
    out = {}
    for name, graph in graphs.items():
        others = np.concatenate([np.empty((0, 3), np.int64), *(t for other, t in trains.items() if other != name)])
        out[name] = {
            split: held_by_partner(triples, ids["entity"][name], ids["relation"][name], others)
            for split, triples in graph.splits.items()
            if split != "train"
        }
    return out
