"""Objectives train as the commands do, look at validation triples alone, and end when they are told to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fkge.evaluation import rank
from fkge.experiment.setup import create_stores
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.graph import Policy
from fkge.tune import objective as module
from fkge.tune.objective import FederationObjective, GraphObjective, brief
from tests.conftest import OWNERS, random_graph, tiny_federation
from tests.unit.tune.conftest import quick_start, tiny_start


def never(epoch: int, score: float) -> bool:
    return False


def unlimited() -> None:
    return None


def test_a_trial_trains_as_fkge_train_does(tmp_path: Path) -> None:
    graph, settings = random_graph(), quick_start(epochs=12, patience=2, validate_every=2)
    run = Run.create(tmp_path / "run", graph, settings)
    result = run.train()
    assert result is not None
    told: list[tuple[int, float]] = []
    attempt = GraphObjective(graph)(settings, lambda *said: told.append(said) or False, unlimited)  # type: ignore[func-returns-value]
    assert (attempt.epochs, attempt.best_epoch) == (result.epochs, result.best_epoch)
    assert attempt.score == pytest.approx(result.splits["valid"].mrr, abs=1e-12)
    assert attempt.score == told[-1][1] == max(score for _, score in told)
    assert attempt.tables is not None
    assert np.array_equal(attempt.tables["entity"].numpy(), run.load("cpu")["entity"].numpy())
    assert attempt.ended in ("patience", "epochs")


def test_only_validation_triples_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[Any] = []

    def spy(tables: Any, triples: Any, **more: Any) -> Any:
        ranked.append(triples)
        return rank(tables, triples, **more)

    monkeypatch.setattr(module, "rank", spy)
    graph = random_graph()
    GraphObjective(graph)(quick_start(), never, unlimited)
    assert len(ranked) == 4
    assert all(np.array_equal(triples, graph.valid) for triples in ranked)


@pytest.mark.parametrize("why", ["time", "cut"])
def test_a_limit_ends_a_trial_and_what_it_reached_counts(why: Any) -> None:
    asked = 0

    def limit() -> Any:
        nonlocal asked
        asked += 1
        return why if asked > 5 else None

    attempt = GraphObjective(random_graph())(quick_start(epochs=1000, validate_every=500), never, limit)
    assert attempt.ended == why
    assert attempt.epochs < 10
    assert attempt.score is not None
    assert 0 < attempt.best_epoch <= attempt.epochs


def test_a_pruned_trial_ends_at_that_validation() -> None:
    attempt = GraphObjective(random_graph())(quick_start(epochs=50), lambda epoch, score: epoch == 3, unlimited)
    assert (attempt.ended, attempt.epochs) == ("pruned", 3)


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    create_stores(tmp_path, tiny_federation(), tiny_start(), 0)
    return tmp_path


@pytest.mark.parametrize("arm", ["control", "federated"])
def test_a_federation_is_scored_as_its_simulation_on_validation(arm: str, stores: Path, tmp_path: Path) -> None:
    settings = tiny_start(train={"dim": 12})
    simulation = Simulation.create(tmp_path / "run", tiny_federation(), settings, engine="in-process")
    result = simulation.run()
    assert result is not None
    best = [owner.arms[arm].best_score for owner in result.owners.values()]
    told: list[tuple[int, float]] = []
    objective = FederationObjective(stores, list(OWNERS), arm, "here")
    attempt = objective(settings, lambda *said: told.append(said) or False, unlimited)  # type: ignore[func-returns-value]
    assert attempt.score == pytest.approx(np.mean([score for score in best if score is not None]))
    assert (attempt.ended, attempt.epochs) == ("epochs", settings.total_epochs)
    assert [epoch for epoch, _ in told] == [4, 8]
    assert not (stores / "scratch" / "here").exists()


def test_a_federation_is_pruned_and_limited(stores: Path) -> None:
    objective = FederationObjective(stores, list(OWNERS), "federated", "here")
    pruned = objective(tiny_start(), lambda epoch, score: True, unlimited)
    assert (pruned.ended, pruned.epochs) == ("pruned", 4)
    assert pruned.score is not None
    cut = objective(tiny_start(), never, lambda: "cut")
    assert cut.ended == "cut"
    assert cut.score is not None, "owners that were stopped before their first validation are scored as they are"


def test_a_private_track_is_scored_on_validation(tmp_path: Path) -> None:
    federation = tiny_federation()
    policy = Policy.build({"default": "share", "rules": [{"share": False, "fraction": 0.3, "seed": 0}]})
    members = {**federation.members, "ant": federation.members["ant"].keeping(policy)}
    settings = tiny_start(private={"epochs": 2, "tests": 1})
    create_stores(tmp_path, replace(federation, members=members), settings, 0)
    attempt = FederationObjective(tmp_path, list(OWNERS), "federated", "here")(settings, never, unlimited)
    assert attempt.score is not None
    assert 0 < attempt.score <= 1


def test_settings_in_a_few_words() -> None:
    assert brief({"model": "TransE", "loss": "sigmoid", "lr": 0.01234, "dim": 3}) == "TransE, sigmoid, dim 3, lr 0.0123"
    assert brief({"train.model": "TransE", "exchanges": 3}) == "TransE"
