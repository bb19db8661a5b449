"""The one-run audit: its bound holds, is worth having, and catches a mechanism that lies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fkge.audit.one_run import EpsilonBound, epsilon_bound, lower_bound, p_value
from fkge.errors import SettingsError
from fkge.privacy import noise_for


def gaussian_mechanism_audit(
    m: int, sigma: float, delta: float, rng: np.random.Generator, confidence: float = 0.95
) -> EpsilonBound:
    """Audit a mechanism of known ε: m canaries in orthogonal directions of one sum under Gaussian noise, seen in full.

    Each canary adds a unit vector of its own, so the ε of the sum is that of one Gaussian mechanism of sensitivity 1,
    which is known in closed form (`fkge.privacy.price`, "gdp"). No auditor can do better than here: the score *is* the
    mechanism's output along the canary.
    """
    coin = rng.random(m) < 0.5
    scores = coin + sigma * rng.standard_normal(m)
    return epsilon_bound(scores, coin, delta, confidence)


def binomial_tail(v: int, r: int, q: float) -> float:
    return sum(math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(v, r + 1))


def test_without_delta_it_is_a_binomial_test() -> None:
    for r, v, epsilon in itertools.product((1, 7, 40), (1, 5, 7, 33), (0.0, 0.4, 2.0)):
        if v <= r:
            q = math.exp(epsilon) / (1 + math.exp(epsilon))
            assert p_value(v, r, 50, epsilon, 0.0) == pytest.approx(binomial_tail(v, r, q), rel=1e-9)


def test_delta_term_is_that_of_the_theorem() -> None:
    for r, v, epsilon, delta in itertools.product((3, 20), (1, 3, 14), (0.0, 1.0), (1e-6, 1e-3)):
        if v > r:
            continue
        q, m = math.exp(epsilon) / (1 + math.exp(epsilon)), 60
        beta = binomial_tail(v, r, q)
        alpha = max((binomial_tail(max(0, v - i), r, q) - beta) / i for i in range(1, m + 1))
        assert p_value(v, r, m, epsilon, delta) == pytest.approx(min(1, beta + 2 * m * delta * alpha), rel=1e-9)


@pytest.mark.parametrize("delta", [0.0, 0.002, 0.02])
def test_no_mechanism_that_keeps_its_promise_beats_the_bound(delta: float) -> None:
    """Randomised response that with probability δ tells the truth, coin by coin or all coins at once."""
    m, epsilon = 12, 1.3
    q = math.exp(epsilon) / (1 + math.exp(epsilon))
    for v in range(m + 1):
        bound = p_value(v, m, m, epsilon, delta)
        assert binomial_tail(v, m, delta + (1 - delta) * q) <= bound + 1e-12
        assert delta + (1 - delta) * binomial_tail(v, m, q) <= bound + 1e-12
    # Without the correction the first of the two would be refuted wrongly.
    if delta == 0.02:
        assert any(binomial_tail(v, m, delta + (1 - delta) * q) > p_value(v, m, m, epsilon, 0.0) for v in range(m + 1))


def test_lower_bound_is_where_the_p_value_crosses() -> None:
    bound = lower_bound(95, 100, 1000, 1e-6)
    assert p_value(95, 100, 1000, bound, 1e-6) < 0.05 <= p_value(95, 100, 1000, bound + 2e-6, 1e-6)
    assert 1.9 < bound < math.log(95 / 5)
    # All right: qʳ = 0.05.
    assert lower_bound(1000, 1000, 1000, 0.0) == pytest.approx(-math.log(0.05 ** (-1 / 1000) - 1), abs=1e-5)
    assert lower_bound(50, 100, 1000, 1e-6) == 0
    assert lower_bound(0, 10, 10, 0.0) == 0
    assert lower_bound(95, 100, 1000, 1e-6) > lower_bound(95, 100, 1000, 1e-4) > lower_bound(95, 100, 1000, 1e-3)
    assert lower_bound(95, 100, 1000, 1e-6, 0.9) > bound > lower_bound(95, 100, 1000, 1e-6, 0.99)


def test_refutes_the_truth_as_rarely_as_it_says() -> None:
    """Randomised response at ε = 1, 400 audits: at most one in twenty may exceed 1. At ε = 2, most do."""
    rng = np.random.default_rng(0)
    exceeded = {}
    for epsilon in (1.0, 2.0):
        q = math.exp(epsilon) / (1 + math.exp(epsilon))
        right = rng.binomial(500, q, size=400)
        exceeded[epsilon] = sum(lower_bound(int(v), 500, 500, 0.0) > 1.0 for v in right)
    assert exceeded[1.0] <= 38  # 20 expected at most, and 4 standard deviations
    assert exceeded[2.0] > 380


def test_choosing_the_number_of_guesses_is_paid_for() -> None:
    """Scores that know nothing: the best of seven tries must not look like something more than once in twenty."""
    rng = np.random.default_rng(1)
    found = sum(epsilon_bound(rng.normal(size=400), rng.random(400) < 0.5, 0.0).epsilon_lower > 0 for _ in range(300))
    assert found <= 30  # 15 expected at most, and 4 standard deviations
    # The test can fail: without the correction seven looks find something more often.
    careless = 0
    for _ in range(300):
        scores, coin = rng.normal(size=400), rng.random(400) < 0.5
        tries = [
            epsilon_bound(scores, coin, 0.0, fractions=(f,)).epsilon_lower
            for f in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
        ]
        careless += max(tries) > 0
    assert careless > 30


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
def test_honest_noise_is_not_refuted_and_the_bound_says_something(epsilon: float) -> None:
    sigma = noise_for(epsilon, 1e-5, steps=1)
    for seed in range(5):
        found = gaussian_mechanism_audit(10_000, sigma, 1e-5, np.random.default_rng(seed))
        assert epsilon / 4 < found.epsilon_lower < epsilon
        assert not found.refutes(epsilon)


@pytest.mark.parametrize(("epsilon", "delta", "m"), [(1.0, 1e-5, 2_000), (4.0, 1e-5, 10_000), (8.0, 1e-7, 60_000)])
def test_a_tenth_of_the_noise_is_caught(epsilon: float, delta: float, m: int) -> None:
    sigma = noise_for(epsilon, delta, steps=1)
    found = gaussian_mechanism_audit(m, sigma / 10, delta, np.random.default_rng(0))
    assert found.refutes(epsilon)
    assert found.canaries == m


def test_unusable_audits_are_refused() -> None:
    coin = np.array([True, False])
    with pytest.raises(SettingsError, match="finite score"):
        epsilon_bound([1.0, np.nan], coin, 1e-5)
    with pytest.raises(SettingsError, match="2 scores and 1 coins"):
        epsilon_bound([1.0, 2.0], coin[:1], 1e-5)
    with pytest.raises(SettingsError, match="fractions"):
        epsilon_bound([1.0, 2.0], coin, 1e-5, fractions=(1.5,))
    with pytest.raises(SettingsError, match="correct ≤ guesses"):
        p_value(3, 2, 5, 1.0, 0.0)
    with pytest.raises(SettingsError, match="confidence"):
        lower_bound(1, 2, 3, 0.0, 1.0)
