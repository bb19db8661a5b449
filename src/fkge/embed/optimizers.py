"""Row-wise optimisers: a step reads and writes the rows it is given, never the table.

State stands beside the rows in `Tables`. Adam counts steps per row, so a row met for the first time late in
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


def register(name: OptimizerName, tables: Tables) -> None:
    """Make the state that optimiser `name` keeps beside every table of `tables`."""
    for kind in ("entity", "relation"):
        for table in tables.names(kind):
            if name == "adagrad":
                tables.state(table, "sum")
            elif name == "adam":
                tables.state(table, "mean")
                tables.state(table, "square")
                tables.state(table, "steps", columns=False)


@torch.no_grad()
def update(name: OptimizerName, tables: Tables, table: str, ids: Tensor, gradient: Tensor, lr: float) -> None:
    """One step on rows `ids` (unique, (u,)) of `table` along `gradient` (u, width)."""
    values = tables[table]
    if name == "sgd":
        values.index_add_(0, ids, gradient, alpha=-lr)
    elif name == "adagrad":
        total = tables.state(table, "sum")
        new = total[ids].addcmul_(gradient, gradient)
        total[ids] = new
        values.index_add_(0, ids, gradient / (new.sqrt_() + EPSILON), alpha=-lr)
    else:
        mean, square = tables.state(table, "mean"), tables.state(table, "square")
        steps = tables.state(table, "steps", columns=False)
        count = steps[ids] + 1
        steps[ids] = count
        m = mean[ids].lerp_(gradient, 1 - BETA1)
        v = square[ids].mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        mean[ids] = m
        square[ids] = v
        first = (1 - BETA1**count).unsqueeze(1)
        second = (1 - BETA2**count).unsqueeze(1)
        values.index_add_(0, ids, (m / first) / ((v / second).sqrt_() + EPSILON), alpha=-lr)
