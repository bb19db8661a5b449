"""Limits on how far a peer's rows can move a host's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fkge.audit.attacks.poisoning import POISONS
from fkge.errors import SettingsError
from fkge.federation.limits import clip_rows


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(seed: int = 0, n: int = 50, dim: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, dim, generator=seeded(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POISONS)
def test_no_row_moves_further_than_the_limit(name: str, dtype: torch.dtype) -> None:
    own = rows(2, dtype=dtype)
    sent = POISONS[name](own, seeded(1))
    limit = float(own.double().norm(dim=1).median())
    for factor in (0.1, 1.0, 3.0):
        clipped = clip_rows(sent, own, factor)
        assert clipped.dtype == dtype
        moved = (clipped.double() - own.double()).norm(dim=1)
        assert float(moved.max()) <= factor * limit * (1 + 1e-5)
        whole = clip_rows(sent, own, factor, what="row")
        assert float(whole.double().norm(dim=1).max()) <= factor * limit * (1 + 1e-5)
    assert float((sent - own).double().norm(dim=1).max()) > 0.1 * limit


def test_rows_within_the_limit_are_left_as_they_are() -> None:
    own = rows(2)
    near = own + 0.1 * rows(3)
    assert torch.equal(clip_rows(near, own, 1.0), near)
    assert torch.equal(clip_rows(near, own, 10.0, what="row"), near)
    mixed = near.clone()
    mixed[4] = 1e5
    clipped = clip_rows(mixed, own, 1.0)
    others = torch.arange(50) != 4
    assert torch.equal(clipped[others], near[others])
    assert not torch.equal(clipped[4], mixed[4])


def test_clipping_keeps_directions_and_does_it_once() -> None:
    own = rows(2, dtype=torch.float64)
    sent = own + 100 * rows(3, dtype=torch.float64)
    clipped = clip_rows(sent, own, 0.5)
    cosine = torch.cosine_similarity(clipped - own, sent - own)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    torch.testing.assert_close(clip_rows(clipped, own, 0.5), clipped)
    whole = clip_rows(sent, own, 0.5, what="row")
    torch.testing.assert_close(torch.cosine_similarity(whole, sent), torch.ones(50, dtype=torch.float64))


def test_a_peer_cannot_raise_the_limit() -> None:
    """It is the host's own length, and a median: neither the peer's rows nor a few of the host's decide it."""
    own = rows(2)
    poisoned = own.clone()
    poisoned[:20] = 1e6
    sent = 1e9 * rows(3)  # beyond any limit, so what is left of it is as long as the limit
    before, after = (float(clip_rows(sent, host, 2.0, what="row").norm(dim=1).median()) for host in (own, poisoned))
    assert float(clip_rows(1e3 * sent, own, 2.0, what="row").norm(dim=1).median()) == pytest.approx(before)
    assert before <= after < 3 * before


def test_clipping_commutes_with_turning_the_space() -> None:
    own, sent = rows(2, dtype=torch.float64), 50 * rows(3, dtype=torch.float64)
    turn = torch.linalg.qr(rows(4, 8, 8, torch.float64)).Q
    for what in ("difference", "row"):
        torch.testing.assert_close(
            clip_rows(sent @ turn, own @ turn, 1.0, what=what),  # type: ignore[arg-type]
            clip_rows(sent, own, 1.0, what=what) @ turn,  # type: ignore[arg-type]
        )


def test_one_huge_row_no_longer_decides_a_rotation() -> None:
    from fkge.align import procrustes, random_rotation

    own = rows(2, dtype=torch.float64)
    turn = random_rotation(8, seeded(5))
    sent = own @ turn.T
    sent[0] = 1e5 * rows(6, 1, 8, torch.float64)
    bare = (sent[1:] @ procrustes(sent, own) - own[1:]).norm() / own[1:].norm()
    clipped = clip_rows(sent, own, 2.0, what="row")
    held = (clipped[1:] @ procrustes(clipped, own) - own[1:]).norm() / own[1:].norm()
    assert float(held) < 0.15 < 0.25 < float(bare)


def test_rows_that_do_not_match_are_refused() -> None:
    own = rows(2)
    with pytest.raises(SettingsError, match="align them first"):
        clip_rows(own[:, :4], own, 1.0)
    assert clip_rows(own[:7, :4], own, 1.0, what="row").shape == (7, 4)
    for factor in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="factor above 0"):
            clip_rows(own, own, factor)
    with pytest.raises(SettingsError, match="rows of the host"):
        clip_rows(own, own[:0], 1.0)
