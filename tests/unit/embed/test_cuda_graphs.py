"""The step recorded for a GPU takes the steps of its slow twin; what is recorded is dropped when memory moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fkge.embed import MODELS, Trainer, make_tables
from fkge.embed.batches import Batch, Batcher
from fkge.embed.cuda_graphs import GraphedStep, can_record
from fkge.embed.models import TransE
from fkge.embed.steps import AutogradStep, make_step
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings
from tests.conftest import random_graph

TRAIN = torch.from_numpy(random_graph().train.copy()).long()
BASE: dict[str, Any] = {"dim": 6, "batch": 32, "negatives": 5, "lr": 0.02, "margin": 2.0, "init": 0.5}
KINDS = [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]


def settings(**given: Any) -> TrainSettings:
    return TrainSettings(**{**BASE, **given})


def tables_for(s: TrainSettings, dtype: torch.dtype = torch.float64) -> Tables:
    return make_tables(s, 40, 5, dtype=dtype)


def chunk(s: TrainSettings, tables: Tables, epoch: int = 0) -> Batch:
    """All steps of an epoch in one batch."""
    batcher = Batcher(
        TRAIN.to(tables.device), 40, 5, batch=s.batch, negatives=s.negatives, share=s.share, filtered=s.filtered, seed=7
    )
    return next(iter(batcher.epoch(epoch)))


def epochs(s: TrainSettings, kind: type[Any], dtype: torch.dtype = torch.float64) -> tuple[list[Any], Tables]:
    """Losses of three epochs, and the tables after them."""
    tables = tables_for(s, dtype)
    trainer = Trainer(tables, TRAIN[:120], s)
    trainer._step = kind(tables, s)
    return [trainer.run_epoch() for _ in range(3)], tables


def assert_equal(one: Tables, other: Tables, atol: float = 1e-9, rtol: float = 1e-7) -> None:
    mine, theirs = one.export(state=True), other.export(state=True)
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=atol, rtol=rtol, msg=name)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("batch", "negatives", "share", "filtered", "regularization"),
    [(32, 5, 1, False, 0), (32, 5, 1, True, 0.01), (32, 6, 4, True, 0.01), (31, 6, 4, False, 0), (9, 1, 1, True, 0)],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("loss", ["margin", "sigmoid"])
@pytest.mark.parametrize(("model", "norm"), KINDS)
def test_it_takes_the_same_steps_as_its_slow_twin(
    model: str, norm: int, loss: str, optimizer: str, batch: int, negatives: int, share: int, filtered: bool,
    regularization: float, device: str,
) -> None:  # fmt: skip
    """Of 120 triples, the last step is shorter than the others."""
    s = settings(
        model=model, norm=norm, loss=loss, optimizer=optimizer, batch=batch, negatives=negatives, share=share,
        filtered=filtered, regularization=regularization, device=device,
    )  # fmt: skip
    (fast_losses, fast), (slow_losses, slow) = epochs(s, GraphedStep), epochs(s, AutogradStep)
    assert fast_losses == pytest.approx(slow_losses, rel=1e-9)
    assert_equal(fast, slow)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("model", "norm"), KINDS)
def test_it_does_so_in_single_precision(model: str, norm: int, device: str) -> None:
    """With SGD: the others divide a gradient by its own size, and of one that cancels only the rounding is left."""
    s = settings(model=model, norm=norm, optimizer="sgd", share=4, device=device)
    (fast_losses, fast), (slow_losses, slow) = (epochs(s, kind, torch.float32) for kind in (GraphedStep, AutogradStep))
    assert fast_losses == pytest.approx(slow_losses, rel=1e-5)
    assert_equal(fast, slow, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_flag_normalize_is_honoured(device: str) -> None:
    s = settings(normalize=True, share=4, device=device)
    assert can_record(tables_for(s).model)
    (fast_losses, fast), (slow_losses, slow) = epochs(s, GraphedStep), epochs(s, AutogradStep)
    assert fast_losses == pytest.approx(slow_losses, rel=1e-9)
    assert_equal(fast, slow)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_steps_of_any_length_in_any_order(optimizer: str, device: str) -> None:
    """Shorter steps are filled up on the device; neither the fill nor what an earlier chunk left behind counts."""
    s = settings(optimizer=optimizer, batch=8, share=2, regularization=0.01, device=device)
    fast, slow = tables_for(s), tables_for(s)
    step, twin = GraphedStep(fast, s), AutogradStep(slow, s)
    whole = chunk(s, fast)
    groups = len(whole.head)
    for bounds in ([0, 4, 5, 9, 11, groups], [0, 1, 3], [0, 2, 3, 4, 7]):
        some = {name: value[: bounds[-1]] for name, value in vars(whole).items() if isinstance(value, torch.Tensor)}
        batch = replace(whole, bounds=np.array(bounds), **some)
        assert float(step(batch, s.lr)) == pytest.approx(float(twin(batch, s.lr)), rel=1e-9)
        assert_equal(fast, slow)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_it_leaves_other_rows_and_their_state_alone(optimizer: str, device: str) -> None:
    s = settings(optimizer=optimizer, batch=4, negatives=2, device=device)
    tables = tables_for(s)
    step = GraphedStep(tables, s)
    before = {k: v.clone() for k, v in tables.export(state=True).items()}
    whole = chunk(s, tables)
    parts = {name: value[:7] for name, value in vars(whole).items() if isinstance(value, torch.Tensor)}
    batch = replace(whole, bounds=np.array([0, 4, 7]), **parts)  # the second step is filled up
    step(batch, s.lr)
    touched = {
        "entity": torch.cat([batch.head, batch.tail, batch.negative], 1).unique(),
        "relation": batch.relation.unique(),
    }
    assert len(touched["entity"]) < 40
    for key, value in tables.export(state=True).items():
        mask = torch.ones(len(value), dtype=torch.bool, device=value.device)
        mask[touched[key.split("/")[0]]] = False
        assert torch.equal(value[mask], before[key][mask]), key
        assert not torch.equal(value[~mask], before[key][~mask]), key


class Counting(GraphedStep):
    """Counts its recordings."""

    recordings = 0

    def _record(self) -> Callable[[], None]:
        self.recordings += 1
        return super()._record()


def grow(tables: Tables) -> None:
    tables.append("entity", tables["entity"][:3].clone())
    tables.append("relation", tables["relation"][:1].clone())


def cut(tables: Tables) -> None:
    grow(tables)
    tables.truncate("entity", 40)
    tables.truncate("relation", 5)


def shrink_and_grow(tables: Tables) -> None:
    """The same memory, another shape and back: nothing a graph knows has changed."""
    spare = tables["entity"][39:].clone()
    tables.truncate("entity", 39)
    tables.append("entity", spare)


def load(tables: Tables) -> None:
    tables.load({name: tensor.clone() for name, tensor in tables.export(state=True).items()})


def replaced(tables: Tables) -> None:
    tables.replace("entity", torch.arange(4), torch.full((4, tables.width("entity")), 0.25))


def turned(tables: Tables) -> None:
    noise = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tables.rotate(torch.linalg.qr(noise).Q)


def restored(tables: Tables) -> None:
    snapshot = tables.snapshot()
    tables["entity"].add_(0.1)
    tables.restore(snapshot)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("change", "again"),
    [(grow, 1), (cut, 1), (load, 1), (shrink_and_grow, 0), (replaced, 0), (turned, 0), (restored, 0)],
)
def test_tables_may_change_between_calls(change: Callable[[Tables], None], again: int, device: str) -> None:
    """Written in place, the recording stays; moved or reshaped, there is another. The numbers are right either way."""
    s = settings(norm=2, share=4, filtered=True, device=device)
    fast, slow = tables_for(s), tables_for(s)
    step, twin = Counting(fast, s), AutogradStep(slow, s)
    batch = chunk(s, fast)
    for epoch in range(4):
        if epoch == 2:
            for tables in (fast, slow):
                change(tables)
            if again and device == "cuda":  # whatever reads the old memory now must show
                torch.cuda.empty_cache()
        step(batch, s.lr)
        twin(batch, s.lr)
        assert_equal(fast, slow)
    assert step.recordings == 1 + again


@pytest.mark.parametrize("device", DEVICES)
def test_new_facts_are_looked_up(device: str) -> None:
    """The triples a recording filters by are part of it."""
    s = settings(share=4, filtered=True, device=device)
    fast, slow = tables_for(s), tables_for(s)
    step, twin = Counting(fast, s), AutogradStep(slow, s)
    first = chunk(s, fast)
    others = Batcher(TRAIN[:50].to(fast.device), 40, 5, batch=32, negatives=5, share=4, filtered=True)
    facts = next(iter(others.epoch(0))).facts
    assert first.facts is not None
    for batch in (first, replace(first, facts=facts), replace(first, facts=None)):
        assert float(step(batch, s.lr)) == pytest.approx(float(twin(batch, s.lr)), rel=1e-9)
        assert_equal(fast, slow)
    assert step.recordings == 3


@pytest.mark.parametrize("device", DEVICES)
def test_the_learning_rate_is_no_part_of_the_recording(device: str) -> None:
    s = settings(share=4, filtered=False, device=device)
    fast, slow = tables_for(s), tables_for(s)
    step, twin = Counting(fast, s), AutogradStep(slow, s)
    for epoch, lr in enumerate((0.05, 0.01, 0.002)):
        batch = chunk(s, fast, epoch)
        step(batch, lr)
        twin(batch, lr)
        assert_equal(fast, slow)
    assert step.recordings == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("model", "norm"), KINDS)
def test_a_run_repeats_to_the_bit(model: str, norm: int, device: str) -> None:
    """In single precision, with many places to a row: a sum in the order of arrival would differ."""
    s = settings(model=model, norm=norm, share=4, dim=32, negatives=32, device=device)
    (one_losses, one), (other_losses, other) = (epochs(s, GraphedStep, torch.float32) for _ in range(2))
    assert one_losses == other_losses
    assert_equal(one, other, atol=0, rtol=0)


def test_it_is_chosen_on_a_gpu_for_models_without_projections() -> None:
    for model in MODELS:
        s = settings(model=model, device="cpu")
        tables = tables_for(s)
        tables.device = torch.device("cuda")  # to choose, nothing is put there
        expected = AutogradStep if model in ("TransH", "TransR", "TransD") else GraphedStep
        assert type(make_step(tables, s)) is expected
        assert type(make_step(tables, s.model_copy(update={"kernels": False}))) is AutogradStep


def test_a_model_from_elsewhere_is_not_recorded() -> None:
    class Peeking(TransE):
        def similarity(self, query: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
            return -torch.cdist(query, candidates) * float(query.sum() > 0)

    assert can_record(TransE(6))
    assert not can_record(Peeking(6))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_many_recordings_leave_no_memory_behind() -> None:
    s = settings(share=4, device="cuda")
    tables = tables_for(s)
    step, batch = Counting(tables, s), chunk(s, tables)
    used = []
    for _ in range(6):
        load(tables)
        step(batch, s.lr)
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert step.recordings == 6
    assert max(used[2:]) <= used[1] + 4096
