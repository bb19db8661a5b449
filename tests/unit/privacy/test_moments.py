"""The paper's accountant: its printed figures, its formula spelled out, and what must hold for any queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fkge.privacy.moments import PaperMoments, moment, paper_epsilon


def bound(queries: int, lam: float = 0.05, delta: float = 1e-5) -> float:
    return paper_epsilon(queries, lam, delta)


@pytest.mark.parametrize(
    ("queries", "printed"),
    [(1, "0.48"), (29, "2.73"), (32, "2.88"), (913, "19.5"), (32_000, "332"), (118_939, "1201")],
)
def test_figures(queries: int, printed: str) -> None:
    decimals = len(printed.partition(".")[2])
    assert f"{bound(queries):.{decimals}f}" == printed


@pytest.mark.parametrize("queries", [29, 32, 913, 32_000])
@pytest.mark.parametrize("votes", [(0, 4), (1, 3), (2, 2)])
def test_four_teachers_are_too_few_for_their_votes_to_lower_the_price(queries: int, votes: tuple[int, int]) -> None:
    moments = PaperMoments(0.05, 1e-5)
    moments.add(*votes, count=queries)
    assert moments.epsilon == pytest.approx(bound(queries))


def test_many_unanimous_teachers_lower_the_price() -> None:
    moments = PaperMoments(0.05, 1e-5)
    moments.add(0, 200, count=913)
    assert moments.epsilon < 1 < bound(913)


@pytest.mark.parametrize(("lam", "margin", "order"), [(0.05, 40, 3), (0.2, 30, 8), (1.0, 4, 2), (0.05, 200, 20)])
def test_formula_spelled_out(lam: float, margin: int, order: int) -> None:
    q = (2 + lam * margin) / (4 * math.exp(lam * margin))
    data_dependent = math.log(
        (1 - q) * ((1 - q) / (1 - math.exp(2 * lam) * q)) ** order + q * math.exp(2 * lam * order)
    )
    expected = min(2 * lam**2 * order * (order + 1), data_dependent)
    assert moment(np.array([float(order)]), lam, margin)[0] == pytest.approx(expected, rel=1e-9)


def test_second_term_is_left_out_where_its_theorem_does_not_hold() -> None:
    orders = np.arange(1.0, 300.0)
    # An even vote, q = 1/2: at l = 100 the printed term is below the first one, but its theorem does not reach there.
    assert np.array_equal(moment(orders, 0.05, 0), moment(orders, 0.05, None))
    # Here 1 − e^{2λ}q < 0, and the printed term is not even a number.
    assert np.array_equal(moment(orders, 1.0, 0), moment(orders, 1.0, None))


votes = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=20)


@example([(0, 249)], (0, 0), 3.0, 0.0625)  # q is below the smallest float
@given(votes, st.tuples(st.integers(0, 300), st.integers(0, 300)), st.floats(0.001, 3), st.floats(1e-9, 0.1))
def test_more_queries_never_cost_less_and_votes_never_more_than_the_bound(
    asked: list[tuple[int, int]], one_more: tuple[int, int], lam: float, delta: float
) -> None:
    moments = PaperMoments(lam, delta)
    for n0, n1 in asked:
        moments.add(n0, n1)
    before = moments.epsilon
    moments.add(*one_more)
    after = moments.epsilon
    assert moments.queries == len(asked) + 1
    assert math.isfinite(after)
    assert after >= before - 1e-12
    assert after <= bound(len(asked) + 1, lam, delta) + 1e-12


@given(st.integers(1, 10_000), st.floats(0.005, 1), st.floats(1e-9, 0.1))
def test_bound_falls_with_more_noise_and_larger_delta(queries: int, lam: float, delta: float) -> None:
    assert bound(queries, lam / 2, delta) <= bound(queries, lam, delta)
    assert bound(queries, lam, delta * 2) <= bound(queries, lam, delta)
    assert bound(queries + 1, lam, delta) > bound(queries, lam, delta)


def test_no_noise_costs_everything_and_no_query_nothing() -> None:
    assert bound(0) == 0
    assert bound(0, lam=0) == 0
    assert bound(1, lam=0) == math.inf


def test_impossible_figures_are_refused() -> None:
    for lam, delta in ((-1.0, 1e-5), (0.05, 0.0), (0.05, 1.0), (math.nan, 1e-5)):
        with pytest.raises(ValueError, match="δ"):
            PaperMoments(lam, delta)
