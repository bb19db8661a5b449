"""The baselines with a server, against slow twins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fkge.align import initial_vectors
from fkge.embed import Tables, Trainer, initial_bound, load_model, make_tables
from fkge.embed.models import Kind
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.experiment.central import run_central
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, Member
from fkge.federation.owner import seed_of
from fkge.federation.source import Links
from tests.conftest import OWNERS, EventLog, arc, reported, tiny_federation, tiny_settings

KINDS: tuple[Kind, ...] = ("entity", "relation")


def simulation(folder: Path, federation: Federation | None = None, **settings: Any) -> Simulation:
    made = federation or tiny_federation()
    return Simulation.create(folder, made, tiny_settings(**settings), engine="in-process")


@pytest.mark.parametrize("arm", ["fede", "unified"])
def test_results_are_whole_and_finite(arm: str, tmp_path: Path) -> None:
    made, log = simulation(tmp_path / "run"), EventLog()
    run_central(arm, made.owners, log)
    for member in made.owners:
        result = reported(member, arm)
        assert result is not None
        assert result["tests"] == len(log.of("work", owner=member.name)) == 5
        assert all(math.isfinite(value) for part in result["test"].values() for value in part.values())
        tables, _ = load_model(member.workspace(arm).folder / "model.safetensors")
        score = metrics(rank(tables, member.graph.valid, known=Known.of(member.graph)))["mrr"]
        assert score == pytest.approx(result["best_score"]) == pytest.approx(result["valid"]["mrr"])


def test_owners_that_train_differently_have_no_server(tmp_path: Path) -> None:
    made = simulation(tmp_path / "run", tiny_federation(train={"bee": {"dim": 12}}))
    for arm in ("fede", "unified"):
        with pytest.raises(SettingsError, match=f"{arm}: a server can only average or merge owners that train alike"):
            run_central(arm, made.owners, EventLog())


@pytest.mark.parametrize("settings", [{}, {"start": "alone", "initial_epochs": 6, "exchanges": 9}, {"epochs": 3}])
def test_a_server_spends_what_the_lone_owner_does(settings: dict[str, Any], tmp_path: Path) -> None:
    """As many epochs and as many tests, even where the first training is no whole number of slices."""
    made = Simulation.create(
        tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(**settings), engine="in-process",
        baselines=["control", "fede", "unified"],
    )  # fmt: skip
    result = made.run()
    assert result is not None
    for owner in result.owners.values():
        arms = {arm: got for arm, got in owner.arms.items() if arm != "independent"}
        assert {got.epochs for got in arms.values()} == {made.settings.total_epochs}
        assert len({got.tests for got in arms.values()}) == 1


def test_the_learning_rate_falls_where_tests_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a plateau, once for every test that brings an owner nothing."""
    scales: dict[Trainer, list[float]] = {}
    train_on = Trainer.run_epoch

    def run_epoch(trainer: Trainer, *args: Any) -> float | None:
        scales.setdefault(trainer, []).append(trainer.lr_scale)
        return train_on(trainer, *args)

    monkeypatch.setattr(Trainer, "run_epoch", run_epoch)
    made, log = simulation(tmp_path / "run", train={"schedule": "plateau", "lr": 1.0, "decay": 0.5}), EventLog()
    run_central("fede", made.owners, log)
    for name, seen in zip(OWNERS, scales.values(), strict=True):
        stale = np.cumsum([not n["improved"] for n in log.of("work", owner=name)])
        assert seen[4::4] == [0.5**n for n in stale[:-1]]
    assert min(min(seen) for seen in scales.values()) < 1


def begun(member: SimulatedOwner, seed: int) -> Tables:
    """Tables as an owner has them that starts together with others."""
    train = member.settings.train
    tables = make_tables(
        train.model_copy(update={"seed": seed}), len(member.graph.entities), len(member.graph.relations)
    )
    for number, kind in enumerate(KINDS):
        half = initial_bound(train)
        rows = initial_vectors(member.tokens[kind], tables.width(kind), half, 2 * member.seed + number)
        tables[kind].copy_(torch.from_numpy(rows))
    return tables


def test_fede_is_local_training_with_means_in_between(tmp_path: Path) -> None:
    """By labels, in dictionaries, with no global ids."""
    made = simulation(tmp_path / "run", exchanges=4)
    run_central("fede", made.owners, EventLog())
    s = made.settings
    tables, trainers, best = {}, {}, {}
    for member in made.owners:
        seed = seed_of(member.seed, member.name, "train")
        tables[member.name] = begun(member, seed)
        settings = s.train.model_copy(update={"seed": seed})
        trainers[member.name] = Trainer(tables[member.name], member.graph.train, settings)
    for epoch in range(1, s.total_epochs + 1):
        for member in made.owners:
            trainers[member.name].lr_scale = 1 - (1 - s.train.decay) * (epoch - 1) / (s.total_epochs - 1)
            trainers[member.name].run_epoch()
            if epoch % 4 == 0 or epoch == s.total_epochs:
                score = metrics(rank(tables[member.name], member.graph.valid, known=Known.of(member.graph)))["mrr"]
                if member.name not in best or score > best[member.name][0]:
                    best[member.name] = (score, {kind: tables[member.name][kind].clone() for kind in KINDS})
        if epoch % 2 == 0:
            for kind in KINDS:
                held: dict[str, list[torch.Tensor]] = {}
                for member in made.owners:
                    labels = member.graph.entities if kind == "entity" else member.graph.relations
                    for label, row in zip(labels, tables[member.name][kind].clone(), strict=True):
                        held.setdefault(label, []).append(row)
                for member in made.owners:
                    labels = member.graph.entities if kind == "entity" else member.graph.relations
                    tables[member.name][kind].copy_(torch.stack([torch.stack(held[x]).mean(0) for x in labels]))
    for member in made.owners:
        got, _ = load_model(member.workspace("fede").folder / "model.safetensors")
        result = reported(member, "fede")
        assert result is not None
        assert result["best_score"] == pytest.approx(best[member.name][0], abs=1e-4)
        for kind in KINDS:
            torch.testing.assert_close(got[kind], best[member.name][1][kind], rtol=1e-3, atol=1e-3)


