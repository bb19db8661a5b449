"""The baselines with a server, against slow twins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import OWNERS, Notes, arc, tiny_federation, tiny_settings

from fkge.align import initial_vectors
from fkge.embed import Tables, Trainer, initial_bound, load_model, make_tables
from fkge.embed.models import Kind
from fkge.engines import run_central
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.federation import Federation, Home, Member
from fkge.federation.owner import seed_of
from fkge.federation.source import Links
from fkge.simulations import Simulation

KINDS: tuple[Kind, ...] = ("entity", "relation")


def simulation(folder: Path, federation: Federation | None = None, **settings: Any) -> Simulation:
    made = federation or tiny_federation()
    return Simulation.create(folder, made, tiny_settings(**settings), engine="in-process")


@pytest.mark.parametrize("arm", ["fede", "unified"])
def test_results_are_whole_and_finite(arm: str, tmp_path: Path) -> None:
    made, notes = simulation(tmp_path / "run"), Notes()
    run_central(arm, made.homes, notes)
    for home in made.homes:
        result = home.result(arm)
        assert result is not None
        assert result["tests"] == len(notes.of("work", owner=home.name)) == 5
        assert all(math.isfinite(value) for part in result["test"].values() for value in part.values())
        tables, _ = load_model(home.arm_folder(arm) / "model.safetensors")
        score = metrics(rank(tables, home.graph.valid, known=Known.of(home.graph)))["mrr"]
        assert score == pytest.approx(result["best_score"]) == pytest.approx(result["valid"]["mrr"])


def test_owners_that_train_differently_have_no_server(tmp_path: Path) -> None:
    made = simulation(tmp_path / "run", tiny_federation(train={"bee": {"dim": 12}}))
    for arm in ("fede", "unified"):
        with pytest.raises(SettingsError, match=f"{arm}: a server can only average or merge owners that train alike"):
            run_central(arm, made.homes, Notes())


@pytest.mark.parametrize("settings", [{}, {"start": "alone", "initial_epochs": 6, "exchanges": 9}, {"epochs": 3}])
def test_a_server_spends_what_the_lone_owner_does(settings: dict[str, Any], tmp_path: Path) -> None:
    """As many epochs and as many tests, even where the first training is no whole number of slices."""
    made = Simulation.create(
        tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(**settings), engine="in-process",
        baselines=["control", "fede", "unified"],
    )  # fmt: skip
    result = made.run()
    assert result is not None
    for owner in result["owners"].values():
        arms = {arm: got for arm, got in owner["arms"].items() if arm != "independent"}
        assert {got["epochs"] for got in arms.values()} == {made.settings.total_epochs}
        assert len({got["tests"] for got in arms.values()}) == 1


def test_the_learning_rate_falls_where_tests_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a plateau, once for every test that brings an owner nothing."""
    scales: dict[Trainer, list[float]] = {}
    train_on = Trainer.run_epoch

    def run_epoch(trainer: Trainer, *args: Any) -> float | None:
        scales.setdefault(trainer, []).append(trainer.lr_scale)
        return train_on(trainer, *args)

    monkeypatch.setattr(Trainer, "run_epoch", run_epoch)
    made, notes = simulation(tmp_path / "run", train={"schedule": "plateau", "lr": 1.0, "decay": 0.5}), Notes()
    run_central("fede", made.homes, notes)
    for name, seen in zip(OWNERS, scales.values(), strict=True):
        stale = np.cumsum([not n["improved"] for n in notes.of("work", owner=name)])
        assert seen[4::4] == [0.5**n for n in stale[:-1]]
    assert min(min(seen) for seen in scales.values()) < 1


def begun(home: Home, seed: int) -> Tables:
    """Tables as an owner has them that starts together with others."""
    train = home.settings.train
    tables = make_tables(train.model_copy(update={"seed": seed}), len(home.graph.entities), len(home.graph.relations))
    for number, kind in enumerate(KINDS):
        half = initial_bound(train)
        rows = initial_vectors(home.tokens[kind], tables.width(kind), half, 2 * home.seed + number)
        tables[kind].copy_(torch.from_numpy(rows))
    return tables


