"""Scales, ticks and text of figures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fkge.report.svg import Scale, fit, ticks, width_of


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6), st.integers(2, 9))
def test_ticks_are_few_and_inside(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    assert 1 <= len(found) <= most
    assert all(low - 1e-6 * span <= t <= low + span * (1 + 1e-6) for t in found)
    assert found == sorted(set(found))


@given(st.text(), st.floats(10, 300))
def test_what_is_cut_short_fits(text: str, room: float) -> None:
    assert width_of(fit(text, room)) <= max(room, width_of("…"))


def test_a_scale_keeps_to_its_ends() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(v) for v in (-5, 0, 5, 10, 99)] == [100, 100, 150, 200, 200]
    assert Scale(3, 3, 100, 200)(3) == 100
