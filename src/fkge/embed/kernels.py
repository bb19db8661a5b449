"""Closed-form training steps on the CPU, compiled by numba: many steps per call, one thread, no gather, no graph.

The four models below are queries compared with candidates by a simple similarity, so a step is: build each
positive's query, score its target and the group's negatives, differentiate the loss with respect to the scores,
push that back through similarity and query, and let the optimiser touch just the rows that were met. Gradients of
a row met several times in one step are summed first, in a buffer with one place per row touched.

`steps.AutogradStep` is the slow twin: same batches, same numbers (tests compare them in float64).

Functions take (table, row) rather than row views: a view costs more than the arithmetic on a short row.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fkge.embed import optimizers
from fkge.embed.batches import Batch, Facts
from fkge.embed.losses import HOPELESS, margin_of
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings

# Sums may be reordered (that is what vectorises them), but NaN and infinity keep their meaning: divergence must show.
_jit = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})

L1, L2, DISTMULT, COMPLEX, ROTATE = range(5)
_KINDS = {"l1": L1, "l2": L2, "distmult": DISTMULT, "complex": COMPLEX, "rotate": ROTATE}
SGD, ADAGRAD, ADAM = range(3)
_OPTIMIZERS = {"sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}

_FAR = 1 << 21
"""Numbers in a table that no cache near the core will hold: beyond it, rows are asked for two triples ahead."""

Array = npt.NDArray[Any]
_NONE = np.empty(0, np.int64)


@intrinsic
def _prefetch(typing_context, array, i, j):
    """Ask for the cache line of array[i, j] before it is needed."""

    def generate(context, builder, signature, arguments):
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, arguments[0])
        item = cgutils.get_item_pointer(context, builder, kind, view, list(arguments[1:]), wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, number, number, number]), "llvm.prefetch.p0"
        )
        builder.call(function, [builder.bitcast(item, byte), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate


@_jit
def _fetch_row(table, row):
    """Bring a row near, if the table is so large that it will not be there already."""
    if table.size > _FAR:
        for j in range(0, table.shape[1], 16):
            _prefetch(table, row, j)


@_jit
def _query(kind, entity, e, relation, r, tail, out, o):
    """The point where the missing tail (or head) of (e, r) is expected, into out[o]."""
    d = relation.shape[1]
    if kind == L1 or kind == L2:
        if tail:
            for j in range(d):
                out[o, j] = entity[e, j] + relation[r, j]
        else:
            for j in range(d):
                out[o, j] = entity[e, j] - relation[r, j]
    elif kind == DISTMULT:
        for j in range(d):
            out[o, j] = entity[e, j] * relation[r, j]
    elif kind == COMPLEX:
        half = d // 2
        for j in range(half):
            a, b = entity[e, j], entity[e, half + j]
            x, y = relation[r, j], relation[r, half + j]
            if not tail:
                y = -y
            out[o, j] = a * x - b * y
            out[o, half + j] = a * y + b * x
    else:
        for j in range(d):
            a, b = entity[e, j], entity[e, d + j]
            x, y = math.cos(relation[r, j]), math.sin(relation[r, j])
            if not tail:
                y = -y
            out[o, j] = a * x - b * y
            out[o, d + j] = a * y + b * x


@_jit
def _query_backward(kind, entity, e, relation, r, tail, query, o, g, ge, se, gr, sr):
    """Push the gradient g[o] of query[o] back to its entity, ge[se], and its relation, gr[sr]."""
    d = relation.shape[1]
    if kind == L1 or kind == L2:
        if tail:
            for j in range(d):
                ge[se, j] += g[o, j]
                gr[sr, j] += g[o, j]
        else:
            for j in range(d):
                ge[se, j] += g[o, j]
                gr[sr, j] -= g[o, j]
    elif kind == DISTMULT:
        for j in range(d):
            ge[se, j] += g[o, j] * relation[r, j]
            gr[sr, j] += g[o, j] * entity[e, j]
    elif kind == COMPLEX:
        half = d // 2
        sign = entity.dtype.type(1.0) if tail else entity.dtype.type(-1.0)
        for j in range(half):
            p, q = g[o, j], g[o, half + j]
            a, b = entity[e, j], entity[e, half + j]
            x, y = relation[r, j], sign * relation[r, half + j]
            ge[se, j] += p * x + q * y
            ge[se, half + j] += q * x - p * y
            gr[sr, j] += p * a + q * b
            gr[sr, half + j] += sign * (q * a - p * b)
    else:
        for j in range(d):
            p, q = g[o, j], g[o, d + j]
            x, y = math.cos(relation[r, j]), math.sin(relation[r, j])
            turn = q * query[o, j] - p * query[o, d + j]
            if not tail:
                y = -y
                turn = -turn
            ge[se, j] += p * x + q * y
            ge[se, d + j] += q * x - p * y
            gr[sr, j] += turn


@_jit
def _similarity(kind, query, o, entity, c):
    w = entity.shape[1]
    total = entity.dtype.type(0.0)
    if kind == L1:
        for j in range(w):
            total += abs(query[o, j] - entity[c, j])
        return -total
    if kind == L2:
        for j in range(w):
            x = query[o, j] - entity[c, j]
            total += x * x
        return -math.sqrt(total)
    if kind == ROTATE:
        half = w // 2
        for j in range(half):
            x = query[o, j] - entity[c, j]
            y = query[o, half + j] - entity[c, half + j]
            total += math.sqrt(x * x + y * y)
        return -total
    for j in range(w):
        total += query[o, j] * entity[c, j]
    return total


@_jit
def _similarity_backward(kind, query, o, entity, c, score, d, gq, ge, s):
    """Add d · ∂score/∂query to gq[o] and d · ∂score/∂candidate to ge[s]."""
    w = entity.shape[1]
    zero = entity.dtype.type(0.0)
    if kind == L1:
        for j in range(w):
            x = query[o, j] - entity[c, j]
            step = (d if x > zero else zero) - (d if x < zero else zero)
            gq[o, j] -= step
            ge[s, j] += step
    elif kind == L2:
        if score == zero:
            return
        scale = d / -score
        for j in range(w):
            step = scale * (query[o, j] - entity[c, j])
            gq[o, j] -= step
            ge[s, j] += step
    elif kind == ROTATE:
        half = w // 2
        for j in range(half):
            x = query[o, j] - entity[c, j]
            y = query[o, half + j] - entity[c, half + j]
            norm = math.sqrt(x * x + y * y)
            scale = d / norm if norm > zero else zero
            gq[o, j] -= scale * x
            gq[o, half + j] -= scale * y
            ge[s, j] += scale * x
            ge[s, half + j] += scale * y
    else:
        for j in range(w):
            gq[o, j] += d * entity[c, j]
            ge[s, j] += d * query[o, j]


@_jit
def _sigmoid(x):
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    z = math.exp(x)
    return z / (1 + z)


@_jit
def _softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@_jit
def _loss(margin_loss, margin, temperature, positive, negative, o, scale, d_negative):
    """Loss of one positive and scale · ∂loss/∂positive; scale · ∂loss/∂negative goes into d_negative[o]."""
    k = negative.shape[1]
    if margin_loss:
        loss = 0.0
        active = 0
        for i in range(k):
            gap = margin - positive + negative[o, i]
            if gap > 0:
                loss += gap
                active += 1
                d_negative[o, i] = scale / k
            else:
                d_negative[o, i] = 0.0
        return loss / k, -scale * active / k
    top = negative[o, 0]
    for i in range(1, k):
        top = max(top, negative[o, i])
    total = 0.0
    for i in range(k):
        d_negative[o, i] = math.exp(temperature * (negative[o, i] - top))
        total += d_negative[o, i]
    loss = 0.5 * _softplus(-margin - positive)
    for i in range(k):
        weight = d_negative[o, i] / total
        loss += 0.5 * weight * _softplus(margin + negative[o, i])
        d_negative[o, i] = 0.5 * scale * weight * _sigmoid(margin + negative[o, i])
    return loss, -0.5 * scale * _sigmoid(-margin - positive)


@_jit
def _slot(row, slots, touched, count, gradient):
    """The place of `row` in this step's gradient buffer, zeroed at the first meeting, and how many there are."""
    s = slots[row]
    if s < 0:
        s = count
        slots[row] = s
        touched[s] = row
        for j in range(gradient.shape[1]):
            gradient[s, j] = 0
        count += 1
    return s, count


