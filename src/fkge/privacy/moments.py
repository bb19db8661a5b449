"""The moments accountant of PATE as the paper prints it, Eqs. 8 to 10: ε of the votes in a translation game.

The ε covers the host's rows of Y against the client, where two data sets are neighbours if one row of Y is replaced
(the partition among teachers goes by position, so one row sways one teacher), *provided that every sample that was
voted on is counted as one query*, over all games with clients that may pool what they saw.

It does not cover the client's X: G(X) goes to the host without noise. Nor does it cover anything that is decided by raw
Y and can be observed, such as when a game stops or whether the host accepted its result.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt


class PaperMoments:
    """Count queries and price them.

    An ε that depends on the votes (`add`) depends on Y, so it is itself private and must not leave the host. The bound
    that holds for any votes (`add_bound`) may be published.

    Args:
        lam: λ; every vote count got Laplace noise of scale 1/λ. 0 stands for no noise: ε is infinite.
        delta: δ.
    """

    def __init__(self, lam: float, delta: float) -> None:
        if not (lam >= 0 and 0 < delta < 1):
            raise ValueError(f"need λ ≥ 0 and 0 < δ < 1, got {lam} and {delta}")
        self.lam = lam
        self.delta = delta
        self._margins: Counter[int | None] = Counter()

    @property
    def queries(self) -> int:
        """Number of queries counted."""
        return self._margins.total()

    def add(self, n0: int, n1: int, count: int = 1) -> None:
        """Count queries whose teachers cast `n0` votes for 0 and `n1` for 1."""
        self._margins[abs(n0 - n1)] += count

    def add_bound(self, count: int = 1) -> None:
        """Count queries whatever their votes."""
        self._margins[None] += count

    @property
    def epsilon(self) -> float:
        """ε̂ = min over l of (α(l) + log 1/δ)/l, for whole l ≥ 1; 0 without queries."""
        if self.queries == 0:
            return 0.0
        if self.lam == 0:
            return math.inf
        # Orders beyond the best one of a single query, √(log(1/δ)/2)/λ. Any set of orders gives a bound.
        best = math.sqrt(math.log(1 / self.delta) / 2) / self.lam
        orders = np.arange(1, min(10_000, max(256, 2 * math.ceil(best))) + 1, dtype=np.float64)
        alpha = sum(count * moment(orders, self.lam, margin) for margin, count in self._margins.items())
        return float(np.min((alpha + math.log(1 / self.delta)) / orders))


def moment(orders: npt.NDArray[np.float64], lam: float, margin: int | None) -> npt.NDArray[np.float64]:
    """Return what one query adds to α(l), Eq. 9, for each l in `orders`.

    Args:
        orders: (k,) the orders l.
        lam: λ.
        margin: |n₀ − n₁|, or None for the bound that holds for any votes.
    """
    bound: npt.NDArray[np.float64] = 2 * lam**2 * orders * (orders + 1)
    if margin is None:
        return bound
    log_q = math.log((2 + lam * margin) / 4) - lam * margin  # q itself may be too small for a float
    # The paper prints the second term without its condition. PATE's theorem 3 has it for q < 1/(1 + e^{2λ}) only,
    # which also keeps 1 − e^{2λ}q positive; beyond it nothing proves the term.
    if log_q >= -np.logaddexp(0, 2 * lam):
        return bound
    q, grown = math.exp(log_q), math.exp(log_q + 2 * lam)
    stay = math.log1p(-q) + orders * (math.log1p(-q) - math.log1p(-grown))
    move = log_q + 2 * lam * orders
    return np.minimum(bound, np.logaddexp(stay, move))


def paper_epsilon(queries: int, lam: float, delta: float) -> float:
    """Return ε̂ of so many queries, whatever their votes were; it may be published.

    Args:
        queries: how many; lam, delta: see `PaperMoments`.
    """
    moments = PaperMoments(lam, delta)
    moments.add_bound(queries)
    return moments.epsilon