def test_twins_in_one_graph_end_alike(tmp_path: Path) -> None:
    """Two owners of one graph begin alike and, where everything is merged, end alike."""
    graph = arc("twin", 0)
    pairs = {("ant", "bee"): Links(same=True)}
    made = simulation(tmp_path / "run", Federation("twins", {"ant": Member(graph), "bee": Member(graph)}, pairs))
    ant, bee = (begun(member, 0) for member in made.owners)
    assert all(torch.equal(ant[kind], bee[kind]) for kind in KINDS)
    run_central("unified", made.owners, EventLog())
    ant, bee = (load_model(member.workspace("unified").folder / "model.safetensors")[0] for member in made.owners)
    assert all(torch.equal(ant[kind], bee[kind]) for kind in KINDS)


def test_unified_owners_see_rows_of_one_table(tmp_path: Path) -> None:
    """Whoever keeps the vectors of the same epoch has the same row for the same thing."""
    made = simulation(tmp_path / "run", exchanges=2, test_every=99)  # one test, at the end: all keep that epoch's
    run_central("unified", made.owners, EventLog())
    rows: dict[str, list[np.ndarray[Any, Any]]] = {}
    for member in made.owners:
        tables, _ = load_model(member.workspace("unified").folder / "model.safetensors")
        for label, row in zip(member.graph.entities, tables["entity"].numpy(), strict=True):
            rows.setdefault(label, []).append(row)
    shared = [group for group in rows.values() if len(group) > 1]
    assert len(shared) == 60  # every place of the circle has two owners
    for first, *others in shared:
        assert all(np.array_equal(first, other) for other in others)


RECIPROCAL = {
    "model": "ComplEx", "loss": "1vsall", "reciprocal": True, "optimizer": "adagrad", "lr": 0.1,
    "regularization": 0.05, "regularizer": "n3",
}  # fmt: skip


@pytest.mark.parametrize("moments", ["average", "keep"])
def test_fede_averages_inverse_rows_and_sums(moments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins in one graph that train in another order: after a slice they are alike, with their sums or without."""
    graph = arc("twin", 0)
    pairs = {("ant", "bee"): Links(same=True)}
    both = Federation("twins", {"ant": Member(graph), "bee": Member(graph)}, pairs)
    made = simulation(tmp_path / "run", both, moments=moments, train=RECIPROCAL)
    seen: list[dict[str, torch.Tensor]] = []

    def scored(tables: Tables, *args: Any, **kwargs: Any) -> Any:
        seen.append({name: t.clone() for name, t in tables.export(state=True).items()})
        return rank(tables, *args, **kwargs)

    monkeypatch.setattr("fkge.experiment.central.rank", scored)
    monkeypatch.setattr("fkge.experiment.central.validation_due", lambda settings, epoch: epoch % 2 == 1 and epoch > 1)
    train_on = Trainer.run_epoch
    # No training in the epoch after a mean, so what is scored is the mean.
    monkeypatch.setattr(
        Trainer, "run_epoch", lambda t, *a: train_on(t, *a) if t.epoch % 2 else setattr(t, "epoch", t.epoch + 1)
    )
    run_central("fede", made.owners, EventLog())
    ant, bee = seen[:2]
    assert ant.keys() == bee.keys() >= {"relation/inverse", "relation/inverse.sum"}
    for name in ant:
        assert torch.equal(ant[name], bee[name]) == ("." not in name or moments == "average"), name
    sent = reported(made.owners[0], "fede")
    assert sent is not None
    rows = 4 * (len(graph.entities) * 16 + len(graph.relations) * 32)
    assert sent["sent"] == {"server": made.settings.total_epochs // 2 * rows * (2 if moments == "average" else 1)}


def test_unified_reciprocal_owners_see_rows_of_one_table(tmp_path: Path) -> None:
    made = simulation(tmp_path / "run", exchanges=2, test_every=99, train=RECIPROCAL)
    run_central("unified", made.owners, EventLog())
    tables = [load_model(m.workspace("unified").folder / "model.safetensors")[0] for m in made.owners]
    assert all(torch.equal(tables[0]["inverse"], other["inverse"]) for other in tables)
