"""Limit how far a peer's update can move a host's rows; `fkge.federation.owner.exchange` calls it before it averages.

Limits follow from the host's own rows: no peer can raise them. Honest updates are within them and stay as they are, to
the bit. The limits stop a broken peer, or one that sends huge rows; one that sends plausible nonsense is within them,
and only rolling back (`patience`) helps against that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from fkge.embed.models import Kind
from fkge.embed.optimizers import BETA1, BETA2
from fkge.errors import SettingsError
from fkge.federation.exchange import ReceivedUpdate

_REACH = (1 - BETA1) / math.sqrt((1 - BETA2) * (1 - BETA1**2 / BETA2)) * 1.001
"""|m| / √v at most, by Cauchy and Schwarz: |m| ≤ (1 − β₁) Σ β₁ⁱ|gᵢ| and v = (1 − β₂) Σ β₂ⁱ gᵢ²."""


_MOST = 100.0
"""How far a peer's squares may exceed the host's own, or its sums of Adagrad be less, as a factor."""


def short(update: ReceivedUpdate, own: Mapping[Kind, Tensor], limit: float) -> ReceivedUpdate:
    """Return the update with no row longer than `limit` times the host's median: one row must not decide an alignment.

    Args:
        update: the received rows.
        own: rows of the host, by kind, (m, d').
        limit: see `clip_rows`.
    """
    rows = {kind: clip_rows(r, own[kind], limit, what="row") if r.numel() else r for kind, r in update.rows.items()}
    return replace(update, rows=rows)


def limited(
    update: ReceivedUpdate,
    own: Mapping[Kind, Tensor],
    limit: float,
    weight: Mapping[Kind, float],
    square: Mapping[Kind, float],
    sums: Mapping[Kind, Tensor] | None = None,
) -> ReceivedUpdate:
    """Return the update with rows, weights and moments within limits.

    Args:
        update: the received rows, in the host's space.
        own: the host's rows of the same things, by kind.
        limit: no row is moved by more than `limit` times the median length of `own`.
        weight: the host's largest weight, by kind; a peer's may be one and a half times that.
        square: the host's largest mean square (Adam) or sum of squares (Adagrad), by kind, 0 if it has none. A peer's
            may be a hundred times that. Its means may be what Adam can reach from such squares: a mean without its
            square would move a row anywhere.
        sums: the host's sums of those rows (n, d), by kind, if it trains by Adagrad. A peer's is at least a hundredth
            of the host's own: sums only grow, so one near 0 would stay, and make steps of any length; now they are ten
            times as long at most.
    """
    rows = {kind: clip_rows(r, own[kind], limit) if r.numel() else r for kind, r in update.rows.items()}
    weights, moments = update.weights, update.moments
    if weights is not None:
        weights = {kind: w.clamp(max=1.5 * weight[kind]) for kind, w in weights.items()}
    if moments is not None:
        moments = {
            kind: _sums(m, sums[kind], square[kind]) if sums is not None else _moments(m, square[kind])
            for kind, m in moments.items()
        }
    return replace(update, rows=rows, weights=weights, moments=moments)


def _moments(moments: Tensor, largest: float) -> Tensor:
    square = moments[1].clamp(max=_MOST * largest) if largest > 0 else moments[1]
    reach = _REACH * square.sqrt()
    return torch.stack([torch.maximum(torch.minimum(moments[0], reach), -reach), square])


def _sums(received: Tensor, own: Tensor, largest: float) -> Tensor:
    """Return Adagrad's sums (1, n, d) within a hundredth of the host's own (n, d) and a hundred times its largest."""
    return torch.maximum(received, own.unsqueeze(0) / _MOST).clamp(max=_MOST * largest if largest > 0 else math.inf)


def clip_rows(
    received: Tensor, own: Tensor, factor: float, *, what: Literal["difference", "row"] = "difference"
) -> Tensor:
    """Return `received` with no row further from the host's than `factor` times the host's own median row length.

    Rows within the limit are returned as they are, to the bit; others are shortened, their direction kept.

    Args:
        received: (n, d); for ``"difference"`` in the host's space.
        own: (n, d) the host's rows of the same things; for ``"row"`` any rows of the host's, (m, d').
        factor: above 0; a rotation of honest rows is within 2 for ``"difference"`` where lengths are alike.
        what: shorten what the row would change (``"difference"``), or the row itself (``"row"``), which makes sense in
            any frame.

    Raises:
        SettingsError: `factor` is out of its range, or shapes do not fit.
    """
    if not (0 < factor < math.inf) or own.ndim != 2 or len(own) == 0:
        raise SettingsError(
            f"clipping needs a finite factor above 0 and rows of the host, got {factor} and {tuple(own.shape)}"
        )
    limit = factor * float(own.double().norm(dim=1).median())
    if what == "row":
        return _shorten(received, limit)
    if received.shape != own.shape:
        raise SettingsError(
            f"received rows {tuple(received.shape)} and own rows {tuple(own.shape)} must be of the same things, in the "
            "host's space; align them first, or clip what='row'"
        )
    moved = received.double() - own.double()
    within = moved.norm(dim=1, keepdim=True) <= limit
    return torch.where(within, received, (own.double() + _shorten(moved, limit)).to(received.dtype))


def _shorten(rows: Tensor, limit: float) -> Tensor:
    length = rows.double().norm(dim=1, keepdim=True)
    short = rows.double() * (limit / length.clamp_min(1e-300))
    return torch.where(length <= limit, rows, short.to(rows.dtype))
