"""The slow twin of `fkge.embed.softmax`: one (question, answer) at a time, formulas by hand, no grouping."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fkge.embed.questions import Questions
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings

Rows = Mapping[str, Tensor]


def as_complex(rows: Tensor) -> Tensor:
    return torch.complex(*rows.chunk(2, dim=-1))


def triple_scores(model: str, s: TrainSettings, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
    """The scores of rows (..., width) that broadcast, (...,)."""
    if model == "TransE":
        if s.normalize:
            head, relation, tail = (x / x.norm(dim=-1, keepdim=True) for x in (head, relation, tail))
        difference = head + relation - tail
        return -(difference.abs().sum(-1) if s.norm == 1 else difference.square().sum(-1).sqrt())
    if model == "DistMult":
        return (head * relation * tail).sum(-1)
    h, t = as_complex(head), as_complex(tail)
    if model == "ComplEx":
        return (h * as_complex(relation) * t.conj()).sum(-1).real
    assert model == "RotatE"
    difference = h * torch.polar(torch.ones_like(relation), relation) - t
    return -(difference.real.square() + difference.imag.square()).sqrt().sum(-1)


def penalty(s: TrainSettings, row: Tensor, is_complex: bool) -> Tensor:
    if s.regularizer == "f2":
        return row.square().sum()
    if s.regularizer == "n3" and is_complex:
        re, im = row.chunk(2)
        return (re.square() + im.square()).sqrt().pow(3).sum()
    return row.abs().pow(3).sum()


def examples_of(step: Questions) -> list[tuple[int, int, bool, int, int]]:
    """(entity, relation, asks tail, answer, how many answers its question has) for each answer."""
    first, answer = step.first.tolist(), step.answer.tolist()
    known = zip(step.entity.tolist(), step.relation.tolist(), step.asks_tail.tolist(), strict=True)
    return [
        (e, r, tail, a, first[i + 1] - first[i])
        for i, (e, r, tail) in enumerate(known)
        for a in answer[first[i] : first[i + 1]]
    ]


def twin(
    rows: Rows, like: Tables, step: Questions, s: TrainSettings, scores: Callable[..., Tensor] = triple_scores
) -> tuple[Tensor, Tensor]:
    """The mean loss, and what is differentiated: that and the regulariser."""
    model, entity = like.model.name, rows["entity"]
    loss, extra, total = torch.zeros((), dtype=entity.dtype), torch.zeros((), dtype=entity.dtype), 0.0
    for known, relation, asks_tail, answer, answers in examples_of(step):
        weight = 1 / answers if s.loss == "kvsall" else 1.0
        total += weight
        used = "inverse" if s.reciprocal and not asks_tail else "relation"
        row = rows[used][relation]
        if asks_tail or s.reciprocal:
            every = scores(model, s, entity[known], row, entity)
        else:
            every = scores(model, s, entity, row, entity[known])
        chance = torch.log_softmax(every, 0)
        loss = loss - weight * ((1 - s.smoothing) * chance[answer] + s.smoothing * chance.mean())
        if s.relation_weight and asks_tail:
            named = torch.log_softmax(scores(model, s, entity[known], rows["relation"], entity[answer]), 0)[relation]
            loss = loss - 2 * s.relation_weight * weight * named
        if s.regularization:
            parts = (("entity", entity[known]), ("entity", entity[answer]), (used, row))
            sums = sum(penalty(s, part, like.spec(name).complex) for name, part in parts)
            extra = extra + s.regularization * weight * sums
    return loss / total, (loss + extra) / total
