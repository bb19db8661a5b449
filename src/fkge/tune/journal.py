"""Optuna's studies in a journal of the search's folder, safe against processes that are killed.

Optuna's own lock is a file that a killed process leaves behind; here it is one that the kernel releases. A line that a
killed process did not finish is cut off when the search is continued.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fkge.errors import need
from fkge.files import FileLock
from fkge.tune.proposal import Values
from fkge.tune.spec import Phase, Spec, TrialRow

if TYPE_CHECKING:
    import optuna

JOURNAL = "journal.log"
STARTUP = 8
"""Trials before the sampler proposes by what it has seen."""

WARMUP = 2
"""Validations after which a trial may be pruned: some models learn slowly at first."""

FEWEST = 8
"""Trials from which the importance of settings is computed."""

RETRIED = "retried"
_ENDED = "ended"
STATES = {"epochs": "complete", "patience": "complete", "time": "complete", "pruned": "pruned", "cut": "cut"}


def require() -> Any:
    """Import Optuna, silent.

    Raises:
        MissingLibraryError: it is not installed.
    """
    library = need("optuna", "tune", "fkge tune")
    library.logging.set_verbosity(library.logging.ERROR)
    return library


@contextmanager
def experimental() -> Iterator[None]:
    """Silence Optuna's warnings that a feature is experimental."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=require().exceptions.ExperimentalWarning)
        yield


class _Lock:
    """Optuna's interface to a lock, over one that the kernel releases when its process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: FileLock | None = None

    def acquire(self) -> bool:
        self._held = FileLock(self._path)
        return True

    def release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


class Journal:
    """The studies of a search, one for each phase, in the search's folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._optuna = require()
        self._states = self._optuna.trial.TrialState
        self._spec = spec
        lock: Any = _Lock(folder / "journal.lock")
        with experimental():
            self._storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL), lock_obj=lock))

    @staticmethod
    def repair(folder: Path) -> None:
        """Cut off what a killed process left of a line. No other process may have the journal open."""
        path = folder / JOURNAL
        content = path.read_bytes() if path.exists() else b""
        if whole := content.rfind(b"\n") + 1:
            os.truncate(path, whole)
        else:
            path.unlink(missing_ok=True)

    def study(self, phase: Phase, worker: int = 0) -> optuna.Study:
        """Return the study of a phase, made if there is none, with a sampler seeded for the next trial.

        The same seed and the same trials so far lead to the same proposal, whether or not the search was interrupted.

        Args:
            phase: which.
            worker: number of the process that asks, so that two do not propose the same.
        """
        with experimental():
            study: optuna.Study = self._optuna.create_study(
                storage=self._storage, study_name=phase, direction="maximize", load_if_exists=True,
                pruner=self._pruner(),
            )  # fmt: skip
            self.reseed(study, worker)
            return study

    def reseed(self, study: optuna.Study, worker: int = 0) -> None:
        """Give the study a sampler for its next trial; see `study`."""
        known = len(study.get_trials(deepcopy=False))
        seed = int(np.random.SeedSequence([self._spec.seed, worker, known]).generate_state(1)[0])
        with experimental():
            study.sampler = self._optuna.samplers.TPESampler(
                multivariate=True, group=True, constant_liar=True, n_startup_trials=STARTUP, seed=seed
            )  # fmt: skip

    def _pruner(self) -> Any:
        pruners = self._optuna.pruners
        if self._spec.pruner == "hyperband":
            with experimental():
                return pruners.HyperbandPruner()
        if self._spec.pruner == "none":
            return pruners.NopPruner()
        return pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=WARMUP * self._spec.epochs_between_validations)

    def start(self, phase: Phase, first: Sequence[Values]) -> None:
        """Put the first trials into a phase's study, unless it has any."""
        study = self.study(phase)
        if not study.get_trials(deepcopy=False):
            for parameters in first:
                self.enqueue(study, parameters)

    def enqueue(self, study: optuna.Study, parameters: Values, **attributes: Any) -> None:
        """Have a trial of these parameters tried next."""
        with experimental():
            study.enqueue_trial(parameters, user_attrs=attributes, skip_if_exists=False)

    def recover(self, phase: Phase) -> int:
        """Mark trials that a killed process left running as failed, and try them, and those that were cut, once more.

        Returns:
            How many are tried again.
        """
        states = self._states
        study, again = self.study(phase), 0
        trials = study.get_trials(deepcopy=False)
        repeated = {trial.user_attrs.get("again") for trial in trials}
        for trial in trials:
            attributes = trial.user_attrs
            if trial.state == states.RUNNING:
                study.tell(trial.number, state=states.FAIL)
            elif trial.state != states.FAIL or attributes.get(_ENDED) != "cut":
                continue
            if trial.params and not attributes.get(RETRIED) and trial.number not in repeated:
                # One that was killed is tried once more; one that was only cut, as often as that happens.
                once = {RETRIED: True} if trial.state == states.RUNNING else {}
                self.enqueue(study, trial.params, again=trial.number, **once)
                again += 1
        return again

    def fail_running(self, phase: Phase, process: int) -> None:
        """Mark what a process that died has left running as failed."""
        study = self.study(phase)
        for trial in study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            if trial.user_attrs.get("process") == process:
                study.tell(trial.number, state=self._states.FAIL)

    def rows(self, phase: Phase) -> list[TrialRow]:
        """Return the trials of a phase that have begun."""
        trials = self.study(phase).get_trials(deepcopy=False)
        return [_row(trial) for trial in trials if trial.state != self._states.WAITING]

    def importance(self, phase: Phase) -> dict[str, float]:
        """Return the importance of each parameter, largest first; empty where there are too few trials to tell.

        Pruned trials count with what they had reached: on few trials leaving them out would leave out most of what is
        known about bad settings.
        """
        ended = self.study(phase).get_trials(deepcopy=False, states=(self._states.COMPLETE, self._states.PRUNED))
        found = [trial for trial in ended if "score" in trial.user_attrs]
        if len(found) < FEWEST:
            return {}
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

        with experimental(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, where all trials of a kind are alike
            study = self._optuna.create_study(direction="maximize")
            for trial in found:
                about = {"params": trial.params, "distributions": trial.distributions}
                study.add_trial(self._optuna.trial.create_trial(value=trial.user_attrs["score"], **about))
            try:
                told = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=0.25))
            except (ValueError, RuntimeError, ZeroDivisionError):  # all trials are alike
                return {}
        sound = {key: float(value) for key, value in told.items() if np.isfinite(value)}
        return dict(sorted(sound.items(), key=lambda item: -item[1])) if sum(sound.values()) > 0 else {}


def _row(trial: optuna.trial.FrozenTrial) -> TrialRow:
    """Return a trial as the journal has it."""
    told, name = trial.user_attrs, trial.state.name.lower()
    ended = STATES.get(told.get(_ENDED, ""), "failed" if name in ("fail", "complete", "pruned") else "running")
    unknown: Values = {
        "score": None, "why": "its process died" if ended == "failed" else "", "epochs": 0, "best_epoch": 0,
        "seconds": 0.0, "at": 0.0, "settings": {},
    }  # fmt: skip
    known = {"number": trial.number, "state": ended, "parameters": dict(trial.params)}
    return TrialRow.model_validate(unknown | told | known)


def best_of(rows: Sequence[TrialRow]) -> TrialRow | None:
    """Return the trial with the highest score, the first one of equals; None if none has a score."""
    scored = (row for row in rows if row.score is not None)
    return max(scored, key=lambda row: (row.score or 0.0, -row.number), default=None)
