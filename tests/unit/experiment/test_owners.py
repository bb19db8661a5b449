"""Homes: an owner finds in its folder all it needs, and nothing of anybody else's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fkge.align import held_splits
from fkge.align.links import KINDS
from fkge.errors import FkgeError, RunError
from fkge.evaluation import Ranks
from fkge.experiment.arms import Arm
from fkge.experiment.owners import ArmJob, SimulatedOwner, load_ranks, save_ranks
from fkge.experiment.setup import create_stores
from fkge.federation import Federation, FederationSettings, Plan
from tests.conftest import OWNERS, tiny_federation, tiny_settings


def members(
    folder: Path, federation: Federation | None = None, settings: FederationSettings | None = None, seed: int = 3
) -> dict[str, SimulatedOwner]:
    made = federation or tiny_federation()
    create_stores(folder, made, settings or tiny_settings(), seed)
    return {name: SimulatedOwner.open(folder / "owners" / name) for name in made.members}


def test_a_created_owner_opens_with_all_it_was_given(tmp_path: Path) -> None:
    federation = tiny_federation(train={"bee": {"model": "TransR", "dim": 12, "relation_dim": 5}})
    found = members(tmp_path, federation)
    held = {name: held_splits(name, federation.graphs, federation.pairs) for name in OWNERS}
    for name, member in found.items():
        assert (member.name, member.seed, member.refuses) == (name, 3, ())
        assert member.graph.fingerprint == federation.graphs[name].fingerprint
        assert {peer: known.common for peer, known in member.peers.items()} == federation.common(name)
        assert all(np.array_equal(member.masks.held[split], mask) for split, mask in held[name].items())
        assert member.settings.train.model == ("TransR" if name == "bee" else "TransE")
        assert member.settings.model_copy(update={"train": None}) == tiny_settings().model_copy(update={"train": None})
    assert found["ant"].peers["bee"].model == "TransR"
    assert found["ant"].peers["bee"].widths == {"entity": 12, "relation": 5}
    for kind in KINDS:  # what two share begins alike
        here, there = found["ant"].peers["bee"].common, found["bee"].peers["ant"].common
        ant, bee = found["ant"].tokens[kind], found["bee"].tokens[kind]
        np.testing.assert_array_equal(ant[here.ids(kind)], bee[there.ids(kind)])


def test_an_owner_without_peers_trains_alone(tmp_path: Path) -> None:
    found = members(tmp_path, tiny_federation(OWNERS[:2], refuses=("ant", "bee")))
    arm = Arm("federated", Plan(2, 20, alone=False))
    assert all(member.peers == {} and ArmJob(member, arm).protocol_config().train_alone for member in found.values())


def test_an_unknown_model_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FkgeError, match="did you mean TransE"):
        members(tmp_path / "new", settings=tiny_settings(train={"model": "TranseE"}))
    with pytest.raises(FkgeError, match="owner bee: unknown key 'dims'; did you mean dim"):
        members(tmp_path / "new", tiny_federation(train={"bee": {"dims": 3}}))
    assert not (tmp_path / "new").exists()


def test_arms_make_different_owners(tmp_path: Path) -> None:
    member = members(tmp_path, settings=tiny_settings(decide="strict"))["ant"]
    plan = Plan(2, 20, alone=False)
    federated, trained = member.owner(Arm("federated", plan))
    assert not trained
    assert set(federated.peers) == {"bee", "cat"}
    assert federated.frame == ""
    lone, _ = member.owner(Arm("control", plan, peers=False))
    assert lone.peers == {}
    mixed, _ = member.owner(Arm("permuted", plan, permuted=True))
    for kind in KINDS:
        own, others = (
            np.concatenate([known.common.ids(kind) for known in owner.peers.values()]) for owner in (federated, mixed)
        )
        assert set(own) == set(others)
        assert (own != others).all()
        assert len(set(zip(own, others, strict=True))) == len(set(own))  # a thing is confused alike towards everybody
    assert not (lone.tables["entity"] == federated.tables["entity"]).any()
    strict = member.deciding(shared=True)
    free = ~(member.masks.held["valid"] | member.masks.chained["valid"])
    assert 0 < len(strict) == int(free.sum()) < len(member.graph.valid)


def test_an_owner_resumes_where_it_was_saved(tmp_path: Path) -> None:
    member = members(tmp_path)["ant"]
    first, then = Arm("independent", Plan(2, 2, alone=True), peers=False), Plan(2, 20, alone=True)
    owner, _ = member.owner(first)
    owner.improve(initial=True)
    member.workspace("independent").folder.mkdir(parents=True)
    owner.save(member.workspace("independent").folder / "checkpoint.safetensors")
    again, trained = member.owner(Arm("federated", then, begin_with="independent"))
    assert trained
    assert (again.trainer.epoch, again.activity) == (2, owner.activity)
    with pytest.raises(RunError, match="no such file"):
        member.owner(Arm("federated", then, begin_with="control"))
    foreign = replace(member, name="bee")
    foreign.workspace("federated").folder.mkdir(parents=True)
    owner.save(foreign.workspace("federated").folder / "checkpoint.safetensors")
    with pytest.raises(RunError, match="belongs to 'ant'"):
        foreign.owner(Arm("federated", then))


def test_ranks_are_saved_and_loaded(tmp_path: Path) -> None:
    ranks = Ranks(np.array([[1, 2], [3, 4]]), np.array([[1, 3], [3, 9]]))
    save_ranks(tmp_path / "ranks.safetensors", ranks, np.array([True, False]), np.array([False, False]))
    back, parts = load_ranks(tmp_path / "ranks.safetensors")
    np.testing.assert_array_equal(back.optimistic, ranks.optimistic)
    np.testing.assert_array_equal(back.pessimistic, ranks.pessimistic)
    assert {part: mask.tolist() for part, mask in parts.items()} == {
        "strict": [False, True], "chained": [False, False], "held": [True, False],
    }  # fmt: skip


def test_a_missing_store_is_reported(tmp_path: Path) -> None:
    members(tmp_path)
    (tmp_path / "owners" / "bee" / "peers.safetensors").unlink()
    with pytest.raises(RunError, match=r"owners/bee: is not an owner's store any more; restore it from a copy"):
        SimulatedOwner.open(tmp_path / "owners" / "bee")
