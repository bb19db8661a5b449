"""Train with proposed settings and return the best validation MRR: on one graph, or in a federation.

No objective looks at a test split.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fkge.embed import Tables, Trainer, TrainingLoop, make_model, make_tables
from fkge.embed.fit import is_due
from fkge.evaluation import Known, metrics, rank
from fkge.experiment.arms import Arm, make_arm
from fkge.experiment.engines import InProcess
from fkge.experiment.owners import SimulatedOwner
from fkge.federation import FederationSettings, Owner, PeerProfile
from fkge.federation.owner.finish import close_account, final_vectors
from fkge.federation.owner.store import Origin, OwnerStore, widths
from fkge.federation.owner.workspace import Workspace
from fkge.graph import Graph, sample_triples
from fkge.owner_events import Emit, EpochReached, OwnerEvent, Worked
from fkge.privacy import Head
from fkge.settings import SettingValues, TrainSettings

Ended = Literal["epochs", "patience", "pruned", "time", "cut"]
"""Why a training ended: by its settings, as it fell behind, by the time of a trial, or by the end of the search."""

Report = Callable[[int, float], bool]
"""Takes (epoch, best validation MRR so far) after each validation; True: the trial is to be pruned."""

Limit = Callable[[], Literal["time", "cut"] | None]
"""Asked between chunks of training: whether to end now, and why."""


@dataclass
class Attempt:
    """The outcome of one training, with the best vectors of a graph.

    `score` is the best validation MRR, None if there was no validation, reached at `best_epoch` of so many `epochs`.
    """

    score: float | None = None
    epochs: int = 0
    best_epoch: int = 0
    ended: Ended = "epochs"
    tables: Tables | None = None


Objective = Callable[[Any, Report, Limit], Attempt]
"""Trains with some settings, validates on the way, and returns what was reached; a `SettingsError` says that training
diverged, or that these settings do not go together."""


class GraphObjective:
    """Trains one model on one graph, as `fkge train` does, but for the files."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._known = Known.of(graph)

    def __call__(self, settings: TrainSettings, report: Report, limit: Limit) -> Attempt:
        """Train until the epochs or the patience are used up, `report` prunes or `limit` ends it; see `Objective`."""
        torch.set_num_threads(settings.threads)
        graph = self.graph
        triples = sample_triples(graph.valid, settings.validation_triples, settings.seed)
        tables = make_tables(settings, len(graph.entities), len(graph.relations))
        trainer = Trainer(tables, graph.train, settings)
        loop = TrainingLoop(trainer)
        state, attempt = loop.best.state, Attempt()
        every = settings.validate_every or settings.epochs

        def validate() -> float:
            loop.record(metrics(rank(tables, triples, known=self._known))["mrr"])
            return state.best_score or 0.0

        while trainer.epoch < settings.epochs:
            if settings.patience and state.stale >= settings.patience:
                attempt.ended = "patience"
                break
            whole = loop.run_epoch(stop=lambda: limit() is not None) is not None
            if whole and is_due(trainer.epoch, every, settings.epochs) and report(trainer.epoch, validate()):
                attempt.ended = "pruned"
                break
            if (why := limit()) is not None:
                attempt.ended = why
                break
        last = trainer.epoch if not trainer.chunk else trainer.epoch + 1
        if attempt.ended in ("time", "cut") and (trainer.chunk or trainer.epoch % every):
            validate()  # what the last epochs brought counts too
            state.best_epoch = last if state.stale == 0 else state.best_epoch
        loop.best.restore()
        return replace(attempt, score=state.best_score, epochs=last, best_epoch=state.best_epoch, tables=tables)


class FederationObjective:
    """Trains every owner of a federation by the in-process engine, under its virtual clock.

    What is scored is the mean over owners of their best validation MRR. With two tracks that of an owner is its private
    track's, chosen when all have finished.

    Args:
        folder: holds the owners' stores in ``owners/``, and while a trial runs its files in ``scratch/``.
        owners: their names.
        arm: ``control`` for owners that train alone, or ``federated``.
        scratch: the name of a folder for this process alone.
    """

    def __init__(self, folder: Path, owners: list[str], arm: str, scratch: str) -> None:
        self.arm = arm
        self._scratch = folder / "scratch" / scratch
        self._stores = [OwnerStore.open(folder / "owners" / name) for name in owners]
        self._own = {store.name: Origin.load(store.folder).train for store in self._stores}

    def __call__(self, settings: FederationSettings, report: Report, limit: Limit) -> Attempt:
        """Run the arm once; see `Objective`."""
        torch.set_num_threads(settings.train.threads)
        shutil.rmtree(self._scratch, ignore_errors=True)
        course = _Course([store.name for store in self._stores], report, limit)
        arm = make_arm(self.arm, settings, any(store.two_tracks for store in self._stores))
        try:
            stores = [self._owner(store, settings, course) for store in self._stores]
            with InProcess(stores, course.emit) as engine:
                finished = engine.run(arm, course.stop)
            if not finished:
                course.look()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        ended = course.ended if not finished and course.ended is not None else "epochs"
        return Attempt(course.mean, course.epoch, course.best_epoch, ended)

    def _owner(self, store: OwnerStore, settings: FederationSettings, course: _Course) -> _TunedOwner:
        """Return the owner with other settings, and what it knows of its peers to match."""
        trains = {
            name: TrainSettings.build(settings.train.model_dump() | dict(own), f"owner {name}")
            for name, own in self._own.items()
        }
        own = settings.model_copy(update={"train": trains[store.name]})
        peers = {
            peer: PeerProfile(known.common, trains[peer].model, widths(make_model(trains[peer])))
            for peer, known in store.peers.items()
        }
        changed = replace(store, settings=own, peers=peers)
        return _TunedOwner(**vars(changed), course=course, scratch=self._scratch)


