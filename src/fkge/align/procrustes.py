"""Orthogonal maps of one vector space onto another, given rows that stand for the same things."""

from __future__ import annotations

import torch
from torch import Tensor

from fkge.errors import SettingsError


def procrustes(x: Tensor, y: Tensor) -> Tensor:
    """Return the orthogonal W that brings the rows of x nearest to those of y: argmin Σ ‖xᵢ W − yᵢ‖².

    Directions that the rows do not determine (there are fewer rows than dimensions) are turned as little as possible:
    there W is as near to the identity as orthogonality allows. Any other choice would scramble all other vectors.

    Args:
        x: (n, dx), of any float type; the work is done in float64.
        y: (n, dy); may have another width.

    Returns:
        (dx, dy) in the type and on the device of x: orthogonal if dx = dy, with orthonormal rows if dx < dy. With
        dx > dy it has orthonormal columns, and its transpose is the best fit of y into the space of x (that the
        other way round has no closed form).

    Raises:
        SettingsError: shapes do not fit, or a number is not finite.
    """
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y):
        raise SettingsError(f"procrustes needs rows that belong together, got {tuple(x.shape)} and {tuple(y.shape)}")
    left, right = x.to(torch.float64), y.to(x.device, torch.float64)
    product = left.T @ right
    if not bool(product.isfinite().all()):
        raise SettingsError("procrustes met numbers that are not finite; has a model diverged?")
    u, size, vt = torch.linalg.svd(product)
    known = int((size > size[0] * max(product.shape) * torch.finfo(torch.float64).eps).sum())
    w = u[:, :known] @ vt[:known]
    if known < len(size):
        u, v = u[:, known:], vt[known:].T
        identity = torch.eye(*product.shape, dtype=u.dtype, device=u.device)
        a, _, b = torch.linalg.svd(u.T @ identity @ v, full_matrices=False)
        w = w + u @ a @ b @ v.T
    out: Tensor = w.to(x.dtype)
    return out


def random_rotation(dim: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a random orthogonal matrix, uniform by the Haar measure, reflections included.

    Args:
        dim, dtype: it is (dim, dim) of this type; generator: draws it.
    """
    q, r = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    # QR leaves the signs to the routine; with those of r's diagonal the distribution is uniform.
    out: Tensor = (q * r.diagonal().sgn()).to(dtype)
    return out
