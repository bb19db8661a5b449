"""Passes over dense arrays, against torch in float64."""

from __future__ import annotations

import pytest
import torch

from fkge.embed.kernels.dense import adagrad_, softmax_


def scores(rows: int, columns: int, scale: float, seed: int = 0) -> torch.Tensor:
    return (torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale).bfloat16()


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 64), (4, 1001)])
@pytest.mark.parametrize("scale", [0.0, 0.1, 3.0, 100.0])
def test_softmax_is_that_of_float64_to_a_bfloat16(shape: tuple[int, int], scale: float) -> None:
    given = scores(*shape, scale) - 5 * scale  # negative largest scores too
    exact = given.double()
    probability = given.clone()
    normaliser = softmax_(probability)
    assert probability.dtype == torch.bfloat16
    torch.testing.assert_close(normaliser.double(), exact.logsumexp(1), rtol=1e-6, atol=1e-5)
    # 2⁻⁸: half the distance between two neighbouring bfloat16 numbers; below 2⁻¹²⁶ nothing is promised.
    torch.testing.assert_close(probability.double(), exact.softmax(1), rtol=1 / 256 + 1e-5, atol=1e-36)


def test_softmax_rounds_as_torch_does() -> None:
    given = scores(50, 3000, 2.0)
    wide = given.float().softmax(1).bfloat16()
    softmax_(given)
    assert (given != wide).float().mean() < 1e-3  # where the exponential's last bit decides


@pytest.mark.parametrize("bad", [float("nan"), -float("nan"), float("inf")])
def test_a_diverged_score_shows(bad: float) -> None:
    given = scores(3, 40, 1.0)
    given[1, 17] = bad
    normaliser = softmax_(given)
    assert not bool(torch.isfinite(normaliser[1]))
    assert not bool(torch.isfinite(given[1]).all())
    assert bool(torch.isfinite(normaliser[[0, 2]]).all())
    assert bool(torch.isfinite(given[[0, 2]]).all())


def test_adagrad_is_that_of_float64() -> None:
    generator = torch.Generator().manual_seed(1)
    rows, total, gradient = (torch.randn(31, 12, generator=generator) for _ in range(3))
    total.square_()
    gradient[3] = 0
    total[3] = 0
    expected_total = total.double() + gradient.double() ** 2
    expected = rows.double() - 0.1 * gradient.double() / (expected_total.sqrt() + 1e-8)
    before = rows.clone()
    adagrad_(rows, total, gradient, 0.1, 1e-8)
    torch.testing.assert_close(total.double(), expected_total, rtol=1e-6, atol=0)
    torch.testing.assert_close(rows.double(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(rows[3], before[3])
