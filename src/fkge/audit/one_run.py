"""Privacy auditing with one training run (Steinke, Nasr, Jagielski 2023): a lower bound on ε from guesses.

m canaries are each included or left out by the toss of a fair coin. From the output the auditor guesses some of the
coins and abstains on the others. Under (ε, δ)-DP by adding or removing a canary no guesser is right much more often
than q = e^ε / (1 + e^ε). Their Theorem 5.2, for at most r guesses and W ~ Binomial(r, q):

    P[correct ≥ v] ≤ P[W ≥ v] + 2 m δ · max over i ≥ 1 of P[v − i ≤ W < v] / i

The first term is randomised response. The second accounts for δ: with a small probability the mechanism may disclose
coins, at worst so that results of v − i become v; in all it raises the expectation of "correct" by at most 2 m δ. An ε
under which the result is rarer than 1 − confidence is refuted, and so is every smaller ε.

The canaries must be independent of each other and of everything the auditor picks beforehand; the number of guesses
must not depend on the output. `epsilon_bound` tries several numbers and corrects for it (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries to guess on, by default. Seven tries cost a factor of seven in the tail."""

_LARGEST = 100.0
"""No larger ε is searched for: e^100 canaries would be needed to show it."""


@dataclass(frozen=True)
class EpsilonBound:
    """A lower bound on ε, shown by one run.

    Attributes:
        epsilon_lower: the mechanism is not (ε, δ)-DP for any smaller ε, with confidence `confidence`. 0 shows nothing.
        confidence: of that statement, corrected for the choice among `tried` numbers of guesses, all fixed beforehand.
        guesses: coins guessed in the best try; half of them "in", half "out".
        correct: of these.
        canaries: m.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    guesses: int
    correct: int
    canaries: int
    tried: int

    def refutes(self, epsilon: float) -> bool:
        """Return whether a claim of this ε, at the same δ, is refuted."""
        return self.epsilon_lower > epsilon


def p_value(correct: int, guesses: int, m: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of `correct` or more right guesses under (ε, δ)-DP.

    Args:
        correct: right guesses, v.
        guesses: coins guessed, r; the auditor abstained on the others.
        m: canaries.
        epsilon, delta: the claim.

    Raises:
        SettingsError: a number is out of its range.
    """
    if not 0 <= correct <= guesses <= m or m < 1 or epsilon < 0 or not 0 <= delta <= 1:
        got = f"{correct}, {guesses}, {m}, {epsilon:g} and {delta:g}"
        raise SettingsError(f"needs 0 ≤ correct ≤ guesses ≤ canaries, ε ≥ 0 and δ in [0, 1]; got {got}")
    if correct == 0:
        return 1.0
    from scipy.stats import binom  # installed with dp-accounting; slow to import

    q = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(correct - 1, guesses, q))
    if delta == 0:
        return beta
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))  # P[v − i ≤ W < v] at i − 1
    alpha = float((below / np.arange(1, correct + 1)).max())  # beyond i = v the sum grows no more
    return min(1.0, beta + 2 * m * delta * alpha)


def lower_bound(correct: int, guesses: int, m: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest ε (to 1e-6) such that (ε, δ)-DP is refuted with this confidence; 0 if not even ε = 0 is.

    Args:
        correct, guesses, m, delta: see `p_value`, which raises `SettingsError` for numbers out of range.
        confidence: of the bound.
    """
    if not 0 < confidence < 1:
        raise SettingsError(f"confidence must be between 0 and 1, got {confidence}")
    rare = 1 - confidence

    def refuted(epsilon: float) -> bool:
        return p_value(correct, guesses, m, epsilon, delta) < rare

    if not refuted(0.0):
        return 0.0
    # The lower end of the interval is always refuted, so the bound holds even where p is not monotone.
    low, high = 0.0, 1.0
    while refuted(high) and high < _LARGEST:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def epsilon_bound(
    scores: npt.ArrayLike,
    included: npt.NDArray[Any],
    delta: float,
    confidence: float = 0.95,
    *,
    fractions: Sequence[float] = FRACTIONS,
) -> EpsilonBound:
    """Guess that the highest scores are included and the lowest are not, and return the ε that this refutes.

    Args:
        scores: (m,) float64, higher for canaries that look included.
        included: (m,) bool, the coins.
        delta: δ of the claim under test.
        confidence: confidence of the bound.
        fractions: shares of the canaries to guess on, fixed before scores and coins are known. The best bound counts;
            each is tested at a confidence of 1 − (1 − confidence) / len(fractions).

    Raises:
        SettingsError: scores, coins or fractions cannot be used.
    """
    s, coin = np.asarray(scores, np.float64).reshape(-1), np.asarray(included, np.bool_).reshape(-1)
    if len(s) != len(coin) or len(s) < 2 or not np.isfinite(s).all():
        raise SettingsError(f"canaries need a finite score and a coin each; got {len(s)} scores and {len(coin)} coins")
    if not fractions or not all(0 < f <= 1 for f in fractions):
        raise SettingsError(f"fractions of canaries to guess on lie between 0 and 1, got {tuple(fractions)}")
    m = len(s)
    # Stable: the order of equal scores must not depend on the coins.
    order = np.argsort(s, kind="stable")
    each = 1 - (1 - confidence) / len(fractions)
    best = EpsilonBound(-1.0, delta, confidence, 0, 0, m, len(fractions))
    for fraction in fractions:
        half = max(1, int(fraction * m / 2))
        right = int((~coin[order[:half]]).sum() + coin[order[m - half :]].sum())
        bound = lower_bound(right, 2 * half, m, delta, each)
        if bound > best.epsilon_lower:
            best = EpsilonBound(bound, delta, confidence, 2 * half, right, m, len(fractions))
    return best