@dataclass
class _Course:
    """The course of one run of a federation: who is how far, and with which score."""

    names: list[str]
    report: Report
    limit: Limit
    owners: dict[str, Owner] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    ended: Ended | None = None
    best_epoch: int = 0
    _epochs: dict[str, int] = field(default_factory=dict)
    _tested: dict[str, int] = field(default_factory=dict)
    _reported: int = 0

    @property
    def epoch(self) -> int:
        """Epochs of the owner that has finished most of them; all have, unless the run was ended early."""
        return max(self._epochs.values(), default=0)

    @property
    def mean(self) -> float | None:
        """Mean of the owners' best scores; None before all have one."""
        return float(np.mean([self.best[name] for name in self.names])) if len(self.best) == len(self.names) else None

    def emit(self, event: OwnerEvent) -> None:
        """Take in an event of the engine."""
        if isinstance(event, EpochReached | Worked):
            self._epochs[event.owner] = max(self._epochs.get(event.owner, 0), event.epoch)
        if not isinstance(event, Worked) or event.score is None:
            return
        self.take(event.owner, event.score, event.epoch)
        tested = min((self._tested.get(name, 0) for name in self.names), default=0)
        if self.mean is not None and tested > self._reported:
            self._reported = tested
            if self.report(tested, self.mean) and self.ended is None:
                self.ended = "pruned"

    def take(self, owner: str, score: float, epoch: int) -> None:
        """Take in an owner's score."""
        self._tested[owner] = epoch
        if score > self.best.get(owner, -1.0):
            self.best[owner] = score
            self.best_epoch = max(self.best_epoch, epoch)

    def stop(self) -> bool:
        """Return whether the engine is to end the run."""
        if self.ended is None:
            self.ended = self.limit()
        return self.ended is not None

    def look(self) -> None:
        """Score the vectors of owners that were stopped before their first validation."""
        for name in self.names:
            if name not in self.best and name in self.owners:
                self.take(name, self.owners[name].score(), self._epochs.get(name, 0))


@dataclass(frozen=True)
class _TunedOwner(SimulatedOwner):
    """An owner that is not scored on its test triples, and leaves no results."""

    course: _Course
    scratch: Path

    def workspace(self, arm: str) -> Workspace:
        return Workspace(self.scratch / arm / self.name)

    def owner(
        self, arm: Arm, late: bool = False, secret: int | None = None, ledger: Head | None = None
    ) -> tuple[Owner, bool]:
        made, trained = super().owner(arm, late, secret, ledger)
        self.course.owners[self.name] = made
        return made, trained

    def conclude(self, arm: Arm, owner: Owner, emit: Emit, stop: Callable[[], bool], serve: bool = False) -> bool:
        """Finish the owner's private track, if it has one; its score on validation triples is what counts."""
        if arm.peers and self.two_tracks:
            found = final_vectors(self, owner, self.deciding(shared=False), emit, stop)
            if found is None:
                return False
            if (private := found[1]) is not None:
                self.course.best[self.name] = private.score
        elif owner.activity.best_score is not None:
            self.course.best[self.name] = owner.activity.best_score
        close_account(owner, serve)
        return True


def brief(settings: SettingValues) -> str:
    """Return settings in a few words, for a line of progress."""
    values = {key.rpartition(".")[2] if key.startswith("train.") else key: value for key, value in settings.items()}
    words = [str(values[key]) for key in ("model", "loss") if key in values]
    for key in ("dim", "optimizer", "lr", "batch"):
        if key in values:
            words.append(f"{key} {values[key]:.3g}" if isinstance(values[key], float) else f"{key} {values[key]}")
    return ", ".join(words)
