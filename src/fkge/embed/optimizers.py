"""Row-wise optimisers: a step reads and writes the rows it is given, never the table.

`Tables` has the state of each row. Adam counts steps per row, so a row met for the first time late in
training gets the same bias correction as any row at its first step (SparseAdam's common counter would make its
first step three times too long).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fkge.embed.tables import Tables

OptimizerName = Literal["sgd", "adagrad", "adam"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8

BLOCK = 1 << 15
"""Numbers that go through all passes of a step before the next ones do, so that they stay in the cache."""

SLOTS: dict[OptimizerName, tuple[str, ...]] = {"sgd": (), "adagrad": ("sum",), "adam": ("mean", "square")}
"""State with one number per parameter, by optimiser: what peers can average."""


def register(name: OptimizerName, tables: Tables) -> None:
    """Create the state of optimiser `name` for every table of `tables`."""
    for table in (*tables.names("entity"), *tables.names("relation")):
        for slot in SLOTS[name]:
            tables.state(table, slot)
        if name == "adam":
            tables.state(table, "steps", columns=False)


@torch.no_grad()
def direction(name: OptimizerName, tables: Tables, table: str, ids: Tensor, gradient: Tensor) -> Tensor:
    """Return the step of each row, before the learning rate, and update the state of those rows.

    Args:
        name: the optimiser.
        tables: hold `table` and its state.
        table: whose rows take the step.
        ids: (u,) rows. One may occur several times if its gradient is the same each time.
        gradient: (u, width).

    Returns:
        (u, width); the rows become ``row − lr · step``.
    """
    if name == "sgd":
        return gradient
    if name == "adagrad":
        total = tables.state(table, "sum")
        new = total.index_select(0, ids).addcmul_(gradient, gradient)
        total.index_copy_(0, ids, new)
        return gradient / (new.sqrt_() + EPSILON)
    mean, square = tables.state(table, "mean"), tables.state(table, "square")
    steps = tables.state(table, "steps", columns=False)
    count = steps.index_select(0, ids) + 1
    m = mean.index_select(0, ids).lerp_(gradient, 1 - BETA1)
    v = square.index_select(0, ids).mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    for state, value in ((steps, count), (mean, m), (square, v)):
        state.index_copy_(0, ids, value)
    first, second = ((1 - beta**count).unsqueeze(1) for beta in (BETA1, BETA2))
    return (m / first) / ((v / second).sqrt_() + EPSILON)


@torch.no_grad()
def step_all(name: OptimizerName, tables: Tables, table: str, gradient: Tensor, lr: float) -> None:
    """Take one step of every row of `table`, in place: what `direction` computes, without its copies.

    Args:
        name: the optimiser.
        tables: hold `table` and its state.
        table: whose rows take the step.
        gradient: (rows, width); it is overwritten.
        lr: learning rate.
    """
    rows = tables[table]
    if name == "sgd":
        rows.add_(gradient, alpha=-lr)
    elif name == "adagrad":
        size = len(rows) if rows.is_cuda else max(1, BLOCK // rows.shape[1])
        parts = (x.split(size) for x in (rows, tables.state(table, "sum"), gradient))
        for row, total, slope in zip(*parts, strict=True):
            total.addcmul_(slope, slope)
            row.addcdiv_(slope, total.sqrt().add_(EPSILON), value=-lr)
    else:
        everyone = torch.arange(len(rows), device=rows.device)
        rows.add_(direction(name, tables, table, everyone, gradient), alpha=-lr)
