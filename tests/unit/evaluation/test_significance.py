"""The comparison rejects where there is a difference, and as often as stated where there is none."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from fkge.errors import SettingsError
from fkge.evaluation import Ranks, mean_interval, metrics, paired_bootstrap
from fkge.evaluation.significance import student_quantile

Floats = npt.NDArray[np.float64]


def simulated(n: int, gain: float, seed: int) -> tuple[Floats, Floats]:
    """Ranks of two models: triples differ a lot, and alike for both; each model adds a little luck of its own."""
    rng = np.random.default_rng(seed)
    hardness = rng.normal(2, 1.5, (n, 1)) + rng.normal(0, 0.7, (n, 2))
    a, b = (hardness + rng.normal(0, 0.4, (n, 2)) - shift for shift in (0, gain))
    return np.ceil(np.exp(np.maximum(a, 0))), np.ceil(np.exp(np.maximum(b, 0)))


@pytest.mark.parametrize("metric", ["mrr", "mr", "hits@1", "hits@3", "hits@10"])
def test_the_difference_is_that_of_the_metrics(metric: str) -> None:
    a, b = simulated(300, 0.3, 0)
    ranks = [Ranks(r.astype(np.int64), r.astype(np.int64)) for r in (a, b)]
    result = paired_bootstrap(a, b, metric=metric)
    assert result.difference == pytest.approx(metrics(ranks[1])[metric] - metrics(ranks[0])[metric])
    assert result.low < result.difference < result.high
    back = paired_bootstrap(b, a, metric=metric)
    assert (back.difference, back.p) == (pytest.approx(-result.difference), pytest.approx(result.p, abs=0.02))


@pytest.mark.parametrize(("metric", "n"), [("mrr", 66), ("mrr", 300), ("hits@10", 300)])
def test_it_is_calibrated_under_the_null(metric: str, n: int) -> None:
    """400 comparisons of equals: about 5% are called different (binomial: 2.2% to 8.8% but for 1 in 1,000)."""
    results = [paired_bootstrap(*simulated(n, 0, s), metric=metric, samples=500, seed=s) for s in range(400)]
    wrong = np.mean([r.p < 0.05 for r in results])
    outside = np.mean([not r.low <= 0 <= r.high for r in results])
    assert 0.022 <= wrong <= 0.088
    assert 0.022 <= outside <= 0.088
    assert 0.40 <= np.mean([r.p < 0.5 for r in results]) <= 0.60


def test_it_rejects_what_is_different_and_p_agrees_with_the_interval() -> None:
    results = [paired_bootstrap(*simulated(300, 0.15, s), samples=500, seed=s) for s in range(60)]
    assert np.mean([r.p < 0.05 for r in results]) > 0.9
    assert all((r.p < 0.05) == (r.low > 0) for r in results if abs(r.p - 0.05) > 0.01)


def test_pairing_sees_more() -> None:
    a, b = simulated(300, 0.15, 1)
    paired = paired_bootstrap(a, b)
    apart = paired_bootstrap(a, np.random.default_rng(0).permutation(b))  # the same numbers, of other triples
    assert apart.difference == pytest.approx(paired.difference)
    assert paired.high - paired.low < 0.6 * (apart.high - apart.low)


def test_both_sides_of_a_triple_are_one_observation() -> None:
    a, b = simulated(300, 0, 2)
    once = np.repeat(a[:, :1], 2, 1), np.repeat(b[:, :1], 2, 1)  # two sides that say the same thing
    whole, half = paired_bootstrap(*once), paired_bootstrap(a, b)
    assert whole.high - whole.low > 1.2 * (half.high - half.low)


def test_equals_are_equal_and_one_seed_gives_one_answer() -> None:
    a, b = simulated(50, 0.1, 0)
    same = paired_bootstrap(a, a)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert paired_bootstrap(a, b, seed=3) == paired_bootstrap(a, b, seed=3)
    assert paired_bootstrap(a, b, level=0.5).low > paired_bootstrap(a, b).low


def test_what_cannot_be_compared_is_refused() -> None:
    a, b = simulated(10, 0, 0)
    for bad in ({"metric": "hits@0"}, {"metric": "auc"}, {"level": 1.0}, {"samples": 0}):
        with pytest.raises(SettingsError):
            paired_bootstrap(a, b, **bad)  # type: ignore[arg-type]
    for left, right in ((a, b[:5]), (a[:1], b[:1]), (a[:, 0], b[:, 0]), (a - 5, b), (a * math.nan, b)):
        with pytest.raises(SettingsError):
            paired_bootstrap(left, right)


@pytest.mark.parametrize(
    ("level", "freedom", "t"),
    [
        (0.95, 1, 12.7062), (0.95, 2, 4.30265), (0.95, 3, 3.18245), (0.95, 4, 2.77645), (0.95, 9, 2.26216),
        (0.95, 30, 2.04227), (0.99, 5, 4.03214), (0.9, 10, 1.81246), (0.95, 1000, 1.96234),
    ],
)  # fmt: skip
def test_student_is_that_of_the_tables(level: float, freedom: int, t: float) -> None:
    assert student_quantile(level, freedom) == pytest.approx(t, rel=2e-6)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_interval_over_seeds_covers_as_stated(seeds: int) -> None:
    rng = np.random.default_rng(0)
    covered = [(lambda i: i.low <= 0.3 <= i.high)(mean_interval(rng.normal(0.3, 0.01, seeds))) for _ in range(2000)]
    assert 0.93 < np.mean(covered) < 0.97


def test_one_seed_has_no_interval() -> None:
    result = mean_interval([0.3, 0.32])
    assert (result.mean, result.values) == (pytest.approx(0.31), 2)
    for bad in ([0.3], [], [0.3, math.nan]):
        with pytest.raises(SettingsError, match="more seeds"):
            mean_interval(bad)
