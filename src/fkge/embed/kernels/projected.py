"""Compiled training steps for TransH, TransR and TransD: as in `steps`, with entities projected first.

The groups of a batch are pure, one relation each, so a group's negatives are projected once for all its positives,
and what flows back to a projected vector flows through its projection once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fkge.embed.batches import Batch
from fkge.embed.kernels.primitives import (
    ADAM,
    L1,
    L2,
    Array,
    completion_arrays,
    contains,
    cube_backward,
    find_span,
    jit,
    loss_and_slopes,
    optimize_rows,
    similarity,
    similarity_backward,
    take_slot,
)
from fkge.embed.kernels.steps import KernelStep
from fkge.embed.losses import HOPELESS

HYPERPLANE, TRANSFER, MATRIX = range(3)
_KINDS = {"transh": HYPERPLANE, "transd": TRANSFER, "transr": MATRIX}
_TINY = 1e-12
"""Below this length a vector is not scaled to unit length; as in torch's `normalize`."""


@jit
def _project(how, entity, e, transfer, side, r, normal, out, m, kept):
    """Entity e as relation r sees it, into out[m]; kept[m] holds what the way back needs."""
    d = entity.shape[1]
    along = entity.dtype.type(0.0)
    if how == HYPERPLANE:
        for j in range(d):
            along += normal[j] * entity[e, j]
        for j in range(d):
            out[m, j] = entity[e, j] - along * normal[j]
        kept[m, 0] = along
        return
    for j in range(d):
        along += transfer[e, j] * entity[e, j]
    square = entity.dtype.type(0.0)
    for j in range(d):
        x = entity[e, j] + along * side[r, j]
        out[m, j] = x
        square += x * x
    length = max(math.sqrt(square), entity.dtype.type(_TINY))
    for j in range(d):
        out[m, j] /= length
    kept[m, 0] = along
    kept[m, 1] = length


@jit
def _project_backward(how, entity, e, transfer, side, r, normal, out, m, kept, g, ge, gt, s, d_normal, gs, q):
    """Push g[m], the gradient of out[m], back to entity and transfer, ge[s] and gt[s], and to the relation's side.

    For a hyperplane the latter is the gradient of the *unit* normal, d_normal; for a transfer, gs[q].
    """
    d = entity.shape[1]
    dot = entity.dtype.type(0.0)
    along = kept[m, 0]
    if how == HYPERPLANE:
        for j in range(d):
            dot += normal[j] * g[m, j]
        for j in range(d):
            ge[s, j] += g[m, j] - dot * normal[j]
            d_normal[j] -= along * g[m, j] + dot * entity[e, j]
        return
    for j in range(d):
        dot += out[m, j] * g[m, j]
    turn = entity.dtype.type(0.0)
    for j in range(d):
        x = (g[m, j] - dot * out[m, j]) / kept[m, 1]
        g[m, j] = x
        turn += x * side[r, j]
    for j in range(d):
        ge[s, j] += g[m, j] + turn * transfer[e, j]
        gt[s, j] += turn * entity[e, j]
        gs[q, j] += along * g[m, j]


@jit
def _add_product(a, b, rows, depth, out):
    """out[:rows] += a[:rows, :depth] b[:depth]. Two rows and four terms at a time, so that a load feeds two sums."""
    width = out.shape[1]
    even, whole = rows - rows % 2, depth - depth % 4
    for m in range(0, even, 2):
        for i in range(0, whole, 4):
            p0, p1, p2, p3 = a[m, i], a[m, i + 1], a[m, i + 2], a[m, i + 3]
            q0, q1, q2, q3 = a[m + 1, i], a[m + 1, i + 1], a[m + 1, i + 2], a[m + 1, i + 3]
            for j in range(width):
                w0, w1, w2, w3 = b[i, j], b[i + 1, j], b[i + 2, j], b[i + 3, j]
                out[m, j] += p0 * w0 + p1 * w1 + p2 * w2 + p3 * w3
                out[m + 1, j] += q0 * w0 + q1 * w1 + q2 * w2 + q3 * w3
        for i in range(whole, depth):
            for j in range(width):
                out[m, j] += a[m, i] * b[i, j]
                out[m + 1, j] += a[m + 1, i] * b[i, j]
    for m in range(even, rows):
        for i in range(depth):
            for j in range(width):
                out[m, j] += a[m, i] * b[i, j]


@jit
def _multiply(entity, ids, matrix, rows, seen):
    """seen[m] = entity[ids[m]] M for all places m; rows keeps the entities."""
    for m in range(len(ids)):
        for i in range(entity.shape[1]):
            rows[m, i] = entity[ids[m], i]
        for j in range(seen.shape[1]):
            seen[m, j] = 0
    _add_product(rows, matrix, len(ids), entity.shape[1], seen)


