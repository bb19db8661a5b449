"""Closed-form training steps for TransH and TransD: `kernels`, with entities projected first.

The groups of a batch are pure, one relation each, so a group's negatives are projected once for all its positives,
and what flows back to a projected vector flows through its projection once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fkge.embed.batches import Batch
from fkge.embed.kernels import (
    ADAM,
    L1,
    L2,
    Array,
    KernelStep,
    _contains,
    _cube_backward,
    _jit,
    _loss,
    _optimize,
    _similarity,
    _similarity_backward,
    _slot,
    _span,
    _spans,
)
from fkge.embed.losses import HOPELESS

HYPERPLANE, TRANSFER = range(2)
_TINY = 1e-12
"""Below this length a vector is not scaled to unit length; as in torch's `normalize`."""


@_jit
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


@_jit
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


@_jit
def _train_projected(
    how, kind, entity, transfer, relation, side, head, rel, tail, corrupt_tail, weight, negative, bounds,
    tail_pairs, tail_starts, tails, head_pairs, head_starts, heads,
    margin_loss, margin, temperature, cube, optimizer, lr, beta1, beta2, eps,
    ea, eb, es, ta, tb, ts, ra, rb, rs, sa, sb, ss, slots_e, touched_e, ge, gt, slots_r, touched_r, gr, gs,
):  # fmt: skip
    """All steps of a batch. Returns the sum of their mean losses.

    In a group, places 0 … size − 1 are the heads, the next size the tails, then come the negatives.
    """
    size, k = head.shape[1], negative.shape[1]
    places, d = 2 * size + k, entity.shape[1]
    real = entity.dtype.type
    filtered = len(tail_pairs) > 0
    meet_all = optimizer == ADAM
    ids = np.empty(places, np.int64)
    seen = np.empty((places, d), entity.dtype)
    g_seen = np.empty((places, d), entity.dtype)
    hit = np.empty(places, np.bool_)
    kept = np.empty((places, 2), entity.dtype)
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
            for m in range(places):
                hit[m] = False
                _project(how, entity, ids[m], transfer, side, r, normal, seen, m, kept)
            for s in range(size):
                if not weight[g, s]:
                    continue
                fixed, target = (s, size + s) if corrupt_tail[g, s] else (size + s, s)
                sign = real(1.0) if corrupt_tail[g, s] else real(-1.0)
                for j in range(d):
                    query[s, j] = seen[fixed, j] + sign * relation[r, j]
                    gq[s, j] = 0
                positive = _similarity(kind, query, s, seen, target)
                begin = end = 0
                if filtered:
                    pair = ids[fixed] * relation.shape[0] + r
                    if corrupt_tail[g, s]:
                        begin, end = _span(tail_pairs, tail_starts, pair, len(tails))
                    else:
                        begin, end = _span(head_pairs, head_starts, pair, len(heads))
                known = tails if corrupt_tail[g, s] else heads
                for i in range(k):
                    if begin < end and _contains(known, begin, end, negative[g, i]):
                        scores[s, i] = HOPELESS
                    else:
                        scores[s, i] = _similarity(kind, query, s, seen, 2 * size + i)
                value, slope = _loss(margin_loss, margin, temperature, positive, scores, s, scale, d_scores)
                loss += value
                for i in range(k):
                    if d_scores[s, i] != 0:
                        _meet(2 * size + i, hit, g_seen)
                        _similarity_backward(
                            kind, query, s, seen, 2 * size + i, scores[s, i], d_scores[s, i], gq, g_seen, 2 * size + i
                        )
                if slope != 0:
                    _meet(target, hit, g_seen)
                    _meet(fixed, hit, g_seen)
                    _similarity_backward(kind, query, s, seen, target, positive, real(slope), gq, g_seen, target)
                    q, cr = _slots(r, slots_r, touched_r, cr, gr, gs)
                    for j in range(d):
                        g_seen[fixed, j] += gq[s, j]
                        gr[q, j] += sign * gq[s, j]
                if cube > 0:
                    pull = real(cube * scale)
                    q, cr = _slots(r, slots_r, touched_r, cr, gr, gs)
                    _cube_backward(relation, r, pull, gr, q)
                    for m in (s, size + s):
                        p, ce = _slots(ids[m], slots_e, touched_e, ce, ge, gt)
                        _cube_backward(entity, ids[m], pull, ge, p)
            if meet_all:
                q, cr = _slots(r, slots_r, touched_r, cr, gr, gs)
                for m in range(places):
                    p, ce = _slots(ids[m], slots_e, touched_e, ce, ge, gt)
            any_hit = False
            for m in range(places):
                if hit[m]:
                    any_hit = True
                    p, ce = _slots(ids[m], slots_e, touched_e, ce, ge, gt)
                    q, cr = _slots(r, slots_r, touched_r, cr, gr, gs)
                    _project_backward(
                        how,
                        entity,
                        ids[m],
                        transfer,
                        side,
                        r,
                        normal,
                        seen,
                        m,
                        kept,
                        g_seen,
                        ge,
                        gt,
                        p,
                        d_normal,
                        gs,
                        q,
                    )
            if how == HYPERPLANE and any_hit:
                dot = real(0.0)
                for j in range(d):
                    dot += normal[j] * d_normal[j]
                q, cr = _slots(r, slots_r, touched_r, cr, gr, gs)
                for j in range(d):
                    gs[q, j] += (d_normal[j] - dot * normal[j]) / length
        total += loss * scale
        _optimize(optimizer, entity, ea, eb, es, touched_e, ce, slots_e, ge, lr, beta1, beta2, eps)
        if how == TRANSFER:
            _optimize(optimizer, transfer, ta, tb, ts, touched_e, ce, slots_e, gt, lr, beta1, beta2, eps)
        _optimize(optimizer, relation, ra, rb, rs, touched_r, cr, slots_r, gr, lr, beta1, beta2, eps)
        _optimize(optimizer, side, sa, sb, ss, touched_r, cr, slots_r, gs, lr, beta1, beta2, eps)
    return total


