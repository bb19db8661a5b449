"""Global ids against a slow twin: sets that grow until they are closed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.align import clusters
from fkge.errors import SettingsError


@given(st.integers(0, 10_000))
def test_agrees_with_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {name: int(rng.integers(1, 9)) for name in "abcd"}
    pairs = {}
    for a, b in ("ab", "bc", "ad"):
        n = int(rng.integers(0, 5))
        pairs[a, b] = rng.integers(sizes[a], size=n), rng.integers(sizes[b], size=n)
    groups = [{(name, i)} for name, size in sizes.items() for i in range(size)]
    for (a, b), sides in pairs.items():
        for i, j in zip(*sides, strict=True):
            met = [g for g in groups if (a, i) in g or (b, j) in g]
            groups = [g for g in groups if g not in met] + [set().union(*met)]
    ids, count = clusters(sizes, pairs)
    assert count == len(groups)
    assert all(len({int(ids[name][i]) for name, i in group}) == 1 for group in groups)
    everything = np.concatenate(list(ids.values()))
    firsts = everything[np.sort(np.unique(everything, return_index=True)[1])]
    assert firsts.tolist() == list(range(count))  # numbered as they first appear


def test_pairs_that_do_not_fit_are_refused() -> None:
    one, two = np.array([0]), np.array([0, 1])
    for pair, problem in (
        ({("a", "x"): (one, one)}, "no owner 'x'"),
        ({("a", "b"): (one, two)}, "1 ids on one side"),
        ({("a", "b"): (np.array([5]), one)}, "rows of 'a'"),
    ):
        with pytest.raises(SettingsError, match=problem):
            clusters({"a": 2, "b": 2}, pair)
