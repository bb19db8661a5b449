"""Canaries: scores that find them, and an audit of noisy descent on translations with a price that is known."""

from __future__ import annotations

import numpy as np
import pytest

from fkge.errors import SettingsError
from fkge.evaluation.attacks import (
    State,
    audit_dp,
    dedicated_canaries,
    drift,
    insert,
    plausibility,
    random_canaries,
    translation_gradient,
)
from fkge.evaluation.attacks.canaries import CanaryScore
from fkge.privacy import noise_for

DELTA = 1e-5


def test_random_canaries_are_new_distinct_and_no_loops() -> None:
    rng = np.random.default_rng(0)
    facts = np.unique(rng.integers([12, 3, 12], size=(150, 3)), axis=0)
    canaries = random_canaries(facts, 12, 3, 100, rng)
    known = {tuple(f) for f in facts.tolist()}
    assert len({tuple(c) for c in canaries.tolist()}) == 100
    assert not known & {tuple(c) for c in canaries.tolist()}
    assert (canaries[:, 0] != canaries[:, 2]).all()
    assert set(np.unique(canaries[:, 1])) == {0, 1, 2}
    with pytest.raises(SettingsError, match="do not fit"):
        random_canaries(facts, 12, 3, 150, rng)


def test_dedicated_canaries_share_no_row() -> None:
    canaries = dedicated_canaries(10, 4, 50)
    ends = canaries[:, [0, 2]].ravel()
    assert sorted(ends) == list(range(10, 110))
    assert sorted(canaries[:, 1]) == list(range(4, 54))
    assert (dedicated_canaries(10, 4, 5, own_relations=False)[:, 1] == 0).all()


def test_insert_takes_exactly_what_the_coins_say() -> None:
    canaries = dedicated_canaries(2, 1, 3)
    out = insert(np.array([[0, 0, 1]]), canaries, np.array([True, False, True]))
    assert out.tolist() == [[0, 0, 1], canaries[0].tolist(), canaries[2].tolist()]
    with pytest.raises(SettingsError, match="coins"):
        insert(canaries, canaries, np.array([1, 0, 1]))


@pytest.mark.parametrize("norm", [1, 2])
def test_gradient_is_that_of_the_distance(norm: int) -> None:
    rng = np.random.default_rng(1)
    state = State(rng.normal(size=(6, 5)), rng.normal(size=(2, 5)))
    canary = np.array([[3, 1, 4]])
    gradient = translation_gradient(norm)(state, canary)[0]
    assert np.linalg.norm(gradient) == pytest.approx(1)
    slopes = np.zeros((3, 5))
    for row, (table, i) in enumerate(((0, 3), (1, 1), (0, 4))):
        for j in range(5):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [t.copy() for t in state]
                moved[table][i, j] += step
                ends.append(np.linalg.norm(moved[0][3] + moved[1][1] - moved[0][4], norm))
            slopes[row, j] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, slopes / np.linalg.norm(slopes), atol=1e-6)


# -- a mechanism with a known price ------------------------------------------------------------------


def noisy_descent(
    triples: np.ndarray, entities: int, relations: int, *, steps: int, sigma: float, seed: int, dim: int = 8
) -> list[State]:
    """Full-batch descent on Σ ‖h + r − t‖, every triple's gradient of length 1, Gaussian noise σ on every step's sum.

    Each step is a Gaussian mechanism of sensitivity 1, whatever the steps before it gave.
    """
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(rows, dim)) for rows in (entities, relations)]
    out = [State(tables[0].copy(), tables[1].copy())]
    for _ in range(steps):
        sums = [sigma * rng.normal(size=t.shape) for t in tables]
        gradient = translation_gradient()(out[-1], triples)
        np.add.at(sums[0], triples[:, 0], gradient[:, 0])
        np.add.at(sums[1], triples[:, 1], gradient[:, 1])
        np.add.at(sums[0], triples[:, 2], gradient[:, 2])
        tables = [t - 0.01 * s for t, s in zip(tables, sums, strict=True)]
        out.append(State(*tables))
    return out


@pytest.mark.parametrize("steps", [1, 10])
def test_right_noise_stands_and_a_tenth_of_it_falls(steps: int) -> None:
    rng = np.random.default_rng(2)
    base, m = rng.integers([30, 3, 30], size=(200, 3)), 2000
    canaries = dedicated_canaries(30, 3, m)
    claim = 4.0
    sigma = noise_for(claim, DELTA, steps)

    def audited(noise: float) -> float:
        def train(triples: np.ndarray) -> list[State]:
            return noisy_descent(triples, 30 + 2 * m, 3 + m, steps=steps, sigma=noise, seed=7)

        return audit_dp(train, base, canaries, DELTA, np.random.default_rng(3)).epsilon_lower

    assert claim / 4 < audited(sigma) < claim
    assert audited(sigma / 10) > claim


def test_last_state_alone_tells_less_but_something() -> None:
    rng = np.random.default_rng(4)
    base, m = rng.integers([30, 3, 30], size=(200, 3)), 1000
    canaries = dedicated_canaries(30, 3, m)

    def train(triples: np.ndarray) -> list[State]:
        return noisy_descent(triples, 30 + 2 * m, 3 + m, steps=100, sigma=1.0, seed=7)

    bounds = [
        audit_dp(train, base, canaries, DELTA, np.random.default_rng(5), score=score).epsilon_lower
        for score in (plausibility(), drift())
    ]
    assert 0.2 < bounds[0] < bounds[1]


def test_random_canaries_among_real_facts_are_found_where_nothing_protects() -> None:
    rng = np.random.default_rng(6)
    facts = np.unique(rng.integers([200, 4, 200], size=(300, 3)), axis=0)
    canaries = random_canaries(facts, 200, 4, 300, rng)

    def audited(score: CanaryScore, noise: float) -> float:
        def train(triples: np.ndarray) -> list[State]:
            return noisy_descent(triples, 200, 4, steps=60, sigma=noise, seed=8, dim=64)

        return audit_dp(train, facts, canaries, DELTA, np.random.default_rng(9), score=score).epsilon_lower

    assert audited(drift(), 0.0) > 0.5
    assert audited(plausibility(), 0.0) > 0.5
    assert audited(drift(), 100.0) == 0
    assert audited(plausibility(), 100.0) == 0


def test_drift_allows_for_rates_and_needs_steps() -> None:
    rng = np.random.default_rng(10)
    canaries = dedicated_canaries(0, 0, 4)
    start = State(rng.normal(size=(8, 5)), rng.normal(size=(4, 5)))
    moves = [[rng.normal(size=t.shape) for t in start] for _ in range(2)]
    states = {}
    for name, rates in (("even", (1.0, 1.0)), ("falling", (1.0, 1e-9))):
        states[name] = [start]
        for rate, move in zip(rates, moves, strict=True):
            states[name].append(State(*(t + rate * d for t, d in zip(states[name][-1], move, strict=True))))
    np.testing.assert_allclose(
        drift(rates=(1.0, 1e-9))(states["falling"], canaries), drift()(states["even"], canaries), rtol=1e-5
    )
    with pytest.raises(SettingsError, match="two or more states"):
        drift()(states["even"][:1], canaries)
    with pytest.raises(SettingsError, match="3 states and 1 rates"):
        drift(rates=(1.0,))(states["even"], canaries)
