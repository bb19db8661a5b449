"""Training steps of the cross-entropy over all entities: 1vsAll and KvsAll.

    1vsall   each answer of a question is a target of its own: −Σₐ log p(a | question), over all answers of a step
    kvsall   a question's answers are one target, uniform over them: −Σₐ log p(a | question) / n

p is the softmax of a question's scores against every entity. Both have the same gradient but for the weight of a
question, so one step computes both. Where scores are dot products (DistMult, ComplEx) it is three matrix products:
with P the probabilities (questions × entities), Q the queries, E the entities and w the questions' weights,

    dQ = w · (P E − Σ answers' rows),   dE = Pᵀ (w Q) − the same sum, to the answers' rows

so P is used as the softmax leaves it, in bfloat16 where the processor multiplies that faster: what must be exact, the
terms of the answers, stays in float32. Other comparisons are differentiated chunk by chunk. In both cases no more than
a chunk of questions × entities is in memory at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from fkge.embed import optimizers
from fkge.embed.losses import regularizer_gradient
from fkge.embed.models import Model, Relations
from fkge.embed.questions import Questions
from fkge.embed.reciprocal import inverse_of
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings

CELLS = {"cpu": 1 << 24, "cuda": 1 << 29}
"""Scores in memory at a time."""


@cache
def _fast_bfloat16(device: str) -> bool:
    """Return whether a processor multiplies bfloat16 matrices faster than float32 ones."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    features = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(features)


