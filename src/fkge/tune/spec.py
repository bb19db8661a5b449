"""The files of a search's folder: what it was asked for, and what it found."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from fkge.errors import SettingsError
from fkge.federation import FederationSettings
from fkge.results import ResultModel
from fkge.settings import TrainSettings
from fkge.tune.proposal import Proposal, Values, nested

Phase = Literal["train", "lone", "federated"]
"""``train`` of a graph; of a federation ``lone``, owners that train alone, then ``federated``."""

Pruner = Literal["median", "hyperband", "none"]

PHASES: dict[str, tuple[Phase, ...]] = {"graph": ("train",), "federation": ("lone", "federated")}

TRIALS_AT_LEAST = 8
"""A trial may take this part of the time of its phase: so many fit, whatever the settings."""


class Spec(ResultModel):
    """The specification of a search, in ``tune.json``.

    Attributes:
        kind: what is tuned; source: as the user named it; name: of the graph or federation; owners: of a federation.
        seed: of everything random; minutes: to spend; jobs: trials at a time; pruner: of Optuna.
        start: every setting of the first trial; fixed: those that the user fixed.
        split_off: the graph came without validation triples, and these were split off from its training triples.
    """

    version: int = 1
    fkge: str
    kind: Literal["graph", "federation"]
    source: str
    name: str
    owners: list[str] = Field(default_factory=list)
    seed: int
    minutes: float
    jobs: int
    pruner: Pruner
    start: Values
    fixed: Values
    split_off: bool = False

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the search, in their order."""
        return PHASES[self.kind]

    @property
    def seconds(self) -> float:
        """Seconds to spend on each phase."""
        return 60 * self.minutes / len(self.phases)

    @property
    def seconds_of_trial(self) -> float:
        """Seconds that one trial may take."""
        return self.seconds / TRIALS_AT_LEAST

    @property
    def settings(self) -> type[TrainSettings] | type[FederationSettings]:
        """The class of the settings."""
        return TrainSettings if self.kind == "graph" else FederationSettings

    @property
    def epochs_between_validations(self) -> int:
        """Epochs between validations of the first trial."""
        keys = ("validate_every",) if self.kind == "graph" else ("epochs", "test_every")
        return math.prod(self.start[key] for key in keys)

    def proposal(self, phase: Phase) -> Proposal:
        """Return the proposal of a phase.

        Raises:
            SettingsError: the start is of another version of fkge.
        """
        try:
            start = self.settings.build(nested(self.start), "tune.json")
        except SettingsError as error:
            raise SettingsError(f"{error}; start a new search, without --resume") from None
        return Proposal.around(start, self.fixed, lone=phase == "lone")


class TrialRow(ResultModel):
    """One trial.

    Attributes:
        number: of the trial, from 0, in its phase.
        state: ``complete``, ``pruned``, ``cut`` (by the end of the search), ``failed`` or ``running``.
        score: the best validation MRR it reached; None before the first validation.
        why: what made it fail.
        epochs: trained; best_epoch: the one with that score; seconds: it took; at: spent in the phase when it ended.
        parameters: the proposed ones, by label; settings: what they amount to, those that differ from the defaults.
    """

    number: int
    state: Literal["complete", "pruned", "cut", "failed", "running"]
    score: float | None
    why: str
    epochs: int
    best_epoch: int
    seconds: float
    at: float
    parameters: Values
    settings: Values

    @property
    def rank_key(self) -> float:
        """The key that sorts trials best first, those without a score last."""
        return 1.0 if self.score is None else -self.score

    def hurried(self, seconds: float) -> bool:
        """Whether it was at its best when it was ended by its time, of so many seconds, or by that of the search."""
        by_time = self.state == "cut" or (self.state == "complete" and self.seconds >= 0.95 * seconds)
        return by_time and self.best_epoch >= self.epochs


class Best(ResultModel):
    """The best trial of a phase so far, in ``best.json``: its number, validation MRR, and every setting of it."""

    number: int
    score: float
    best_epoch: int
    settings: Values


class PhaseResult(ResultModel):
    """One phase of a search.

    Attributes:
        best: number of the best trial; None if none was validated.
        importance: of each parameter, largest first, summing to 1; empty where there are too few trials to tell.
        hurried: the best trial was still improving when its time was up, so the search may have found what learns
            fastest rather than what is best in the end.
    """

    phase: Phase
    seconds: float
    trials: list[TrialRow]
    best: int | None
    importance: dict[str, float]
    hurried: bool = False

    @property
    def winner(self) -> TrialRow | None:
        """The best trial."""
        return next((trial for trial in self.trials if trial.number == self.best), None)

    def count(self, *states: str) -> int:
        """Return the number of trials in these states."""
        return sum(trial.state in states for trial in self.trials)


class TuneResult(ResultModel):
    """The result of a search, in ``result.json``.

    Attributes:
        finished: the budget is used up; else it can be continued.
        test: of a graph with a test split, metrics of the best trial's vectors there. Nothing was chosen by them.
        recipe, page: paths of the files written; recipe is None if no trial was validated.
    """

    kind: str
    name: str
    source: str
    seed: int
    minutes: float
    finished: bool
    phases: list[PhaseResult]
    test: dict[str, float] | None = None
    recipe: str | None = None
    page: str | None = None

    @property
    def warning(self) -> str:
        """Advice where a search was hurried; empty if it was not."""
        hurried = [phase.winner for phase in self.phases if phase.hurried]
        if not hurried or hurried[-1] is None:
            return ""
        return (
            f"The best trial was still improving when its time was up, at epoch {hurried[-1].epochs}: these settings "
            "learn fastest, and may not be the best when trained to the end. Search again with more --minutes, or fix "
            "a small dim"
        )

    def phase(self, name: Phase) -> PhaseResult:
        """Return the phase of that name."""
        return next(phase for phase in self.phases if phase.phase == name)
