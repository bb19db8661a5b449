"""Follow the folder of a simulation: the content of the live page, updated from its trace."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

from fkge.dashboard.events import Json
from fkge.errors import RunError, UnknownLabelError
from fkge.experiment.history import Course, History, Stage
from fkge.experiment.results import FILE, SimulationResult
from fkge.experiment.simulation import Simulation
from fkge.files import stamp
from fkge.report.findings import headline
from fkge.trace import Trace

Status = Literal["waiting", "ready", "running", "interrupted", "finished"]
"""No simulation yet; created but not started; a process works on it; no process does; finished."""

LINES = 200
"""Number of log lines that the page gets."""

BASELINES = ("control", "independent")
"""Arms in which owners train alone, the better baseline first."""


class WatchedRun:
    """The simulation in the folder `run`, which need not exist yet. Thread-safe; writes nothing.

    `history` is what has happened, `simulation` is None until it exists, and `result` until it is finished; `version`
    grows with every change.
    """

    def __init__(self, run: Path) -> None:
        self.run, self.lock, self.version = run, threading.RLock(), 0
        self._reset(None)

    def _reset(self, identity: tuple[int, int, int] | None) -> None:
        self.history = History()
        self.result: SimulationResult | None = None
        self.status: Status = "waiting"
        self._trace = Trace(self.run / "trace.jsonl")
        self._offset = 0
        self._identity: tuple[int, int, int] | None = None
        self.simulation: Simulation | None = None if identity is None else Simulation.open(self.run)
        self._identity = identity  # last: where the simulation cannot be opened, that is tried again

    def refresh(self) -> None:
        """Read what has happened since the last call. Without news this costs three calls of `stat`."""
        with self.lock:
            identity = stamp(self.run / "simulation.json")  # it is written once, in one step
            if identity != self._identity:  # another simulation took its place
                self._reset(identity)
                self.version += 1
            if identity is None:
                return
            records, offset = self._trace.since(self._offset)
            if offset < self._offset:
                self._reset(identity)
            self._offset = offset
            for record in records:
                self.history.feed(record)
            status = self._read_status()
            if records or status != self.status:
                self.version += 1
            self.status = status

    def _read_status(self) -> Status:
        if self.result is None and (self.run / FILE).exists():
            self.result = SimulationResult.load(self.run)
        if self.result is not None:
            return "finished"
        if Simulation.is_running(self.run):
            return "running"
        return "interrupted" if self.history.stages else "ready"

    @property
    def owners(self) -> list[str]:
        return [] if self.simulation is None else self.simulation.spec.owners

    @property
    def arms(self) -> list[str]:
        return [] if self.simulation is None else self.simulation.spec.arms

    @property
    def budget(self) -> float | None:
        """ε that each owner may spend, where there is a limit."""
        return None if self.simulation is None else self.simulation.settings.privacy.epsilon

    def check_owner(self, owner: str) -> str:
        """Return `owner` if the simulation has it: nothing else may become part of a path.

        Raises:
            UnknownLabelError: it has not.
        """
        if owner not in self.owners:
            raise UnknownLabelError("owner", owner, self.owners)
        return owner

    @property
    def baseline(self) -> str | None:
        """The arm to compare with, in which owners train alone."""
        return next((arm for arm in BASELINES if arm in self.arms), None)

    @property
    def two_tracks(self) -> bool:
        """Whether shared tracks are validated on other facts than the baseline: then the two are not compared."""
        return self.simulation is not None and self.simulation.spec.two_tracks

    def state(self) -> Json:
        """Return everything but the figures. Times are in seconds; ``began`` counts from 1970."""
        with self.lock:
            log, made = self.history.log, self.simulation
            first = max(0, len(log) - LINES)
            return {
                "run": self.run.resolve().name,
                "status": self.status,
                **{key: None if made is None else getattr(made.spec, key) for key in ("federation", "engine", "seed")},
                "baseline": self.baseline,
                "privacy": "none" if made is None else made.settings.privacy.mode,
                "budget": self.budget,
                "headline": None if self.result is None else headline(self.result),
                "now": None if self.history.now is None else self.history.now.arm,
                "arms": [self._arm(name) for name in self.arms],
                "owners": [self._owner(name) for name in self.owners],
                "log": {
                    "first": first,
                    "lines": [[arm, round(t, 1), owner, text] for arm, t, owner, text in log[first:]],
                },
            }

    def _arm(self, name: str) -> Json:
        stage = self.history.stages.get(name)
        if stage is None:
            return {"name": name, "state": "pending"}
        total = stage.epochs * len(stage.courses)
        state = "finished" if stage.over else "running" if self.status == "running" else "interrupted"
        return {
            "name": name, "state": state, "done": total if stage.over else min(stage.done, total), "total": total,
            "began": stage.began, "seconds": stage.seconds if stage.over else round(stage.end, 1),
            "restarts": stage.restarts,
        }  # fmt: skip

    def _owner(self, name: str) -> Json:
        now, federated = self.history.now, self.history.stages.get("federated")
        course, shared = self._course(now, name), self._course(federated, name)
        epochs = 0 if now is None else now.epochs
        state = course.state
        if self.status in ("interrupted", "finished") and state not in ("done", "dead"):
            state = "done" if self.status == "finished" else "stopped"
        return {
            "name": name, "state": state, "peers": course.peers if self.status == "running" else (), "why": course.why,
            "epoch": epochs if state == "done" else min(course.epoch, epochs), "epochs": epochs,
            "best": {arm: stage.courses[name].best for arm, stage in self.history.stages.items()
                     if name in stage.courses and stage.courses[name].best is not None},
            "baseline": self._baseline_by_now(name, shared), "federated": federated is not None,
            "accepted": shared.accepted, "rejected": shared.rejected, "backtracked": shared.backtracked,
            "sent": shared.sent, "spent": shared.spent,
        }  # fmt: skip

    def _baseline_by_now(self, name: str, shared: Course) -> float | None:
        """Return the best score of the owner alone, within as many epochs as the federated one has trained."""
        if self.two_tracks:
            return None
        alone = self._course(self.history.stages.get(self.baseline or ""), name)
        return alone.best_by(shared.tests[-1].epoch if shared.tests else 0)

    @staticmethod
    def _course(stage: Stage | None, name: str) -> Course:
        return Course(name) if stage is None else stage.courses.get(name, Course(name))


def check(run: Path) -> None:
    """Check that `run` is, or can become, the folder of a simulation.

    Raises:
        RunError: it is something else.
    """
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file; the live page shows the folder of a simulation (fkge simulate … --out RUN)")
    if (run / "model.safetensors").exists() and not (run / "simulation.json").exists():
        raise RunError(f"{run}: holds a single owner's run; the live page shows the folder that `fkge simulate` makes")
