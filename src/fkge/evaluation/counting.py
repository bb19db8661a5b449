"""Counting the candidates that score above, or level with, a true triple. In torch, on any device.

`fkge.evaluation.kernels` has the same counter for the CPU, many times as fast. Both give the same counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fkge.evaluation.geometry import Geometry, Kind


@dataclass
class Questions:
    """True triples that lack one side, sorted by what they ask: several may ask the same.

    Attributes:
        query: (u, p) float64, each place in the space that is asked about.
        row: (n,) int64 ascending, the query of a question.
        true: (n,) int64, the entity that answers it.
        score: (n,) float64, the exact score of that answer.
        size: (n,) float64, the size of that answer's vector (see `Geometry.size`).
        first, last: (u,) int64, the span of `known` that also answers a query.
        known: (k,) int64 entities.
        above, level: (n,) int64 counts, added to by `Counter.count`.
    """

    query: Tensor
    row: Tensor
    true: Tensor
    score: Tensor
    size: Tensor
    first: Tensor
    last: Tensor
    known: Tensor
    above: Tensor
    level: Tensor


class Counter(Protocol):
    """Counts over one block of candidates."""

    def count(self, questions: Questions) -> None:
        """Add to each question's `above` and `level` the candidates of this block that are.

        The true answer and other known answers are left out. A comparison in which either score is not a
        number counts as above: tables that diverged cannot earn a good rank.
        """


class TorchCounter:
    """Counts with matrices of fast values, block of questions by block of questions.

    Args:
        geometry: the comparison; candidates: (m, p) float64.
        place: (entities,) int64, the candidate that an entity is, or −1; memory: bytes to work in.
    """

    def __init__(self, geometry: Geometry, candidates: Tensor, place: Tensor, memory: float) -> None:
        self.geometry = geometry
        self.candidates = candidates
        self.place = place
        self.memory = memory
        self.size = geometry.size(candidates)
        self._largest = self.size.nan_to_num(0.0, torch.inf).max()  # a NaN is looked at again in any case
        self._fast = candidates.float()
        self._bias = geometry.bias(candidates).float()

    def count(self, questions: Questions) -> None:
        m = len(self.candidates)
        # A question needs its row of values, a gathered copy, and masks of it.
        step = max(1, int(self.memory / (16 * max(m, 1))))
        for start in range(0, len(questions.row), step):
            self._count(questions, slice(start, start + step))

    def _count(self, q: Questions, part: slice) -> None:
        g, row = self.geometry, q.row[part]
        rows = slice(int(row[0]), int(row[-1]) + 1)
        row = row - rows.start
        query = q.query[rows]
        score, size, of = q.score[part], q.size[part], g.size(query)[row]
        above, level = q.above[part], q.level[part]

        def resolve(asked: Tensor, candidate: Tensor, sign: int) -> None:
            """Count the pairs (asked, candidate), `sign` each, by their exact scores."""
            step = max(1, int(self.memory / (40 * g.width)))
            for n, c in zip(asked.split(step), candidate.split(step), strict=True):
                s = g.exact(query[row[n]], self.candidates[c])
                tie = g.tie * (g.scale(of[n], self.size[c]) + g.scale(of[n], size[n]))
                is_above = ~(s <= score[n] + tie)
                is_level = ~is_above & (s >= score[n] - tie)
                above.index_add_(0, n, is_above.long(), alpha=sign)
                level.index_add_(0, n, is_level.long(), alpha=sign)

        values = self._values(query.float())[row]
        slack = g.band * g.scale(of, self._largest) + g.unit * g.scale(of, size) + g.floor
        key = g.key(query[row], score)
        # Written so that anything not a number falls between the two and is looked at again.
        over = values > (key + slack).float().unsqueeze(1)
        near = ~over & ~(values < (key - slack).float().unsqueeze(1))
        undefined = score.isnan()
        above += torch.where(undefined, len(self.candidates), over.sum(1))
        near &= ~undefined.unsqueeze(1)
        del values, over
        asked, candidate = near.nonzero(as_tuple=True)
        del near
        resolve(asked, candidate, sign=1)

        first, last = q.first[rows][row], q.last[rows][row]
        asked, at = spread(first, last - first)
        entity = q.known[at]
        other = entity != q.true[part][asked]
        asked = torch.cat([asked[other], torch.arange(len(row), device=row.device)])
        candidate = self.place[torch.cat([entity[other], q.true[part]])]
        present = candidate >= 0
        resolve(asked[present], candidate[present], sign=-1)

    def _values(self, query: Tensor) -> Tensor:
        """Fast values (u, m) float32."""
        kind = self.geometry.kind
        if kind is Kind.L1:
            return -torch.cdist(query, self._fast, p=1.0)
        if kind in (Kind.L2, Kind.DOT):
            return torch.addmm(self._bias, query, self._fast.T)
        out = query.new_empty(len(query), len(self._fast))
        step = max(1, int(self.memory / (12 * self.geometry.width * len(self._fast))))
        for some, into in zip(query.split(step), out.split(step), strict=True):
            re, im = (some.unsqueeze(1) - self._fast).chunk(2, dim=-1)
            torch.sum(torch.hypot(re, im), dim=-1, out=into).neg_()
        return out


class OwnCounter:
    """Counts with a model's own similarity, all in float64.

    Two scores within a few roundings of each other tie, as everywhere.

    Args:
        geometry, candidates, place, memory: see `TorchCounter`.
    """

    _TIE = 2.0**-44

    def __init__(self, geometry: Geometry, candidates: Tensor, place: Tensor, memory: float) -> None:
        self.geometry = geometry
        self.candidates = candidates
        self.place = place
        self.step = max(1, int(memory / (8 * max(1, len(candidates)) * (geometry.width + 4))))

    def count(self, questions: Questions) -> None:
        q = questions
        for start in range(0, len(q.row), self.step):
            part = slice(start, start + self.step)
            row, true, score = q.row[part], q.true[part], q.score[part].unsqueeze(1)
            rows = slice(int(row[0]), int(row[-1]) + 1)
            values = self.geometry.similarity(q.query[rows], self.candidates)[row - rows.start]
            tie = self._TIE * (values.abs() + score.abs())
            above = ~(values <= score + tie)
            level = ~above & (values >= score - tie)
            asked, at = spread(q.first[row], q.last[row] - q.first[row])
            everyone = torch.arange(len(row), device=row.device)
            asked, gone = torch.cat([asked, everyone]), self.place[torch.cat([q.known[at], true])]
            here = gone >= 0
            above[asked[here], gone[here]] = False
            level[asked[here], gone[here]] = False
            q.above[part] += above.sum(1)
            q.level[part] += level.sum(1)


def spread(first: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the elements of spans, one span after the other: which span each is of, and where it is."""
    which = torch.repeat_interleave(torch.arange(len(first), device=first.device), length)
    before = torch.cumsum(length, 0) - length
    return which, torch.arange(len(which), device=first.device) + (first - before)[which]
