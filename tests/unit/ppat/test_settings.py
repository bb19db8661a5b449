"""Settings of the translation game."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fkge.ppat import PpatSettings


@given(st.integers(0, 200), st.data())
def test_candidates_are_evenly_spread_and_the_last_is_at_the_end(steps: int, data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, max(1, steps)))
    s = PpatSettings(steps=steps, candidates=candidates)
    due = [step for step in range(steps + 1) if s.candidate_due(step)]
    assert len(due) == candidates
    assert due[-1] == steps
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert max(gaps) - min(gaps) <= 1
