"""Compiled training steps for TransE, DistMult, ComplEx and RotatE: many steps per call, one thread.

These models compare a query with candidates by a simple similarity. So a step is: build each positive's query, score
its target and the group's negatives, differentiate the loss with respect to the scores, push that back through
similarity and query, and let the optimiser move just the rows that were touched.

`fkge.embed.steps.AutogradStep` is the slow reference: same batches, same numbers (tests compare them in float64).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fkge.embed import optimizers
from fkge.embed.batches import Batch
from fkge.embed.kernels.primitives import (
    ADAM,
    KERNELS,
    LOSSES,
    OPTIMIZERS,
    Array,
    completion_arrays,
    contains,
    cube_backward,
    fetch_row,
    find_span,
    jit,
    loss_and_slopes,
    make_query,
    optimize_rows,
    query_backward,
    similarity,
    similarity_backward,
    take_slot,
)
from fkge.embed.losses import HOPELESS, margin_of
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings


@jit
def _train(
    kind, entity, relation, head, rel, tail, corrupt_tail, weight, negative, bounds,
    tail_pairs, tail_starts, tails, head_pairs, head_starts, heads,
    loss_code, margin, temperature, cube, optimizer, lr, beta1, beta2, eps,
    ea, eb, es, ra, rb, rs, slots_e, touched_e, ge, slots_r, touched_r, gr,
):  # fmt: skip
    """Take all steps of a batch; return the sum of their mean losses.

    One flat list of arrays and numbers, because compiled code takes no objects. Its blocks, a line each:

    - the model: kernel code, tables; the batch: (groups, size) head, rel, tail, corrupt_tail, weight, (groups, k)
      negative, (steps + 1,) bounds of the groups of each step;
    - the training triples, to leave false negatives out (`completion_arrays`; empty if unfiltered);
    - the loss (code, margin, temperature), the weight of the cubic regularisation, the optimiser and its constants;
    - the optimiser's state of entities (ea, eb, es) and relations (ra, rb, rs), then the gradient buffers of both.
    """
    size, k = head.shape[1], negative.shape[1]
    filtered = len(tail_pairs) > 0
    span = np.zeros((size, 2), np.int64)
    real = entity.dtype.type
    query = np.empty((size, entity.shape[1]), entity.dtype)
    gq = np.empty((size, entity.shape[1]), entity.dtype)
    positive = np.empty(size, entity.dtype)
    scores = np.empty((size, k), entity.dtype)
    d_scores = np.empty((size, k), entity.dtype)
    d_positive = np.empty(size, entity.dtype)
    moved = np.empty(size, np.bool_)  # whether anything flows back to a positive's query
    # Adam moves a row that a step names even when the gradient is zero (its moments decay); the others do not.
    meet_all = optimizer == ADAM
    total = 0.0
    for step in range(len(bounds) - 1):
        first, last = bounds[step], bounds[step + 1]
        filled = 0
        for g in range(first, last):
            for s in range(size):
                filled += weight[g, s]
        scale = 1.0 / filled
        loss = 0.0
        ce = cr = 0
        for g in range(first, last):
            ahead = min(g + 2, last - 1)
            fetch_row(entity, negative[ahead, 0])
            for s in range(size):
                fetch_row(entity, head[ahead, s])
                fetch_row(entity, tail[ahead, s])
                fixed = head[g, s] if corrupt_tail[g, s] else tail[g, s]
                target = tail[g, s] if corrupt_tail[g, s] else head[g, s]
                make_query(kind, entity, fixed, relation, rel[g, s], corrupt_tail[g, s], query, s)
                positive[s] = similarity(kind, query, s, entity, target)
                if filtered:
                    pair = fixed * relation.shape[0] + rel[g, s]
                    if corrupt_tail[g, s]:
                        span[s] = find_span(tail_pairs, tail_starts, pair, len(tails))
                    else:
                        span[s] = find_span(head_pairs, head_starts, pair, len(heads))
            for i in range(k):
                fetch_row(entity, negative[g, min(i + 2, k - 1)])
                for s in range(size):
                    c = negative[g, i]
                    if span[s, 0] < span[s, 1] and contains(
                        tails if corrupt_tail[g, s] else heads, span[s, 0], span[s, 1], c
                    ):
                        scores[s, i] = HOPELESS
                    else:
                        scores[s, i] = similarity(kind, query, s, entity, c)
            for s in range(size):
                moved[s] = meet_all
                if weight[g, s]:
                    value, slope = loss_and_slopes(
                        loss_code, margin, temperature, positive[s], scores, s, scale, d_scores
                    )
                    loss += value
                    d_positive[s] = slope
                    for j in range(entity.shape[1]):
                        gq[s, j] = 0
                else:
                    d_positive[s] = 0
                    for i in range(k):
                        d_scores[s, i] = 0
            for i in range(k):
                c = negative[g, i]
                if meet_all:
                    p, ce = take_slot(c, slots_e, touched_e, ce, ge)
                for s in range(size):
                    if d_scores[s, i] != 0:
                        moved[s] = True
                        p, ce = take_slot(c, slots_e, touched_e, ce, ge)
                        similarity_backward(kind, query, s, entity, c, scores[s, i], d_scores[s, i], gq, ge, p)
            for s in range(size):
                if not weight[g, s]:
                    continue
                r = rel[g, s]
                fixed = head[g, s] if corrupt_tail[g, s] else tail[g, s]
                target = tail[g, s] if corrupt_tail[g, s] else head[g, s]
                if d_positive[s] != 0 or moved[s]:
                    p, ce = take_slot(target, slots_e, touched_e, ce, ge)
                    similarity_backward(kind, query, s, entity, target, positive[s], d_positive[s], gq, ge, p)
                    p, ce = take_slot(fixed, slots_e, touched_e, ce, ge)
                    q, cr = take_slot(r, slots_r, touched_r, cr, gr)
                    query_backward(kind, entity, fixed, relation, r, corrupt_tail[g, s], query, s, gq, ge, p, gr, q)
                if cube > 0:
                    pull = real(cube * scale)
                    p, ce = take_slot(fixed, slots_e, touched_e, ce, ge)
                    cube_backward(entity, fixed, pull, ge, p)
                    p, ce = take_slot(target, slots_e, touched_e, ce, ge)
                    cube_backward(entity, target, pull, ge, p)
                    q, cr = take_slot(r, slots_r, touched_r, cr, gr)
                    cube_backward(relation, r, pull, gr, q)
        total += loss * scale
        optimize_rows(optimizer, entity, ea, eb, es, touched_e, ce, slots_e, ge, lr, beta1, beta2, eps)
        optimize_rows(optimizer, relation, ra, rb, rs, touched_r, cr, slots_r, gr, lr, beta1, beta2, eps)
    return total


@jit
def _train_online(norm, entity, relation, head, rel, tail, corrupt_tail, negative, margin, lr):
    """TransE, margin loss, plain SGD, one positive and one negative a step: updates in place, without a buffer.

    All four entity values of a coordinate are read before any is written, so rows that coincide (a loop, a
    negative that equals the other end) get the sum of their gradients, as everywhere else.
    """
    total = 0.0
    d = entity.shape[1]
    zero = entity.dtype.type(0.0)
    for i in range(len(head)):
        ahead = min(i + 2, len(head) - 1)
        fetch_row(entity, head[ahead])
        fetch_row(entity, tail[ahead])
        fetch_row(entity, negative[ahead])
        h, r, t, n = head[i], rel[i], tail[i], negative[i]
        nh, nt = (h, n) if corrupt_tail[i] else (n, t)
        good = zero
        bad = zero
        if norm == 1:
            for j in range(d):
                good += abs(entity[h, j] + relation[r, j] - entity[t, j])
                bad += abs(entity[nh, j] + relation[r, j] - entity[nt, j])
        else:
            for j in range(d):
                x = entity[h, j] + relation[r, j] - entity[t, j]
                y = entity[nh, j] + relation[r, j] - entity[nt, j]
                good += x * x
                bad += y * y
            good, bad = math.sqrt(good), math.sqrt(bad)
        gap = margin + good - bad
        if gap <= 0:
            continue
        total += gap
        a = lr / good if good > zero else zero
        b = lr / bad if bad > zero else zero
        for j in range(d):
            x = entity[h, j] + relation[r, j] - entity[t, j]
            y = entity[nh, j] + relation[r, j] - entity[nt, j]
            if norm == 1:
                x = (lr if x > zero else zero) - (lr if x < zero else zero)
                y = (lr if y > zero else zero) - (lr if y < zero else zero)
            else:
                x, y = a * x, b * y
            entity[h, j] -= x
            entity[t, j] += x
            entity[nh, j] += y
            entity[nt, j] -= y
            relation[r, j] -= x - y
    return total


class KernelStep:
    """Training steps in closed form for a model with a kernel, on the CPU."""

    def __init__(self, tables: Tables, settings: TrainSettings) -> None:
        optimizers.register(settings.optimizer, tables)
        self.tables = tables
        self.settings = s = settings
        self.margin = margin_of(settings)
        self._online = (
            tables.model.kernel in ("l1", "l2") and s.batch == s.negatives == s.share == 1
            and s.loss == "margin" and s.optimizer == "sgd" and not s.regularization
        )  # fmt: skip
        self._slots = {kind: np.full(tables.count(kind), -1, np.int32) for kind in ("entity", "relation")}
        self._buffers: dict[str, tuple[Array, Array]] = {}

    def __call__(self, batch: Batch, lr: float) -> float:
        s = self.settings
        entity, relation = self.tables["entity"].numpy(), self.tables["relation"].numpy()
        real = entity.dtype.type
        ids = [x.numpy() for x in (batch.head, batch.relation, batch.tail, batch.corrupt_tail)]
        if self._online:
            columns = [x[:, 0] for x in (*ids, batch.negative.numpy())]
            return float(_train_online(s.norm, entity, relation, *columns, real(self.margin), real(lr)))
        loss = (LOSSES[s.loss], real(self.margin), real(s.temperature), s.regularization)
        betas = (optimizers.BETA1, optimizers.BETA2, real(optimizers.EPSILON))
        return float(self._run(batch, ids, (*loss, OPTIMIZERS[s.optimizer], real(lr), *betas), lr))

    def _run(self, batch: Batch, ids: list[Array], how: tuple[Any, ...], lr: float) -> Any:
        entity, relation = self.tables["entity"].numpy(), self.tables["relation"].numpy()
        largest = int(np.diff(batch.bounds).max())
        size, k = batch.head.shape[1], batch.negative.shape[1]
        return _train(
            KERNELS[self.tables.model.kernel or ""], entity, relation, *ids, batch.weight.numpy(),
            batch.negative.numpy(), batch.bounds, *completion_arrays(batch.facts), *how,
            *self._state("entity"), *self._state("relation"),
            self._slots["entity"], *self._buffer("entity", largest * (2 * size + k)),
            self._slots["relation"], *self._buffer("relation", largest * size),
        )  # fmt: skip

    def _state(self, table: str) -> tuple[Array, Array, Array]:
        name, state = self.settings.optimizer, self.tables.state
        if name == "adam":
            steps = state(table, "steps", columns=False).numpy()
            return state(table, "mean").numpy(), state(table, "square").numpy(), steps
        like = self.tables[table].numpy()
        total = state(table, "sum").numpy() if name == "adagrad" else like[:0]
        return total, like[:0], like[:0, 0]

    def _buffer(self, table: str, rows: int) -> tuple[Array, Array]:
        """Return (ids, gradients) with room for every row that a step can touch."""
        like = self.tables[table]
        rows = min(rows, len(like))
        ids, gradients = self._buffers.get(table, (None, None))
        if ids is None or gradients is None or len(ids) < rows:
            ids, gradients = np.empty(rows, np.int64), np.empty((rows, like.shape[1]), like.numpy().dtype)
            self._buffers[table] = ids, gradients
        return ids, gradients
