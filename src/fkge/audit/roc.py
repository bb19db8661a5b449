"""Receiver operating characteristic of a membership attack, and the limits that (ε, δ)-DP sets to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fkge.audit.findings import Floats
from fkge.errors import SettingsError

LEVEL = 0.999
"""Confidence of every interval. Triples that share rows are not independent, so 95% would fail too often."""


@dataclass(frozen=True)
class Attack:
    """The success of an attack in distinguishing members from others.

    Attributes:
        auc: chance that a member scores above another triple; ties count half. 0.5 is guessing.
        low, high: interval of the AUC with confidence `level`, over the draw of the triples. Triples that share
            entities are not quite independent, so it is a little too narrow.
        tpr_at_1, tpr_at_01: share of members found at 1% (0.1%) false positives. With fewer than 100 (1000) others,
            there may be no false positive.
        advantage: the largest difference between true and false positive rate.
    """

    auc: float
    low: float
    high: float
    level: float
    tpr_at_1: float
    tpr_at_01: float
    advantage: float
    members: int
    others: int

    @property
    def succeeds(self) -> bool:
        """Whether the interval lies above guessing."""
        return self.low > 0.5

    def __str__(self) -> str:
        return f"AUC {self.auc:.3f} ({self.low:.3f} … {self.high:.3f}), TPR@1% {self.tpr_at_1:.3f}"


def measure(
    members: npt.ArrayLike, others: npt.ArrayLike, *, samples: int = 1000, seed: int = 0, level: float = 0.95
) -> Attack:
    """Measure an attack by its scores.

    Args:
        members: (n,) scores of triples the victim trained on.
        others: (m,) scores of triples of the same distribution that it did not.
        samples: samples of the bootstrap, which draws members and others separately.
        seed: seed of the bootstrap.
        level: confidence of the interval.

    Raises:
        SettingsError: there are too few scores, or one is not finite.
    """
    x, y = (np.asarray(s, np.float64).reshape(-1) for s in (members, others))
    if len(x) < 2 or len(y) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise SettingsError(f"an attack needs two or more finite scores of either kind; got {len(x)} and {len(y)}")
    if not 0 < level < 1 or samples < 1:
        raise SettingsError(f"level must be between 0 and 1 and samples at least 1, got {level} and {samples}")
    values = np.unique(np.concatenate([x, y]))
    places = [np.searchsorted(values, s) for s in (x, y)]
    counts = [np.bincount(p, minlength=len(values)) for p in places]
    rng = np.random.default_rng(seed)
    drawn = np.empty(samples)
    for i in range(samples):
        again = [np.bincount(p[rng.integers(len(p), size=len(p))], minlength=len(values)) for p in places]
        drawn[i] = _auc(*again)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
    above = [np.cumsum(c[::-1])[::-1] / len(s) for c, s in zip(counts, (x, y), strict=True)]
    at_1, at_01 = (float((x > _threshold(y, rate)).mean()) for rate in (0.01, 0.001))
    advantage = max(0.0, float((above[0] - above[1]).max()))
    return Attack(_auc(*counts), low, high, level, at_1, at_01, advantage, len(x), len(y))


def _auc(members: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> float:
    """Return the Mann–Whitney statistic from how often each value, ascending, occurs on either side."""
    below = np.cumsum(others) - others / 2
    return float((members * below).sum() / (members.sum() * others.sum()))


def _threshold(others: Floats, rate: float) -> float:
    """Return the lowest threshold that at most `rate` of the others pass."""
    return float(np.sort(others)[len(others) - 1 - int(rate * len(others))])


@dataclass(frozen=True)
class RateLimit:
    """A true positive rate at least `low`, with confidence LEVEL, where `allowed` is the most that is allowed."""

    low: float
    allowed: float

    @property
    def exceeded(self) -> bool:
        """Whether more was found than is allowed."""
        return self.low > self.allowed


@dataclass(frozen=True)
class DpLimits:
    """The limits of (ε, δ) over all thresholds and at 1% and 0.1% false positives, and whether more was found."""

    auc_allowed: float
    tpr_at_1: RateLimit
    tpr_at_01: RateLimit
    exceeded: bool


def auc_limit(epsilon: float, delta: float) -> float:
    """Return the largest area under the curve of any test of one (ε, δ)-DP release: 1 − (1 − δ)² / (1 + e^ε)."""
    return 1 - (1 - delta) ** 2 / (1 + math.exp(min(epsilon, 700)))


def against_dp(members: Floats, others: Floats, epsilon: float, delta: float) -> DpLimits:
    """Compare an attack with what (ε, δ)-DP allows.

    Args:
        members: (n,) scores of triples the victim trained on.
        others: (m,) scores of other triples.
        epsilon, delta: the claim.
    """
    from scipy.stats import beta

    def rate_limit(rate: float) -> RateLimit:
        threshold = _threshold(others, rate)
        found, accused = int((members > threshold).sum()), int((others > threshold).sum())
        low = float(beta.ppf((1 - LEVEL) / 2, found, len(members) - found + 1)) if found else 0.0
        high = float(beta.ppf((1 + LEVEL) / 2, accused + 1, max(1, len(others) - accused)))
        return RateLimit(low, min(1.0, math.exp(min(epsilon, 700)) * high + delta))

    limit, at_1, at_01 = auc_limit(epsilon, delta), rate_limit(0.01), rate_limit(0.001)
    exceeded = measure(members, others, level=LEVEL).low > limit or at_1.exceeded or at_01.exceeded
    return DpLimits(limit, at_1, at_01, exceeded)