@_jit
def _span(pairs, starts, pair, end):
    """Where the completions of `pair` begin and end."""
    at = np.searchsorted(pairs, pair)
    if at == len(pairs) or pairs[at] != pair:
        return 0, 0
    return starts[at], starts[at + 1] if at + 1 < len(starts) else end


@_jit
def _contains(values, first, last, value):
    """Whether `value` is among the ascending values[first:last]."""
    while first < last:
        middle = (first + last) >> 1
        if values[middle] < value:
            first = middle + 1
        elif values[middle] > value:
            last = middle
        else:
            return True
    return False


@_jit
def _cube_backward(table, row, weight, gradient, s):
    for j in range(table.shape[1]):
        x = table[row, j]
        gradient[s, j] += weight * 3 * x * abs(x)


@_jit
def _optimize(optimizer, table, a, b, steps, touched, count, slots, gradient, lr, beta1, beta2, eps):
    """Step the touched rows and empty the buffer. a, b, steps: the optimiser's state beside the table."""
    w = table.shape[1]
    real = table.dtype.type
    one = real(1.0)
    for s in range(count):
        ahead = touched[min(s + 2, count - 1)]
        _fetch_row(table, ahead)
        row = touched[s]
        slots[row] = -1
        if optimizer == SGD:
            for j in range(w):
                table[row, j] -= lr * gradient[s, j]
        elif optimizer == ADAGRAD:
            for j in range(w):
                g = gradient[s, j]
                a[row, j] += g * g
                table[row, j] -= lr * g / (math.sqrt(a[row, j]) + eps)
        else:
            _fetch_row(a, ahead)
            _fetch_row(b, ahead)
            steps[row] += 1
            rate = real(lr / (1 - beta1 ** steps[row]))
            root = real(1 / math.sqrt(1 - beta2 ** steps[row]))
            b1, b2 = real(beta1), real(beta2)
            for j in range(w):
                g = gradient[s, j]
                m = b1 * a[row, j] + (one - b1) * g
                v = b2 * b[row, j] + (one - b2) * g * g
                a[row, j] = m
                b[row, j] = v
                table[row, j] -= rate * m / (math.sqrt(v) * root + eps)


