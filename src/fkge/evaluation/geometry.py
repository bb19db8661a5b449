"""Exact comparison of scores in two passes, float32 then float64, so that a rank does not depend on how, where or in
which chunks it was computed.

A rank is the rank of the *exact* scores: those that float64 arithmetic gives for the stored tables. Computing
all of them in float64 would be slow, so counting works in two passes over the same pair (query, candidate):

1. a fast float32 value, off by at most `band`, decides nearly every pair;
2. the few pairs too near to the true triple's score to call are decided by their float64 score.

Two float64 scores that differ by less than their own rounding, `tie`, are a tie. Equal vectors therefore tie
wherever they stand in the table, and ties are those of the mathematics, not of the rounding.

The bounds are the standard ones for a sum of p terms in any order: (p + c) · unit · Σ|terms|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from fkge.embed import Model

_FLOAT32, _FLOAT64 = 2.0**-24, 2.0**-53
_SPARE = 16
"""Roundings per pair in addition to the p additions: inputs, product, square root, bias."""
_UNDERFLOW = 2e-19
"""What a term can lose when the square of a float32 is too small to be one."""


class Kind(IntEnum):
    """The comparison of a query q with a candidate c.

    L1: −Σ|q − c|. L2: −Σ(q − c)², in the same order as −‖q − c‖. DOT: Σ q c.
    ROTATE: −Σ|q − c| over complex numbers, all real parts, then all imaginary ones.
    OWN: the model's own `similarity`, of which nothing is known; always computed in float64.
    """

    L1 = 0
    L2 = 1
    DOT = 2
    ROTATE = 3
    OWN = 4


@dataclass(frozen=True)
class Geometry:
    """One kind of comparison between vectors of `width` numbers."""

    kind: Kind
    width: int
    similarity: Callable[[Tensor, Tensor], Tensor]

    unit = 2 * _FLOAT32
    """Error of an exact score that is rounded to float32, per unit of its own `scale`."""

    def exact(self, query: Tensor, candidate: Tensor) -> Tensor:
        """Return the scores of pairs, up to a monotone map: (n, p) and (n, p) float64 to (n,)."""
        if self.kind is Kind.DOT:
            return (query * candidate).sum(-1)
        if self.kind is Kind.OWN:
            return self.similarity(query.unsqueeze(-2), candidate.unsqueeze(-2)).reshape(-1)
        difference = query - candidate
        if self.kind is Kind.L1:
            return -difference.abs().sum(-1)
        if self.kind is Kind.L2:
            return -difference.square().sum(-1)
        return -torch.hypot(*difference.chunk(2, dim=-1)).sum(-1)

    def size(self, vectors: Tensor) -> Tensor:
        """Return the norm (n,) that bounds rounding errors of vectors (n, p)."""
        euclidean = self.kind in (Kind.L2, Kind.DOT)
        norms: Tensor = torch.linalg.vector_norm(vectors, ord=2 if euclidean else 1, dim=-1)
        return norms

    def scale(self, query_size: Tensor, candidate_size: Tensor) -> Tensor:
        """Bound on Σ|terms| of a pair, by the sizes of the two."""
        if self.kind is Kind.DOT:
            return query_size * candidate_size
        if self.kind is Kind.L2:
            return (query_size + candidate_size).square()
        return query_size + candidate_size

    def key(self, query: Tensor, score: Tensor) -> Tensor:
        """Return exact scores (n,) at queries (n, p) as the fast pass measures them.

        For L2 that is q·c − ‖c‖²/2 = (‖q‖² − ‖q − c‖²)/2, one multiplication per term.
        """
        if self.kind is Kind.L2:
            return (score + query.square().sum(-1)) / 2
        return score

    def bias(self, candidates: Tensor) -> Tensor:
        """Return the part of a candidate's (m, p) fast value that does not depend on the query, (m,)."""
        if self.kind is Kind.L2:
            return candidates.square().sum(-1) / -2
        return torch.zeros_like(candidates[:, 0])

    @property
    def band(self) -> float:
        """Error of a fast value per unit of `scale`."""
        unit = _FLOAT32 if torch.get_float32_matmul_precision() == "highest" else 2.0**-8
        return (self.width + _SPARE) * unit

    @property
    def floor(self) -> float:
        """Error of a fast value whatever the scale."""
        return self.width * _UNDERFLOW

    @property
    def tie(self) -> float:
        """Error of an exact score per unit of `scale`, projections in float64 included."""
        return 2 * (self.width + _SPARE) * _FLOAT64


_KINDS = {"l1": Kind.L1, "l2": Kind.L2, "dot": Kind.DOT, "modulus": Kind.ROTATE, "own": Kind.OWN}


def geometry_of(model: Model) -> Geometry:
    """Return the comparison that `model` makes."""
    return Geometry(_KINDS[model.comparison], model.width, model.similarity)
