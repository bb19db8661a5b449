"""The paper's accountant: its printed figures, its formula spelled out, and what must hold for any queries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.privacy.moments import paper_epsilon


def bound(queries: int, lam: float = 0.05, delta: float = 1e-5) -> float:
    return paper_epsilon(queries, lam, delta)


@pytest.mark.parametrize(
    ("queries", "printed"),
    [(1, "0.48"), (29, "2.73"), (32, "2.88"), (913, "19.5"), (32_000, "332"), (118_939, "1201")],
)
def test_figures(queries: int, printed: str) -> None:
    decimals = len(printed.partition(".")[2])
    assert f"{bound(queries):.{decimals}f}" == printed


@pytest.mark.parametrize("queries", [1, 32, 913])
def test_formula_spelled_out(queries: int) -> None:
    alpha = [queries * 2 * 0.05**2 * order * (order + 1) for order in range(1, 2000)]
    expected = min((a - math.log(1e-5)) / order for order, a in enumerate(alpha, 1))
    assert bound(queries) == pytest.approx(expected, rel=1e-12)


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
            paper_epsilon(1, lam, delta)
