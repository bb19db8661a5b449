"""Losses of positive scores (...,) and negative scores (..., k), one value per positive.

To add a loss, write it as a function of tensors and name it in `LOSSES`; then ``loss = "its name"`` works in every
setting, model and device. It must

- treat scores as similarities (higher is better) and average over a positive's negatives, so that the size of the
  gradient does not depend on how many there are;
- give a negative with the score `HOPELESS` no weight: value and gradient exactly 0 (this is how false negatives are
  left out);
- keep to tensor operations of fixed shape that read no number back (no ``.item()``, no ``if`` on a tensor): a GPU
  records the step once and replays it.

On the CPU such a loss runs by autograd. To have it compiled too, add its closed form to
`fkge.embed.kernels.primitives.loss_and_slopes` and say ``compiled=True`` here; this is optional and changes speed only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fkge.embed.batches import Batch
from fkge.embed.models import Model, Relations
from fkge.embed.reciprocal import Reciprocal
from fkge.errors import SettingsError
from fkge.settings import TrainSettings

HOPELESS = -1e4
"""The score of a negative that must not count: so low that every loss and its gradient are zero."""


def margin_ranking(positive: Tensor, negative: Tensor, margin: float, temperature: float = 1.0) -> Tensor:
    """Return max(0, margin − positive + negative), the paper's loss; see `Loss` for the arguments."""
    return F.relu(margin - positive.unsqueeze(-1) + negative).mean(-1)


def self_adversarial(positive: Tensor, negative: Tensor, margin: float, temperature: float = 1.0) -> Tensor:
    """Return −½ log σ(margin + positive) − ½ Σ w log σ(−margin − negative), w fixed per step (Sun et al. 2019)."""
    weights = torch.softmax(temperature * negative.detach(), dim=-1)
    return -0.5 * (F.logsigmoid(margin + positive) + (weights * F.logsigmoid(-margin - negative)).sum(-1))


def cross_entropy(positive: Tensor, negative: Tensor, margin: float = 0.0, temperature: float = 1.0) -> Tensor:
    """Return −log softmax of the positive among itself and the negatives; see `Loss` for the arguments."""
    scores = torch.cat([positive.unsqueeze(-1), negative], dim=-1)
    return torch.logsumexp(scores, dim=-1) - positive


@dataclass(frozen=True)
class Loss:
    """A loss that settings can name.

    Attributes:
        per_positive: (positive (...,), negative (..., k), margin, temperature) to the loss of each positive, (...,).
            With `all_entities` the negatives are all other entities.
        distance_margin: default margin for models that score by distance.
        product_margin: default margin for models that score by products (DistMult, ComplEx).
        compiled: the CPU kernels have its closed form.
        sampled: negatives stand for all entities: the logarithm of how many each stands for is added to its score.
        all_entities: there are no negatives: `fkge.embed.softmax` compares a question with every entity.
    """

    per_positive: Callable[[Tensor, Tensor, float, float], Tensor]
    distance_margin: float
    product_margin: float
    compiled: bool = False
    sampled: bool = False
    all_entities: bool = False


LOSSES = {
    "margin": Loss(margin_ranking, distance_margin=1.0, product_margin=1.0, compiled=True),
    "sigmoid": Loss(self_adversarial, distance_margin=6.0, product_margin=0.0, compiled=True),
    "sampled": Loss(cross_entropy, distance_margin=6.0, product_margin=0.0, sampled=True),
    "1vsall": Loss(cross_entropy, distance_margin=6.0, product_margin=0.0, all_entities=True),
    "kvsall": Loss(cross_entropy, distance_margin=6.0, product_margin=0.0, all_entities=True),
}


def find_loss(name: str) -> Loss:
    """Return the loss that `name` stands for in the settings.

    Raises:
        SettingsError: there is none of that name.
    """
    try:
        return LOSSES[name]
    except KeyError:
        raise SettingsError(f"loss: there is no {name!r}; use one of {', '.join(LOSSES)}") from None


def margin_of(settings: TrainSettings) -> float:
    """Return the margin: as set, or the loss's default for the scale of the model's scores."""
    if settings.margin is not None:
        return settings.margin
    loss = find_loss(settings.loss)
    return loss.product_margin if settings.model.lower() in ("distmult", "complex") else loss.distance_margin


def sampling_correction(entities: int, negatives: int) -> float:
    """Return the logarithm of how many entities a negative stands for, which a `sampled` loss adds to its score."""
    return math.log(max(1, entities - 1) / negatives)


