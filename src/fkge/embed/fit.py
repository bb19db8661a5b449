"""From fresh tables to the best ones: epochs, validation, early stopping, checkpoints.

The validation score, the files and the picture on the screen are handed in; this module decides when to validate,
what is best, when the learning rate falls and when to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from fkge.embed.trainer import Trainer
from fkge.trace import SILENT, Progress

SECONDS_BETWEEN_CHECKPOINTS = 30.0
"""A matter of how much work a crash may cost; it does not change what is computed."""


class Keeper(Protocol):
    """Where a fit keeps what must survive."""

    def best(self, trainer: Trainer) -> None:
        """The tables are the best so far."""

    def checkpoint(self, trainer: Trainer, state: dict[str, Any]) -> None:
        """Keep everything that is needed to go on from here."""

    def event(self, name: str, **fields: Any) -> None:
        """Something worth a line in the trace."""


@dataclass
class FitState:
    """What a fit remembers beside the trainer's own state."""

    best_score: float | None = None
    best_epoch: int = 0
    stale: int = 0
    """Validations since the best one."""
    validated: int = -1
    """The epoch after which validation was last done."""
    seconds: float = 0.0
    """Time spent training and validating, over all starts."""


def fit(
    trainer: Trainer,
    keeper: Keeper,
    *,
    state: FitState | None = None,
    validate: Callable[[], float] | None = None,
    progress: Progress = SILENT,
    stop: Callable[[], bool] | None = None,
) -> FitState | None:
    """Train until the epochs are used up or patience is.

    Args:
        trainer: fresh, or put back where a checkpoint found it.
        keeper: told of the best tables and of checkpoints.
        state: from that checkpoint.
        validate: scores the tables, higher is better. Without it the last tables are the best.
        stop: asked between chunks of an epoch; True makes a checkpoint and leaves.

    Returns:
        The final state, or None if it was asked to stop. Killed or stopped anywhere and taken up again from
        the last checkpoint, it ends in the same tables.
    """
    settings = trainer.settings
    state = state or FitState()
    every = settings.validate_every if validate is not None else 0
    started = time.monotonic() - state.seconds
    saved = time.monotonic()

    def checkpoint() -> None:
        nonlocal saved
        state.seconds = time.monotonic() - started
        keeper.checkpoint(trainer, asdict(state))
        saved = time.monotonic()

    def pause() -> bool:
        if stop is not None and stop():
            return True
        if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            checkpoint()
        return False

    def due() -> bool:
        return every > 0 and trainer.epoch > state.validated and (
            trainer.epoch % every == 0 or trainer.epoch == settings.epochs
        )  # fmt: skip

    shown: dict[str, float | str] = {}
    with progress.task(f"training {settings.model}", settings.epochs * trainer.triples, "triples") as task:
        task.advance(trainer.epoch * trainer.triples)
        while True:
            if due() and trainer.epoch > 0 and validate is not None:
                score = validate()
                state.validated = trainer.epoch
                better = state.best_score is None or score > state.best_score
                if better:
                    state.best_score, state.best_epoch, state.stale = score, trainer.epoch, 0
                    keeper.best(trainer)
                else:
                    state.stale += 1
                    if settings.schedule == "plateau":
                        trainer.lr_scale *= settings.decay
                keeper.event("validated", epoch=trainer.epoch, mrr=score, best=better, lr=trainer.lr)
                shown = {"mrr": score, "best": state.best_score or 0.0}
                task.advance(0, **shown)
                checkpoint()
            exhausted = settings.patience > 0 and state.stale >= settings.patience
            if trainer.epoch >= settings.epochs or exhausted:
                break
            if settings.schedule == "linear":
                trainer.fall_linearly(trainer.epoch, settings.epochs)
            loss = trainer.run_epoch(task, pause)
            if loss is None:
                checkpoint()
                return None
            keeper.event("epoch", epoch=trainer.epoch, loss=loss, lr=trainer.lr)
            if stop is not None and stop():
                checkpoint()
                return None
    if state.best_score is None:
        state.best_epoch = trainer.epoch
        keeper.best(trainer)
    state.seconds = time.monotonic() - started
    return state
