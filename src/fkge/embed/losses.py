"""Losses of positive scores (...,) and negative scores (..., k), one value per positive.

Scores are similarities: higher is better. Both are means over a positive's negatives, so that the
gradient's size does not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fkge.embed.batches import Batch
from fkge.embed.models import Model, Relations
from fkge.settings import TrainSettings

HOPELESS = -1e4
"""The score of a negative that must not count: so low that every loss and its gradient are zero."""

LossName = Literal["margin", "sigmoid"]


def margin_of(settings: TrainSettings) -> float:
    """The margin: as set, or by the scale of the model's scores."""
    if settings.margin is not None:
        return settings.margin
    if settings.model.lower() in ("distmult", "complex"):
        return 0.0 if settings.loss == "sigmoid" else 1.0
    return 6.0 if settings.loss == "sigmoid" else 1.0


def margin_ranking(positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """max(0, margin − positive + negative), the paper's loss."""
    return F.relu(margin - positive.unsqueeze(-1) + negative).mean(-1)


def self_adversarial(positive: Tensor, negative: Tensor, margin: float, temperature: float) -> Tensor:
    """Sun et al. 2019: −½ log σ(margin + positive) − ½ Σ w log σ(−margin − negative), w fixed per step."""
    weights = torch.softmax(temperature * negative.detach(), dim=-1)
    return -0.5 * (F.logsigmoid(margin + positive) + (weights * F.logsigmoid(-margin - negative)).sum(-1))


def loss_per_positive(name: LossName, positive: Tensor, negative: Tensor, margin: float, temperature: float) -> Tensor:
    """The loss called `name`, (...,)."""
    if name == "margin":
        return margin_ranking(positive, negative, margin)
    return self_adversarial(positive, negative, margin, temperature)


def objective_of(
    model: Model, s: TrainSettings, margin: float, batch: Batch, gathered: Mapping[str, Tensor], relations: Relations
) -> tuple[Tensor, Tensor]:
    """The mean loss of one step, and what is differentiated: that and the regularisation.

    Args:
        gathered: entity tables at (head, tail, negative), (groups, 2 size + k, width).
        relations: relation tables at the positives.
    """
    size = batch.head.shape[1]
    head, tail, negative = model.project(gathered, relations).split([size, size, batch.negative.shape[1]], dim=1)
    corrupt_tail = batch.corrupt_tail.unsqueeze(-1)
    query = torch.where(corrupt_tail, model.tail_query(head, relations), model.head_query(tail, relations))
    target = torch.where(corrupt_tail, tail, head)
    positive_score = model.similarity(query.unsqueeze(-2), target.unsqueeze(-2)).flatten(-3)
    negative_score = model.similarity(query, negative)
    false = batch.false_negatives()
    if false is not None:
        negative_score = negative_score.masked_fill(false, HOPELESS)
    losses = loss_per_positive(s.loss, positive_score, negative_score, margin, s.temperature)
    weight = batch.weight.to(losses.dtype)
    total = weight.sum()
    loss = (losses * weight).sum() / total
    if not s.regularization:
        return loss, loss
    cubes = gathered["entity"][:, : 2 * size].abs().pow(3).sum(-1)
    cubes = cubes[:, :size] + cubes[:, size:] + relations["relation"].abs().pow(3).sum(-1)
    return loss, loss + s.regularization * (cubes * weight).sum() / total
