"""A peer gets so many runs in a period, whatever the clock does and however often the owner restarts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.align import PsiSettings, RateLimiter
from fkge.errors import PeerError, SettingsError


def settings(runs: int = 2, period: float = 100.0) -> PsiSettings:
    return PsiSettings.build({"runs": runs, "period": period})


def test_the_refusal_says_when_to_come_back_and_does_not_count() -> None:
    gate = RateLimiter(settings())
    gate.admit("ant", 1000.0)
    gate.admit("ant", 1010.0)
    gate.admit("bee", 1010.0)
    for _ in range(3):
        with pytest.raises(PeerError, match=r"ant has had its 2 intersections in 100 s; it may come back in 70 s"):
            gate.admit("ant", 1030.0)
    gate.admit("ant", 1100.0)
    with pytest.raises(PeerError, match="in 10 s"):
        gate.admit("ant", 1100.0)


def test_the_state_goes_through_json_and_binds_the_next_process() -> None:
    gate = RateLimiter(settings())
    gate.admit("ant", 0.5)
    gate.admit("ant", 1.5)
    kept = json.loads(json.dumps(gate.state))
    with pytest.raises(PeerError, match="come back"):
        RateLimiter(settings(), kept).admit("ant", 2.0)
    RateLimiter(settings(3), kept).admit("ant", 2.0)
    gate.state["ant"].clear()  # a copy: nothing is forgotten
    with pytest.raises(PeerError, match="come back"):
        gate.admit("ant", 2.0)
    for bad in ({"ant": 3}, {"ant": ["soon"]}, [1], {"ant": [float("nan")]}):
        with pytest.raises(SettingsError, match="rate limiter"):
            RateLimiter(settings(), bad)  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 1000), max_size=40), st.integers(1, 4))
def test_no_window_ever_holds_more_than_its_runs(times: list[float], runs: int) -> None:
    """Also where the clock is set back, which the unsorted times do."""
    gate, admitted = RateLimiter(settings(runs)), []
    for now in times:
        try:
            gate.admit("ant", now)
        except PeerError:
            assert sum(time > now - 100 for time in admitted) >= runs
        else:
            admitted.append(now)
    if times == sorted(times):
        assert all(sum(end - 100 < time <= end for time in admitted) <= runs for end in admitted)


def test_forward_times_keep_the_window() -> None:
    gate, admitted = RateLimiter(settings(3)), []
    for now in range(0, 2000, 5):
        try:
            gate.admit("ant", float(now))
        except PeerError:
            continue
        admitted.append(now)
    assert len(admitted) == 3 * 20
    assert all(later - earlier >= 100 for earlier, later in zip(admitted, admitted[3:], strict=False))
