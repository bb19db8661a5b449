"""Closed-form training steps on the CPU, compiled by numba.

    primitives   query, similarity, loss and optimiser, each with its gradient
    steps        TransE, DistMult, ComplEx, RotatE
    projected    TransH, TransR, TransD
    private      differential privacy: noise, clipped gradients
    lazy_noise   differential privacy: deferred noise of untouched rows

Import these modules only where a kernel runs: the rest of `fkge.embed` must work without numba.
"""

from __future__ import annotations

from fkge.embed.losses import find_loss
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings


def can_run(tables: Tables, settings: TrainSettings) -> bool:
    """Return whether a kernel computes these tables' model with this loss on their device, and the settings want it."""
    model = tables.model
    if not settings.kernels or tables.device.type != "cpu" or model.kernel is None:
        return False
    if settings.regularization and settings.regularizer != "l3":  # the one that is compiled
        return False
    return find_loss(settings.loss).compiled
