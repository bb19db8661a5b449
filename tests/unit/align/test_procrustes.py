"""A hidden rotation is found again: with noise, between widths, and with fewer rows than dimensions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fkge.align import procrustes, random_rotation
from fkge.errors import SettingsError


@pytest.fixture
def g() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def orthonormal(w: Tensor) -> bool:
    """Rows or columns, whichever are fewer."""
    gram = w @ w.T if len(w) <= w.shape[1] else w.T @ w
    return torch.allclose(gram, torch.eye(len(gram), dtype=w.dtype), atol=1e-5)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("dx", "dy"), [(12, 12), (8, 12)])
def test_a_hidden_rotation_is_recovered(dx: int, dy: int, dtype: torch.dtype, noise: float, g: torch.Generator) -> None:
    true = random_rotation(dy, g)[:dx].to(dtype)
    x = torch.randn(400, dx, generator=g, dtype=dtype)
    y = x @ true + noise * torch.randn(400, dy, generator=g, dtype=dtype)
    w = procrustes(x, y)
    assert (w.dtype, w.shape) == (dtype, (dx, dy))
    assert orthonormal(w)
    assert (w - true).abs().max() < (0.05 if noise else 1e-6)


def test_a_wider_space_is_fitted_from_the_other_side(g: torch.Generator) -> None:
    true = random_rotation(12, g)[:8]
    y = torch.randn(400, 8, generator=g, dtype=torch.float64)
    w = procrustes(y @ true, y)
    assert w.shape == (12, 8)
    torch.testing.assert_close(w, true.T)


def test_no_other_rotation_fits_better(g: torch.Generator) -> None:
    x, y = (torch.randn(30, 5, generator=g, dtype=torch.float64) for _ in range(2))
    w = procrustes(x, y)

    def loss(w: Tensor) -> float:
        return float(((x @ w - y) ** 2).sum())

    for _ in range(50):
        step = torch.randn(5, 5, generator=g, dtype=torch.float64) * 0.1
        assert loss(w) <= loss(w @ torch.matrix_exp(step - step.T))
    assert loss(w) < loss(procrustes(x[:20], y[:20]))


@pytest.mark.parametrize("rows", [0, 1, 3, 7])
@pytest.mark.parametrize(("dx", "dy"), [(8, 8), (6, 9), (9, 6)])
def test_few_rows_turn_no_more_than_they_must(rows: int, dx: int, dy: int, g: torch.Generator) -> None:
    x, y = torch.randn(rows, dx, generator=g), torch.randn(rows, dy, generator=g)
    w = procrustes(x, y)
    assert orthonormal(w)
    if rows == 0:
        assert torch.equal(w, torch.eye(dx, dy))


def test_what_few_rows_leave_open_stays_in_place(g: torch.Generator) -> None:
    """Rows in the first two coordinates say how these turn; the other six do not move."""
    x = torch.zeros(5, 8, dtype=torch.float64)
    x[:, :2] = torch.randn(5, 2, generator=g, dtype=torch.float64)
    turn = torch.eye(8, dtype=torch.float64)
    turn[:2, :2] = random_rotation(2, g)
    torch.testing.assert_close(procrustes(x, x @ turn), turn)


def test_random_rotations_are_orthogonal_and_uniform(g: torch.Generator) -> None:
    many = torch.stack([random_rotation(4, g) for _ in range(4000)])
    assert all(orthonormal(w) for w in many[:20])
    # Under Haar every entry has mean 0, variance 1/d, and both orientations are as likely.
    assert many.mean(0).abs().max() < 5 * 0.5 / 4000**0.5
    assert (many.var(0) - 0.25).abs().max() < 0.03
    assert 0.46 < (torch.linalg.det(many) > 0).double().mean() < 0.54
    # Without the sign fix, LAPACK's choice shows: the diagonal of q leans to one side.
    raw = torch.stack([torch.linalg.qr(torch.randn(4, 4, generator=g))[0] for _ in range(4000)])
    assert raw.mean(0).abs().max() > 0.1


def test_rows_that_do_not_fit_are_refused() -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(SettingsError, match="belong together"):
        procrustes(x, torch.zeros(4, 2))
    with pytest.raises(SettingsError, match="finite"):
        procrustes(x + torch.nan, x)
