"""Run trials, one after the other, in one process: this one, or one that was started for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from fkge.embed import save_model
from fkge.errors import SettingsError
from fkge.files import FileLock
from fkge.graph import load_graph
from fkge.settings import SettingValues
from fkge.tune.journal import Journal, require
from fkge.tune.objective import Attempt, FederationObjective, GraphObjective, Objective
from fkge.tune.proposal import Proposal, Values
from fkge.tune.spec import Best, Phase, Spec

LEAST = 0.25
"""A trial that would have less than this part of its time is not begun any more, unless it were the first."""


def run_trials(
    folder: Path,
    spec: Spec,
    phase: Phase,
    *,
    origin: float,
    stop: Callable[[], bool],
    worker: int = 0,
    ended: Callable[[], None] = lambda: None,
) -> None:
    """Run trials until the time of the phase is used up.

    Args:
        folder, spec: of the search.
        phase: which.
        origin: time on the monotonic clock, which all processes of a machine share, when no second of the phase was
            spent, had it been without interruption.
        stop: asked often; True ends the trial that runs, and this.
        worker: number of this process.
        ended: called after each trial.
    """
    states = require().trial.TrialState
    journal, proposal = Journal(folder, spec), spec.proposal(phase)
    objective: Objective
    if spec.kind == "graph":
        objective = GraphObjective(load_graph(folder / "graph.safetensors"))
    else:
        arm = "control" if phase == "lone" else "federated"
        objective = FederationObjective(folder, spec.owners, arm, scratch=f"{phase}-{worker}")
    study, end = journal.study(phase, worker), origin + spec.seconds
    while not stop() and monotonic() < end:
        begun = bool(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))
        if begun and end - monotonic() < LEAST * spec.seconds_of_trial:
            return
        journal.reseed(study, worker)
        trial = study.ask()
        trial.set_user_attr("process", os.getpid())
        run_trial(folder, spec, proposal, objective, trial, origin=origin, stop=stop)
        ended()


def run_trial(
    folder: Path,
    spec: Spec,
    proposal: Proposal,
    objective: Objective,
    trial: Any,
    *,
    origin: float,
    stop: Callable[[], bool],
) -> None:
    """Run one trial, and write its outcome into the journal; see `run_trials`."""
    values = proposal.suggest(trial)
    began = monotonic()
    deadline, end = began + spec.seconds_of_trial, origin + spec.seconds

    def limit() -> Literal["time", "cut"] | None:
        if stop() or monotonic() >= end:
            return "cut"
        return "time" if monotonic() >= deadline else None

    def report(epoch: int, score: float) -> bool:
        trial.report(score, epoch)
        return bool(trial.should_prune())

    attempt, why = Attempt(), ""
    try:
        settings = proposal.settings(values)
        trial.set_user_attr("settings", _told(values, proposal, trial.params))
        attempt = objective(settings, report, limit)
    except SettingsError as error:
        why = str(error)
    if attempt.score is None and not why:
        why = "there was no time for a validation"
    told: dict[str, object] = {
        "epochs": attempt.epochs, "best_epoch": attempt.best_epoch, "seconds": round(monotonic() - began, 2),
        "at": round(monotonic() - origin, 2), "why": why,
    }  # fmt: skip
    if not why:
        keep_best(folder / "best" / trial.study.study_name, trial.number, attempt, values, proposal)
        told |= {"score": attempt.score, "ended": attempt.ended}
    for key, value in told.items():
        trial.set_user_attr(key, value)
    states = require().trial.TrialState
    if why or attempt.ended == "cut":
        trial.study.tell(trial, state=states.FAIL)
    elif attempt.ended == "pruned":
        trial.study.tell(trial, state=states.PRUNED)
    else:
        trial.study.tell(trial, attempt.score)


def _told(values: SettingValues, proposal: Proposal, proposed: SettingValues) -> Values:
    """Return the settings of a trial, for people: those that were proposed, and the fixed ones."""
    keys = {parameter.key for parameter in proposal.parameters if parameter.label in proposed} | set(proposal.fixed)
    keys |= {key for key in values if key.endswith(("model", "loss"))}
    return {key: value for key, value in values.items() if key in keys}


def keep_best(folder: Path, number: int, attempt: Attempt, values: SettingValues, proposal: Proposal) -> None:
    """Keep a trial if none was better so far: its vectors, of a graph, and its settings.

    Args:
        folder: of the best trial of the phase.
        number, attempt: of the trial, and its outcome.
        values: its settings, made by `proposal`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    assert attempt.score is not None
    with FileLock(folder / "lock"):
        best = read_best(folder)
        if best is not None and (best.score, -best.number) >= (attempt.score, -number):
            return
        if attempt.tables is not None:
            save_model(folder / "model.safetensors", attempt.tables, proposal.settings(values))
        kept = Best(number=number, score=attempt.score, best_epoch=attempt.best_epoch, settings=dict(values))
        kept.write(folder / "best.json")


def read_best(folder: Path) -> Best | None:
    """Return the trial that `keep_best` kept; None if there is none."""
    path = folder / "best.json"
    return Best.read(path, f"Remove {folder.parent.parent}, and search again.") if path.exists() else None


def work(folder: str, phase: Phase, worker: int, origin: float, stop: Event) -> None:
    """Run trials in a process of their own until the time is up, `stop` is set, or the parent process dies.

    Args:
        folder, phase, worker, origin: see `run_trials`; stop: set by the parent process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = Path(folder)
    parent = multiprocessing.parent_process()
    spec = Spec.read(path / "tune.json", "Search again, with another --out.")
    with FileLock(path / "workers.lock", shared=True):
        run_trials(
            path, spec, phase, origin=origin, worker=worker,
            stop=lambda: stop.is_set() or (parent is not None and not parent.is_alive()),
        )  # fmt: skip
