"""Blends of two models: one model whose scores are weighted sums, and never worse than either on validation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fkge.embed import Tables, Trainer, load_model, make_tables, save_model
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.evaluation.scoring import score_triples
from fkge.experiment.simulation import Simulation
from fkge.federation.owner import blend as module
from fkge.federation.owner import finish
from fkge.federation.owner.blend import WEIGHTS, blend, blend_with_lone
from fkge.federation.owner.finish import settings_of
from fkge.federation.owner.store import OwnerStore, create_store
from fkge.federation.source import Member
from fkge.settings import TrainSettings
from tests.conftest import arc, tiny_federation, tiny_settings

GRAPH = arc("ant", 0)
KNOWN = Known.of(GRAPH)
SETTINGS = TrainSettings(
    model="ComplEx", dim=6, loss="1vsall", reciprocal=True, optimizer="adagrad", lr=0.1, batch=40, share=50,
    regularizer="n3", regularization=0.01, decay=1.0, device="cpu", precision="float32",
)  # fmt: skip


def model(epochs: int, seed: int = 1, **changes: object) -> Tables:
    settings = SETTINGS.model_copy(update={"seed": seed, **changes})
    tables = make_tables(settings, len(GRAPH.entities), len(GRAPH.relations))
    trainer = Trainer(tables, GRAPH.train, settings)
    for _ in range(epochs):
        trainer.run_epoch()
    return tables


def mrr(tables: Tables) -> float:
    return metrics(rank(tables, GRAPH.valid, known=KNOWN))["mrr"]


@pytest.mark.parametrize("changes", [{}, {"reciprocal": False}, {"model": "DistMult"}, {"dim": 3}])
def test_the_score_of_a_blend_is_the_weighted_sum_of_scores(changes: dict[str, object]) -> None:
    first, second = model(2, **changes), model(2, seed=2, **changes | {"dim": 6})
    both = module.side_by_side(first, second, SETTINGS.model_copy(update=changes))
    weight = torch.full((first.relations,), 0.25)
    module.scale(both, first, second, [weight] * len(first.exchanged("relation")))
    expected = 0.25 * score_triples(first, GRAPH.valid) + 0.75 * score_triples(second, GRAPH.valid)
    torch.testing.assert_close(score_triples(both, GRAPH.valid), expected)


def test_a_blend_is_at_least_as_good_on_validation_as_both() -> None:
    first, second = model(12), model(12, seed=2)
    found = blend(first, second, SETTINGS, GRAPH.valid, KNOWN)
    assert found.scores[0] == pytest.approx(mrr(second))
    assert found.scores[-1] == pytest.approx(mrr(first))
    assert found.score == pytest.approx(mrr(found.tables))
    assert max(found.scores) >= max(mrr(first), mrr(second))
    assert found.weight == WEIGHTS[int(np.argmax(found.scores))]
    assert len(found.weights) == 2 * first.relations


def test_each_relation_has_the_weight_that_suits_it() -> None:
    """Of two models that each know one relation, the blend knows both."""
    whole = model(15)
    halves = []
    for keeps in (0, 1):
        tables = model(15)
        other = torch.arange(tables.relations) % 2 != keeps
        for name in tables.exchanged("relation"):
            tables[name][other] = torch.randn(tables[name][other].shape, generator=torch.Generator().manual_seed(keeps))
        halves.append(tables)
    found = blend(*halves, SETTINGS, np.repeat(GRAPH.valid, 20, axis=0), KNOWN)
    assert min(found.weights) <= 0.25
    assert max(found.weights) >= 0.65
    assert found.score > max(found.scores) + 0.01
    assert found.score == pytest.approx(mrr(whole), abs=0.02)


def test_of_distances_the_better_model_is_taken() -> None:
    settings = TrainSettings(dim=8, norm=2, margin=4.0, batch=32, negatives=4, lr=0.05, device="cpu")
    tables = [make_tables(settings, len(GRAPH.entities), len(GRAPH.relations)) for _ in range(2)]
    trainer = Trainer(tables[0], GRAPH.train, settings)
    for _ in range(10):
        trainer.run_epoch()
    better, worse = sorted(tables, key=mrr, reverse=True)
    assert mrr(better) > mrr(worse)
    assert blend(better, worse, settings, GRAPH.valid, KNOWN).tables is better
    assert blend(worse, better, settings, GRAPH.valid, KNOWN).tables is better
    assert blend(worse, better, settings, GRAPH.valid, KNOWN).weights == (0.0,)


def lone(folder: Path) -> OwnerStore:
    settings = tiny_settings(lone_epochs=8, initial_epochs=0, exchanges=6, epochs=2, test_every=1)
    settings = settings.model_copy(update={"train": SETTINGS})
    return create_store(folder, "ant", Member(GRAPH), settings, seed=3, secret=1)


def test_a_useless_model_is_replaced_by_a_second_lone_one(tmp_path: Path) -> None:
    useless = model(0)
    found = blend_with_lone(useless, lone(tmp_path), np.repeat(GRAPH.valid, 20, axis=0), peers=True)
    assert found is not None
    tables, report = found
    assert (report.weight, report.epochs) == (0.0, 20)
    assert report.score >= report.lone > report.first
    assert mrr(tables) == pytest.approx(report.score)


def test_a_control_trains_alone_once_more_and_repeats_to_the_bit(tmp_path: Path) -> None:
    runs = [blend_with_lone(model(8), lone(tmp_path / x), GRAPH.valid, peers=False) for x in "ab"]
    assert runs[0] is not None
    assert runs[1] is not None
    assert runs[0][1] == runs[1][1]
    assert runs[0][1].epochs == 8
    assert torch.equal(runs[0][0]["entity"], runs[1][0]["entity"])


def test_a_lone_model_is_trained_once(tmp_path: Path) -> None:
    def run(alone: OwnerStore, first: int = 0) -> tuple[int, Tables]:
        looks: list[int] = []
        found = blend_with_lone(
            model(first), alone, GRAPH.valid, peers=True, stop=lambda done: looks.append(done) is not None
        )
        assert found is not None
        assert found[1].epochs == (20 if found[1].weight == 0 else 8)
        return len(looks), found[0]

    alone = lone(tmp_path)
    kept = alone.folder / "lone"
    trained, tables = run(alone)
    again, same = run(alone)
    assert (trained, again) == (20, 0)
    assert torch.equal(tables["entity"], same["entity"])
    assert run(alone, first=30)[0] == 0  # whatever the other model is
    # Other settings make another model, which takes the place of the older one.
    settings = alone.settings.model_copy(update={"train": SETTINGS.model_copy(update={"lr": 0.05})})
    changed = replace(alone, settings=settings)
    assert run(changed)[0] == 20
    assert len(list(kept.iterdir())) == 2
    (damaged,) = (file for file in kept.iterdir() if not file.name.startswith("lone-again"))
    damaged.write_bytes(damaged.read_bytes()[:-40] + b"\0" * 40)
    assert run(changed)[0] == 8


@pytest.mark.parametrize("after", [1, 5])
def test_it_stops_between_epochs(after: int, tmp_path: Path) -> None:
    done = []

    def stop(epochs: int) -> bool:
        done.append(epochs)
        return epochs >= after

    assert blend_with_lone(model(1), lone(tmp_path), GRAPH.valid, peers=True, stop=stop) is None
    assert done == list(range(1, after + 1))


def test_a_relation_dim_that_was_given_is_no_obstacle() -> None:
    settings = SETTINGS.model_copy(update={"relation_dim": 6})
    found = blend(model(3), model(3, seed=2), settings, GRAPH.valid, KNOWN)
    assert settings_of(found.tables, settings).relation_dim == (None if found.tables.model.dim == 12 else 6)


def test_a_blend_is_saved_and_opened_like_any_model(tmp_path: Path) -> None:
    found = blend(model(6), model(6, seed=2), SETTINGS, GRAPH.valid, KNOWN)
    path = tmp_path / "model.safetensors"
    save_model(path, found.tables, settings_of(found.tables, SETTINGS))
    tables, settings = load_model(path, "cpu")
    assert settings.dim == found.tables.model.dim
    assert torch.equal(score_triples(tables, GRAPH.test), score_triples(found.tables, GRAPH.test))


def test_a_lone_training_that_diverges_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Simulation.create(
        tmp_path / "run",
        tiny_federation(("ant", "bee")),
        tiny_settings(exchanges=2, lone_epochs=2),
        engine="in-process",
    )

    def diverge(*_: object, **__: object) -> None:
        raise SettingsError("training diverged in epoch 1")

    monkeypatch.setattr(finish, "blend_with_lone", diverge)
    result = made.run()
    assert result is not None
    report = result.owners["ant"].arms["federated"]
    assert report.blend is not None
    assert (report.blend.failed, report.blend.weight) == ("training diverged in epoch 1", 1.0)


def test_owners_of_a_simulation_blend_and_resume_to_the_bit(tmp_path: Path) -> None:
    reports = []
    for name, least in (("whole", 10_000), ("stopped", 15)):
        made = Simulation.create(
            tmp_path / name, tiny_federation(("ant", "bee")), tiny_settings(exchanges=2, lone_epochs=4),
            baselines=("independent", "control", "fede"), engine="in-process",
        )  # fmt: skip
        result, patience = None, least
        while result is None:  # each start gets further than the one before
            looks = itertools.count()
            result = made.run(stop=lambda looks=looks, patience=patience: next(looks) >= patience)
            patience *= 2
        reports.append(result)
    whole, stopped = reports
    for owner in ("ant", "bee"):
        arms = whole.owners[owner].arms
        assert arms["independent"].blend is None
        assert {arm for arm in arms if arms[arm].blend is not None} == {"control", "federated", "fede"}
        assert arms["federated"].test == stopped.owners[owner].arms["federated"].test
        assert arms["control"].blend == stopped.owners[owner].arms["control"].blend
    assert whole.lone_epochs == 4
