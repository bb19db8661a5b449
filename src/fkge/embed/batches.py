"""Batches of losses with sampled negatives: which positives, which negatives, in which order, all by (seed, epoch,
chunk).

Positives form groups that share one draw of negatives: (groups, size) positives, (groups, k) negatives.
With ``share = 1`` every positive is its own group. For models that project entities, the groups of a batch are
pure, one relation each, and sorted by relation; places left over carry weight 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Corruption = Literal["uniform", "bernoulli"]

CHUNK_IDS = 1 << 20
"""Ids drawn at a time: enough to make drawing cheap, few enough (8 MB) to stay out of the way and to stop soon."""


@dataclass(frozen=True)
class Batch:
    """Groups of positives with their negatives: one step's, or several steps' in a row.

    Attributes:
        head, relation, tail: (groups, size) int64.
        corrupt_tail: (groups, size) bool, which side the negatives stand on.
        weight: (groups, size) bool, False for a place left over.
        negative: (groups, k) int64 entities.
        facts: with them, a negative that makes a training triple with a positive must not count; see `false_negatives`.
        bounds: first group of each step, and the number of groups.
        positives: how many positives there are.
        entities: how many entities negatives were drawn from.
    """

    head: Tensor
    relation: Tensor
    tail: Tensor
    corrupt_tail: Tensor
    weight: Tensor
    negative: Tensor
    facts: Facts | None
    bounds: npt.NDArray[np.int64]
    positives: int
    entities: int

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """The first six attributes, which have a row for each group."""
        return self.head, self.relation, self.tail, self.corrupt_tail, self.weight, self.negative

    def steps(self) -> Iterator[Batch]:
        """Yield a batch for each step."""
        for a, b in pairwise(self.bounds.tolist()):
            h, r, t, side, weight, negative = (column[a:b] for column in self.columns)
            yield Batch(h, r, t, side, weight, negative, self.facts, np.array([0, b - a]), 0, self.entities)

    def false_negatives(self) -> Tensor | None:
        """Return the negatives that must not count, (groups, size, k) bool; None if all count."""
        if self.facts is None:
            return None
        fixed = torch.where(self.corrupt_tail, self.head, self.tail)
        return self.facts.known(fixed, self.relation, self.corrupt_tail, self.negative)


class Facts:
    """Training triples indexed both ways, for filtered draws and Bernoulli chances.

    Args:
        triples: (n, 3) int64 head, relation, tail.
    """

    def __init__(self, triples: Tensor, entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        head, relation, tail = triples.unbind(1)
        self.tails = Completions(head * relations + relation, tail, entities)
        self.heads = Completions(tail * relations + relation, head, entities)

    def draw_outside(self, fixed: Tensor, relation: Tensor, tail: Tensor, uniform: Tensor) -> Tensor:
        """Return entities that do not complete (fixed, relation), one per number `uniform` in [0, 1), same shape.

        Args:
            fixed, relation: (n,) the kept entity and the relation.
            tail: (n,) bool: the missing place is the tail.
            uniform: (n, k) float64.
        """
        pair = fixed * self.relations + relation
        out = torch.empty_like(uniform, dtype=torch.int64)
        for completions, mask in ((self.tails, tail), (self.heads, ~tail)):
            out[mask] = completions.draw_outside(pair[mask], uniform[mask])
        return out

    def known(self, fixed: Tensor, relation: Tensor, tail: Tensor, entities: Tensor) -> Tensor:
        """Return which entities complete a pair.

        Args:
            fixed, relation: (groups, size) int64, the kept entities and the relations.
            tail: (groups, size) bool: the missing place is the tail.
            entities: (groups, k) int64 candidates.

        Returns:
            (groups, size, k) bool.
        """
        pair = (fixed * self.relations + relation).unsqueeze(-1)
        candidate = entities.unsqueeze(1)
        heads, tails = self.heads.contains(pair, candidate), self.tails.contains(pair, candidate)
        return torch.where(tail.unsqueeze(-1), tails, heads)

    def tail_chance(self) -> Tensor:
        """Return (relations,) Bernoulli chance to corrupt the tail (Wang et al. 2014): fewer false negatives."""
        tph, hpt = self.tails.mean_size(self.relations), self.heads.mean_size(self.relations)
        return torch.where(tph + hpt > 0, hpt / (tph + hpt), 0.5)


class Completions:
    """For every (entity, relation) pair, the sorted entities that complete it.

    Args:
        pair: (n,) int64, the pair of each fact; completion: (n,) int64, the entity that completes it.
        entities: how many there are.
    """

    def __init__(self, pair: Tensor, completion: Tensor, entities: int) -> None:
        self.entities = entities
        key: Tensor = torch.unique(pair * entities + completion)
        self._key = key
        self.completions = key % entities
        pairs = key // entities
        self.pairs, self.sizes = torch.unique_consecutive(pairs, return_counts=True)
        self.starts = torch.cumsum(self.sizes, 0) - self.sizes  # of each pair's span in `completions`
        # Of completions c_0 < c_1 < …, c_j − j counts the entities below c_j that are *not* completions.
        # Sorted by (pair, that count), one binary search turns "the u-th entity outside" into an entity.
        rank = torch.arange(len(key), device=key.device) - torch.repeat_interleave(self.starts, self.sizes)
        row = torch.repeat_interleave(torch.arange(len(self.pairs), device=key.device), self.sizes)
        self.outside_before = row * entities + (self.completions - rank)

    def draw_outside(self, pair: Tensor, uniform: Tensor) -> Tensor:
        row = torch.searchsorted(self.pairs, pair).clamp(max=max(len(self.pairs) - 1, 0))
        known = self.pairs[row] == pair
        size = torch.where(known, self.sizes[row], 0)
        free = self.entities - size
        # A pair completed by every entity has nothing outside: any entity will do.
        usable = (known & (free > 0)).unsqueeze(1)
        span = torch.where(free > 0, free, self.entities).unsqueeze(1)
        u = (uniform * span).long().clamp(max=self.entities - 1)
        below = torch.searchsorted(self.outside_before, row.unsqueeze(1) * self.entities + u, right=True)
        return torch.where(usable, u + below - self.starts[row].unsqueeze(1), u)

    def contains(self, pair: Tensor, completion: Tensor) -> Tensor:
        asked = pair * self.entities + completion
        at = torch.searchsorted(self._key, asked).clamp(max=len(self._key) - 1)
        found: Tensor = self._key[at] == asked
        return found

    def spans(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Return the beginnings and ends, in `completions`, of the spans of each pair."""
        first, last = (torch.searchsorted(self._key, end * self.entities) for end in (pair, pair + 1))
        return first, last

    def mean_size(self, relations: int) -> Tensor:
        """Return (relations,) completions per pair, averaged over the relation's pairs; 0 if it has none."""
        relation = self.pairs % relations
        total = torch.zeros(relations, dtype=torch.float64, device=relation.device)
        total.index_add_(0, relation, self.sizes.double())
        pairs = torch.bincount(relation, minlength=relations)
        return total / pairs.clamp(min=1)