@jit
def _multiply_backward(rows, matrix, hit, g, slot_of, ge, g_matrix):
    """Push g[m] back to the entities, ge[slot_of[m]], and to the matrix, for the places that were hit."""
    places, d = rows.shape
    width = matrix.shape[1]
    count = 0
    for m in range(places):
        if hit[m]:
            count += 1
    turned = np.empty((d, count), g.dtype)
    some = np.empty((count, width), g.dtype)
    n = 0
    for m in range(places):
        if hit[m]:
            for i in range(d):
                turned[i, n] = rows[m, i]
            for j in range(width):
                some[n, j] = g[m, j]
            n += 1
    _add_product(turned, some, d, count, g_matrix)
    d_rows = np.zeros((count, d), g.dtype)
    _add_product(some, np.ascontiguousarray(matrix.T), count, width, d_rows)
    n = 0
    for m in range(places):
        if hit[m]:
            for i in range(d):
                ge[slot_of[m], i] += d_rows[n, i]
            n += 1


@jit
def _train_projected(
    how, kind, entity, transfer, relation, side, head, rel, tail, corrupt_tail, weight, negative, bounds,
    tail_pairs, tail_starts, tails, head_pairs, head_starts, heads,
    loss_code, margin, temperature, cube, optimizer, lr, beta1, beta2, eps, side_lr,
    ea, eb, es, ta, tb, ts, ra, rb, rs, sa, sb, ss, slots_e, touched_e, ge, gt, slots_r, touched_r, gr, gs,
):  # fmt: skip
    """Take all steps of a batch; return the sum of their mean losses.

    The parameters are those of `steps._train`, with two tables more: `transfer`, of entities (TransD), and `side`, of
    relations (normals, transfers or matrices), their optimiser state (ta, tb, ts; sa, sb, ss), their
    gradients (gt, gs) and the learning rate of `side`. In a group, places 0 … size − 1 are the heads, the next size the
    tails, then come the negatives.
    """
    size, k = head.shape[1], negative.shape[1]
    places, d = 2 * size + k, relation.shape[1]
    real = entity.dtype.type
    filtered = len(tail_pairs) > 0
    meet_all = optimizer == ADAM
    ids = np.empty(places, np.int64)
    seen = np.empty((places, d), entity.dtype)
    g_seen = np.empty((places, d), entity.dtype)
    hit = np.empty(places, np.bool_)
    kept = np.empty((places, 2), entity.dtype)
    slot_of = np.empty(places, np.int64)
    rows = np.empty((places, entity.shape[1]), entity.dtype)
    query = np.empty((size, d), entity.dtype)
    gq = np.empty((size, d), entity.dtype)
    normal = np.empty(d, entity.dtype)
    d_normal = np.empty(d, entity.dtype)
    scores = np.empty((size, k), entity.dtype)
    d_scores = np.empty((size, k), entity.dtype)
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
            r = rel[g, 0]
            for s in range(size):
                ids[s], ids[size + s] = head[g, s], tail[g, s]
            for i in range(k):
                ids[2 * size + i] = negative[g, i]
            length = real(1.0)
            if how == HYPERPLANE:
                square = real(0.0)
                for j in range(d):
                    square += side[r, j] * side[r, j]
                length = max(math.sqrt(square), real(_TINY))
                for j in range(d):
                    normal[j] = side[r, j] / length
                    d_normal[j] = 0
            hit[:] = False
            if how == MATRIX:
                _multiply(entity, ids, side[r].reshape((entity.shape[1], d)), rows, seen)
            else:
                for m in range(places):
                    _project(how, entity, ids[m], transfer, side, r, normal, seen, m, kept)
            for s in range(size):
                if not weight[g, s]:
                    continue
                fixed, target = (s, size + s) if corrupt_tail[g, s] else (size + s, s)
                sign = real(1.0) if corrupt_tail[g, s] else real(-1.0)
                for j in range(d):
                    query[s, j] = seen[fixed, j] + sign * relation[r, j]
                    gq[s, j] = 0
                positive = similarity(kind, query, s, seen, target)
                begin = end = 0
                if filtered:
                    pair = ids[fixed] * relation.shape[0] + r
                    if corrupt_tail[g, s]:
                        begin, end = find_span(tail_pairs, tail_starts, pair, len(tails))
                    else:
                        begin, end = find_span(head_pairs, head_starts, pair, len(heads))
                known = tails if corrupt_tail[g, s] else heads
                for i in range(k):
                    if begin < end and contains(known, begin, end, negative[g, i]):
                        scores[s, i] = HOPELESS
                    else:
                        scores[s, i] = similarity(kind, query, s, seen, 2 * size + i)
                value, slope = loss_and_slopes(loss_code, margin, temperature, positive, scores, s, scale, d_scores)
                loss += value
                moved = slope != 0
                for i in range(k):
                    if d_scores[s, i] != 0:
                        moved = True
                        _meet(2 * size + i, hit, g_seen)
                        similarity_backward(
                            kind, query, s, seen, 2 * size + i, scores[s, i], d_scores[s, i], gq, g_seen, 2 * size + i
                        )
                if moved:
                    _meet(target, hit, g_seen)
                    _meet(fixed, hit, g_seen)
                    similarity_backward(kind, query, s, seen, target, positive, real(slope), gq, g_seen, target)
                    q, cr = take_slots(r, slots_r, touched_r, cr, gr, gs)
                    for j in range(d):
                        g_seen[fixed, j] += gq[s, j]
                        gr[q, j] += sign * gq[s, j]
                if cube > 0:
                    pull = real(cube * scale)
                    q, cr = take_slots(r, slots_r, touched_r, cr, gr, gs)
                    cube_backward(relation, r, pull, gr, q)
                    for m in (s, size + s):
                        p, ce = take_slots(ids[m], slots_e, touched_e, ce, ge, gt)
                        cube_backward(entity, ids[m], pull, ge, p)
            if meet_all:
                q, cr = take_slots(r, slots_r, touched_r, cr, gr, gs)
                for m in range(places):
                    p, ce = take_slots(ids[m], slots_e, touched_e, ce, ge, gt)
            any_hit = False
            for m in range(places):
                if hit[m]:
                    any_hit = True
                    p, ce = take_slots(ids[m], slots_e, touched_e, ce, ge, gt)
                    q, cr = take_slots(r, slots_r, touched_r, cr, gr, gs)
                    slot_of[m] = p
                    if how != MATRIX:
                        _project_backward(
                            how, entity, ids[m], transfer, side, r, normal, seen, m, kept, g_seen,
                            ge, gt, p, d_normal, gs, q,
                        )  # fmt: skip
            if how == MATRIX and any_hit:
                shape = (entity.shape[1], d)
                _multiply_backward(rows, side[r].reshape(shape), hit, g_seen, slot_of, ge, gs[q].reshape(shape))
            if how == HYPERPLANE and any_hit:
                dot = real(0.0)
                for j in range(d):
                    dot += normal[j] * d_normal[j]
                q, cr = take_slots(r, slots_r, touched_r, cr, gr, gs)
                for j in range(d):
                    gs[q, j] += (d_normal[j] - dot * normal[j]) / length
        total += loss * scale
        optimize_rows(optimizer, entity, ea, eb, es, touched_e, ce, slots_e, ge, lr, beta1, beta2, eps)
        if how == TRANSFER:
            optimize_rows(optimizer, transfer, ta, tb, ts, touched_e, ce, slots_e, gt, lr, beta1, beta2, eps)
        optimize_rows(optimizer, relation, ra, rb, rs, touched_r, cr, slots_r, gr, lr, beta1, beta2, eps)
        optimize_rows(optimizer, side, sa, sb, ss, touched_r, cr, slots_r, gs, side_lr, beta1, beta2, eps)
    return total


