"""Homes: an owner finds in its folder all it needs, and nothing of anybody else's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import OWNERS, tiny_federation, tiny_settings

from fkge.align import held_splits
from fkge.align.links import KINDS
from fkge.errors import FkgeError, RunError
from fkge.evaluation import Ranks
from fkge.federation import Arm, Federation, FederationSettings, Home, Plan, load_ranks, make_homes
from fkge.federation.home import save_ranks


def homes(
    folder: Path, federation: Federation | None = None, settings: FederationSettings | None = None, seed: int = 3
) -> dict[str, Home]:
    made = federation or tiny_federation()
    make_homes(folder, made, settings or tiny_settings(), seed)
    return {name: Home.open(folder / "owners" / name) for name in made.members}


def test_what_is_put_into_a_home_is_found_there(tmp_path: Path) -> None:
    federation = tiny_federation(train={"bee": {"model": "TransR", "dim": 12, "relation_dim": 5}})
    found = homes(tmp_path, federation)
    held = {name: held_splits(name, federation.graphs, federation.pairs) for name in OWNERS}
    for name, home in found.items():
        assert (home.name, home.seed, home.refuses) == (name, 3, ())
        assert home.graph.fingerprint == federation.graphs[name].fingerprint
        assert {peer: known.common for peer, known in home.peers.items()} == federation.common(name)
        assert all(np.array_equal(home.whole.held[split], mask) for split, mask in held[name].items())
        assert home.settings.train.model == ("TransR" if name == "bee" else "TransE")
        assert home.settings.model_copy(update={"train": None}) == tiny_settings().model_copy(update={"train": None})
    assert found["ant"].peers["bee"].model == "TransR"
    assert found["ant"].peers["bee"].widths == {"entity": 12, "relation": 5}
    for kind in KINDS:  # what two share begins alike
        here, there = found["ant"].peers["bee"].common, found["bee"].peers["ant"].common
        ant, bee = found["ant"].tokens[kind], found["bee"].tokens[kind]
        np.testing.assert_array_equal(ant[here.ids(kind)], bee[there.ids(kind)])


@pytest.mark.parametrize("changes", [{"share": "entities"}, {"share": "relations"}, {"ratio": 0.5}, {"ratio": 0.2}])
def test_both_sides_share_the_same_part(changes: dict[str, Any], tmp_path: Path) -> None:
    found = homes(tmp_path, settings=tiny_settings(**changes))
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


def test_who_refuses_is_known_to_nobody_refused(tmp_path: Path) -> None:
    found = homes(tmp_path, tiny_federation(refuses=("ant", "cat")))
    assert {name: set(home.peers) for name, home in found.items()} == {
        "ant": {"bee"},
        "bee": {"ant", "cat"},
        "cat": {"bee"},
    }
    assert found["ant"].refuses == ("cat",)


def test_one_without_peers_trains_alone(tmp_path: Path) -> None:
    found = homes(tmp_path, tiny_federation(OWNERS[:2], refuses=("ant", "bee")))
    arm = Arm("federated", Plan(2, 20, alone=False))
    assert all(home.peers == {} and home.manners(arm).train_alone for home in found.values())


def test_a_model_that_is_none_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FkgeError, match="did you mean TransE"):
        homes(tmp_path / "new", settings=tiny_settings(train={"model": "TranseE"}))
    with pytest.raises(FkgeError, match="owner bee: unknown key 'dims'; did you mean dim"):
        homes(tmp_path / "new", tiny_federation(train={"bee": {"dims": 3}}))
    assert not (tmp_path / "new").exists()


def test_arms_make_different_owners(tmp_path: Path) -> None:
    home = homes(tmp_path, settings=tiny_settings(decide="strict"))["ant"]
    plan = Plan(2, 20, alone=False)
    federated, trained = home.owner(Arm("federated", plan))
    assert not trained
    assert set(federated.peers) == {"bee", "cat"}
    assert federated.frame == ""
    lone, _ = home.owner(Arm("control", plan, peers=False))
    assert lone.peers == {}
    mixed, _ = home.owner(Arm("permuted", plan, permuted=True))
    for kind in KINDS:
        own, others = (
            np.concatenate([known.common.ids(kind) for known in owner.peers.values()]) for owner in (federated, mixed)
        )
        assert set(own) == set(others)
        assert (own != others).all()
        assert len(set(zip(own, others, strict=True))) == len(set(own))  # a thing is confused alike towards everybody
    assert not (lone.tables["entity"] == federated.tables["entity"]).any()
    strict = home.deciding(shared=True)
    free = ~(home.whole.held["valid"] | home.whole.chained["valid"])
    assert 0 < len(strict) == int(free.sum()) < len(home.graph.valid)


def test_mixed_up_rows_that_meet_begin_alike(tmp_path: Path) -> None:
    """The control differs in one thing only: what rows that meet stand for."""
    found, plan = homes(tmp_path), Plan(2, 20, alone=False)
    for arm in (Arm("federated", plan), Arm("permuted", plan, permuted=True)):
        owners = {name: home.owner(arm)[0] for name, home in found.items()}
        for a in OWNERS:
            for b in set(OWNERS) - {a}:
                here, there = owners[a].common(b), owners[b].common(a)
                for kind in KINDS:
                    assert len(here.ids(kind)) == len(found[a].peers[b].common.ids(kind))
                    rows, theirs = (owners[name].tables[kind].numpy() for name in (a, b))
                    np.testing.assert_array_equal(rows[here.ids(kind)], theirs[there.ids(kind)])
                labels = [found[a].graph.entities[i] for i in here.entities]
                met = [found[b].graph.entities[i] for i in there.entities]
                same = sum(x == y for x, y in zip(labels, met, strict=True))
                assert same == 20 if arm.name == "federated" else same < 5


@pytest.mark.parametrize("changes", [{"share": "entities"}, {"share": "relations"}, {"ratio": 0.5}])
def test_equal_labels_that_are_not_shared_do_not_begin_alike(changes: dict[str, Any], tmp_path: Path) -> None:
    found = homes(tmp_path, tiny_federation(OWNERS[:2]), tiny_settings(**changes))
    ant, bee = found["ant"], found["bee"]
    here, there = ant.peers["bee"].common, bee.peers["ant"].common
    owners = [home.owner(Arm("federated", Plan(2, 20, alone=False)))[0] for home in (ant, bee)]
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


def test_an_owner_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    home = homes(tmp_path)["ant"]
    first, then = Arm("independent", Plan(2, 2, alone=True), peers=False), Plan(2, 20, alone=True)
    owner, _ = home.owner(first)
    owner.improve(initial=True)
    home.arm_folder("independent").mkdir(parents=True)
    owner.save(home.arm_folder("independent") / "checkpoint.safetensors")
    again, trained = home.owner(Arm("federated", then, begin_with="independent"))
    assert trained
    assert (again.trainer.epoch, again.activity) == (2, owner.activity)
    with pytest.raises(RunError, match="no such file"):
        home.owner(Arm("federated", then, begin_with="control"))
    foreign = replace(home, name="bee")
    foreign.arm_folder("federated").mkdir(parents=True)
    owner.save(foreign.arm_folder("federated") / "checkpoint.safetensors")
    with pytest.raises(RunError, match="belongs to 'ant'"):
        foreign.owner(Arm("federated", then))


def test_ranks_come_back(tmp_path: Path) -> None:
    ranks = Ranks(np.array([[1, 2], [3, 4]]), np.array([[1, 3], [3, 9]]))
    save_ranks(tmp_path / "ranks.safetensors", ranks, np.array([True, False]))
    back, parts = load_ranks(tmp_path / "ranks.safetensors")
    np.testing.assert_array_equal(back.optimistic, ranks.optimistic)
    np.testing.assert_array_equal(back.pessimistic, ranks.pessimistic)
    assert {part: mask.tolist() for part, mask in parts.items()} == {
        "strict": [False, True], "chained": [False, False], "held": [True, False],
    }  # fmt: skip


def test_a_home_that_is_gone_says_so(tmp_path: Path) -> None:
    homes(tmp_path)
    (tmp_path / "owners" / "bee" / "peers.safetensors").unlink()
    with pytest.raises(RunError, match=r"owners/bee: is no owner's home any more; put it back from a copy"):
        Home.open(tmp_path / "owners" / "bee")
