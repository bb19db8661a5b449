"""Compiled private training: Gaussian noise from ChaCha, and clipped gradients example by example.

Hand-written: no library gives a cryptographic stream of Gaussians at the speed of memory, nor gradients per example of
these models without a copy of every row. The slow twins are `dp_noise.key_stream` and `gaussians_of`, and
`dp_gradients.TorchGradients`.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor

from fkge.embed.batches import Examples
from fkge.embed.chacha import COLUMNS, DIAGONALS, LANES
from fkge.embed.kernels.primitives import (
    KERNELS,
    LOSSES,
    NO_IDS,
    Array,
    cube_backward,
    fetch_row,
    jit,
    loss_and_slopes,
    make_query,
    query_backward,
    similarity,
    similarity_backward,
    take_slot,
)
from fkge.embed.losses import margin_of
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings

# -- noise -------------------------------------------------------------------------------------------------------------


@intrinsic
def _double_round(typing_context, x):
    """Two rounds of ChaCha on x (16, 16) uint32, word by lane: sixteen vectors, kept in registers."""
    lanes = ir.VectorType(ir.IntType(32), LANES)

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        base = builder.bitcast(view.data, lanes.as_pointer())
        places = [builder.gep(base, [ir.IntType(64)(w)]) for w in range(16)]
        words = [builder.load(place, align=4) for place in places]
        kind = ir.FunctionType(lanes, [lanes, lanes, lanes])
        turned = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fshl.v{LANES}i32")
        for a, b, c, d in (*COLUMNS, *DIAGONALS):
            for i, j, k, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[i] = builder.add(words[i], words[j])
                mixed = builder.xor(words[k], words[i])
                words[k] = builder.call(turned, [mixed, mixed, ir.Constant(lanes, [turn] * LANES)])
        for place, word in zip(places, words, strict=True):
            builder.store(word, place, align=4)
        return context.get_dummy_value()

    return types.void(x), generate


@jit
def begin_stream(key, nonce):
    """Return the state that a group's blocks start from, (16, LANES) uint32, without their numbers."""
    first = np.empty((16, LANES), np.uint32)
    first[0], first[1], first[2], first[3] = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574
    for w in range(8):
        first[4 + w] = key[w]
    first[14], first[15] = nonce & 0xFFFFFFFF, nonce >> 32
    return first


