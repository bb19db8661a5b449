"""Stores of a federation: both sides of a pair share the same rows, and refusals stay with those who refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fkge.align.links import KINDS
from fkge.experiment.arms import Arm
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.setup import create_stores
from fkge.federation import Federation, FederationSettings, Plan
from tests.conftest import OWNERS, tiny_federation, tiny_settings


def members(
    folder: Path, federation: Federation | None = None, settings: FederationSettings | None = None, seed: int = 3
) -> dict[str, SimulatedOwner]:
    made = federation or tiny_federation()
    create_stores(folder, made, settings or tiny_settings(), seed)
    return {name: SimulatedOwner.open(folder / "owners" / name) for name in made.members}


@pytest.mark.parametrize("changes", [{"share": "entities"}, {"share": "relations"}, {"ratio": 0.5}, {"ratio": 0.2}])
def test_both_sides_share_the_same_part(changes: dict[str, Any], tmp_path: Path) -> None:
    found = members(tmp_path, settings=tiny_settings(**changes))
    for a in OWNERS:
        for b in set(OWNERS) - {a}:
            here, there = found[a].peers[b].common, found[b].peers[a].common
            assert [found[a].graph.entities[i] for i in here.entities] == [
                found[b].graph.entities[i] for i in there.entities
            ]
            assert len(here.relations) == len(there.relations)
            entities = 0 if changes.get("share") == "relations" else round(20 * changes.get("ratio", 1))
            relations = 0 if changes.get("share") == "entities" else round(4 * changes.get("ratio", 1))
            assert (len(here.entities), len(here.relations)) == (entities, relations)


def test_a_refusal_is_unknown_to_the_refused_peer(tmp_path: Path) -> None:
    found = members(tmp_path, tiny_federation(refuses=("ant", "cat")))
    assert {name: set(member.peers) for name, member in found.items()} == {
        "ant": {"bee"},
        "bee": {"ant", "cat"},
        "cat": {"bee"},
    }
    assert found["ant"].refuses == ("cat",)


@pytest.mark.parametrize("changes", [{"share": "entities"}, {"share": "relations"}, {"ratio": 0.5}])
def test_equal_labels_that_are_not_shared_do_not_begin_alike(changes: dict[str, Any], tmp_path: Path) -> None:
    found = members(tmp_path, tiny_federation(OWNERS[:2]), tiny_settings(**changes))
    ant, bee = found["ant"], found["bee"]
    here, there = ant.peers["bee"].common, bee.peers["ant"].common
    owners = [member.owner(Arm("federated", Plan(2, 20, alone=False)))[0] for member in (ant, bee)]
    unshared = 0
    for kind in KINDS:
        shared = set(zip(here.ids(kind).tolist(), there.ids(kind).tolist(), strict=True))
        vocabularies = [g.entities if kind == "entity" else g.relations for g in (ant.graph, bee.graph)]
        alike = [(i, j) for i, x in enumerate(vocabularies[0]) for j, y in enumerate(vocabularies[1]) if x == y]
        unshared += len(alike) - len(shared)
        for i, j in alike:
            rows = [owner.tables[kind][k].numpy() for owner, k in zip(owners, (i, j), strict=True)]
            assert np.array_equal(*rows) == ((i, j) in shared)
    assert unshared > 0
