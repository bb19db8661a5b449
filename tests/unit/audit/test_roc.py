"""ROC curves compared with a slow twin; intervals cover as stated."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from fkge.audit.roc import measure
from fkge.errors import SettingsError


def slow_auc(members: np.ndarray, others: np.ndarray) -> float:
    return float(np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others]))


def slow_tpr(members: np.ndarray, others: np.ndarray, rate: float) -> float:
    """By trying every threshold."""
    thresholds = np.concatenate([members, others]) if len(others) else members
    allowed = [t for t in thresholds if (others > t).mean() <= rate]
    return float(max((members > t).mean() for t in allowed))


@pytest.mark.parametrize("ties", [False, True])
def test_figures_are_those_of_the_slow_twin(ties: bool) -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.7, 1, 150), rng.normal(0, 1, 130)
    if ties:
        members, others = members.round(), others.round()
    attack = measure(members, others, samples=200)
    assert attack.auc == pytest.approx(slow_auc(members, others))
    assert attack.tpr_at_1 == pytest.approx(slow_tpr(members, others, 0.01))
    assert attack.tpr_at_01 == pytest.approx(slow_tpr(members, others, 0.001))
    gaps = [(members >= t).mean() - (others >= t).mean() for t in np.concatenate([members, others])]
    assert attack.advantage == pytest.approx(max(gaps))
    assert attack.low < attack.auc < attack.high
    assert (attack.members, attack.others) == (150, 130)
    assert json.loads(json.dumps(asdict(attack)))["auc"] == attack.auc


def test_interval_covers_the_true_auc_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    truth = 0.6381632  # Φ(½ / √2)
    covered = {truth: 0, 0.60: 0}
    for seed in range(200):
        attack = measure(rng.normal(0.5, 1, 400), rng.normal(0, 1, 400), samples=200, seed=seed)
        for value in covered:
            covered[value] += attack.low <= value <= attack.high
    assert 180 <= covered[truth] <= 199  # 190 ± 4 standard deviations
    assert covered[0.60] < 160  # a wrong value is refused often enough to be seen


def test_perfect_and_useless_scores() -> None:
    apart = measure([2.0, 3.0], [0.0, 1.0])
    assert (apart.auc, apart.tpr_at_01, apart.advantage) == (1, 1, 1)
    assert apart.succeeds
    equal = measure(np.zeros(5), np.zeros(7))
    assert (equal.auc, equal.low, equal.high, equal.tpr_at_1, equal.advantage) == (0.5, 0.5, 0.5, 0, 0)
    assert not equal.succeeds


@pytest.mark.parametrize(
    ("members", "others"), [([1.0], [0.0, 1.0]), ([0.0, np.nan], [0.0, 1.0]), ([0.0, 1.0], [np.inf, 1.0])]
)
def test_too_few_or_broken_scores_are_refused(members: list[float], others: list[float]) -> None:
    with pytest.raises(SettingsError, match="finite"):
        measure(members, others)
