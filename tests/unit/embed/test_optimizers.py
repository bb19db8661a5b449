"""Optimisers compared with torch's."""

from __future__ import annotations

import pytest
import torch

from fkge.embed import make_tables, optimizers
from fkge.embed.batches import Batcher
from fkge.embed.optimizers import direction
from fkge.embed.steps import AutogradStep
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import BASE, TRAIN


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_optimisers_equal_torchs_when_every_row_is_touched(optimizer: str) -> None:
    s = TrainSettings(model="DistMult", optimizer=optimizer, kernels=False, **{**BASE, "negatives": 200})  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    step = AutogradStep(tables, s)
    mirror = {n: tables[n].clone().requires_grad_() for n in ("entity", "relation")}
    torch_optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=s.lr),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=s.lr, eps=1e-8),
        "adam": lambda p: torch.optim.Adam(p, lr=s.lr),
    }[optimizer](list(mirror.values()))
    for batch in [x for b in Batcher(TRAIN, 40, 5, batch=200, negatives=200).epoch(0) for x in b.steps()]:
        _, gradients = step.gradients(batch)
        assert all(len(ids) == len(tables[n]) for n, (ids, _) in gradients.items()), "the test wants every row touched"
        for name, (ids, gradient) in gradients.items():
            mirror[name].grad = torch.zeros_like(mirror[name]).index_copy(0, ids, gradient)
        step(batch, s.lr)
        torch_optimizer.step()
    for name, value in mirror.items():
        torch.testing.assert_close(tables[name], value.detach(), atol=1e-10, rtol=1e-8)


def test_a_late_row_takes_a_first_step_like_any_other() -> None:
    """Adam's bias correction counts steps per row."""
    s = TrainSettings(optimizer="adam", kernels=False, **BASE)
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    optimizers.register("adam", tables)
    g = torch.ones(1, 6, dtype=torch.float64)
    first = direction("adam", tables, "entity", torch.tensor([0]), g)
    for _ in range(50):
        direction("adam", tables, "entity", torch.tensor([2]), g)
    late = direction("adam", tables, "entity", torch.tensor([1]), g)
    torch.testing.assert_close(first, late)
    assert float(late[0, 0]) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("block", [1, 10, 1 << 15])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_a_step_of_all_rows_is_that_of_each(optimizer: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "BLOCK", block)
    s = TrainSettings(optimizer=optimizer, **BASE)  # type: ignore[arg-type]
    whole, apart = (make_tables(s, 40, 5) for _ in range(2))
    for tables in (whole, apart):
        optimizers.register(optimizer, tables)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        gradient = torch.randn(40, 6, generator=generator)
        gradient[3] = 0
        rows = torch.arange(40)
        step = direction(optimizer, apart, "entity", rows, gradient)  # type: ignore[arg-type]
        apart["entity"].index_add_(0, rows, step, alpha=-0.1)
        optimizers.step_all(optimizer, whole, "entity", gradient.clone(), 0.1)  # type: ignore[arg-type]
    for name, value in whole.export(state=True).items():
        torch.testing.assert_close(value, apart.export(state=True)[name], msg=name)


def test_slots_are_the_state_with_a_number_per_parameter() -> None:
    for optimizer, slots in optimizers.SLOTS.items():
        tables = make_tables(TrainSettings(optimizer=optimizer, **BASE), 40, 5)
        optimizers.register(optimizer, tables)
        wide = {key.split(".")[1] for key, value in tables.export(state=True).items() if "." in key and value.ndim == 2}
        assert set(slots) == wide
