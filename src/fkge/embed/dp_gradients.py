"""Clipped gradients, example by example, and their sum: one triple moves it by a bounded amount.

An *example* is one training triple with its own negatives. Its negatives and the side they stand on follow from
(seed, step, the triple itself), never from its place in a list or from another triple, so adding a triple to the graph
adds one example to the sum and leaves all others as they were. Its gradient is clipped as a whole, over all rows of all
trained tables together. Where an example names a row more than once (a loop, a negative that equals an end, a negative
drawn twice) the parts are summed *before* the length is taken: clipping them apart would let √m times too much through.

Sums are in units of the clip: one example moves a sum by at most 1 in L2.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fkge.embed import kernels
from fkge.embed.batches import Examples
from fkge.embed.losses import find_loss, margin_of, of_positives
from fkge.embed.models import Relations
from fkge.embed.reciprocal import Reciprocal
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings

TABLES = ("entity", "relation")


class Gradients(Protocol):
    """Sums clipped gradients."""

    def add(self, examples: Examples, sums: dict[str, Tensor]) -> float:
        """Add the clipped gradient of each example, divided by the clip, to `sums`: whole tables.

        Returns:
            The sum of the losses. It is *not* protected: never release it.
        """


def draw(head: Tensor, relation: Tensor, tail: Tensor, entities: int, negatives: int, seed: int, step: int) -> Examples:
    """Return examples of triples (n,) with uniform negatives, unfiltered: a filter would ask about other triples.

    The numbers are a hash (splitmix64) of seed, step, triple and count. They need not be secret.

    Args:
        head, relation, tail: (n,) int64.
        entities: how many there are to draw from.
        negatives: of each triple.
        seed, step: decide, with the triple, what is drawn.
    """
    mixed = np.random.SeedSequence([seed, step]).generate_state(1, np.uint64).view(np.int64)[0]
    own = _mix(_mix(_mix(head + int(mixed)) + relation) + tail)
    count = torch.arange(1, negatives + 1, device=head.device)
    number = _mix(own.unsqueeze(1) + count * _GOLDEN)
    return Examples(head, relation, tail, own < 0, (_right(number, 32) * entities) >> 32)


_GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def _mix(x: Tensor) -> Tensor:
    """Splitmix64's finaliser, on int64 that wrap around."""
    x = (x ^ _right(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _right(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _right(x, 31)


def _right(x: Tensor, places: int) -> Tensor:
    """Return `x` shifted right with zeros coming in."""
    return (x >> places) & ((1 << (64 - places)) - 1)


class TorchGradients:
    """Every model without projections on every device, by autograd on rows gathered apart.

    Args:
        tables, settings, clip, learn: see `make_gradients`.
    """

    def __init__(self, tables: Tables, settings: TrainSettings, clip: float, *, learn: bool) -> None:
        self.tables, self.settings = tables, settings
        self.clip, self.learn = clip, learn
        self.margin = margin_of(settings)

    def add(self, examples: Examples, sums: dict[str, Tensor]) -> float:
        ids = torch.cat([examples.head.unsqueeze(1), examples.tail.unsqueeze(1), examples.negative], dim=1)
        loss, entity, relation = self._each(examples, ids)
        square = _summed(entity, ids).square().sum((1, 2))
        if relation is not None:
            square += relation.square().sum(1)
        # A gradient without a finite length cannot be shortened: it stays out, or one example would spoil the sum.
        finite = square.isfinite()
        scale = torch.where(finite, square.sqrt(), 1.0).clamp(min=self.clip).reciprocal()
        for name, rows, gradient in (("entity", ids, entity), ("relation", examples.relation, relation)):
            if gradient is not None:
                shape = (-1, *[1] * (gradient.ndim - 1))
                clipped = torch.where(finite.view(shape), gradient * scale.view(shape), 0.0)
                sums[name].index_add_(0, rows.reshape(-1), clipped.reshape(-1, clipped.shape[-1]))
        return float(loss)

    def _each(self, examples: Examples, ids: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the summed loss, and gradients by place: (n, 2 + k, width) of entities, (n, width) of relations."""
        tables, s = self.tables, self.settings
        with torch.no_grad():
            entity, relation = tables["entity"][ids], tables["relation"][examples.relation]
        wanted = [entity.requires_grad_(), relation.requires_grad_()][: 1 + self.learn]
        relations = Relations({"relation": relation}, torch.arange(len(examples), device=ids.device).unsqueeze(1))
        losses, penalties = of_positives(
            tables.model, s, self.margin, examples.corrupt_tail.unsqueeze(1), tables.entities, {"entity": entity},
            relations,
        )  # fmt: skip
        loss = losses.sum()
        objective = loss if penalties is None else loss + s.regularization * penalties.sum()
        gradients = torch.autograd.grad(objective, wanted)
        return loss.detach(), gradients[0], gradients[1] if self.learn else None


def _summed(gradient: Tensor, ids: Tensor) -> Tensor:
    """Return (n, m, width) with the parts of one row summed at the first of its places in `ids` (n, m), else 0.

    Summed rather than read off a Gram matrix: parts that nearly cancel would leave rounding errors larger than the sum.
    """
    places = torch.arange(ids.shape[1], device=ids.device, dtype=torch.int16)
    same = ids.unsqueeze(2) == ids.unsqueeze(1)
    first = torch.where(same, places, places[-1]).amin(2).long()
    return torch.zeros_like(gradient).scatter_add_(1, first.unsqueeze(2).expand_as(gradient), gradient)


def make_gradients(tables: Tables, settings: TrainSettings, clip: float, *, learn: bool) -> Gradients:
    """Return the fastest that computes these tables' model on their device.

    Args:
        tables: what is trained.
        settings: loss, margin, regularisation and whether kernels may run.
        clip: C, the longest gradient that goes in unshortened.
        learn: whether relations are trained; else they are constants and count nothing.

    Raises:
        SettingsError: the model or the loss cannot be trained privately.
    """
    model = tables.model
    if find_loss(settings.loss).all_entities:
        raise SettingsError(
            f"loss: {settings.loss} cannot be trained privately: a triple would move every entity; use sampled, "
            "sigmoid or margin"
        )
    if isinstance(model, Reciprocal):
        raise SettingsError(f"reciprocal: {model.name} cannot be trained privately with it; leave reciprocal off")
    if model.projects or sorted((*tables.names("entity"), *tables.names("relation"))) != sorted(TABLES):
        raise SettingsError(
            f"{model.name} cannot be trained privately: it looks at an entity through the relation's projection, which "
            "every triple of the relation would move; use TransE, DistMult, ComplEx or RotatE"
        )
    if kernels.can_run(tables, settings):
        from fkge.embed.kernels.private import KernelGradients  # numba: only where it is used

        return KernelGradients(tables, settings, clip, learn=learn)
    return TorchGradients(tables, settings, clip, learn=learn)
