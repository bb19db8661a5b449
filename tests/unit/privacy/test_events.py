"""A release is a value: equal, hashable, the same bytes everywhere, and refused if nobody could price it."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.errors import PrivacyError
from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, LAPLACE_VOTES, REPLACE, Release, Unprotected

STEP = Release(GAUSSIAN, "triple", ADD_OR_REMOVE, 1.0, 20.0, 100)

numbers = st.floats(1e-6, 1e6)
releases = st.one_of(
    st.builds(Release, st.just(GAUSSIAN), st.text(min_size=1), st.sampled_from([ADD_OR_REMOVE, REPLACE]), numbers,
              numbers, st.integers(1, 10**9), st.none() | st.floats(1e-6, 1)),
    st.builds(Release, st.just(LAPLACE_VOTES), st.text(min_size=1), st.just(REPLACE), numbers, numbers,
              st.integers(1, 10**9)),
)  # fmt: skip


@given(releases, releases)
def test_round_trip_and_one_form_for_one_release(release: Release, other: Release) -> None:
    again = Release.from_json(json.loads(json.dumps(release.to_json())))
    assert again == release
    assert hash(again) == hash(release)
    assert again.canonical() == release.canonical()
    assert (release.canonical() == other.canonical()) == (release == other)


def test_a_rate_of_one_is_the_full_batch_and_whole_numbers_are_numbers() -> None:
    assert Release(GAUSSIAN, "triple", ADD_OR_REMOVE, 1, 20, 100, 1.0) == STEP
    assert Release(GAUSSIAN, "triple", ADD_OR_REMOVE, 1, 20, 100, 1).canonical() == STEP.canonical()
    assert b'"noise":20.0' in STEP.canonical()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mechanism": "paper votes"}, "unknown mechanism 'paper votes'; did you mean laplace votes"),
        ({"mechanism": "none"}, "unknown mechanism"),
        ({"relation": "replace one"}, "did you mean replace"),
        ({"unit": ""}, "unit"),
        ({"noise": 0.0}, "without noise, no release"),
        ({"noise": math.inf}, "noise must be a positive number"),
        ({"noise": math.nan}, "noise"),
        ({"noise": "20"}, "noise"),
        ({"sensitivity": -1.0}, "sensitivity"),
        ({"sensitivity": True}, "sensitivity"),
        ({"count": 0}, "count"),
        ({"count": 1.0}, "count"),
        ({"count": True}, "count"),
        ({"sampling": 0.0}, "sampling"),
        ({"sampling": 1.5}, "sampling"),
        ({"mechanism": LAPLACE_VOTES, "sampling": 0.5}, "has no sampling"),
    ],
)
def test_releases_without_a_price_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(PrivacyError, match=said):
        Release.from_json({**STEP.to_json(), **change})


def test_json_is_strict_about_names() -> None:
    whole = STEP.to_json()
    for wrong in ({**whole, "epsilon": 1.0}, {k: v for k, v in whole.items() if k != "count"}, [], "release"):
        with pytest.raises(PrivacyError, match="expected the fields"):
            Release.from_json(wrong)  # type: ignore[arg-type]


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        STEP.count = 1  # type: ignore[misc]
    assert STEP.times(3).count == 3
    assert STEP.count == 100


def test_unprotected_is_not_a_release() -> None:
    left = Unprotected("shared rows")
    assert str(left) == "shared rows (protection: none)"
    assert not isinstance(left, Release)
