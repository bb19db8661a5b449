"""Noise that is added when a row is next needed: the same law as noise added at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fkge.embed.kernels.lazy_noise import debts
from tests.unit.embed.trainers import dp_trainer_of


@pytest.mark.parametrize("momentum", [0.5, 0.9])
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_a_debt_is_the_law_of_its_steps(momentum: float, k: int) -> None:
    """The 2 × 2 covariance of (v, x) against k steps taken one by one, and what k deterministic steps do."""
    rng, lr, sigma, n = np.random.default_rng(k), 0.3, 1.5, 200_000
    start_v, start_x = 0.7, -0.2
    v, x = np.full(n, start_v), np.full(n, start_x)
    for _ in range(k):
        v = momentum * v + sigma * rng.standard_normal(n)
        x = x - lr * v
    debt = debts(k, sigma, momentum, lr, np.dtype(np.float64))
    keep, slide, first, second, third = (a[k] for a in debt)
    expected = np.array([[first**2, first * second], [first * second, second**2 + third**2]])
    found = np.cov(v, x)
    # The standard error of a covariance of n Gaussians is at most √(2/n) of the variances' geometric mean.
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(found - expected).max() / scale.max() < 5 * math.sqrt(2 / n)
    assert np.abs((found - expected) / scale).max() < 5 * math.sqrt(2 / n)
    assert abs(v.mean() - keep * start_v) < 5 * first / math.sqrt(n)
    assert abs(x.mean() - (start_x - slide * start_v)) < 5 * math.sqrt(expected[1, 1] / n)
    if k > 1:  # one step too few would be seen
        short = debt[3][k - 1] ** 2 + debt[4][k - 1] ** 2
        assert abs(found[1, 1] - short) / short > 6 * math.sqrt(2 / n)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_lazy_without_noise_is_eager_to_the_rounding(optimizer: str) -> None:
    results = []
    for lazy in (True, False):
        how: dict[str, Any] = {"optimizer": optimizer, "lazy": lazy, "rate": 0.05, "lr": 0.02, "noise": 0.0}
        trainer = dp_trainer_of(train={"seed": 3}, dtype=torch.float64, gather=7, **how)
        results.append(([trainer.run_epoch() for _ in range(3)], trainer.tables.export(state=True)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    for name, tensor in results[1][1].items():
        torch.testing.assert_close(results[0][1][name], tensor, rtol=1e-10, atol=1e-12, msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_lazy_has_the_law_of_eager_while_it_learns(optimizer: str) -> None:
    """Twins with triples: rows touched often, seldom and never end alike. 3⁄2σ would be seen."""

    def moved(lazy: bool, noise: float = 2.0) -> list[np.ndarray[Any, Any]]:
        parts: dict[str, list[torch.Tensor]] = {"hub": [], "rest": []}
        for key in range(60):
            trainer = dp_trainer_of(
                hub, (60, 2), key=key + 100 * lazy, optimizer=optimizer, lazy=lazy, rate=0.1, lr=0.05, noise=noise,
                negatives=1, dtype=torch.float64,
            )  # fmt: skip
            begun = trainer.tables["entity"].clone()
            trainer.run_epoch()
            difference = trainer.tables["entity"] - begun
            parts["hub"].append(difference[:6])
            parts["rest"].append(difference[6:])
        return [torch.stack(part).flatten().numpy() for part in parts.values()]

    hub = np.array([[i % 6, i % 2, (i * 5 + 1) % 6] for i in range(30)])
    for lazy, eager, loud in zip(moved(True), moved(False), moved(True, 3.0), strict=True):
        assert stats.ks_2samp(lazy, eager).pvalue > 0.01
        assert stats.ks_2samp(loud, eager).pvalue < 1e-6