@_jit
def _train(
    kind, entity, relation, head, rel, tail, corrupt_tail, weight, negative, bounds,
    tail_pairs, tail_starts, tails, head_pairs, head_starts, heads,
    margin_loss, margin, temperature, cube, optimizer, lr, beta1, beta2, eps,
    ea, eb, es, ra, rb, rs, slots_e, touched_e, ge, slots_r, touched_r, gr,
):  # fmt: skip
    """All steps of a batch. Returns the sum of their mean losses."""
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
    # Adam moves a row it meets even when the gradient is zero (its moments decay); the others do not.
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
            _fetch_row(entity, negative[ahead, 0])
            for s in range(size):
                _fetch_row(entity, head[ahead, s])
                _fetch_row(entity, tail[ahead, s])
                fixed = head[g, s] if corrupt_tail[g, s] else tail[g, s]
                target = tail[g, s] if corrupt_tail[g, s] else head[g, s]
                _query(kind, entity, fixed, relation, rel[g, s], corrupt_tail[g, s], query, s)
                positive[s] = _similarity(kind, query, s, entity, target)
                if filtered:
                    pair = fixed * relation.shape[0] + rel[g, s]
                    if corrupt_tail[g, s]:
                        span[s] = _span(tail_pairs, tail_starts, pair, len(tails))
                    else:
                        span[s] = _span(head_pairs, head_starts, pair, len(heads))
            for i in range(k):
                _fetch_row(entity, negative[g, min(i + 2, k - 1)])
                for s in range(size):
                    c = negative[g, i]
                    if span[s, 0] < span[s, 1] and _contains(
                        tails if corrupt_tail[g, s] else heads, span[s, 0], span[s, 1], c
                    ):
                        scores[s, i] = HOPELESS
                    else:
                        scores[s, i] = _similarity(kind, query, s, entity, c)
            for s in range(size):
                moved[s] = meet_all
                if weight[g, s]:
                    value, slope = _loss(margin_loss, margin, temperature, positive[s], scores, s, scale, d_scores)
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
                    p, ce = _slot(c, slots_e, touched_e, ce, ge)
                for s in range(size):
                    if d_scores[s, i] != 0:
                        moved[s] = True
                        p, ce = _slot(c, slots_e, touched_e, ce, ge)
                        _similarity_backward(kind, query, s, entity, c, scores[s, i], d_scores[s, i], gq, ge, p)
            for s in range(size):
                if not weight[g, s]:
                    continue
                r = rel[g, s]
                fixed = head[g, s] if corrupt_tail[g, s] else tail[g, s]
                target = tail[g, s] if corrupt_tail[g, s] else head[g, s]
                if d_positive[s] != 0 or moved[s]:
                    p, ce = _slot(target, slots_e, touched_e, ce, ge)
                    _similarity_backward(kind, query, s, entity, target, positive[s], d_positive[s], gq, ge, p)
                    p, ce = _slot(fixed, slots_e, touched_e, ce, ge)
                    q, cr = _slot(r, slots_r, touched_r, cr, gr)
                    _query_backward(kind, entity, fixed, relation, r, corrupt_tail[g, s], query, s, gq, ge, p, gr, q)
                if cube > 0:
                    pull = real(cube * scale)
                    p, ce = _slot(fixed, slots_e, touched_e, ce, ge)
                    _cube_backward(entity, fixed, pull, ge, p)
                    p, ce = _slot(target, slots_e, touched_e, ce, ge)
                    _cube_backward(entity, target, pull, ge, p)
                    q, cr = _slot(r, slots_r, touched_r, cr, gr)
                    _cube_backward(relation, r, pull, gr, q)
        total += loss * scale
        _optimize(optimizer, entity, ea, eb, es, touched_e, ce, slots_e, ge, lr, beta1, beta2, eps)
        _optimize(optimizer, relation, ra, rb, rs, touched_r, cr, slots_r, gr, lr, beta1, beta2, eps)
    return total


