"""Poisoning: what a hostile peer may send, and a limit on the harm.

Everything here passes the codec: finite numbers, the right shapes, no coordinate beyond its cap. A host that averages
what it gets is at the mercy of the largest number, so `clip_rows` takes that away: after it, one exchange moves no
row further than a few times the length that rows have at home. Backtrack (validation after the exchange) does the
rest where the harm shows.

Known limits of the defence: a peer that stays below the limit can still push in one direction exchange after
exchange, a small move of one chosen row may not show in any score, and rows that are merely wrong (permuted,
flipped) have ordinary lengths. Clip *before* alignment too (``"row"``): one huge row would otherwise decide the
rotation of all the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fkge.errors import SettingsError
from fkge.evaluation.attacks.result import Result

CAP = 1e6
"""The largest coordinate that a receiver accepts."""

Poison: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Honest rows (n, d) to hostile ones of the same shape and type."""


def huge(rows: Tensor, generator: torch.Generator) -> Tensor:
    """As long as the cap allows, in random directions: overwhelms any mean."""
    return 0.99 * CAP * _signs(rows, generator)


def noise(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of about the honest lengths that say nothing."""
    drawn = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    return (drawn * rows.double().square().mean().sqrt()).to(rows.dtype)


def permuted(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Honest rows, each under another's name; none stays in its place."""
    n = len(rows)
    order = torch.randperm(n, generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all rows
    return rows[source]


def flipped(rows: Tensor, generator: torch.Generator) -> Tensor:
    """The opposite of the honest rows: a mean with them forgets."""
    return -rows


POISONS: dict[str, Poison] = {"huge": huge, "noise": noise, "permuted": permuted, "flipped": flipped}
"""The indiscriminate ones, by name."""


def targeted(rows: Tensor, victim: int, onto: int, share: float = 0.5) -> Tensor:
    """Honest rows but for one: a mean with weight `share` on what is received puts `victim` where `onto` is.

    The host's row is taken to be the honest one; nothing else changes, so no score but the victim's shows it.
    """
    if victim == onto or not 0 < share <= 1 or not all(0 <= i < len(rows) for i in (victim, onto)):
        raise SettingsError(
            f"a target needs two of {len(rows)} rows and a share in (0, 1], got {victim}, {onto}, {share}"
        )
    out = rows.clone()
    out[victim] = (rows[onto] - (1 - share) * rows[victim]) / share
    return out.clamp(-CAP, CAP)


def _signs(rows: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.randint(2, rows.shape, generator=generator) * 2 - 1).to(rows.dtype)


# -- the defence -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Influence(Result):
    """What received rows would do to the host's.

    Attributes:
        limit: the length that `clip_rows` would allow.
        largest: the longest difference between a received row and the host's.
        median: of those differences.
        beyond: share of rows beyond the limit.
        rows: how many.
    """

    limit: float
    largest: float
    median: float
    beyond: float
    rows: int


def clip_rows(
    received: Tensor, own: Tensor, factor: float, *, what: Literal["difference", "row"] = "difference"
) -> Tensor:
    """`received` with no row further from home than `factor` times the host's own median row length.

    Rows within the limit are returned as they are, to the bit; others are shortened, their direction kept. The limit
    is a function of the host's rows alone: a peer cannot raise it.

    Args:
        received: (n, d); for ``"difference"`` in the host's space.
        own: (n, d) the host's rows of the same things; for ``"row"`` any rows of the host's, (m, d').
        factor: above 0; a rotation of honest rows is within 2 for ``"difference"`` where lengths are alike.
        what: shorten what the row would change (``"difference"``), or the row itself (``"row"``), which makes sense in
            any frame.
    """
    limit = _limit(own, factor)
    if what == "row":
        return _shorten(received, limit)
    _check_pairs(received, own)
    moved = received.double() - own.double()
    within = moved.norm(dim=1, keepdim=True) <= limit
    return torch.where(within, received, (own.double() + _shorten(moved, limit)).to(received.dtype))


def influence(received: Tensor, own: Tensor, factor: float) -> Influence:
    """How far received rows (n, d) are from the host's (n, d), for the trace."""
    _check_pairs(received, own)
    limit = _limit(own, factor)
    moved = (received.double() - own.double()).norm(dim=1)
    return Influence(
        limit, float(moved.max()), float(moved.median()), float((moved > limit).double().mean()), len(moved)
    )


def _limit(own: Tensor, factor: float) -> float:
    if not (math.isfinite(factor) and factor > 0) or own.ndim != 2 or len(own) == 0:
        raise SettingsError(
            f"clipping needs a finite factor above 0 and rows at home, got {factor} and {tuple(own.shape)}"
        )
    return factor * float(own.double().norm(dim=1).median())


def _check_pairs(received: Tensor, own: Tensor) -> None:
    if received.shape != own.shape or received.ndim != 2 or len(own) == 0:
        raise SettingsError(
            f"received rows {tuple(received.shape)} and own rows {tuple(own.shape)} must be of the same things, in the "
            "host's space; align them first, or clip what='row'"
        )


def _shorten(rows: Tensor, limit: float) -> Tensor:
    length = rows.double().norm(dim=1, keepdim=True)
    short = rows.double() * (limit / length.clamp_min(1e-300))
    return torch.where(length <= limit, rows, short.to(rows.dtype))
