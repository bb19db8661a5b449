"""Building blocks of the compiled training steps: query, similarity, loss and optimiser, each with its gradient.

Hand-written because a step touches a few hundred short rows: gathering them, building an autograd graph and scattering
gradients takes torch ten times as long as the arithmetic. Functions take (table, row) rather than row views: a view
costs more than the arithmetic on a short row.

A *slot* is a row in a step's gradient buffer: every row that a step touches gets one, so that gradients of a row named
several times are summed before the optimiser sees them. ``slots`` (rows of the table,) int32 maps a row to its slot or
−1, ``touched`` (slots,) int64 maps back, and a count says how many are in use.
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

from fkge.embed.batches import Facts

# Sums may be reordered (that is what vectorises them), but NaN and infinity keep their meaning: divergence must show.
jit = nb.njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp", "nsz"})

L1, L2, DISTMULT, COMPLEX, ROTATE = range(5)
KERNELS = {"l1": L1, "l2": L2, "distmult": DISTMULT, "complex": COMPLEX, "rotate": ROTATE}
SGD, ADAGRAD, ADAM = range(3)
OPTIMIZERS = {"sgd": SGD, "adagrad": ADAGRAD, "adam": ADAM}

_FAR = 1 << 21
"""Numbers in a table that no cache near the core will hold: beyond it, rows are asked for two triples ahead."""
MARGIN, SIGMOID = range(2)
LOSSES = {"margin": MARGIN, "sigmoid": SIGMOID}
"""Codes of the losses that `loss_and_slopes` computes: those with ``compiled=True`` in `fkge.embed.losses`."""

Array = npt.NDArray[Any]
NO_IDS = np.empty(0, np.int64)


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


@jit
def fetch_row(table, row):
    """Bring a row near, if the table is so large that it will not be there already."""
    if table.size > _FAR:
        for j in range(0, table.shape[1], 16):
            _prefetch(table, row, j)


@jit
def make_query(kind, entity, e, relation, r, tail, out, o):
    """Write the point where the missing tail (or head) of (e, r) is expected into out[o]."""
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


@jit
def query_backward(kind, entity, e, relation, r, tail, query, o, g, ge, se, gr, sr):
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


@jit
def similarity(kind, query, o, entity, c):
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


@jit
def similarity_backward(kind, query, o, entity, c, score, d, gq, ge, s):
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


@jit
def _sigmoid(x):
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    z = math.exp(x)
    return z / (1 + z)


@jit
def _softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@jit
def loss_and_slopes(loss_code, margin, temperature, positive, negative, o, scale, d_negative):
    """Loss of one positive and scale · ∂loss/∂positive; scale · ∂loss/∂negative goes into d_negative[o]."""
    k = negative.shape[1]
    if loss_code == MARGIN:
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


@jit
def take_slot(row, slots, touched, count, gradient):
    """Return the place of `row` in this step's gradient buffer, zeroed at the first meeting, and how many there are."""
    s = slots[row]
    if s < 0:
        s = count
        slots[row] = s
        touched[s] = row
        for j in range(gradient.shape[1]):
            gradient[s, j] = 0
        count += 1
    return s, count


@jit
def find_span(pairs, starts, pair, end):
    """Return the beginning and the end of the completions of `pair`."""
    at = np.searchsorted(pairs, pair)
    if at == len(pairs) or pairs[at] != pair:
        return 0, 0
    return starts[at], starts[at + 1] if at + 1 < len(starts) else end


@jit
def contains(values, first, last, value):
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


@jit
def cube_backward(table, row, weight, gradient, s):
    for j in range(table.shape[1]):
        x = table[row, j]
        gradient[s, j] += weight * 3 * x * abs(x)


@jit
def optimize_rows(optimizer, table, a, b, steps, touched, count, slots, gradient, lr, beta1, beta2, eps):
    """Step the touched rows and empty the buffer. a, b, steps: the optimiser's state of each row."""
    w = table.shape[1]
    real = table.dtype.type
    one = real(1.0)
    for s in range(count):
        ahead = touched[min(s + 2, count - 1)]
        fetch_row(table, ahead)
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
            fetch_row(a, ahead)
            fetch_row(b, ahead)
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


def completion_arrays(facts: Facts | None) -> list[Array]:
    """Return the training triples as the kernel looks them up: tails of (head, relation), heads of (tail, relation)."""
    if facts is None:
        return [NO_IDS] * 6
    return [x.numpy() for c in (facts.tails, facts.heads) for x in (c.pairs, c.starts, c.completions)]
