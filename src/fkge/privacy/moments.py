"""The moments accountant of PATE as the paper prints it, Eqs. 8 to 10: ε of the votes in a translation game.

The ε covers the host's rows of Y against the client, where two data sets are neighbours if one row of Y is replaced
(the partition among teachers goes by position, so one row sways one teacher), *provided that every sample that was
voted on is counted as one query*, over all games with clients that may pool what they saw.

It does not cover the client's X: G(X) goes to the host without noise. Nor does it cover anything that is decided by raw
Y and can be observed, such as when a game stops or whether the host accepted its result.
"""

from __future__ import annotations

import math

import numpy as np


def paper_epsilon(queries: int, lam: float, delta: float) -> float:
    """Return ε̂ = min over l of (α(l) + log 1/δ)/l of so many queries, whatever their votes were; 0 for none.

    α(l) is the first term of Eq. 9, which holds for any votes, and so does not depend on Y. The second one does: its ε
    would be private itself; and with the paper's λ and four teachers it is not the smaller one.

    Args:
        queries: how many samples were voted on.
        lam: λ; every vote count got Laplace noise of scale 1/λ. 0 stands for no noise: ε is infinite.
        delta: δ.
    """
    if not (lam >= 0 and 0 < delta < 1):
        raise ValueError(f"need λ ≥ 0 and 0 < δ < 1, got {lam} and {delta}")
    if queries == 0:
        return 0.0
    if lam == 0:
        return math.inf
    # Orders beyond the best one of a single query, √(log(1/δ)/2)/λ. Any set of orders gives a bound.
    best = math.sqrt(math.log(1 / delta) / 2) / lam
    orders = np.arange(1, min(10_000, max(256, 2 * math.ceil(best))) + 1, dtype=np.float64)
    alpha = queries * (2 * lam**2 * orders * (orders + 1))
    return float(np.min((alpha + math.log(1 / delta)) / orders))
