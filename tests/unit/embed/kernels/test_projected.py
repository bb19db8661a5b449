"""Compiled steps of models that project entities."""

from __future__ import annotations

import pytest
import torch

from fkge.embed import make_tables
from fkge.embed.models import Relations
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import BASE


@pytest.mark.parametrize("share", [1, 3])
def test_transr_segments_equal_plain_products(share: int) -> None:
    """Few and many groups per relation take different paths through TransR; both are e M_r."""
    s = TrainSettings(model="TransR", kernels=False, share=share, **{**BASE, "batch": 200})
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    tables["matrix"].add_(
        torch.randn(tables["matrix"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )
    model = tables.model
    for groups in (7, 60):
        index = torch.sort(torch.randint(5, (groups, 1), generator=torch.Generator().manual_seed(1)), dim=0).values
        rows = torch.randn(
            groups, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
        ).requires_grad_()
        matrix = tables["matrix"].clone().requires_grad_()
        out = model.project({"entity": rows}, Relations({"matrix": matrix}, index))
        plain = torch.einsum("gme,ger->gmr", rows, matrix.reshape(5, 6, 6)[index[:, 0]])
        torch.testing.assert_close(out, plain)
        weights = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        for a, b in zip(
            torch.autograd.grad((out * weights).sum(), (rows, matrix), retain_graph=True),
            torch.autograd.grad((plain * weights).sum(), (rows, matrix)), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(a, b)
