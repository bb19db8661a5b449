"""The counter of `fkge.evaluation.counting` for one CPU thread, compiled.

Fast values never reach memory as a matrix: they are computed for a tile of candidates and four queries at a
time, which stay in the first-level cache, and counted on the spot. The table is transposed, so a vector register
holds one coordinate of many candidates and nothing is summed across a register.

Sums may be taken in any order (``reassoc``): the bounds of `Geometry` hold for all of them. Not-a-number keeps
its meaning; other fast-math flags would drop it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch.nn.functional as F
from torch import Tensor

from fkge.evaluation.counting import Questions
from fkge.evaluation.geometry import Geometry, Kind

_L1, _L2, _DOT = int(Kind.L1), int(Kind.L2), int(Kind.DOT)
_TILE_BYTES = 1 << 19
"""A tile of the table: half of a second-level cache."""
_jit = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


class KernelCounter:
    """Counts with compiled kernels.

    Args:
        geometry, candidates, place, memory: see `TorchCounter`.
    """

    def __init__(self, geometry: Geometry, candidates: Tensor, place: Tensor, memory: float) -> None:
        self.geometry = geometry
        self.candidates = candidates.contiguous().numpy()
        self.place = place.numpy()
        size = geometry.size(candidates)
        self.size = size.numpy()
        self._table = _in_fours(geometry, candidates.float()).T.contiguous().numpy()
        self._bias = geometry.bias(candidates).float().numpy()
        tile = _TILE_BYTES // (4 * len(self._table))
        self._tile = min(1024, max(64, tile // 64 * 64))
        # `fmax` passes over NaN: a value that is one is looked at again in any case.
        self._tile_size = np.fmax.reduceat(self.size, np.arange(0, len(self.size), self._tile))

    def count(self, questions: Questions) -> None:
        g, q = self.geometry, questions
        kind, row = int(g.kind), q.row
        query = q.query.contiguous()
        query_size = g.size(query)
        fast = _in_fours(g, query.float())
        fast = F.pad(fast, (0, 0, 0, -len(fast) % 4)).contiguous()
        starts = np.searchsorted(row.numpy(), np.arange(len(query) + 1))
        true_scale = g.scale(query_size[row], q.size).numpy()
        key = g.key(query[row], q.score).numpy()
        score, above, level = q.score.numpy(), q.above.numpy(), q.level.numpy()
        rows = (kind, query.numpy(), query_size.numpy(), self.candidates, self.size, starts, score, true_scale)
        _scan(*rows, g.tie, g.band, g.unit, g.floor, fast.numpy(), self._table, self._bias, self._tile,
              self._tile_size, key, above, level)  # fmt: skip
        _remove(*rows, g.tie, self.place, q.true.numpy(), q.first.numpy(), q.last.numpy(), q.known.numpy(),
                above, level)  # fmt: skip


def _in_fours(geometry: Geometry, vectors: Tensor) -> Tensor:
    """Return the vectors (n, p) with zeros added, as the kernels take four coordinates at a time. Zeros add nothing.

    Complex vectors become pairs of one real and one imaginary part: (n, p) as re, im, re, im, …
    """
    if geometry.kind is Kind.ROTATE:
        vectors = vectors.unflatten(1, (2, -1)).mT.flatten(1)
    return F.pad(vectors, (0, -vectors.shape[1] % 4))


@_jit
def _exact(kind: int, query: Any, candidate: Any) -> float:
    """Return `Geometry.exact` of one pair (p,)."""
    p = len(query)
    total = 0.0
    if kind == _L1:
        for j in range(p):
            total -= abs(query[j] - candidate[j])
    elif kind == _L2:
        for j in range(p):
            total -= (query[j] - candidate[j]) ** 2
    elif kind == _DOT:
        for j in range(p):
            total += query[j] * candidate[j]
    else:
        half = p // 2
        for j in range(half):
            re, im = query[j] - candidate[j], query[half + j] - candidate[half + j]
            total -= np.sqrt(re * re + im * im)
    return total


@_jit
def _scale(kind: int, a: float, b: float) -> float:
    """Return `Geometry.scale`."""
    if kind == _DOT:
        return a * b
    if kind == _L2:
        return (a + b) * (a + b)
    return a + b


@_jit
def _side(value: float, score: float, tie: float) -> int:
    """Return 2: above `score`, or not a number; 1: level; 0: below."""
    if not (value <= score + tie):
        return 2
    return 1 if value >= score - tie else 0


@_jit
def _scan(
    kind, query, query_size, candidates, size, starts, score, true_scale, tie, band, unit, floor, fast, table,
    bias, tile, tile_size, key, above, level,
):  # fmt: skip
    """Count all candidates.

    Args:
        query (u, p), candidates (m, p), with their sizes (u,), (m,).
        starts: (u + 1,) first question of each query.
        score, true_scale, key, above, level: (n,) of the questions.
        fast: (u', p') float32, queries in fours; table (p', m), bias (m,): candidates alike.
        tile: candidates at a time; tile_size the largest size in each.
    """
    m = len(candidates)
    values = np.empty((4, tile), np.float32)
    for t in range(len(tile_size)):
        c0 = t * tile
        w = min(tile, m - c0)
        for i in range(0, len(fast), 4):
            for k in range(4):
                values[k, :w] = bias[c0 : c0 + w]
            _add_values(kind, fast, i, table, c0, w, values)
            for k in range(min(4, len(query) - i)):
                q = i + k
                reach = _scale(kind, query_size[q], tile_size[t])
                for n in range(starts[q], starts[q + 1]):
                    if np.isnan(score[n]):
                        above[n] += w
                        continue
                    slack = band * reach + unit * true_scale[n] + floor
                    high, low = np.float32(key[n] + slack), np.float32(key[n] - slack)
                    over, near = _tally(values[k, :w], high, low)
                    above[n] += over
                    if near == 0:
                        continue
                    for b in range(0, w, 32):  # few are near: find them by the block
                        block = values[k, b : min(b + 32, w)]
                        if _tally(block, high, low)[1] == 0:
                            continue
                        for i_near in range(len(block)):
                            if block[i_near] > high or block[i_near] < low:
                                continue
                            c = c0 + b + i_near
                            within = tie * (_scale(kind, query_size[q], size[c]) + true_scale[n])
                            side = _side(_exact(kind, query[q], candidates[c]), score[n], within)
                            above[n] += side == 2
                            level[n] += side == 1


@_jit
def _tally(values, high, low):
    """Return how many values are over `high`, and how many neither over it nor under `low`."""
    over, under = np.int32(0), np.int32(0)
    for c in range(len(values)):
        over += np.int32(values[c] > high)
        under += np.int32(values[c] < low)
    return over, len(values) - over - under


@_jit
def _remove(
    kind, query, query_size, candidates, size, starts, score, true_scale, tie, place, true, first, last, known,
    above, level,
):  # fmt: skip
    """Take the known answers, and the true one, out of the counts again."""
    for q in range(len(query)):
        for e in known[first[q] : last[q]]:
            c = place[e]
            if c < 0:
                continue
            value = _exact(kind, query[q], candidates[c])
            scale = _scale(kind, query_size[q], size[c])
            for n in range(starts[q], starts[q + 1]):
                if e != true[n]:
                    side = _side(value, score[n], tie * (scale + true_scale[n]))
                    above[n] -= side == 2
                    level[n] -= side == 1
        for n in range(starts[q], starts[q + 1]):
            c = place[true[n]]
            if c >= 0:
                scale = _scale(kind, query_size[q], size[c])
                side = _side(_exact(kind, query[q], candidates[c]), score[n], tie * (scale + true_scale[n]))
                above[n] -= side == 2
                level[n] -= side == 1


@_jit
def _add_values(kind, fast, i, table, c0, w, values):
    """Add to values[k, c] what queries i … i + 3 and candidates c0 … are compared by: Σ q c, or −Σ|q − c|.

    Complex numbers stand as re, im, re, im, … Four queries by four coordinates: sixteen terms for four loads of the
    table, and all sixteen coordinates of the queries stay in registers. Spelt out, because the compiler keeps names in
    registers but not small arrays.
    """
    v0, v1, v2, v3 = values[0, :w], values[1, :w], values[2, :w], values[3, :w]
    for j in range(0, len(table), 4):
        t0, t1 = table[j, c0 : c0 + w], table[j + 1, c0 : c0 + w]
        t2, t3 = table[j + 2, c0 : c0 + w], table[j + 3, c0 : c0 + w]
        a0, a1, a2, a3 = fast[i, j], fast[i, j + 1], fast[i, j + 2], fast[i, j + 3]
        b0, b1, b2, b3 = fast[i + 1, j], fast[i + 1, j + 1], fast[i + 1, j + 2], fast[i + 1, j + 3]
        d0, d1, d2, d3 = fast[i + 2, j], fast[i + 2, j + 1], fast[i + 2, j + 2], fast[i + 2, j + 3]
        e0, e1, e2, e3 = fast[i + 3, j], fast[i + 3, j + 1], fast[i + 3, j + 2], fast[i + 3, j + 3]
        if kind == _L1:
            for c in range(w):
                x0, x1, x2, x3 = t0[c], t1[c], t2[c], t3[c]
                v0[c] -= abs(a0 - x0) + abs(a1 - x1) + abs(a2 - x2) + abs(a3 - x3)
                v1[c] -= abs(b0 - x0) + abs(b1 - x1) + abs(b2 - x2) + abs(b3 - x3)
                v2[c] -= abs(d0 - x0) + abs(d1 - x1) + abs(d2 - x2) + abs(d3 - x3)
                v3[c] -= abs(e0 - x0) + abs(e1 - x1) + abs(e2 - x2) + abs(e3 - x3)
        elif kind == _L2 or kind == _DOT:
            for c in range(w):
                x0, x1, x2, x3 = t0[c], t1[c], t2[c], t3[c]
                v0[c] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                v1[c] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                v2[c] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
                v3[c] += e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3
        else:
            for c in range(w):
                x0, x1, x2, x3 = t0[c], t1[c], t2[c], t3[c]
                v0[c] -= np.sqrt((a0 - x0) ** 2 + (a1 - x1) ** 2) + np.sqrt((a2 - x2) ** 2 + (a3 - x3) ** 2)
                v1[c] -= np.sqrt((b0 - x0) ** 2 + (b1 - x1) ** 2) + np.sqrt((b2 - x2) ** 2 + (b3 - x3) ** 2)
                v2[c] -= np.sqrt((d0 - x0) ** 2 + (d1 - x1) ** 2) + np.sqrt((d2 - x2) ** 2 + (d3 - x3) ** 2)
                v3[c] -= np.sqrt((e0 - x0) ** 2 + (e1 - x1) ** 2) + np.sqrt((e2 - x2) ** 2 + (e3 - x3) ** 2)
