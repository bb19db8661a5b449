"""Weighted means of a host's rows and those that peers sent; `fkge.federation.owner.exchange` calls it at the start
of a round of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MIXES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the received rows among which ``validation`` chooses."""

LEAST = 1e-3
"""Added to every weight, so that a row without a triple anywhere still has a mean."""


@dataclass(frozen=True, eq=False)
class Part:
    """The rows that one peer sent.

    Attributes:
        ids: (n,) int64, the host's ids of them.
        rows: (n, d) in the host's space; or (…, n, d), several tables at once.
        weights: (n,).
    """

    ids: Tensor
    rows: Tensor
    weights: Tensor


def weighted_mean(own: Tensor, weights: Tensor, parts: Sequence[Part]) -> Tensor:
    """Return every row's weighted mean over all that have it, (…, rows, d).

    Args:
        own: (…, rows, d), the host's.
        weights: (rows,), of the host's rows; all zero leaves the host's out wherever a peer has the row.
        parts: the peers'.
    """
    total = weights + LEAST * (weights > 0)
    out = own * total.unsqueeze(1)
    for part in parts:
        w = part.weights + LEAST
        out.index_add_(-2, part.ids, part.rows * w.unsqueeze(1))
        total = total.index_add(0, part.ids, w)
    alone = total == 0
    if bool(alone.any()):
        out = torch.where(alone.unsqueeze(1), own, out)
        total = torch.where(alone, torch.ones_like(total), total)
    return out / total.unsqueeze(1)


def given(rows: int, parts: Sequence[Part]) -> Tensor:
    """Return the ids of the rows that some peer sent, (n,) int64 ascending; `rows` is the number of the host's."""
    mask = torch.zeros(rows, dtype=torch.bool)
    for part in parts:
        mask[part.ids] = True
    return mask.nonzero().squeeze(1)
