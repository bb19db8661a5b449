"""Paired bootstrap over test facts, and intervals over seeds: is one model better than another, or is the difference
chance?

Two kinds of luck, and one answer to each: which facts are in the test set (`paired_bootstrap`, one run of either
model) and which seed a run had (`mean_interval`, over several runs). Neither covers the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError

Floats = npt.NDArray[np.float64]

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Difference:
    """The difference of two models in a metric, b minus a, with its interval.

    Attributes:
        difference: the metric of b minus that of a; below 0 is better for ``mr``.
        low, high: where the difference lies, with confidence `level`.
        p: two-sided p-value: the chance of a difference this large if both models were equally good.
        triples: how many were compared.
    """

    metric: str
    difference: float
    low: float
    high: float
    p: float
    level: float
    triples: int


@dataclass(frozen=True)
class Interval:
    """A mean, and where it lies with confidence `level`."""

    mean: float
    low: float
    high: float
    level: float
    values: int


def paired_bootstrap(
    ranks_a: npt.NDArray[Any],
    ranks_b: npt.NDArray[Any],
    *,
    metric: str = "mrr",
    samples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Difference:
    """Compare two models on the same test triples.

    The unit that is drawn again is the triple, with both models' ranks of its head and its tail: easy triples are easy
    for both models, and the two ranks of a triple are not independent. Resamples are spread by √(n/(n−1)), since they
    vary that much less than new test sets would.

    Args:
        ranks_a, ranks_b: (n, 2) ranks of the same triples in the same order, such as `Ranks.realistic`; n ≥ 2.
        metric: ``mrr``, ``mr`` or ``hits@k``.
        samples: resamples; p is never below 2 / (samples + 1).
        seed: of the resampling.
        level: of the interval.

    Raises:
        SettingsError: ranks, metric, level or samples are out of range.
    """
    a, b = (_values(ranks, metric) for ranks in (ranks_a, ranks_b))
    if len(a) != len(b) or len(a) < 2:
        raise SettingsError(
            f"a paired comparison needs ranks of the same triples, 2 or more; got {len(a)} and {len(b)}"
        )
    if not 0 < level < 1 or samples < 1:
        raise SettingsError(f"level must be between 0 and 1 and samples at least 1, got {level} and {samples}")
    gain = b - a
    n, difference = len(gain), float(gain.mean())
    rng = np.random.default_rng(seed)
    means = np.empty(samples)
    rows = max(1, _CHUNK // n)
    for i in range(0, samples, rows):
        means[i : i + rows] = gain[rng.integers(n, size=(len(means[i : i + rows]), n))].mean(axis=1)
    means = difference + (means - difference) * math.sqrt(n / (n - 1))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2]).tolist()
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (samples + 1))
    return Difference(metric, difference, low, high, p, level, n)


def _values(ranks: npt.NDArray[Any], metric: str) -> Floats:
    """Return the contribution of each triple to the metric, (n,): the mean of its two sides."""
    r = np.asarray(ranks, np.float64)
    if r.ndim != 2 or r.shape[1] != 2 or not (r >= 1).all():
        raise SettingsError(f"ranks are (n, 2) numbers, 1 or above; got shape {r.shape}")
    if hits := re.fullmatch(r"hits@([1-9][0-9]*)", metric):
        return np.asarray((r <= int(hits[1])).mean(axis=1))
    if metric in ("mrr", "mr"):
        return np.asarray((1 / r if metric == "mrr" else r).mean(axis=1))
    raise SettingsError(f"metric is {metric!r}; it must be mrr, mr or hits@k, such as hits@10")


def mean_interval(values: Sequence[float] | npt.NDArray[Any], level: float = 0.95) -> Interval:
    """Return the mean over seeds with Student's t interval; values are taken to be about normal.

    Raises:
        SettingsError: there are fewer than two finite values.
    """
    x = np.asarray(values, np.float64).reshape(-1)
    if len(x) < 2 or not np.isfinite(x).all():
        raise SettingsError(f"an interval needs two or more finite values, got {x.tolist()}; run more seeds")
    if not 0 < level < 1:
        raise SettingsError(f"level must be between 0 and 1, got {level}")
    mean = float(x.mean())
    half = student_quantile(level, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, level, len(x))


def student_quantile(level: float, freedom: int) -> float:
    """Return the t with P(|T| ≤ t) = `level` under Student's distribution with `freedom` degrees, by bisection."""
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan angle): the finite series for whole degrees (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    cos, sin = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = (cos if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cos * cos * (k - 1) / k
    return 2 / math.pi * (angle + sin * total) if odd else sin * total