@jit
def _meet(m, hit, g):
    """Zero a place's gradient at the first contribution."""
    if not hit[m]:
        hit[m] = True
        for j in range(g.shape[1]):
            g[m, j] = 0


@jit
def take_slots(row, slots, touched, count, first, second):
    """Take slots in two tables whose rows go together; see `take_slot`."""
    s, after = take_slot(row, slots, touched, count, first)
    if after > count:
        for j in range(second.shape[1]):
            second[s, j] = 0
    return s, after


class ProjectedStep(KernelStep):
    """Training steps in closed form for a model that projects."""

    def _run(self, batch: Batch, ids: list[Array], how: tuple[Any, ...], lr: float) -> Any:
        tables = self.tables
        kind = _KINDS[tables.model.kernel or ""]
        side = {HYPERPLANE: "normal", TRANSFER: "relation_transfer", MATRIX: "matrix"}[kind]
        transfer = "entity_transfer" if kind == TRANSFER else "entity"  # the others have none and leave it alone
        largest = int(np.diff(batch.bounds).max())
        places = largest * (2 * batch.head.shape[1] + batch.negative.shape[1])
        touched, ge = self._buffer("entity", places)
        gt = self._buffer(transfer, places)[1] if kind == TRANSFER else ge[:, :0]
        side_lr = ge.dtype.type(lr * tables.spec(side).rate)
        return _train_projected(
            kind, L1 if self.settings.norm == 1 else L2,
            *(tables[name].numpy() for name in ("entity", transfer, "relation", side)), *ids,
            batch.weight.numpy(), batch.negative.numpy(), batch.bounds, *completion_arrays(batch.facts), *how, side_lr,
            *(x for name in ("entity", transfer, "relation", side) for x in self._state(name)),
            self._slots["entity"], touched, ge, gt,
            self._slots["relation"], *self._buffer("relation", largest), self._buffer(side, largest)[1],
        )  # fmt: skip
