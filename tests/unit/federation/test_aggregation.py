"""Means of rows, against numbers by hand and a slow twin."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given as given_
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from fkge.federation.aggregation import LEAST, Part, given, weighted_mean


def part(ids: list[int], rows: list[list[float]], weights: list[float]) -> Part:
    return Part(torch.tensor(ids), torch.tensor(rows, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64))


def twin(own: Tensor, weights: Tensor, parts: list[Part]) -> Tensor:
    """Row by row, in plain Python."""
    out = own.clone()
    for row in range(len(own)):
        votes = [(float(weights[row]) + LEAST, own[row])] if weights[row] > 0 else []
        for p in parts:
            votes += [
                (float(w) + LEAST, x) for i, x, w in zip(p.ids.tolist(), p.rows, p.weights, strict=True) if i == row
            ]
        if votes:
            out[row] = sum(w * x for w, x in votes) / sum(w for w, _ in votes)
    return out


OWN = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], dtype=torch.float64)


def test_a_plain_mean() -> None:
    got = weighted_mean(OWN, torch.ones(4, dtype=torch.float64), [part([1, 2], [[3, 3], [5, 5]], [1, 1])])
    torch.testing.assert_close(got, torch.tensor([[0, 0], [2, 2], [3.5, 3.5], [3, 3]], dtype=torch.float64))


def test_received_rows_only() -> None:
    none = torch.zeros(4, dtype=torch.float64)
    got = weighted_mean(OWN, none, [part([1], [[9, 8]], [1]), part([1, 3], [[1, 0], [4, 4]], [1, 1])])
    torch.testing.assert_close(got, torch.tensor([[0, 0], [5, 4], [2, 2], [4, 4]], dtype=torch.float64))
    assert torch.equal(got[[0, 2]], OWN[[0, 2]])  # to the bit


def test_weights_count_and_a_row_that_nobody_knows_still_has_a_mean() -> None:
    weights = torch.tensor([3.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    got = weighted_mean(OWN, weights, [part([0, 1, 2], [[4, 4], [7, 7], [8, 8]], [1, 2, 0])])
    assert got[0].tolist() == pytest.approx([4 * (1 + LEAST) / (4 + 2 * LEAST)] * 2)
    assert got[1].tolist() == pytest.approx([7, 7])
    assert got[2].tolist() == pytest.approx([8, 8])
    assert got[3].tolist() == pytest.approx([3, 3])


def test_nothing_is_written_to_what_comes_in() -> None:
    own, weights = OWN.clone(), torch.ones(4, dtype=torch.float64)
    p = part([0], [[1, 2]], [1])
    weighted_mean(own, weights, [p])
    assert torch.equal(own, OWN)
    assert bool((weights == 1).all())
    assert p.rows.tolist() == [[1, 2]]


@settings(max_examples=60, deadline=None)
@given_(st.integers(0, 2**31), st.integers(0, 4), st.booleans())
def test_any_number_of_parts_against_the_twin(seed: int, count: int, several: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    rows = 6
    own = torch.randn(2, rows, 3, generator=g, dtype=torch.float64)
    weights = (torch.rand(rows, generator=g, dtype=torch.float64) - 0.3).clamp(min=0)
    stacks = []
    for _ in range(count):
        ids = torch.randperm(rows, generator=g)[: int(torch.randint(0, rows + 1, (1,), generator=g))]
        drawn = torch.randn(2, len(ids), 3, generator=g, dtype=torch.float64)
        stacks.append((ids, drawn, torch.rand(len(ids), generator=g, dtype=torch.float64)))
    singles = [twin(own[k], weights, [Part(i, r[k], w) for i, r, w in stacks]) for k in range(2)]
    if several:
        got = weighted_mean(own, weights, [Part(*s) for s in stacks])
        torch.testing.assert_close(got, torch.stack(singles))
    else:
        got = weighted_mean(own[0], weights, [Part(i, r[0], w) for i, r, w in stacks])
        torch.testing.assert_close(got, singles[0])
    assert given(rows, [Part(*s) for s in stacks]).tolist() == sorted({int(i) for s in stacks for i in s[0]})
