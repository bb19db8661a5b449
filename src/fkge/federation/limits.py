"""What a host lets a peer do to its rows at most. Limits follow from the host's own numbers: no peer can raise them.

Honest gifts are within them and stay as they are, to the bit. They hold up a broken peer, or one that throws rows away;
one that sends plausible nonsense is within them too, and only going back (`patience`) helps against that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fkge.embed.models import Kind
from fkge.embed.optimizers import BETA1, BETA2
from fkge.evaluation.attacks import clip_rows
from fkge.federation.exchange import Gift

_REACH = (1 - BETA1) / math.sqrt((1 - BETA2) * (1 - BETA1**2 / BETA2)) * 1.001
"""|m| / √v at most, by Cauchy and Schwarz: |m| ≤ (1 − β₁) Σ β₁ⁱ|gᵢ| and v = (1 − β₂) Σ β₂ⁱ gᵢ²."""


def short(gift: Gift, own: Mapping[Kind, Tensor], limit: float) -> Gift:
    """The gift with no row longer than `limit` times the host's median one, in whatever frame it lives.

    For before an alignment: one huge row would decide the rotation by itself.
    """
    rows = {kind: clip_rows(r, own[kind], limit, what="row") if r.numel() else r for kind, r in gift.rows.items()}
    return replace(gift, rows=rows)


def limited(
    gift: Gift, own: Mapping[Kind, Tensor], limit: float, weight: Mapping[Kind, float], square: Mapping[Kind, float]
) -> Gift:
    """The gift, in the host's space, within limits.

    Args:
        own: the host's rows of the same things, by kind. None is moved by more than `limit` times their median length.
        weight: the host's largest weight, by kind; a peer's may be one and a half times that.
        square: the largest mean square among the host's moments, by kind, 0 if it has none; a peer's may be a hundred
            times that, and its means what Adam can reach from such squares: a mean without its square would throw a
            row anywhere.
    """
    rows = {kind: clip_rows(r, own[kind], limit) if r.numel() else r for kind, r in gift.rows.items()}
    weights, moments = gift.weights, gift.moments
    if weights is not None:
        weights = {kind: w.clamp(max=1.5 * weight[kind]) for kind, w in weights.items()}
    if moments is not None:
        moments = {kind: _moments(m, square[kind]) for kind, m in moments.items()}
    return replace(gift, rows=rows, weights=weights, moments=moments)


def _moments(moments: Tensor, largest: float) -> Tensor:
    square = moments[1].clamp(max=100 * largest) if largest > 0 else moments[1]
    reach = _REACH * square.sqrt()
    return torch.stack([torch.maximum(torch.minimum(moments[0], reach), -reach), square])