class Batcher:
    """Deals the training triples into batches, epoch by epoch.

    Args:
        triples: (n, 3) int64 on the training device.
        pure: groups must have one relation each.
    """

    def __init__(
        self,
        triples: Tensor,
        entities: int,
        relations: int,
        *,
        batch: int,
        negatives: int,
        share: int = 1,
        corruption: Corruption = "uniform",
        filtered: bool = False,
        pure: bool = False,
        seed: int = 0,
    ) -> None:
        self.size = len(triples)
        self._columns = [column.contiguous() for column in triples.unbind(1)]  # gathers far faster than rows
        self.entities, self.relations = entities, relations
        self.batch = min(batch, max(len(triples), 1))
        self.negatives = negatives
        self.share = min(share, self.batch)
        self.pure = pure
        self.seed = seed
        facts = Facts(triples, entities, relations) if filtered or corruption == "bernoulli" else None
        self._facts = facts if filtered else None
        self._tail_chance = facts.tail_chance() if facts is not None and corruption == "bernoulli" else None
        ids = self.batch * (2 + -(-negatives // self.share))
        self._steps_per_chunk = max(1, CHUNK_IDS // ids)

    def __len__(self) -> int:
        """Return the number of chunks per epoch, as many as `epoch` yields."""
        return -(-self.size // (self._steps_per_chunk * self.batch))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the steps of `epoch`, several at a time, from chunk number `start` on."""
        device = self._columns[0].device
        order = torch.randperm(self.size, generator=generator_of(device, self.seed, epoch, 0), device=device)
        size = self._steps_per_chunk * self.batch
        for chunk in range(start, len(self)):
            generator = generator_of(device, self.seed, epoch, 1 + chunk)
            yield self._deal(order[chunk * size : (chunk + 1) * size], generator)

    def _deal(self, chosen: Tensor, generator: torch.Generator) -> Batch:
        """Return steps made of the triples `chosen`, in that order."""
        n, size, device = len(chosen), self.share, chosen.device
        if self.pure:
            step = torch.arange(n, device=device) // self.batch
            relation = self._columns[1].index_select(0, chosen)
            chosen = chosen[torch.argsort(step * self.relations + relation, stable=True)]
        head, relation, tail = (column.index_select(0, chosen) for column in self._columns)
        coin = torch.rand(n, generator=generator, device=device)
        corrupt_tail = coin < (0.5 if self._tail_chance is None else self._tail_chance[relation])

        if size == 1:
            bounds = np.append(np.arange(0, n, self.batch), n)
            filled = torch.ones(n, 1, dtype=torch.bool, device=device)
            if self._facts is None:
                negative = torch.randint(self.entities, (n, self.negatives), generator=generator, device=device)
            else:
                uniform = torch.rand(n, self.negatives, generator=generator, device=device, dtype=torch.float64)
                fixed = torch.where(corrupt_tail, head, tail)
                negative = self._facts.draw_outside(fixed, relation, corrupt_tail, uniform)
            h, r, t, side = (x.unsqueeze(1) for x in (head, relation, tail, corrupt_tail))
            return Batch(h, r, t, side, filled, negative, None, bounds, n, self.entities)

        # Runs of positives that may share a group: one relation of one step, or a whole step.
        step = torch.arange(n, device=device) // self.batch
        run = step * self.relations + relation if self.pure else step
        keys, counts = torch.unique_consecutive(run, return_counts=True)
        groups_of = -(-counts // size)
        first_group = torch.cumsum(groups_of, 0) - groups_of
        rank = torch.arange(n, device=device) - torch.repeat_interleave(torch.cumsum(counts, 0) - counts, counts)
        place = torch.repeat_interleave(first_group, counts) * size + rank
        groups = int(groups_of.sum())
        # Places left over repeat the run's last positive, so that a pure group stays pure, with weight 0.
        source = torch.zeros(groups * size, dtype=torch.int64, device=device)
        source[place] = torch.arange(n, device=device)
        source = torch.cummax(source, 0).values
        filled = torch.zeros(groups * size, dtype=torch.bool, device=device)
        filled[place] = True
        step_of = keys // self.relations if self.pure else keys
        per_step = torch.zeros(-(-n // self.batch), dtype=torch.int64, device=device)
        per_step.index_add_(0, step_of, groups_of)
        bounds = np.append(0, np.cumsum(per_step.cpu().numpy()))
        negative = torch.randint(self.entities, (groups, self.negatives), generator=generator, device=device)
        h, r, t, side = (x.index_select(0, source).view(groups, size) for x in (head, relation, tail, corrupt_tail))
        return Batch(h, r, t, side, filled.view(groups, size), negative, self._facts, bounds, n, self.entities)


def generator_of(device: str | torch.device, *numbers: int) -> torch.Generator:
    """Return a generator that follows from `numbers` alone: a seed, and what is drawn."""
    mixed = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(mixed >> np.uint64(1)))


@dataclass(frozen=True)
class Examples:
    """Triples with their negatives.

    Attributes:
        head, relation, tail: (n,) int64.
        corrupt_tail: (n,) bool, which side the negatives stand on.
        negative: (n, k) int64 entities.
    """

    head: Tensor
    relation: Tensor
    tail: Tensor
    corrupt_tail: Tensor
    negative: Tensor

    def __len__(self) -> int:
        return len(self.head)
