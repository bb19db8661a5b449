"""One training step, three ways with the same numbers: autograd on the batch's unique rows, closed form, or recorded.

`AutogradStep` runs every model on every device. `KernelStep` runs the models that have a closed-form CPU kernel,
`GraphedStep` those that need no projection, on a GPU.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fkge.embed import optimizers
from fkge.embed.batches import Batch
from fkge.embed.graphs import GraphedStep, can_record
from fkge.embed.losses import HOPELESS, loss_per_positive, margin_of
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
                optimizers.update(self.settings.optimizer, self.tables, table, ids, gradient, rate)
            total += loss
        return total

    def gradients(self, batch: Batch) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """The mean loss, and for each table the unique rows touched with their gradient (u, width)."""
        tables, model = self.tables, self.tables.model
        size = batch.head.shape[1]
        entity_ids, entity_index = torch.unique(
            torch.cat([batch.head, batch.tail, batch.negative], dim=1), return_inverse=True
        )
        pure = model.projects  # then a group has one relation
        relation_ids, relation_index = torch.unique(
            batch.relation[:, :1] if pure else batch.relation, return_inverse=True
        )
        with torch.no_grad():
            entity_rows = {name: tables[name][entity_ids] for name in tables.names("entity")}
            relation_rows = {name: tables[name][relation_ids] for name in tables.names("relation")}
        for row in (*entity_rows.values(), *relation_rows.values()):
            row.requires_grad_()

        relations = Relations(relation_rows, relation_index)
        gathered = {name: rows[entity_index] for name, rows in entity_rows.items()}
        projected = model.project(gathered, relations)
        head, tail, negative = projected.split([size, size, batch.negative.shape[1]], dim=1)
        expected_tail = model.tail_query(head, relations)
        expected_head = model.head_query(tail, relations)
        corrupt_tail = batch.corrupt_tail.unsqueeze(-1)
        query = torch.where(corrupt_tail, expected_tail, expected_head)
        target = torch.where(corrupt_tail, tail, head)
        positive_score = model.similarity(query.unsqueeze(-2), target.unsqueeze(-2)).flatten(-3)
        negative_score = model.similarity(query, negative)
        false = batch.false_negatives()
        if false is not None:
            negative_score = negative_score.masked_fill(false, HOPELESS)

        s = self.settings
        losses = loss_per_positive(s.loss, positive_score, negative_score, self.margin, s.temperature)
        weight = batch.weight.to(losses.dtype)
        total = weight.sum()
        loss = (losses * weight).sum() / total
        objective = loss
        if s.regularization:
            cubes = gathered["entity"][:, : 2 * size].abs().pow(3).sum(-1)
            cubes = cubes[:, :size] + cubes[:, size:] + relations["relation"].abs().pow(3).sum(-1)
            objective = loss + s.regularization * (cubes * weight).sum() / total

        rows = {**entity_rows, **relation_rows}
        gradients = torch.autograd.grad(objective, list(rows.values()))
        return loss.detach(), {
            name: (entity_ids if name in entity_rows else relation_ids, gradient)
            for name, gradient in zip(rows, gradients, strict=True)
        }


def make_step(tables: Tables, settings: TrainSettings) -> Step:
    """The fastest step that computes these tables' model on their device."""
    if settings.kernels and tables.device.type == "cpu" and tables.model.kernel is not None:
        if tables.model.projects:  # numba: only where it is used
            from fkge.embed.projections import ProjectedStep

            return ProjectedStep(tables, settings)
        from fkge.embed.kernels import KernelStep

        return KernelStep(tables, settings)
    if settings.kernels and tables.device.type == "cuda" and can_record(tables.model):
        return GraphedStep(tables, settings)
    return AutogradStep(tables, settings)
