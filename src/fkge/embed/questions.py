"""Questions with all their answers, for the losses that compare a question with every entity.

A question is (entity, relation, side): which tails complete (h, r, ?), which heads complete (?, r, t). Each triple
answers two. Equal questions are one: its scores are computed once, however many answers it has. Batches follow from
(seed, epoch), as those of `fkge.embed.batches` do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed.batches import generator_of

CELLS_PER_CHUNK = 1 << 31
"""Scores computed between two looks at the clock: long enough for a GPU to be kept busy, short enough to stop soon."""


@dataclass(frozen=True)
class Questions:
    """The questions of one step, or of several steps in a row.

    Attributes:
        entity, relation: (q,) int64 the known entity and the relation.
        asks_tail: (q,) bool, which side is asked for.
        first: (q + 1,) int64 where each question's answers begin in `answer`, and their number.
        answer: (a,) int64 entities.
        bounds: first question of each step, and the number of questions.
        positives: how many triples this counts as; two answers are one.
        generator: for dropout.
    """

    entity: Tensor
    relation: Tensor
    asks_tail: Tensor
    first: Tensor
    answer: Tensor
    bounds: npt.NDArray[np.int64]
    positives: int
    generator: torch.Generator

    def steps(self) -> Iterator[Questions]:
        """Yield the questions of each step."""
        ends = self.first[torch.from_numpy(self.bounds).to(self.first.device)].tolist()
        for i in range(len(self.bounds) - 1):
            a, b = int(self.bounds[i]), int(self.bounds[i + 1])
            yield Questions(
                self.entity[a:b], self.relation[a:b], self.asks_tail[a:b], self.first[a : b + 1] - ends[i],
                self.answer[ends[i] : ends[i + 1]], np.array([0, b - a]), 0, self.generator,
            )  # fmt: skip


class QuestionBatcher:
    """Deals the questions that training triples answer into batches, epoch by epoch.

    Args:
        triples: (n, 3) int64 on the training device.
        entities, relations: number of rows.
        batch: answers per step, about: a step ends with a whole question.
        per_question: `batch` counts questions rather than answers.
        together: at most so many answers of a question stay together; more are divided at random, differently in
            each epoch, into questions of their own. All if None.
        seed: of the order.

    Attributes:
        size: triples per epoch.
    """

    def __init__(
        self,
        triples: Tensor,
        entities: int,
        relations: int,
        *,
        batch: int,
        per_question: bool,
        together: int | None = None,
        seed: int,
    ) -> None:
        self.size = len(triples)
        self.seed = seed
        head, relation, tail = triples.unbind(1)
        after_tail, after_head = head * relations + relation, (entities + tail) * relations + relation
        key = torch.cat([after_tail, after_head])
        answer = torch.cat([tail, head])
        # By question, then by answer: the same graph gives the same batches, in whatever order its triples come.
        order = torch.argsort(answer, stable=True)
        order = order[torch.argsort(key[order], stable=True)]
        self._answer = answer[order]
        unique, self._sizes = torch.unique_consecutive(key[order], return_counts=True)
        self._question: Tensor | None = None
        if together is not None and int(self._sizes.max()) > together:
            self._question = torch.repeat_interleave(torch.arange(len(unique), device=key.device), self._sizes)
            pieces = -(-self._sizes // together)
            unique = torch.repeat_interleave(unique, pieces)
            number = torch.arange(len(unique), device=key.device)
            number -= torch.repeat_interleave(torch.cumsum(pieces, 0) - pieces, pieces)
            size, of = torch.repeat_interleave(self._sizes, pieces), torch.repeat_interleave(pieces, pieces)
            self._sizes = (number + 1) * size // of - number * size // of
        self._first = torch.cumsum(self._sizes, 0) - self._sizes
        self._relation = unique % relations
        place = unique // relations
        self._asks_tail = place < entities
        self._entity = place % entities
        self._batch, self._per_question = batch, per_question
        amount = len(unique) if per_question else 2 * self.size
        self._steps = max(1, amount // batch)
        self.steps_per_chunk = 1
        if triples.device.type != "cpu":
            self.steps_per_chunk = max(1, CELLS_PER_CHUNK // max(1, entities * len(unique) // self._steps))

    def __len__(self) -> int:
        """Chunks per epoch: `epoch` yields that many."""
        return -(-self._steps // self.steps_per_chunk)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Questions]:
        """Yield the steps of `epoch`, several at a time, from chunk number `start` on."""
        device = self._answer.device
        order = torch.randperm(len(self._sizes), generator=generator_of(device, self.seed, epoch, 0), device=device)
        answers = self._answer
        if self._question is not None:  # other answers share a piece in each epoch
            same = generator_of(device, self.seed, epoch, 0)
            coin = torch.rand(len(answers), generator=same, device=device, dtype=torch.float64)
            answers = answers[torch.argsort(self._question + coin)]
        sizes = self._sizes[order]
        done = torch.cumsum(sizes, 0)
        if self._per_question:
            step = torch.arange(len(order), device=device) // self._batch
        else:
            step = (done - sizes) // self._batch
        # The remainder joins the last step: a step of a handful of questions would weigh as much as a whole one.
        step = step.clamp(max=self._steps - 1)
        edges = torch.searchsorted(step, torch.arange(self._steps + 1, device=device))
        answered = torch.cat([done.new_zeros(1), done])[edges].tolist()
        edge_of = edges.cpu().numpy()
        for chunk in range(start, len(self)):
            a = chunk * self.steps_per_chunk
            b = min(a + self.steps_per_chunk, self._steps)
            bounds = np.unique(edge_of[a : b + 1])  # a question with more answers than a step leaves others without any
            chosen = order[bounds[0] : bounds[-1]]
            sizes = self._sizes[chosen]
            first = torch.cat([sizes.new_zeros(1), torch.cumsum(sizes, 0)])
            place = torch.repeat_interleave(self._first[chosen] - first[:-1], sizes)
            place += torch.arange(len(place), device=device)
            yield Questions(
                self._entity[chosen], self._relation[chosen], self._asks_tail[chosen], first, answers[place],
                bounds - bounds[0], answered[b] // 2 - answered[a] // 2,
                generator_of(device, self.seed, epoch, 1 + chunk),
            )  # fmt: skip
