"""RotatE's interaction for PyKEEN with a norm that can be chosen."""

from __future__ import annotations

import warnings

import pytest
import torch


def test_scores_by_the_sum_of_moduli() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pykeen.models")
        from fkge.export.moduli import Moduli
    h, r, t = (torch.randn(5, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(i)) for i in range(3))
    torch.testing.assert_close(Moduli(p=1)(h, r, t), -(h * r - t).abs().sum(-1))
