"""Whatever an owner keeps to itself, what leaves it is the same, byte for byte."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fkge.audit.attacks.non_interference import disturbed, non_interference
from fkge.experiment.engines import ENGINES
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, FederationSettings, read_federation
from fkge.graph import Policy, Shareable
from tests.conftest import OWNERS, EventLog, tiny_federation, tiny_settings
from tests.replay import replay

DBP5L = Path(__file__).parents[3] / "shared" / "data" / "dbp5l"
WAYS: dict[str, dict[str, Any]] = {
    "frame": {},
    "alone, then procrustes": {"start": "alone", "translate": "procrustes", "decide": "strict"},
    "game": {"translate": "ppat", "patience": 1},
    "neighbours": {"neighbours": True, "aggregate": "validation"},
}


def keeping(share: float = 0.3) -> Federation:
    return tiny_federation().keeping(share, seed=4)


def other_secrets(federation: Federation) -> Federation:
    return replace(federation, members={name: disturbed(m, 1) for name, m in federation.members.items()})


def leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """One confidential training triple slips into what an owner takes to be shareable."""
    honest = Policy.shareable

    def careless(policy: Policy, graph: Any) -> Shareable:
        part = honest(policy, graph)
        kept = (
            {i: n for n, i in enumerate(part.entities.tolist())},
            {i: n for n, i in enumerate(part.relations.tolist())},
        )
        for h, r, t in graph.train[~part.masks["train"]].tolist():
            if h in kept[0] and r in kept[1] and t in kept[0]:
                extra = np.array([[kept[0][h], kept[1][r], kept[0][t]]], np.int32)
                splits = {**part.graph.splits, "train": np.concatenate([part.graph.train, extra])}
                return replace(part, graph=replace(part.graph, splits=splits))
        raise AssertionError("nothing to leak")

    monkeypatch.setattr(Policy, "shareable", careless)


RECORDED = sorted(set(ENGINES) - {"nodes"})
"""Engines with one order of things: a node receives on its loop while a thread works, which no recording holds."""


@pytest.mark.parametrize("way", sorted(WAYS))
def test_nothing_that_leaves_depends_on_a_confidential_triple(way: str, tmp_path: Path) -> None:
    found = non_interference(keeping(), tiny_settings(**WAYS[way]), tmp_path)
    for owner in found.values():
        assert owner.same, found
        assert owner.messages > 10
        assert owner.secrets["train"] > 10


def test_other_secrets_are_others() -> None:
    """The disturbance disturbs: in every split, and the ids of the whole graph with it."""
    for member, other in zip(keeping().members.values(), other_secrets(keeping()).members.values(), strict=True):
        assert member.policy is not None
        assert other.graph.entities[0] not in member.graph.entities
        for split in ("train", "valid", "test"):
            before, after = (
                {tuple(m.graph.entities[i] if k != 1 else m.graph.relations[i] for k, i in enumerate(t)) for t in
                 m.graph.splits[split][~member.policy.mask(m.graph, split)].tolist()}
                for m in (member, other)
            )  # fmt: skip
            assert before - after
            assert after - before


def test_a_leak_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leak(monkeypatch)
    found = non_interference(keeping(), tiny_settings(), tmp_path)
    assert all(owner.first_difference is not None for owner in found.values())


@pytest.mark.parametrize("engine", RECORDED)
def test_an_owner_with_other_secrets_says_the_same_to_all_it_heard(engine: str, tmp_path: Path) -> None:
    replayed(keeping(), tiny_settings(), engine, tmp_path, OWNERS)


@pytest.mark.parametrize("engine", RECORDED)
def test_a_leak_is_heard_on_tape(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Simulation.create(tmp_path / "run", keeping(), tiny_settings(), baselines=(), engine=engine)
    recorded(made, engine, tmp_path / "recordings")
    leak(monkeypatch)
    other = Simulation.create(tmp_path / "other", other_secrets(keeping()), tiny_settings(), baselines=())
    assert not any(replay(member, other.arm("federated"), tmp_path / "recordings" / f"{member.name}.tape").same
                   for member in other.owners)  # fmt: skip


def recorded(made: Simulation, engine: str, folder: Path) -> None:
    with ENGINES[engine](made.owners, EventLog(), recordings=folder) as running:
        assert running.run(made.arm("federated"))


def replayed(
    federation: Federation, settings: FederationSettings, engine: str, folder: Path, owners: tuple[str, ...]
) -> None:
    made = Simulation.create(folder / "run", federation, settings, baselines=(), engine=engine)
    recorded(made, engine, folder / "recordings")
    other = Simulation.create(folder / "other", other_secrets(federation), settings, baselines=())
    same = Simulation.create(folder / "same", federation, settings, baselines=())
    for name in owners:
        for world in (same, other):
            owner = next(owner for owner in world.owners if owner.name == name)
            found = replay(owner, world.arm("federated"), folder / "recordings" / f"{name}.tape")
            assert found.same, (name, world.folder.name, found.difference)
            assert found.messages > 10
        shutil.rmtree(folder / "same" / "arms" / "federated" / name, ignore_errors=True)


@pytest.mark.long
@pytest.mark.skipif(not DBP5L.is_dir(), reason="needs the DBP-5L federation in ../shared/data")
@pytest.mark.parametrize("engine", RECORDED)
def test_five_dbpedias(engine: str, tmp_path: Path) -> None:
    """A fifth of every owner's triples confidential."""
    settings = FederationSettings.load(
        Path(__file__).parents[2] / "src" / "fkge" / "recipes" / "federations" / "dbp5l.toml",
        ("initial_epochs=0", "exchanges=3", "private.epochs=0", "train.dim=32", "train.negatives=16"),
    )
    federation = read_federation(DBP5L).keeping(0.2, seed=0)
    if engine == "in-process":  # everything twice, byte by byte
        found = non_interference(federation, settings, tmp_path / "worlds", exchanges=2)
        assert all(owner.same for owner in found.values()), found
        return
    made = Simulation.create(tmp_path / "run", federation, settings, baselines=(), engine=engine)
    recorded(made, engine, tmp_path / "recordings")
    other = Simulation.create(tmp_path / "other", other_secrets(federation), settings, baselines=())
    for member in other.owners:
        found = replay(member, other.arm("federated"), tmp_path / "recordings" / f"{member.name}.tape")
        assert found.same, (member.name, found.difference)
        assert found.messages > 10