def test_fede_is_local_training_with_means_in_between(tmp_path: Path) -> None:
    """By labels, in dictionaries, with no global ids."""
    made = simulation(tmp_path / "run", exchanges=4)
    run_central("fede", made.homes, Notes())
    s = made.settings
    tables, trainers, best = {}, {}, {}
    for home in made.homes:
        seed = seed_of(home.seed, home.name, "train")
        tables[home.name] = begun(home, seed)
        settings = s.train.model_copy(update={"seed": seed})
        trainers[home.name] = Trainer(tables[home.name], home.graph.train, settings)
    for epoch in range(1, s.total_epochs + 1):
        for home in made.homes:
            trainers[home.name].lr_scale = 1 - (1 - s.train.decay) * (epoch - 1) / (s.total_epochs - 1)
            trainers[home.name].run_epoch()
            if epoch % 4 == 0 or epoch == s.total_epochs:
                score = metrics(rank(tables[home.name], home.graph.valid, known=Known.of(home.graph)))["mrr"]
                if home.name not in best or score > best[home.name][0]:
                    best[home.name] = (score, {kind: tables[home.name][kind].clone() for kind in KINDS})
        if epoch % 2 == 0:
            for kind in KINDS:
                held: dict[str, list[torch.Tensor]] = {}
                for home in made.homes:
                    labels = home.graph.entities if kind == "entity" else home.graph.relations
                    for label, row in zip(labels, tables[home.name][kind].clone(), strict=True):
                        held.setdefault(label, []).append(row)
                for home in made.homes:
                    labels = home.graph.entities if kind == "entity" else home.graph.relations
                    tables[home.name][kind].copy_(torch.stack([torch.stack(held[x]).mean(0) for x in labels]))
    for home in made.homes:
        got, _ = load_model(home.arm_folder("fede") / "model.safetensors")
        result = home.result("fede")
        assert result is not None
        assert result["best_score"] == pytest.approx(best[home.name][0], abs=1e-4)
        for kind in KINDS:
            torch.testing.assert_close(got[kind], best[home.name][1][kind], rtol=1e-3, atol=1e-3)


def test_twins_in_one_graph_end_alike(tmp_path: Path) -> None:
    """Two owners of one graph begin alike and, where everything is merged, end alike."""
    graph = arc("twin", 0)
    pairs = {("ant", "bee"): Links(same=True)}
    made = simulation(tmp_path / "run", Federation("twins", {"ant": Member(graph), "bee": Member(graph)}, pairs))
    ant, bee = (begun(home, 0) for home in made.homes)
    assert all(torch.equal(ant[kind], bee[kind]) for kind in KINDS)
    run_central("unified", made.homes, Notes())
    ant, bee = (load_model(home.arm_folder("unified") / "model.safetensors")[0] for home in made.homes)
    assert all(torch.equal(ant[kind], bee[kind]) for kind in KINDS)


def test_unified_owners_see_rows_of_one_table(tmp_path: Path) -> None:
    """Whoever keeps the vectors of the same epoch has the same row for the same thing."""
    made = simulation(tmp_path / "run", exchanges=2, test_every=99)  # one test, at the end: all keep that epoch's
    run_central("unified", made.homes, Notes())
    rows: dict[str, list[np.ndarray[Any, Any]]] = {}
    for home in made.homes:
        tables, _ = load_model(home.arm_folder("unified") / "model.safetensors")
        for label, row in zip(home.graph.entities, tables["entity"].numpy(), strict=True):
            rows.setdefault(label, []).append(row)
    shared = [group for group in rows.values() if len(group) > 1]
    assert len(shared) == 60  # every place of the circle has two owners
    for first, *others in shared:
        assert all(np.array_equal(first, other) for other in others)
