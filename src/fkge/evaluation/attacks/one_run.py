"""Privacy auditing with one training run (Steinke, Nasr, Jagielski 2023): a lower bound on ε from guesses.

m canaries are each put in or left out by the toss of a fair coin. From the output the auditor guesses some of the
coins and abstains on the others. Under (ε, δ)-DP by adding or removing a canary no guesser is right much more often
than q = e^ε / (1 + e^ε). Their Theorem 5.2, for at most r guesses and W ~ Binomial(r, q):

    P[correct ≥ v] ≤ P[W ≥ v] + 2 m δ · max over i ≥ 1 of P[v − i ≤ W < v] / i

The first term is what randomised response would do. The second pays for δ: with a small probability the mechanism may
give coins away, and the worst that does is spread so as to lift results from v − i to v; in all it lifts the
expectation of "correct" by 2 m δ at most. Whatever ε makes the result rarer than 1 − confidence is refuted, and so is
every smaller ε.

The canaries must be independent of each other and of everything the auditor picks beforehand; how many guesses are
made must not depend on what is seen. `audit` tries several numbers and pays for it (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError
from fkge.evaluation.attacks.result import Floats, Result

FRACTIONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries to guess on, unless the caller fixes one. Seven tries cost a factor of seven in the tail."""

_LARGEST = 100.0
"""No ε beyond this is looked for: e^100 canaries would be needed to show it."""


@dataclass(frozen=True)
class Audit(Result):
    """What one run has shown.

    Attributes:
        epsilon_lower: the mechanism is not (ε, δ)-DP for any smaller ε, with confidence `confidence`. 0 shows nothing.
        delta, confidence: of that statement, the choice among `tried` numbers of guesses included.
        guesses: coins guessed in the best try; half of them "in", half "out".
        correct: of these.
        canaries: m.
        tried: how many numbers of guesses were tried, all fixed beforehand.
    """

    epsilon_lower: float
    delta: float
    confidence: float
    guesses: int
    correct: int
    canaries: int
    tried: int

    def refutes(self, epsilon: float) -> bool:
        """Whether a claim of this ε, at the same δ, cannot stand."""
        return self.epsilon_lower > epsilon


def p_value(correct: int, guesses: int, m: int, epsilon: float, delta: float) -> float:
    """The most probable that `correct` or more right guesses can be under (ε, δ)-DP.

    Args:
        correct: right guesses, v.
        guesses: coins guessed, r; the others were abstained on.
        m: canaries.
    """
    if not 0 <= correct <= guesses <= m or m < 1 or epsilon < 0 or not 0 <= delta <= 1:
        raise SettingsError(
            f"an audit needs 0 ≤ correct ≤ guesses ≤ canaries, ε ≥ 0 and δ in [0, 1]; got {correct}, {guesses}, {m}, "
            f"{epsilon:g} and {delta:g}"
        )
    if correct == 0:
        return 1.0
    from scipy.stats import binom  # comes with dp-accounting; not needed where nothing is audited

    q = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(correct - 1, guesses, q))
    if delta == 0:
        return beta
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, q))  # P[v − i ≤ W < v] at i − 1
    alpha = float((below / np.arange(1, correct + 1)).max())  # beyond i = v the sum grows no more
    return min(1.0, beta + 2 * m * delta * alpha)


def lower_bound(correct: int, guesses: int, m: int, delta: float, confidence: float = 0.95) -> float:
    """The largest ε (to 1e-6) such that (ε, δ)-DP is refuted with this confidence; 0 if not even ε = 0 is."""
    if not 0 < confidence < 1:
        raise SettingsError(f"confidence must be between 0 and 1, got {confidence}")
    rare = 1 - confidence

    def refuted(epsilon: float) -> bool:
        return p_value(correct, guesses, m, epsilon, delta) < rare

    if not refuted(0.0):
        return 0.0
    # Whatever is between the two ends, the lower one is refuted: the bound holds even where p is not monotone.
    low, high = 0.0, 1.0
    while refuted(high) and high < _LARGEST:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def audit(
    scores: npt.ArrayLike,
    included: npt.NDArray[Any],
    delta: float,
    confidence: float = 0.95,
    *,
    fractions: Sequence[float] = FRACTIONS,
) -> Audit:
    """Guess the highest scores in and the lowest out, and say what ε that refutes.

    Of `fractions`, the one with the best bound counts. Each is tested at a confidence of 1 − (1 − confidence) / tries,
    so the bound holds for whichever is best; give one fraction, fixed before looking, to spend nothing on that.

    Args:
        scores: (m,), higher for canaries that look included.
        included: (m,) bool, the coins.
        delta: of the claim under test.
        fractions: shares of the canaries to guess on, fixed without a look at scores and coins.
    """
    s, coin = np.asarray(scores, np.float64).reshape(-1), np.asarray(included, np.bool_).reshape(-1)
    if len(s) != len(coin) or len(s) < 2 or not np.isfinite(s).all():
        raise SettingsError(
            f"an audit needs a finite score and a coin for each of two or more canaries; got {len(s)} scores and "
            f"{len(coin)} coins"
        )
    if not fractions or not all(0 < f <= 1 for f in fractions):
        raise SettingsError(f"fractions of canaries to guess on lie between 0 and 1, got {tuple(fractions)}")
    m = len(s)
    # Equal scores say nothing: keep the coins out of how they are ordered.
    order = np.argsort(s, kind="stable")
    each = 1 - (1 - confidence) / len(fractions)
    best = Audit(-1.0, delta, confidence, 0, 0, m, len(fractions))
    for fraction in fractions:
        half = max(1, int(fraction * m / 2))
        right = int((~coin[order[:half]]).sum() + coin[order[m - half :]].sum())
        bound = lower_bound(right, 2 * half, m, delta, each)
        if bound > best.epsilon_lower:
            best = Audit(bound, delta, confidence, 2 * half, right, m, len(fractions))
    return best


def gaussian_mechanism_audit(
    m: int, sigma: float, delta: float, rng: np.random.Generator, confidence: float = 0.95
) -> Audit:
    """The audit audited: m canaries in orthogonal directions of one sum under Gaussian noise, seen in full.

    Each canary adds a unit vector of its own, so the ε of the sum is that of one Gaussian mechanism of sensitivity 1,
    which is known in closed form (`fkge.privacy.price`, "gdp"). No auditor can do better than here: the score *is* the
    mechanism's output along the canary.
    """
    coin = rng.random(m) < 0.5
    scores: Floats = coin + sigma * rng.standard_normal(m)
    return audit(scores, coin, delta, confidence)
