"""Arms of an experiment: what each spends, how permuted ones begin, and what random rows tell: nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fkge.align.links import KINDS
from fkge.experiment.arms import ARMS, CENTRAL, Arm, make_arm
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.setup import create_stores
from fkge.federation import Federation, FederationSettings, Plan
from tests.conftest import OWNERS, tiny_federation, tiny_settings

COMPLEX = {"model": "ComplEx", "reciprocal": True, "loss": "1vsall", "optimizer": "adagrad"}


def test_permuted_owners_permute_alike_towards_all_peers(tmp_path: Path) -> None:
    federation = tiny_federation()
    create_stores(tmp_path, federation, tiny_settings(), seed=3)
    members = {name: SimulatedOwner.open(tmp_path / "owners" / name) for name in federation.members}
    plan = Plan(2, 20, alone=False)
    right = {name: member.owner(Arm("federated", plan))[0] for name, member in members.items()}
    mixed = {name: member.owner(Arm("permuted", plan, permuted=True))[0] for name, member in members.items()}
    for (x, y), kind in itertools.product(itertools.permutations(mixed, 2), ("entity", "relation")):
        assert torch.equal(mixed[x].exchange.rows(y)[kind], mixed[y].exchange.rows(x)[kind])  # type: ignore[index]
        assert torch.equal(mixed[x].exchange.rows(y)[kind], right[x].exchange.rows(y)[kind])  # type: ignore[index]
    for (name, owner), kind in itertools.product(mixed.items(), ("entity", "relation")):
        taken: dict[int, int] = {}
        for peer in owner.peers:
            was, now = right[name].exchange.ids(peer, kind), owner.exchange.ids(peer, kind)  # type: ignore[arg-type]
            assert not (was == now).any()
            for own, place in zip(was.tolist(), now.tolist(), strict=True):
                assert taken.setdefault(own, place) == place
        assert sorted(taken) == sorted(taken.values())


def members(
    folder: Path, federation: Federation | None = None, settings: FederationSettings | None = None, seed: int = 3
) -> dict[str, SimulatedOwner]:
    made = federation or tiny_federation()
    create_stores(folder, made, settings or tiny_settings(), seed)
    return {name: SimulatedOwner.open(folder / "owners" / name) for name in made.members}


def test_mixed_up_rows_that_meet_begin_alike(tmp_path: Path) -> None:
    """The control differs in one thing only: what rows that meet stand for."""
    found, plan = members(tmp_path), Plan(2, 20, alone=False)
    for arm in (Arm("federated", plan), Arm("permuted", plan, permuted=True)):
        owners = {name: member.owner(arm)[0] for name, member in found.items()}
        for a in OWNERS:
            for b in set(OWNERS) - {a}:
                here, there = owners[a].exchange.common(b), owners[b].exchange.common(a)
                for kind in KINDS:
                    assert len(here.ids(kind)) == len(found[a].peers[b].common.ids(kind))
                    rows, theirs = (owners[name].tables[kind].numpy() for name in (a, b))
                    np.testing.assert_array_equal(rows[here.ids(kind)], theirs[there.ids(kind)])
                labels = [found[a].graph.entities[i] for i in here.entities]
                met = [found[b].graph.entities[i] for i in there.entities]
                same = sum(x == y for x, y in zip(labels, met, strict=True))
                assert same == 20 if arm.name == "federated" else same < 5


def test_all_arms_but_the_first_spend_the_same_epochs() -> None:
    settings = tiny_settings()
    arms = {name: make_arm(name, settings, two_tracks=False) for name in ARMS if name not in CENTRAL}
    assert {arm.plan.total for name, arm in arms.items() if name != "independent"} == {settings.total_epochs}
    assert arms["independent"].plan.total == settings.initial_epochs
    assert [name for name, arm in arms.items() if not arm.peers] == ["independent", "control"]
    assert make_arm("control", settings, two_tracks=True).plan.total == settings.total_epochs + settings.private.total


def test_random_rows_have_the_shape_and_scale_of_the_rows_and_nothing_else_of_them(tmp_path: Path) -> None:
    create_stores(tmp_path, tiny_federation(), tiny_settings(), seed=3)
    ant, _ = SimulatedOwner.open(tmp_path / "owners" / "ant").owner(
        Arm("random", Plan(2, 20, alone=False), random=True)
    )
    update, again = ant.make_update("bee", "frame"), ant.make_update("bee", "frame")
    own = ant.exchange.rows("bee")
    assert update.entity.shape == own["entity"].shape
    assert torch.equal(update.entity, again.entity)
    assert abs(float(torch.corrcoef(torch.stack([update.entity.ravel(), own["entity"].ravel()]))[0, 1])) < 0.3
    assert 0.5 < float(update.entity.std() / own["entity"].std()) < 2
    assert update.entity_moments is update.relation_moments is None


def test_random_rows_are_as_wide_as_those_with_inverses(tmp_path: Path) -> None:
    settings = tiny_settings(train=COMPLEX)
    create_stores(tmp_path, tiny_federation(), settings, seed=3)
    ant, _ = SimulatedOwner.open(tmp_path / "owners" / "ant").owner(
        Arm("random", Plan(2, 20, alone=False), random=True)
    )
    assert ant.exchange.mode("bee") == "frame"
    update = ant.make_update("bee", "frame")
    assert (update.entity.shape[1], update.relation.shape[1]) == (16, 32)


def test_one_owner_poisons_its_peers(tmp_path: Path) -> None:
    """It sends the opposite of its rows with a weight above all others; the rest are honest."""
    found = members(tmp_path, settings=tiny_settings(train=COMPLEX))
    arm = make_arm("poisoned", tiny_settings(), two_tracks=False, largest="bee")
    assert arm.hostile == "bee"
    assert make_arm("federated", tiny_settings(), two_tracks=False, largest="bee").hostile is None
    honest = {name: member.owner(replace(arm, hostile=None))[0] for name, member in found.items()}
    owners = {name: member.owner(arm)[0] for name, member in found.items()}
    right, sent = (each["bee"].make_update("ant", "frame") for each in (honest, owners))
    for kind in KINDS:
        assert torch.equal(getattr(sent, kind), -getattr(right, kind))
        assert getattr(sent, f"{kind}_weight").unique().tolist() == [1e6]
    ant, same = (each["ant"].make_update("bee", "frame") for each in (honest, owners))
    assert torch.equal(ant.entity, same.entity)