@jit
def next_group(x, first, start, rounds):
    """Write the blocks from `start` on, as many as there are lanes: word w of each in x[w]."""
    for lane in range(LANES):
        first[12, lane] = (start + lane) & 0xFFFFFFFF
        first[13, lane] = (start + lane) >> 32
    for w in range(16):
        for lane in range(LANES):
            x[w, lane] = first[w, lane]
    for _ in range(rounds // 2):
        _double_round(x)
    for w in range(16):
        for lane in range(LANES):
            x[w, lane] = np.uint32(x[w, lane] + first[w, lane])


@jit
def chacha(key, nonce, start, groups, rounds):
    """ChaCha's key stream from block `start` on, (groups, 16, LANES) uint32."""
    out = np.empty((groups, 16, LANES), np.uint32)
    first = begin_stream(key, nonce)
    for group in range(groups):
        next_group(out[group], first, start + group * LANES, rounds)
    return out


_f = np.float32
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = (
    _f(7.0376836292e-2), _f(-1.1514610310e-1), _f(1.1676998740e-1), _f(-1.2420140846e-1), _f(1.4249322787e-1),
    _f(-1.6668057665e-1), _f(2.0000714765e-1), _f(-2.4999993993e-1), _f(3.3333331174e-1),
)  # fmt: skip
_S0, _S1, _S2 = _f(-1.9515295891e-4), _f(8.3321608736e-3), _f(-1.6666654611e-1)
_C0, _C1, _C2 = _f(2.443315711809948e-5), _f(-1.388731625493765e-3), _f(4.166664568298827e-2)
_ZERO, _HALF, _ONE, _ROOT, _LN2 = _f(0.0), _f(0.5), _f(1.0), _f(math.sqrt(0.5)), _f(math.log(2))
_UNIT32, _UNIT30, _RIGHT = _f(2.0**-32), _f(2.0**-30), _f(math.pi / 2)


@jit
def box_muller(x, unit, bits, out):
    """Gaussians, (16, LANES) float32, of a group's words x: eight rows of radii and eight of angles.

    Logarithm, sine and cosine are Cephes' float32 polynomials, written out: calls would not be vectorised.
    `bits` is `unit` (LANES,) seen as integers.
    """
    for w in range(8):
        for lane in range(LANES):
            unit[lane] = (_f(x[w, lane]) + _HALF) * _UNIT32
        for lane in range(LANES):
            raw = bits[lane]
            out[w, lane] = _f(np.int32((raw >> 23) - 126))  # the exponent of a mantissa in [½, 1)
            bits[lane] = np.int32((raw & 0x7FFFFF) | 0x3F000000)
        for lane in range(LANES):
            m, e = unit[lane], out[w, lane]
            small = m < _ROOT
            e = e - _ONE if small else e
            m = (m + m if small else m) - _ONE
            p = (((((((_L0 * m + _L1) * m + _L2) * m + _L3) * m + _L4) * m + _L5) * m + _L6) * m + _L7) * m + _L8
            log = p * m * m * m - _HALF * m * m + m + e * _LN2
            radius = math.sqrt(max(-log - log, _ZERO))
            word = x[8 + w, lane]
            t = (_f(np.int32(word & np.uint32(0x3FFFFFFF))) * _UNIT30 - _HALF) * _RIGHT
            z = t * t
            s = t + t * z * ((_S0 * z + _S1) * z + _S2)
            c = _ONE - _HALF * z + z * z * ((_C0 * z + _C1) * z + _C2)
            turn = np.uint32(word >> np.uint32(30))  # quarter turns: (c, s), (−s, c), (−c, −s), (s, −c)
            radius = -radius if turn >= np.uint32(2) else radius
            odd = (turn & np.uint32(1)) != 0
            out[w, lane] = radius * (-s if odd else c)
            out[8 + w, lane] = radius * (c if odd else s)


@jit
def gaussians(key, nonce, start, groups, rounds):
    """Return standard Gaussians of the words of `chacha`, (groups, 16, LANES) float32."""
    out = np.empty((groups, 16, LANES), np.float32)
    x, first = np.empty((16, LANES), np.uint32), begin_stream(key, nonce)
    unit = np.empty(LANES, np.float32)
    bits = unit.view(np.int32)
    for group in range(groups):
        next_group(x, first, start + group * LANES, rounds)
        box_muller(x, unit, bits, out[group])
    return out


# -- clipped gradients -------------------------------------------------------------------------------------------------


@jit
def _find(ids, count, row, own):
    """Return the place of `row` among an example's own, zeroed at the first meeting, and how many there are."""
    for i in range(count):
        if ids[i] == row:
            return i, count
    ids[count] = row
    for j in range(own.shape[1]):
        own[count, j] = 0
    return count, count + 1


@jit
def _add_clipped(
    kind, entity, relation, head, rel, tail, corrupt_tail, negative, loss_code, margin, temperature, cube, clip,
    learn, slots_e, touched_e, ge, ce, slots_r, touched_r, gr, cr,
):  # fmt: skip
    """Add each example's gradient, clipped and divided by the clip, to ge and gr, of which ce and cr rows are in use.

    Parameters: the model (kernel code, tables), the examples, the loss, the cubic regularisation, the clip,
    whether relations are learned, then the gradient buffers of entities and relations (slots: see `primitives`).
    An example's gradient is gathered in `own`, one row per *different* entity, so its length is that of the sum.
    Returns the summed loss, and how many rows of entities and relations are in use now.
    """
    n, k = negative.shape
    real = entity.dtype.type
    one = real(1.0)
    ids = np.empty(k + 2, np.int64)
    own = np.empty((k + 2, entity.shape[1]), entity.dtype)
    own_r = np.empty((1, relation.shape[1]), entity.dtype)
    query = np.empty((1, entity.shape[1]), entity.dtype)
    gq = np.empty((1, entity.shape[1]), entity.dtype)
    scores = np.empty((1, k), entity.dtype)
    d_scores = np.empty((1, k), entity.dtype)
    total = 0.0
    for g in range(n):
        ahead = min(g + 1, n - 1)
        fetch_row(entity, head[ahead])
        fetch_row(entity, tail[ahead])
        fetch_row(entity, negative[ahead, 0])
        r = rel[g]
        fixed, target = (head[g], tail[g]) if corrupt_tail[g] else (tail[g], head[g])
        make_query(kind, entity, fixed, relation, r, corrupt_tail[g], query, 0)
        positive = similarity(kind, query, 0, entity, target)
        for i in range(k):
            fetch_row(entity, negative[g, min(i + 2, k - 1)])
            scores[0, i] = similarity(kind, query, 0, entity, negative[g, i])
        loss, slope = loss_and_slopes(loss_code, margin, temperature, positive, scores, 0, one, d_scores)
        total += loss
        for j in range(entity.shape[1]):
            gq[0, j] = 0
        for j in range(relation.shape[1]):
            own_r[0, j] = 0
        p, count = _find(ids, 0, target, own)
        similarity_backward(kind, query, 0, entity, target, positive, real(slope), gq, own, p)
        for i in range(k):
            if d_scores[0, i] != 0:
                p, count = _find(ids, count, negative[g, i], own)
                similarity_backward(kind, query, 0, entity, negative[g, i], scores[0, i], d_scores[0, i], gq, own, p)
        p, count = _find(ids, count, fixed, own)
        query_backward(kind, entity, fixed, relation, r, corrupt_tail[g], query, 0, gq, own, p, own_r, 0)
        if cube > 0:
            cube_backward(entity, fixed, cube, own, p)
            p, count = _find(ids, count, target, own)
            cube_backward(entity, target, cube, own, p)
            cube_backward(relation, r, cube, own_r, 0)

        square = real(0.0)
        for i in range(count):
            for j in range(own.shape[1]):
                square += own[i, j] * own[i, j]
        if learn:
            for j in range(own_r.shape[1]):
                square += own_r[0, j] * own_r[0, j]
        if not math.isfinite(square):  # it cannot be shortened, so it stays out
            continue
        scale = one / max(real(math.sqrt(square)), clip)
        for i in range(count):
            p, ce = take_slot(ids[i], slots_e, touched_e, ce, ge)
            for j in range(own.shape[1]):
                ge[p, j] += scale * own[i, j]
        if learn:
            p, cr = take_slot(r, slots_r, touched_r, cr, gr)
            for j in range(own_r.shape[1]):
                gr[p, j] += scale * own_r[0, j]
    return total, ce, cr


Buffer = tuple[Array, Array, Array, int]
"""The place of each row or −1, the rows in use, their gradients, and how many are in use."""


class KernelGradients:
    """`dp_gradients.Gradients` in closed form, for the models that have a kernel.

    Args:
        tables, settings, clip, learn: see `dp_gradients.make_gradients`.
    """

    def __init__(self, tables: Tables, settings: TrainSettings, clip: float, *, learn: bool) -> None:
        self.tables, self.settings = tables, settings
        self.clip, self.learn = clip, learn
        self.margin = margin_of(settings)
        self._places = {kind: np.arange(tables.count(kind), dtype=np.int32) for kind in ("entity", "relation")}

    def add(self, examples: Examples, sums: dict[str, Tensor]) -> float:
        gr = sums["relation"].numpy() if self.learn else np.empty((0, 0), sums["entity"].numpy().dtype)
        # Every row has its own place from the start: nothing is new, nothing is zeroed, nothing is counted.
        entity, relation = self._places["entity"], self._places["relation"]
        return self.run(examples, (entity, NO_IDS, sums["entity"].numpy(), 0), (relation, NO_IDS, gr, 0))[0]

    def run(self, examples: Examples, entity_buffer: Buffer, relation_buffer: Buffer) -> tuple[float, int, int]:
        """Add the clipped gradients to the buffers; return the summed loss, and how many rows of either are in use.

        Args:
            examples: n triples with their negatives; entity_buffer, relation_buffer: see `Buffer`.
        """
        s, e, entity = self.settings, examples, self.tables["entity"].numpy()
        real = entity.dtype.type
        return _add_clipped(  # type: ignore[no-any-return]
            KERNELS[self.tables.model.kernel or ""], entity, self.tables["relation"].numpy(),
            *(x.numpy() for x in (e.head, e.relation, e.tail, e.corrupt_tail, e.negative)),
            LOSSES[s.loss], real(self.margin), real(s.temperature), real(s.regularization), real(self.clip),
            self.learn, *entity_buffer, *relation_buffer,
        )  # fmt: skip
