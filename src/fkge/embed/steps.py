"""Training steps of losses with sampled negatives, by autograd, compiled CPU kernel or CUDA graph. All compute the same
update.

`AutogradStep` runs every model on every device. `KernelStep` runs the models that have a closed-form CPU kernel,
`GraphedStep` those that need no projection, on a GPU.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fkge.embed import kernels, optimizers
from fkge.embed.batches import Batch
from fkge.embed.cuda_graphs import GraphedStep, can_record
from fkge.embed.losses import margin_of, objective_of
from fkge.embed.models import Relations
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings


class Step(Protocol):
    """Trains on a batch."""

    def __call__(self, batch: Batch, lr: float) -> Tensor | float:
        """Update the tables along the gradient of each of the batch's steps; return the sum of their losses."""


class AutogradStep:
    """Gathers the rows a step touches, differentiates with respect to them, and updates just them."""

    def __init__(self, tables: Tables, settings: TrainSettings) -> None:
        self.tables = tables
        self.settings = settings
        self.margin = margin_of(settings)
        optimizers.register(settings.optimizer, tables)

    def __call__(self, batch: Batch, lr: float) -> Tensor:
        total = torch.zeros((), device=self.tables.device, dtype=self.tables.dtype)
        for step in batch.steps():
            loss, gradients = self.gradients(step)
            for table, (ids, gradient) in gradients.items():
                rate = lr * self.tables.spec(table).rate
                step_of_rows = optimizers.direction(self.settings.optimizer, self.tables, table, ids, gradient)
                self.tables[table].index_add_(0, ids, step_of_rows, alpha=-rate)
            total += loss
        return total

    def gradients(self, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Return the mean loss, and for each table the unique rows touched with their gradient (u, width)."""
        tables, model = self.tables, self.tables.model
        relation = batch.relation[:, :1] if model.projects else batch.relation  # then a group has one relation
        entity_ids, entity_index = torch.unique(
            torch.cat([batch.head, batch.tail, batch.negative], dim=1), return_inverse=True
        )
        relation_ids, relation_index = torch.unique(relation, return_inverse=True)
        entity_rows = {name: tables[name][entity_ids].requires_grad_() for name in tables.names("entity")}
        relation_rows = {name: tables[name][relation_ids].requires_grad_() for name in tables.names("relation")}
        gathered = {name: rows[entity_index] for name, rows in entity_rows.items()}
        relations = Relations(relation_rows, relation_index)
        loss, objective = objective_of(model, self.settings, self.margin, batch, gathered, relations)
        rows = {**entity_rows, **relation_rows}
        gradients = torch.autograd.grad(objective, list(rows.values()))
        ids = dict.fromkeys(entity_rows, entity_ids) | dict.fromkeys(relation_rows, relation_ids)
        return loss.detach(), {name: (ids[name], gradient) for name, gradient in zip(rows, gradients, strict=True)}


def make_step(tables: Tables, settings: TrainSettings) -> Step:
    """Return the fastest step that computes these tables' model on their device."""
    if kernels.can_run(tables, settings):
        if tables.model.projects:  # numba: only where it is used
            from fkge.embed.kernels.projected import ProjectedStep

            return ProjectedStep(tables, settings)
        from fkge.embed.kernels.steps import KernelStep

        return KernelStep(tables, settings)
    if settings.kernels and tables.device.type == "cuda" and can_record(tables.model):
        return GraphedStep(tables, settings)
    return AutogradStep(tables, settings)
