"""Poison passes the checks of its receiver and does what its name says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fkge.audit.attacks.poisoning import CAP, POISONS, targeted
from fkge.errors import SettingsError
from fkge.ppat import Candidate
from fkge.ppat.messages import LIMIT, check_vectors


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(seed: int = 0, n: int = 50, dim: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, dim, generator=seeded(seed), dtype=torch.float64).to(dtype)


def test_cap_is_that_of_the_receiver() -> None:
    assert CAP == LIMIT


@pytest.mark.parametrize("name", POISONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_poison_passes_as_a_message_and_repeats_by_seed(name: str, dtype: torch.dtype) -> None:
    honest = rows(dtype=dtype)
    kept = honest.clone()
    sent = POISONS[name](honest, seeded(1))
    check_vectors(Candidate(0, sent), sent, (50, 8), dtype)
    assert torch.equal(honest, kept)
    assert not torch.equal(sent, honest)
    assert torch.equal(sent, POISONS[name](honest, seeded(1)))


def test_each_poison_is_what_it_says() -> None:
    honest = rows()
    assert float(POISONS["huge"](honest, seeded(1)).abs().min()) > 0.9 * CAP
    noise = POISONS["noise"](honest, seeded(1))
    assert 0.8 < float(noise.norm() / honest.norm()) < 1.25
    moved = POISONS["permuted"](honest, seeded(1))
    assert not (moved == honest).all(dim=1).any()
    assert sorted(map(tuple, moved.tolist())) == sorted(map(tuple, honest.tolist()))
    assert torch.equal(POISONS["flipped"](honest, seeded(1)), -honest)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_target_lands_on_another_and_nothing_else_moves(share: float) -> None:
    honest = rows(dtype=torch.float64)
    sent = targeted(honest, 3, 7, share)
    mean = (1 - share) * honest + share * sent
    torch.testing.assert_close(mean[3], honest[7])
    others = torch.arange(50) != 3
    assert torch.equal(sent[others], honest[others])
    with pytest.raises(SettingsError, match="two of 50 rows"):
        targeted(honest, 3, 3)
    with pytest.raises(SettingsError, match="two of 50 rows"):
        targeted(honest, 3, 50)
