"""Prices against figures measured before, against exact and brute-force twins, and what must hold for any releases."""

from __future__ import annotations

import math
import subprocess
import sys

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.errors import PrivacyError
from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, LAPLACE_VOTES, REPLACE, Release, fits, noise_for, price
from fkge.privacy.accountants import METHODS, gaussian_delta, gaussian_epsilon, paper_price

DELTA = 1e-5


def steps(count: int = 1, noise: float = 20.0, sampling: float | None = None, relation: str = ADD_OR_REMOVE) -> Release:
    return Release(GAUSSIAN, "triple", relation, 1.0, noise, count, sampling)


def votes(count: int = 1, scale: float = 20.0) -> Release:
    return Release(LAPLACE_VOTES, "row", REPLACE, 2.0, scale, count)


# -- every method keeps to this ----------------------------------------------------------------------

plain = st.builds(steps, st.integers(1, 200), st.sampled_from([8.0, 20.0, 64.0]))
sampled = st.builds(steps, st.integers(1, 200), st.sampled_from([4.0, 9.0]), st.sampled_from([0.05, 0.2]))


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_contract(method: str, data: st.DataObject) -> None:
    """Nothing costs nothing; order and grouping do not matter; more never costs less; a larger δ never costs more."""
    kind = plain if method in ("gdp", "tight") else st.one_of(plain, sampled)
    releases = data.draw(st.lists(kind, min_size=1, max_size=4))
    whole = price(releases, DELTA, method)
    assert price([], DELTA, method) == 0
    assert 0 <= whole < math.inf
    assert price(reversed(releases), DELTA, method) == whole
    one_by_one = [r.times(part) for r in releases for part in (1, r.count - 1) if part]
    assert price(one_by_one, DELTA, method) == whole
    assert price([*releases, data.draw(kind)], DELTA, method) >= whole - 1e-9
    assert price(releases, 10 * DELTA, method) <= whole + 1e-9
    if method == "pld":
        assert whole <= price(releases, DELTA, "rdp") + 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_releases_of_different_units_are_never_added_up(method: str) -> None:
    for other in (steps(relation=REPLACE), Release(GAUSSIAN, "entity", ADD_OR_REMOVE, 1.0, 20.0)):
        with pytest.raises(PrivacyError, match="different units or relations"):
            price([steps(), other], DELTA, method)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_delta_out_of_range_is_refused(delta: float) -> None:
    for call in (lambda: price([steps()], delta), lambda: paper_price([votes()], delta)):
        with pytest.raises(PrivacyError, match="δ"):
            call()


def test_unknown_method() -> None:
    with pytest.raises(PrivacyError, match="no accountant 'rpd'; did you mean rdp"):
        price([steps()], DELTA, "rpd")


# -- Gaussian releases -------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 2.0, 40.0])
def test_closed_form_against_sixty_digits(mu: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.3))
def test_epsilon_is_the_smallest_that_keeps_delta(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 1e-9:
        assert gaussian_delta(mu, epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize(("count", "noise"), [(1, 1.0), (100, 20.0), (100, 6.0), (1000, 300.0), (7, 0.5)])
def test_gdp_and_pld_agree(count: int, noise: float) -> None:
    exact = price([steps(count, noise)], DELTA, "gdp")
    assert price([steps(count, noise)], DELTA, "pld") == pytest.approx(exact, rel=1e-3)
    assert exact < price([steps(count, noise)], DELTA, "rdp") < 1.3 * exact
    # Twice the sensitivity is half of the noise, and four times the steps.
    twice = Release(GAUSSIAN, "triple", REPLACE, 2.0, noise, count)
    assert price([twice], DELTA, "gdp") == pytest.approx(price([steps(4 * count, noise)], DELTA, "gdp"))
    assert price([twice], DELTA, "pld") == pytest.approx(price([twice], DELTA, "gdp"), rel=1e-3)


def test_closed_form_refuses_what_it_cannot_price() -> None:
    for other in (votes(), steps(sampling=0.1)):
        with pytest.raises(PrivacyError, match="full batch only"):
            price([other], DELTA, "gdp")


def hockey_stick(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64], epsilon: float) -> float:
    """The δ at ε of two densities on one grid, each scaled to sum to 1, in the worse direction."""
    p, q = p / p.sum(), q / q.sum()
    return float(max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))))


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
@pytest.mark.parametrize(("noise", "rate"), [(0.8, 0.1), (1.5, 0.5)])
def test_a_sampled_step_against_brute_force(noise: float, rate: float, relation: str) -> None:
    x = np.linspace(-30, 30, 600_001)

    def mixture(shift: float) -> npt.NDArray[np.float64]:
        return (1 - rate) * np.exp(-(x**2) / (2 * noise**2)) + rate * np.exp(-((x - shift) ** 2) / (2 * noise**2))

    p, q = (mixture(1.0), mixture(0.0)) if relation == ADD_OR_REMOVE else (mixture(0.5), mixture(-0.5))
    epsilon = price([steps(1, noise, rate, relation)], DELTA, "pld")
    assert hockey_stick(p, q, epsilon) <= DELTA * 1.001
    assert hockey_stick(p, q, 0.99 * epsilon) > DELTA
    assert price([steps(1, noise, rate, relation)], DELTA, "rdp") >= epsilon


