"""Train, validate, keep the best: the one training loop, and `fit`, which drives it for `fkge train`.

`TrainingLoop` knows when the learning rate falls, whether a validation score is the best so far, and how to return to
the best tables. Its callers decide when to validate and when to stop: `fit` here, an owner's rounds
(`fkge.federation.owner.training`), its private track, and the baselines with a server (`fkge.experiment.central`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fkge.embed.dp import DpTrainer
from fkge.embed.tables import Snapshot, Tables
from fkge.embed.trainer import Trainer
from fkge.progress import SILENT, Progress, Task

SECONDS_BETWEEN_CHECKPOINTS = 30.0
"""How much work a crash may cost; it does not change what is computed."""

Phase = Callable[[int], tuple[int, int]]
"""Maps an epoch to the first epoch of the phase it belongs to, and the first one after it."""


@dataclass
class BestState:
    """The best validation so far. The driver of a loop saves it.

    Attributes:
        best_score: the highest validation score; None before the first validation.
        best_epoch: epochs finished when it was reached.
        stale: validations since then, or since the last roll-back.
    """

    best_score: float | None = None
    best_epoch: int = 0
    stale: int = 0


class Best:
    """Compare validation scores of `tables` and keep the tables with the highest one.

    Args:
        tables: what is scored; `restore` writes the best ones back into it.
        state: updated in place by `update`.
        keep: called when the tables are the best so far; by default a snapshot is kept in memory.
    """

    def __init__(self, tables: Tables, state: BestState, keep: Callable[[], None] | None = None) -> None:
        self.tables = tables
        self.state = state
        self.snapshot: Snapshot | None = None
        self._keep = keep or self._take_snapshot

    def _take_snapshot(self) -> None:
        self.snapshot = self.tables.snapshot(self.snapshot)

    def update(self, score: float, epoch: int) -> bool:
        """Record the score of the present tables after `epoch`; return whether it is the best (equal is not)."""
        state = self.state
        if state.best_score is not None and score <= state.best_score:
            state.stale += 1
            return False
        state.best_score, state.best_epoch, state.stale = score, epoch, 0
        self._keep()
        return True

    def restore(self) -> bool:
        """Write the best tables, with their optimiser state, back; return False if there is no snapshot."""
        if self.snapshot is None:
            return False
        self.tables.restore(self.snapshot)
        return True


def is_due(epoch: int, every: int, last: int) -> bool:
    """Return whether to validate now.

    Args:
        epoch, every: epochs finished, and between two validations.
        last: the epoch after which to validate in any case.
    """
    return epoch % every == 0 or epoch == last


class TrainingLoop:
    """Train epoch by epoch under a learning-rate schedule, and keep the tables with the best validation score.

    Args:
        trainer: trains the tables.
        phase: over which epochs a linear schedule falls; all of ``settings.epochs`` if None.
        schedule: ``linear`` or ``plateau``; the trainer's setting if None.
        state: of an earlier run; fresh if None.
        keep: see `Best`.
    """

    def __init__(
        self,
        trainer: Trainer | DpTrainer,
        *,
        phase: Phase | None = None,
        schedule: Literal["plateau", "linear"] | None = None,
        state: BestState | None = None,
        keep: Callable[[], None] | None = None,
    ) -> None:
        self.trainer = trainer
        self.best = Best(trainer.tables, state or BestState(), keep)
        self._schedule = schedule or trainer.settings.schedule
        self._phase = phase or (lambda _: (0, trainer.settings.epochs))

    def run_epoch(self, task: Task | None = None, stop: Callable[[], bool] | None = None) -> float | None:
        """Finish the current epoch at the learning rate that is due; see `Trainer.run_epoch`."""
        trainer = self.trainer
        if self._schedule == "linear":
            first, end = self._phase(trainer.epoch)
            trainer.fall_linearly(trainer.epoch - first, end - first)
        return trainer.run_epoch(task, stop)

    def record(self, score: float) -> bool:
        """Take the tables' validation score: keep the best tables, lower the rate on a plateau; True if improved."""
        improved = self.best.update(score, self.trainer.epoch)
        if not improved:
            self.lower_rate()
        return improved

    def lower_rate(self) -> None:
        """Reduce the learning rate after a validation that was no improvement, if the schedule is ``plateau``."""
        if self._schedule == "plateau":
            self.trainer.lr_scale *= self.trainer.settings.decay

    def roll_back(self) -> bool:
        """Return to the best tables and reset patience; False if the present ones are the best, or there are none."""
        state = self.best.state
        if state.stale == 0 or not self.best.restore():
            return False
        state.stale = 0
        return True


class Keeper(Protocol):
    """Keeps the results of a `fit` that must survive the process."""

    def best(self, trainer: Trainer) -> None:
        """Keep the tables: they are the best so far."""

    def checkpoint(self, trainer: Trainer, state: FitState) -> None:
        """Keep everything that is needed to resume from here."""

    def event(self, name: str, **fields: Any) -> None:
        """Write a line to the trace."""


@dataclass
class FitState(BestState):
    """The state of a fit in addition to the trainer's own.

    Attributes:
        validated: the epoch after which validation was last done.
        seconds: time spent training and validating, over all starts.
    """

    validated: int = -1
    seconds: float = 0.0


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
        trainer: fresh, or at the position of a checkpoint.
        keeper: receives the best tables, checkpoints and events.
        state: from that checkpoint.
        validate: scores the tables, higher is better. Without it the last tables are the best.
        progress: shows epochs and scores.
        stop: asked between chunks of an epoch; True makes a checkpoint and returns.

    Returns:
        The final state, or None if it was asked to stop. Killed or stopped anywhere and resumed from the last
        checkpoint, it ends in the same tables.
    """
    settings = trainer.settings
    state = state or FitState()
    every = settings.validate_every
    loop = TrainingLoop(trainer, state=state, keep=lambda: keeper.best(trainer))
    started = time.monotonic() - state.seconds
    saved = time.monotonic()

    def checkpoint() -> None:
        nonlocal saved
        state.seconds = time.monotonic() - started
        keeper.checkpoint(trainer, state)
        saved = time.monotonic()

    def pause() -> bool:
        if stop is not None and stop():
            return True
        if time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            checkpoint()
        return False

    with progress.task(f"training {settings.model}", settings.epochs * trainer.triples, "triples") as task:
        task.advance(trainer.epoch * trainer.triples)
        while True:
            fresh = trainer.epoch > max(0, state.validated)
            if validate is not None and every and fresh and is_due(trainer.epoch, every, settings.epochs):
                score = validate()
                improved = loop.record(score)
                state.validated = trainer.epoch
                keeper.event("validated", epoch=trainer.epoch, mrr=score, best=improved, lr=trainer.lr)
                task.advance(0, mrr=score, best=state.best_score or 0.0)
                checkpoint()
            exhausted = settings.patience > 0 and state.stale >= settings.patience
            if trainer.epoch >= settings.epochs or exhausted:
                break
            loss = loop.run_epoch(task, pause)
            if loss is not None:
                keeper.event("epoch", epoch=trainer.epoch, loss=loss, lr=trainer.lr)
            if loss is None or (stop is not None and stop()):
                checkpoint()
                return None
    if state.best_score is None:
        state.best_epoch = trainer.epoch
        keeper.best(trainer)
    state.seconds = time.monotonic() - started
    return state