def objective_of(
    model: Model, s: TrainSettings, margin: float, batch: Batch, gathered: Mapping[str, Tensor], relations: Relations
) -> tuple[Tensor, Tensor]:
    """Return the mean loss of one step, and what is differentiated: that and the regularisation.

    Args:
        gathered: entity tables at (head, tail, negative), (groups, 2 size + k, width).
        relations: relation tables at the positives.
    """
    losses, penalties = of_positives(
        model, s, margin, batch.corrupt_tail, batch.entities, gathered, relations, batch.false_negatives()
    )
    weight = batch.weight.to(losses.dtype)
    total = weight.sum()
    loss = (losses * weight).sum() / total
    return loss, loss if penalties is None else loss + s.regularization * (penalties * weight).sum() / total


def of_positives(
    model: Model, s: TrainSettings, margin: float, corrupt_tail: Tensor, entities: int, gathered: Mapping[str, Tensor],
    relations: Relations, false: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Return the loss of each positive, (groups, size), and its regulariser before the weight; None where that is 0.

    Args:
        corrupt_tail: (groups, size) bool, which side the negatives stand on.
        entities: how many entities negatives were drawn from.
        gathered: entity tables at (head, tail, negative), (groups, 2 size + k, width).
        relations: relation tables at the positives.
        false: (groups, size, k) bool, negatives that must not count.
    """
    size = corrupt_tail.shape[1]
    head, tail, negative = model.project(gathered, relations).tensor_split([size, 2 * size], dim=1)
    side = corrupt_tail.unsqueeze(-1)
    query = torch.where(side, model.tail_query(head, relations), model.head_query(tail, relations))
    target = torch.where(side, tail, head)
    positive_score = model.similarity(query.unsqueeze(-2), target.unsqueeze(-2)).flatten(-3)
    negative_score = model.similarity(query, negative)
    loss_of = find_loss(s.loss)
    if loss_of.sampled:  # each negative stands for so many of the others
        negative_score = negative_score + sampling_correction(entities, negative.shape[1])
    if false is not None:
        negative_score = negative_score.masked_fill(false, HOPELESS)
    losses = loss_of.per_positive(positive_score, negative_score, margin, s.temperature)
    if not s.regularization:
        return losses, None
    entity = regularizer_of(s, model)(gathered["entity"][:, : 2 * size])
    relation = regularizer_of(s, model, "relation")(relations["relation"])
    if isinstance(model, Reciprocal):
        inverse = regularizer_of(s, model, "relation")(relations["inverse"])
        relation = torch.where(corrupt_tail, relation, inverse)
    return losses, entity[:, :size] + entity[:, size:] + relation


def regularizer_of(s: TrainSettings, model: Model, table: str = "entity") -> Callable[[Tensor], Tensor]:
    """Return the regulariser of rows, (..., width) to (...,).

    Args:
        s: which regulariser; model, table: the model, and the table that the rows are of.
    """
    spec = model.tables()[table]
    if s.regularizer == "f2":
        return lambda rows: rows.square().sum(-1)
    if s.regularizer == "n3" and spec.complex:
        # A tiny number under the root: the gradient of a modulus at 0 is not defined.
        return lambda rows: (rows.unflatten(-1, (2, -1)).square().sum(-2) + 1e-30).pow(1.5).sum(-1)
    return lambda rows: rows.abs().pow(3).sum(-1)


def scaled_to(s: TrainSettings, entities: int, triples: int) -> TrainSettings:
    """Return `s` with the weight of the regulariser for one graph.

    Args:
        s: the settings; entities, triples: number of entities, and of training triples.
    """
    if s.regularization_scale == "fixed":
        return s
    scale = min(1.2, max(0.1, (entities**2 / (1e4 * max(1, triples))) ** (1 / 3)))
    return s.model_copy(update={"regularization": s.regularization * scale, "regularization_scale": "fixed"})


def regularizer_gradient(s: TrainSettings, model: Model, table: str = "entity") -> Callable[[Tensor], Tensor]:
    """Return the gradient of the regulariser, (rows, width) to (rows, width) in new memory.

    Args:
        s, model, table: see `regularizer_of`.
    """
    if s.regularizer == "f2":
        return lambda rows: rows * 2
    if s.regularizer == "n3" and model.tables()[table].complex:

        def of_moduli(rows: Tensor) -> Tensor:
            parts: Tensor = rows.unflatten(-1, (2, -1))
            modulus = parts.square().sum(-2, keepdim=True).sqrt_()
            return (parts * modulus.mul_(3)).flatten(-2)

        return of_moduli
    return lambda rows: rows.abs().mul_(3).mul_(rows)