def matmul_dtype(settings: TrainSettings, device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return the type of matrix products: as set, or bfloat16 if that is faster.

    Args:
        settings: with the `precision`.
        device, dtype: of the tables; those in float64 keep their type.
    """
    if dtype != torch.float32 or settings.precision == "float32":
        return dtype
    if settings.precision == "bfloat16" or _fast_bfloat16(device.type):
        return torch.bfloat16
    return dtype


class SoftmaxStep:
    """Trains on questions against every entity.

    Args:
        tables: of a model that does not project entities.
        settings: how; `loss` is ``1vsall`` or ``kvsall``.

    Raises:
        SettingsError: the model projects entities, or has no relation prediction and settings ask for it.
    """

    def __init__(self, tables: Tables, settings: TrainSettings) -> None:
        model = tables.model
        if model.projects:
            raise SettingsError(
                f"loss: {settings.loss} compares with every entity, and {model.name} sees each of them differently for "
                "each relation; use sampled, sigmoid or margin"
            )
        if settings.relation_weight and model.relation_query(torch.zeros(1, 2), torch.zeros(1, 2)) is None:
            raise SettingsError(f"relation_weight: {model.name} cannot predict relations; only DistMult and ComplEx do")
        self.tables = tables
        self.settings = settings
        self.per_question = settings.loss == "kvsall"
        matmul = matmul_dtype(settings, tables.device, tables.dtype)
        # Torch makes several passes where a kernel makes one, but with threads of its own.
        self._compiled = settings.kernels and settings.threads == 1 and tables.device.type == "cpu"
        self._compare = _Comparison(model, settings.smoothing, matmul, self._compiled)
        self._inverses = {inverse_of(n) for n in tables.names("relation")} & set(tables.names("relation"))
        optimizers.register(settings.optimizer, tables)

    def __call__(self, batch: Questions, lr: float) -> Tensor:
        total = torch.zeros((), device=self.tables.device, dtype=self.tables.dtype)
        for step in batch.steps():
            loss, gradients = self.gradients(step)
            for name, gradient in gradients.items():
                self._move(name, gradient, step, lr * self.tables.spec(name).rate)
            total += loss
        return total

    @torch.no_grad()
    def _move(self, name: str, gradient: Tensor, step: Questions, rate: float) -> None:
        """Take one step of the optimiser: of every entity, and of relations in the questions or their loss."""
        tables, optimizer = self.tables, self.settings.optimizer
        predicted = name == "relation" and self.settings.relation_weight
        # A row without a gradient stays where it is, but for Adam, which goes on by its moments.
        if optimizer == "adagrad" and self._compiled and tables.dtype == torch.float32:
            from fkge.embed.kernels import dense

            dense.adagrad_(tables[name], tables.state(name, "sum"), gradient, rate, optimizers.EPSILON)
            return
        if optimizer != "adam" or tables.spec(name).kind == "entity" or predicted:
            optimizers.step_all(optimizer, tables, name, gradient, rate)
            return
        ids = torch.unique(step.relation[self._asked(name, step)])
        steps = optimizers.direction(optimizer, tables, name, ids, gradient[ids])
        tables[name].index_add_(0, ids, steps, alpha=-rate)

    def _asked(self, table: str, step: Questions) -> Tensor:
        """Return (q,) bool, which questions use `table`, one of the relations'."""
        if not self._inverses:
            return torch.ones_like(step.asks_tail)
        return ~step.asks_tail if table in self._inverses else step.asks_tail

    def gradients(self, step: Questions) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss, without the regulariser, and the gradient of every table, (rows, width).

        The entities' gradient is overwritten by the next call.
        """
        tables, s = self.tables, self.settings
        weights = _Weights.of(step, self.per_question, tables.dtype)
        seen, leaves = self._candidates()
        entity = seen.detach()
        # Rows are gathered once for each question, repetitions and all: to find unique ones a GPU would have to wait.
        rows = {name: tables[name][step.relation].requires_grad_() for name in tables.names("relation")}
        known = entity[step.entity].requires_grad_()
        query = self._query(step, known, Relations(rows, torch.arange(len(known), device=known.device)))
        loss, d_query, d_entity = self._compare(query.detach(), entity, step, weights)
        parts = torch.autograd.grad(query, [known, *rows.values()], d_query, materialize_grads=True)
        gradients = {"entity": d_entity.index_add_(0, step.entity, parts[0])}
        for name, part in zip(rows, parts[1:], strict=True):
            gradients[name] = torch.zeros_like(tables[name]).index_add_(0, step.relation, part)
        if s.relation_weight:
            loss = loss + s.relation_weight * self._predict_relations(entity, step, weights, gradients)
        if leaves:
            through = torch.autograd.grad(seen, list(leaves.values()), gradients["entity"], materialize_grads=True)
            gradients |= dict(zip(leaves, through, strict=True))
        if s.regularization:
            self._regularize(step, weights, gradients)
        return loss, gradients

    def _candidates(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return all entities as every relation sees them, (n, p), and the tables they are computed from, if any."""
        tables = self.tables
        leaves = {name: tables[name].detach().requires_grad_() for name in tables.names("entity")}
        whole = {name: rows.unsqueeze(0) for name, rows in leaves.items()}
        none = Relations({}, torch.zeros(1, 1, dtype=torch.int64, device=tables.device))
        seen = tables.model.project(whole, none)
        if seen is whole["entity"]:
            return tables["entity"], {}
        return seen.squeeze(0), leaves

    def _query(self, step: Questions, known: Tensor, relations: Relations) -> Tensor:
        """Return the points at which each question's answers are expected, (q, p)."""
        model, dropout = self.tables.model, self.settings.dropout
        if dropout:
            known = _drop(known, dropout, step.generator)
            dropped = {name: relations[name] for name in self.tables.names("relation")}
            for name, rows in dropped.items():
                if self.tables.spec(name).init != "phase":  # an angle is not smaller for being dropped
                    dropped[name] = _drop(rows, dropout, step.generator)
            relations = Relations(dropped, torch.arange(len(known), device=known.device))
        after_tail, after_head = model.tail_query(known, relations), model.head_query(known, relations)
        return torch.where(step.asks_tail.unsqueeze(1), after_tail, after_head)

    def _predict_relations(
        self, entity: Tensor, step: Questions, weights: _Weights, gradients: dict[str, Tensor]
    ) -> Tensor:
        """Return the mean loss of predicting each triple's relation; its gradient is added to `gradients`.

        A triple answers two questions; here it counts once, where its tail is asked for.
        """
        tables = self.tables
        asked = step.asks_tail[weights.question]
        question, weight = weights.question[asked], 2 * self.settings.relation_weight * weights.answer[asked]
        if len(question) == 0:
            return weight.sum()
        head_ids, tail_ids = step.entity[question], step.answer[asked]
        ids = torch.cat([head_ids, tail_ids])
        known, relation = entity[ids].requires_grad_(), tables["relation"].detach().requires_grad_()
        head, tail = known.split(len(head_ids))
        query = tables.model.relation_query(head, tail)
        assert query is not None
        losses = torch.nn.functional.cross_entropy(query @ relation.T, step.relation[question], reduction="none")
        objective = (losses * weight).sum() / weights.total
        d_known, d_relation = torch.autograd.grad(objective, (known, relation))
        gradients["entity"].index_add_(0, ids, d_known)
        gradients["relation"].add_(d_relation)
        return objective.detach() / self.settings.relation_weight

    def _regularize(self, step: Questions, weights: _Weights, gradients: dict[str, Tensor]) -> None:
        """Add the gradient of the regulariser: of a triple's head, relation and tail, once for each question."""
        ids = torch.cat([step.entity, step.answer])
        self._penalize("entity", ids, torch.cat([weights.question_total, weights.answer]), weights, gradients)
        for name in self.tables.exchanged("relation"):
            weight = weights.question_total * self._asked(name, step)
            self._penalize(name, step.relation, weight, weights, gradients)

    def _penalize(
        self, name: str, ids: Tensor, weight: Tensor, weights: _Weights, gradients: dict[str, Tensor]
    ) -> None:
        slopes = regularizer_gradient(self.settings, self.tables.model, name)(self.tables[name][ids])
        slopes *= (weight * (self.settings.regularization / weights.total)).unsqueeze(1)
        gradients[name].index_add_(0, ids, slopes)


@dataclass(frozen=True)
class _Weights:
    """The weights of answers and questions in the loss.

    Attributes:
        question: (a,) the question of each answer.
        answer: (a,) the weight of each answer.
        question_total: (q,) the sum of the weights of a question's answers.
        total: over all of them, by which the loss is divided.
    """

    question: Tensor
    answer: Tensor
    question_total: Tensor
    total: float

    @classmethod
    def of(cls, step: Questions, per_question: bool, dtype: torch.dtype) -> _Weights:
        sizes = step.first.diff()
        question = torch.repeat_interleave(
            torch.arange(len(sizes), device=sizes.device), sizes, output_size=len(step.answer)
        )
        if per_question:
            total = torch.ones(len(sizes), device=sizes.device, dtype=dtype)
            return cls(question, (1 / sizes.to(dtype))[question], total, float(len(sizes)))
        answer = torch.ones(len(step.answer), device=sizes.device, dtype=dtype)
        return cls(question, answer, sizes.to(dtype), float(len(step.answer)))


@dataclass(frozen=True)
class _Chunk:
    """Some of a step's questions.

    Attributes:
        query: (q, p).
        weight: (q,) part of each question in the mean.
        row: (a,) the question of each answer, by its place in this chunk.
        target: (a,) the answers.
        share: (a,) their parts in the mean, without what smoothing takes from them.
    """

    query: Tensor
    weight: Tensor
    row: Tensor
    target: Tensor
    share: Tensor


class _Comparison:
    """Cross-entropy of queries against every entity, and its gradient, a chunk of questions at a time.

    Args:
        model: whose scores are compared.
        smoothing: part of the target that is uniform.
        matmul: the type of matrix products.
        compiled: whether compiled kernels do what they can.
    """

    def __init__(self, model: Model, smoothing: float, matmul: torch.dtype, compiled: bool) -> None:
        self.model, self.smoothing, self.matmul = model, smoothing, matmul
        self._compiled = compiled and matmul == torch.bfloat16
        self._memory: dict[str, Tensor] = {}

    @torch.no_grad()
    def __call__(
        self, query: Tensor, entity: Tensor, step: Questions, weights: _Weights
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss of queries (q, p) against entities (n, p), and its gradient with respect to either.

        That of the entities is overwritten by the next call.
        """
        comparison = self.model.comparison
        total, d_query = query.new_zeros(()), torch.empty_like(query)
        d_entity = self._kept("d_entity", entity.shape, entity.dtype, entity.device)
        # A CPU computes distances between all pairs without all the differences in memory.
        alone = comparison == "dot" or (comparison in ("l1", "l2") and query.device.type == "cpu")
        size = max(1, CELLS[query.device.type] // (len(entity) * (1 if alone else query.shape[1])))
        first = step.first.tolist() if size < len(query) else [0] * len(query) + [len(step.answer)]
        part = weights.question_total / weights.total
        share = weights.answer * ((1 - self.smoothing) / weights.total)
        cast, mean = entity, None
        if comparison == "dot":
            if self.matmul != entity.dtype:
                cast = self._kept("entity", entity.shape, self.matmul, entity.device).copy_(entity)
            if self.smoothing:
                mean = entity.mean(0)
        for start in range(0, len(query), size):
            here, answers = slice(start, start + size), slice(first[start], first[min(start + size, len(query))])
            row, target = weights.question[answers] - start, step.answer[answers]
            chunk = _Chunk(query[here], part[here], row, target, share[answers])
            if comparison == "dot":
                total += self._products(chunk, entity, cast, mean, d_query[here], d_entity, fresh=start == 0)
            else:
                total += self._differentiated(chunk, entity, d_query[here], d_entity, fresh=start == 0)
        return total, d_query, d_entity

    def _products(
        self, chunk: _Chunk, entity: Tensor, cast: Tensor, mean: Tensor | None, d_query: Tensor, d_entity: Tensor, *,
        fresh: bool,
    ) -> Tensor:  # fmt: skip
        """Return the loss of a chunk of dot products. Gradients go to `d_query` and, added unless fresh, `d_entity`.

        Args:
            cast: the entities in the type of the products.
            mean: of the entities, if targets are smoothed.
        """
        query, w, row, target = chunk.query, chunk.weight.unsqueeze(1), chunk.row, chunk.target
        scores = self._kept("scores", (len(query), len(entity)), self.matmul, entity.device)
        torch.mm(query.to(self.matmul), cast.T, out=scores)
        probability, normaliser = self._softmax_(scores)
        weighted = query * w
        d_query.copy_(probability @ cast).mul_(w)
        if self.matmul != entity.dtype:
            product = self._kept("product", entity.shape, self.matmul, entity.device)
            torch.mm(probability.T, weighted.to(self.matmul), out=product)
            d_entity.copy_(product) if fresh else d_entity.add_(product)
        elif fresh:
            torch.mm(probability.T, weighted, out=d_entity)
        else:
            d_entity.addmm_(probability.T, weighted)
        true, share = entity[target], chunk.share.unsqueeze(1)
        asked = query[row] * share
        loss = (normaliser * chunk.weight).sum() - (asked * true).sum()
        d_query.index_add_(0, row, true.mul_(share), alpha=-1)
        d_entity.index_add_(0, target, asked, alpha=-1)
        if mean is not None:
            loss -= self.smoothing * (weighted @ mean).sum()
            d_query -= self.smoothing * w * mean
            d_entity -= (self.smoothing / len(entity)) * weighted.sum(0)
        return loss

    def _differentiated(
        self, chunk: _Chunk, entity: Tensor, d_query: Tensor, d_entity: Tensor, *, fresh: bool
    ) -> Tensor:
        """Return the loss of a chunk for any comparison, as `_products` does, by autograd."""
        with torch.enable_grad():
            q, e = chunk.query.detach().requires_grad_(), entity.detach().requires_grad_()
            compared = self.model.similarity(q, e)
        scores = compared.detach()
        probability, normaliser = torch.softmax(scores, 1), torch.logsumexp(scores, 1)
        loss = (normaliser * chunk.weight).sum()
        loss -= (scores[chunk.row, chunk.target] * chunk.share).sum()
        if self.smoothing:
            loss -= self.smoothing * (scores.mean(1) * chunk.weight).sum()
            probability -= self.smoothing / len(entity)
        slopes = probability.mul_(chunk.weight.unsqueeze(1))
        slopes.index_put_((chunk.row, chunk.target), -chunk.share, accumulate=True)
        dq, de = torch.autograd.grad(compared, (q, e), slopes)
        d_query.copy_(dq)
        d_entity.copy_(de) if fresh else d_entity.add_(de)
        return loss

    def _softmax_(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities in place of scores (q, n), and log Σ exp of each row, (q,) in float32 or wider."""
        if self._compiled:
            from fkge.embed.kernels import dense

            return scores, dense.softmax_(scores)
        # From the largest score and its probability: no pass over all scores in a wider type.
        wide = torch.promote_types(scores.dtype, torch.float32)
        largest = scores.amax(1).to(wide)
        probability = torch.softmax(scores, 1, out=scores)
        return probability, largest - probability.amax(1).to(wide).log()

    def _kept(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory that is kept for the next step: fresh pages cost more than a pass over them."""
        size = math.prod(shape)
        memory = self._memory.get(name)
        if memory is None or memory.numel() < size or memory.dtype != dtype:
            self._memory[name] = memory = torch.empty(size, dtype=dtype, device=device)
        return memory[:size].view(shape)


def _drop(rows: Tensor, part: float, generator: torch.Generator) -> Tensor:
    """Return `rows` with each number 0 by chance `part`, the others longer to match."""
    kept = torch.rand(rows.shape, generator=generator, device=rows.device, dtype=rows.dtype) >= part
    return rows * kept / (1 - part)
