"""Passes over large dense arrays on the CPU that torch makes several of: a softmax in bfloat16 and a step of Adagrad.

A bfloat16 is the upper half of a float32. Numba has no such type, so rows come as uint16 and are widened by a shift.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fkge.embed.kernels.primitives import Array, jit

_LOG2_E = np.float32(1.4426950408889634)
_LN_2 = np.float32(0.6931471805599453)
_POLYNOMIAL = tuple(np.float32(c) for c in (1.0, 0.6931472, 0.24022651, 0.05550411, 0.009618129, 0.0013333558))
"""2^f on [−½, ½]: the Taylor series to the fifth power; its error, 3·10⁻⁶, is a thousandth of a bfloat16's."""


def softmax_(scores: Tensor) -> Tensor:
    """Turn scores (q, n), contiguous bfloat16, into probabilities in place; return logsumexp of each row, float32."""
    normaliser = torch.empty(len(scores), dtype=torch.float32)
    _softmax(scores.view(torch.uint16).numpy(), normaliser.numpy())
    return normaliser


def adagrad_(rows: Tensor, total: Tensor, gradient: Tensor, lr: float, epsilon: float) -> None:
    """Take one step of Adagrad of every row, in place.

    Args:
        rows, total, gradient: (n, width) float32, contiguous; `total` are the sums of squared gradients.
        lr: learning rate.
        epsilon: added to the root of the sums.
    """
    r, t, g = (x.view(-1).numpy() for x in (rows, total, gradient))
    _adagrad(r, t, g, np.float32(lr), np.float32(epsilon))


@jit
def _softmax(scores: Array, normaliser: Array) -> None:
    count = scores.shape[1]
    row = np.empty(count, np.float32)
    bits = row.view(np.uint32)
    power = np.empty(count, np.uint32)
    scale = power.view(np.float32)
    c0, c1, c2, c3, c4, c5 = _POLYNOMIAL
    half, low, bias = np.float32(0.5), np.float32(-126.0), np.int32(127)
    for i in range(scores.shape[0]):
        for j in range(count):
            bits[j] = np.uint32(scores[i, j]) << np.uint32(16)
        top = np.int16(-32768)
        for j in range(count):
            # Read as integers, bfloat16 numbers have the order of their values, the negative ones reversed.
            word = np.int16(scores[i, j])
            ordered = word ^ np.int16((word >> np.int16(15)) & np.int16(0x7FFF))
            top = ordered if ordered > top else top
        word = top ^ np.int16((top >> np.int16(15)) & np.int16(0x7FFF))
        power[0] = np.uint32(np.uint16(word)) << np.uint32(16)
        largest = scale[0]
        for j in range(count):
            # exp(x) = 2^n · 2^f, with n an integer, made as the exponent of a float, and f within ±½.
            y = (row[j] - largest) * _LOG2_E
            y = low if y < low else y
            n = np.int32(y - half)
            power[j] = np.uint32(n + bias) << np.uint32(23)
            f = y - np.float32(n)
            row[j] = c0 + f * (c1 + f * (c2 + f * (c3 + f * (c4 + f * c5))))
        total = np.float32(0.0)
        for j in range(count):
            row[j] *= scale[j]
            total += row[j]
        inverse = np.float32(1.0) / total
        for j in range(count):
            row[j] *= inverse
        for j in range(count):
            # To the nearest bfloat16, ties to even, as torch rounds.
            scores[i, j] = np.uint16(
                (bits[j] + np.uint32(0x7FFF) + ((bits[j] >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            )
        normaliser[i] = largest + np.log(total)


@jit
def _adagrad(rows: Array, total: Array, gradient: Array, lr: np.float32, epsilon: np.float32) -> None:
    for j in range(len(rows)):
        slope = gradient[j]
        new = total[j] + slope * slope
        total[j] = new
        rows[j] -= lr * slope / (np.sqrt(new) + epsilon)