@_jit
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
        _fetch_row(entity, head[ahead])
        _fetch_row(entity, tail[ahead])
        _fetch_row(entity, negative[ahead])
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
        if norm == 1:
            for j in range(d):
                x = entity[h, j] + relation[r, j] - entity[t, j]
                y = entity[nh, j] + relation[r, j] - entity[nt, j]
                x = (lr if x > zero else zero) - (lr if x < zero else zero)
                y = (lr if y > zero else zero) - (lr if y < zero else zero)
                entity[h, j] -= x
                entity[t, j] += x
                entity[nh, j] += y
                entity[nt, j] -= y
                relation[r, j] -= x - y
        else:
            a = lr / good if good > zero else zero
            b = lr / bad if bad > zero else zero
            for j in range(d):
                x = a * (entity[h, j] + relation[r, j] - entity[t, j])
                y = b * (entity[nh, j] + relation[r, j] - entity[nt, j])
                entity[h, j] -= x
                entity[t, j] += x
                entity[nh, j] += y
                entity[nt, j] -= y
                relation[r, j] -= x - y
    return total


def _spans(facts: Facts | None) -> list[Array]:
    """The training triples as the kernel looks them up: tails of (head, relation), heads of (tail, relation)."""
    if facts is None:
        return [_NONE] * 6
    return [x.numpy() for c in (facts.tails, facts.heads) for x in (c.pairs, c.starts, c.completions)]


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
        loss = (s.loss == "margin", real(self.margin), real(s.temperature), s.regularization)
        betas = (optimizers.BETA1, optimizers.BETA2, real(optimizers.EPSILON))
        return float(self._run(batch, ids, (*loss, _OPTIMIZERS[s.optimizer], real(lr), *betas), lr))

    def _run(self, batch: Batch, ids: list[Array], how: tuple[Any, ...], lr: float) -> Any:
        entity, relation = self.tables["entity"].numpy(), self.tables["relation"].numpy()
        largest = int(np.diff(batch.bounds).max())
        size, k = batch.head.shape[1], batch.negative.shape[1]
        return _train(
            _KINDS[self.tables.model.kernel or ""], entity, relation, *ids, batch.weight.numpy(),
            batch.negative.numpy(), batch.bounds, *_spans(batch.facts), *how,
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
        """(ids, gradients) with room for every row that a step can touch."""
        like = self.tables[table]
        rows = min(rows, len(like))
        ids, gradients = self._buffers.get(table, (None, None))
        if ids is None or gradients is None or len(ids) < rows:
            ids, gradients = np.empty(rows, np.int64), np.empty((rows, like.shape[1]), like.numpy().dtype)
            self._buffers[table] = ids, gradients
        return ids, gradients