def test_sampling_lowers_the_price() -> None:
    for relation in (ADD_OR_REMOVE, REPLACE):
        assert price([steps(100, 2.0, 0.01, relation)], DELTA) < price([steps(100, 2.0, None, relation)], DELTA) / 50
    # RDP knows no better than the full batch where units are replaced.
    drawn, all_of_them = (price([steps(9, 2.0, rate, REPLACE)], DELTA, "rdp") for rate in (0.01, None))
    assert drawn == all_of_them


# -- votes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queries", "rdp", "pld", "paper"),
    [
        (1, "0.10", "0.10", "0.48"), (29, "1.54", "1.43", "2.73"), (32, "1.63", "1.51", "2.88"),
        (913, "11.5", "10.7", "19.5"), (32_000, "137", "131", "332"),
    ],
)  # fmt: skip
def test_figures_measured_before(queries: int, rdp: str, pld: str, paper: str) -> None:
    got = (price([votes(queries)], DELTA, "rdp"), price([votes(queries)], DELTA, "pld"))
    for value, printed in zip((*got, paper_price([votes(queries)], DELTA)), (rdp, pld, paper), strict=True):
        assert f"{value:.{len(printed.partition('.')[2])}f}" == printed


def test_one_query_against_brute_force() -> None:
    x = np.linspace(-25, 25, 2001)
    first, second = x[:, None], x[None, :]

    def counts(a: float, b: float) -> npt.NDArray[np.float64]:
        return np.exp(-np.abs(first - a) - np.abs(second - b))

    delta = 0.05
    epsilon = price([votes(1, scale=1.0)], delta)
    truth = hockey_stick(counts(0, 0), counts(1, -1), epsilon)
    assert truth == pytest.approx(delta, rel=0.02)
    assert hockey_stick(counts(0, 0), counts(1, -1), 0.97 * epsilon) > delta
    # One count moved by 2, which is all that an L1 sensitivity of 2 says, would be dearer.
    assert hockey_stick(counts(0, 0), counts(2, 0), epsilon) > 1.05 * delta


def test_votes_of_several_lambdas_compose_but_not_by_the_papers_formula() -> None:
    both = [votes(29), votes(29, scale=40.0)]
    assert price([votes(29)], DELTA) < price(both, DELTA) < price([votes(58)], DELTA)
    with pytest.raises(PrivacyError, match="one λ"):
        paper_price(both, DELTA)
    for other in (steps(), Release(LAPLACE_VOTES, "row", REPLACE, 4.0, 20.0)):
        with pytest.raises(PrivacyError, match="paper's formula prices votes"):
            paper_price([other], DELTA)
    assert paper_price([], DELTA) == 0


def test_votes_and_sampled_steps_about_one_thing_compose() -> None:
    gaussians = Release(GAUSSIAN, "row", REPLACE, 1.0, 5.0, 100, 0.2)
    both = price([votes(9), gaussians], DELTA)
    assert max(price([votes(9)], DELTA), price([gaussians], DELTA)) < both
    assert both < price([votes(9)], DELTA / 2) + price([gaussians], DELTA / 2)


# -- noise for a budget, and quickness -----------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("count", [1, 100])
def test_noise_for_the_full_batch_is_exact(epsilon: float, count: int) -> None:
    noise = noise_for(epsilon, DELTA, count)
    assert price([steps(count, noise)], DELTA, "tight") <= epsilon
    assert price([steps(count, noise * (1 - 1e-6))], DELTA, "tight") > epsilon
    assert noise_for(epsilon, DELTA, 4 * count) == pytest.approx(2 * noise)


def test_noise_for_samples() -> None:
    noise = noise_for(1.0, DELTA, 50, sampling=0.2)
    assert fits([steps(50, noise, 0.2)], 1.0, DELTA)
    assert not fits([steps(50, 0.997 * noise, 0.2)], 1.0, DELTA)
    assert noise < noise_for(1.0, DELTA, 50) / 4


@pytest.mark.parametrize(("epsilon", "count"), [(0.0, 1), (-1.0, 1), (math.inf, 1), (1.0, 0), (1.0, 1.5)])
def test_noise_for_refuses_impossible_arguments(epsilon: float, count: int) -> None:
    with pytest.raises(PrivacyError, match="noise needs"):
        noise_for(epsilon, DELTA, count)


def test_fits_is_the_tight_price() -> None:
    for release in (steps(100), steps(100, 2.0, 0.1), votes(29)):
        tight = price([release], DELTA, "tight")
        assert fits([release], tight, DELTA)
        assert not fits([release], 0.995 * tight, DELTA)


def test_thousands_of_entries_cost_what_two_long_ones_do() -> None:
    entries = [steps(1, 4.0, 0.05), steps(2, 20.0)] * 5000
    assert price(entries, DELTA, "tight") == price([steps(5000, 4.0, 0.05), steps(10_000, 20.0)], DELTA, "tight")


def test_full_batch_pricing_needs_neither_dp_accounting_nor_scipy() -> None:
    code = (
        "import sys\n"
        "for absent in ('dp_accounting', 'scipy', 'numba', 'private_set_intersection', 'matplotlib'):\n"
        "    sys.modules[absent] = None\n"
        "from fkge.privacy import Release, fits, noise_for, price\n"
        "noise = noise_for(8.0, 1e-5, 100)\n"
        "steps = [Release('gaussian', 'triple', 'add or remove', 1.0, noise, 100)]\n"
        "assert fits(steps, 8.0, 1e-5) and not fits(steps, 7.99, 1e-5)\n"
        "assert 7.99 < price(steps, 1e-5, 'tight') <= 8.0\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