@_jit
def _meet(m, hit, g):
    """Zero a place's gradient at the first contribution."""
    if not hit[m]:
        hit[m] = True
        for j in range(g.shape[1]):
            g[m, j] = 0


@_jit
def _slots(row, slots, touched, count, first, second):
    """`_slot` for two tables whose rows go together."""
    s, after = _slot(row, slots, touched, count, first)
    if after > count:
        for j in range(second.shape[1]):
            second[s, j] = 0
    return s, after


class ProjectedStep(KernelStep):
    """Training steps in closed form for TransH and TransD."""

    def _run(self, batch: Batch, ids: list[Array], how: tuple[Any, ...]) -> Any:
        tables, hyperplane = self.tables, self.tables.model.kernel == "transh"
        side = "normal" if hyperplane else "relation_transfer"
        transfer = "entity" if hyperplane else "entity_transfer"  # TransH has none; the kernel leaves it alone
        largest = int(np.diff(batch.bounds).max())
        places = largest * (2 * batch.head.shape[1] + batch.negative.shape[1])
        touched, ge = self._buffer("entity", places)
        gt = ge[:, :0] if hyperplane else self._buffer(transfer, places)[1]
        return _train_projected(
            HYPERPLANE if hyperplane else TRANSFER, L1 if self.settings.norm == 1 else L2,
            *(tables[name].numpy() for name in ("entity", transfer, "relation", side)), *ids,
            batch.weight.numpy(), batch.negative.numpy(), batch.bounds, *_spans(batch.facts), *how,
            *(x for name in ("entity", transfer, "relation", side) for x in self._state(name)),
            self._slots["entity"], touched, ge, gt,
            self._slots["relation"], *self._buffer("relation", largest), self._buffer(side, largest)[1],
        )  # fmt: skip
