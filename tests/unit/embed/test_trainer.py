"""Trainers: virtual rows are grafted and removed, and a rolled back trainer repeats its steps."""

from __future__ import annotations

import math

import pytest
import torch

from fkge.embed import MODELS, Tables, Trainer, make_tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from tests.conftest import random_graph

GRAPH = random_graph()


SOFTMAX = [
    {"loss": "1vsall", "reciprocal": True, "dropout": 0.3, "smoothing": 0.1, "relation_weight": 0.5},
    {"loss": "kvsall", "regularization": 0.01, "regularizer": "n3"},
    {"loss": "sampled", "reciprocal": True, "share": 4},
]


def trained(model: str = "TransE", **changes: object) -> tuple[Tables, Trainer]:
    s = TrainSettings(model=model, dim=6, batch=50, negatives=4, device="cpu", **changes)  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5)
    trainer = Trainer(tables, GRAPH.train, s)
    trainer.run_epoch()
    return tables, trainer


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def copy_of(tables: Tables) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in tables.export(state=True).items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", list(MODELS))
def test_a_graft_trains_and_leaves_without_a_trace(model: str, optimizer: str) -> None:
    tables, trainer = trained(model, optimizer=optimizer)
    shapes = {k: v.shape for k, v in tables.export(state=True).items()}
    virtual = torch.tensor([[40, 5, 0], [1, 0, 41], [40, 5, 41]])
    entities, relations = torch.randn(2, tables.width("entity")), torch.randn(1, tables.width("relation"))
    trainer.graft(entities, relations, virtual)
    assert (tables.entities, tables.relations) == (42, 6)
    assert trainer.triples == len(GRAPH.train) + 3
    before = tables["entity"].clone()
    assert torch.equal(before[40:], entities)
    trainer.run_epoch()
    assert not torch.equal(tables["entity"][40:], before[40:])
    learned = tables["entity"][:40].clone()
    trainer.ungraft()
    assert {k: v.shape for k, v in tables.export(state=True).items()} == shapes
    assert torch.equal(tables["entity"], learned)
    assert trainer.triples == len(GRAPH.train)
    assert (tables.entities, tables.relations) == (40, 5)
    assert trainer.run_epoch() is not None


def test_a_graft_that_names_nobody_is_refused_and_undone() -> None:
    tables, trainer = trained()
    before = copy_of(tables)
    with pytest.raises(SettingsError, match="not there"):
        trainer.graft(torch.zeros(1, 6), torch.zeros(0, 6), torch.tensor([[41, 0, 0]]))
    assert same(copy_of(tables), before)
    trainer.graft(torch.zeros(1, 6), torch.zeros(0, 6), torch.tensor([[40, 0, 0]]))
    with pytest.raises(SettingsError, match="already"):
        trainer.graft(torch.zeros(1, 6), torch.zeros(0, 6), torch.tensor([[40, 0, 0]]))


def test_a_roll_back_retraces_the_same_steps() -> None:
    tables, trainer = trained()
    snapshot, position = tables.snapshot(), trainer.position()
    trainer.run_epoch()
    first = copy_of(tables)
    tables.restore(snapshot)
    trainer.move_to(position)
    trainer.run_epoch()
    assert same(copy_of(tables), first)


def test_a_second_graft_finds_the_room_of_the_first() -> None:
    tables, trainer = trained()
    for turn in range(3):
        before = copy_of(tables)
        address = tables["entity"].data_ptr()
        trainer.graft(torch.randn(4, 6), torch.zeros(0, 6), torch.tensor([[40, 0, 43]]))
        assert turn == 0 or tables["entity"].data_ptr() == address
        assert tables.state("entity", "steps", columns=False)[40:].sum() == 0
        trainer.ungraft()
        assert same(copy_of(tables), before)


@pytest.mark.parametrize("changes", SOFTMAX)
def test_one_seed_gives_the_same_bits(changes: dict[str, object]) -> None:
    results = [copy_of(trained("ComplEx", **changes, seed=seed)[0]) for seed in (1, 1, 2)]
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("changes", SOFTMAX)
def test_cross_entropy_trains_with_a_graft_and_retraces_its_steps(changes: dict[str, object], optimizer: str) -> None:
    tables, trainer = trained("ComplEx", **changes, optimizer=optimizer)
    shapes = {k: v.shape for k, v in tables.export(state=True).items()}
    before = copy_of(tables)
    entities, relations = torch.randn(2, tables.width("entity")), torch.randn(1, tables.width("relation"))
    trainer.graft(entities, relations, torch.tensor([[40, 5, 0], [1, 0, 41], [40, 5, 41]]))
    assert trainer.triples == len(GRAPH.train) + 3
    trainer.run_epoch()
    assert not torch.equal(tables["entity"][40:], entities)
    trainer.ungraft()
    assert {k: v.shape for k, v in tables.export(state=True).items()} == shapes
    assert not same(copy_of(tables), before)
    snapshot, position = tables.snapshot(), trainer.position()
    trainer.run_epoch()
    first = copy_of(tables)
    tables.restore(snapshot)
    trainer.move_to(position)
    trainer.run_epoch()
    assert same(copy_of(tables), first)


@pytest.mark.parametrize("changes", SOFTMAX)
@pytest.mark.parametrize("model", ["TransE", "DistMult", "ComplEx", "RotatE"])
def test_cross_entropy_falls(model: str, changes: dict[str, object]) -> None:
    if model in ("TransE", "RotatE"):
        changes = {key: value for key, value in changes.items() if key != "relation_weight"}
    tables = make_tables(TrainSettings(model=model, dim=6, device="cpu", **changes), 40, 5)  # type: ignore[arg-type]
    s = TrainSettings(model=model, dim=6, batch=50, device="cpu", lr=0.02, **changes)  # type: ignore[arg-type]
    trainer = Trainer(tables, GRAPH.train, s)
    losses = [trainer.run_epoch() for _ in range(15)]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0]
    assert all(tensor.isfinite().all() for tensor in tables.export(state=True).values())


def test_an_untrained_loss_is_that_of_a_guess() -> None:
    """Rows that are nearly 0 give every entity the same chance."""
    s = TrainSettings(model="ComplEx", dim=6, loss="1vsall", device="cpu", lr=1e-9, precision="float32")
    trainer = Trainer(make_tables(s, 40, 5), GRAPH.train, s)
    assert trainer.run_epoch() == pytest.approx(math.log(40), abs=1e-4)
