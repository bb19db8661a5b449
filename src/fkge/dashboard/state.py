"""A simulation's folder, followed: what the live page shows of it, growing with its trace."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

from fkge.errors import RunError, UnknownLabelError
from fkge.history import Course, History, Stage
from fkge.report.words import headline
from fkge.simulations import Simulation
from fkge.trace import Trace

Status = Literal["waiting", "ready", "running", "interrupted", "finished"]
"""There is no simulation yet; it was made and has not begun; a process works on it; none does; it is over."""

LINES = 200
"""Of the log, how many the page gets."""

BEFORE = ("control", "independent")
"""Arms of lone owners, the better measuring stick first."""


class Watched:
    """The simulation in `run`. Safe between threads; reads, and writes nothing.

    Attributes:
        run: its folder.
        history: what its trace has come to.
        about: what was asked for (``simulation.json``); empty until that is there.
        budget: ε that each owner may spend, where there is a limit.
        result: metrics, once it is finished.
        version: grows with every change.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.lock = threading.RLock()
        self.version = 0
        self._begin(None)

    def _begin(self, identity: tuple[int, int] | None) -> None:
        self.history = History()
        self.about: dict[str, Any] = {}
        self.budget: float | None = None
        self.privacy = "none"
        self.result: dict[str, Any] | None = None
        self.status: Status = "waiting"
        self._identity = identity
        self._trace = Trace(self.run / "trace.jsonl")
        self._offset = 0

    # -- following -----------------------------------------------------------------------------------

    def look(self) -> None:
        """Take in what has happened since the last look. One that finds nothing new costs three looks at files."""
        with self.lock:
            identity = _identity(self.run / "simulation.json")
            if identity != self._identity:  # another simulation took its place
                self._begin(identity)
                self.version += 1
            if identity is None:
                return
            if not self.about:
                self._read_about()
            records, offset = self._trace.since(self._offset)
            if offset < self._offset:
                self._begin(identity)
                self._read_about()
            self._offset = offset
            for record in records:
                self.history.feed(record)
            status = self._look_at_status()
            if records or status != self.status:
                self.version += 1
            self.status = status

    def _read_about(self) -> None:
        opened = Simulation.open(self.run)
        self.about = opened.about
        self.budget, self.privacy = opened.settings.privacy.epsilon, opened.settings.privacy.mode

    def _look_at_status(self) -> Status:
        if self.result is None and (self.run / "results.json").exists():
            self.result = Simulation.open(self.run).result
        if self.result is not None:
            return "finished"
        if Simulation.is_running(self.run):
            return "running"
        return "interrupted" if self.history.stages else "ready"

    # -- telling -------------------------------------------------------------------------------------

    @property
    def owners(self) -> list[str]:
        return list(self.about.get("owners", ()))

    def known(self, owner: str) -> str:
        """`owner`, if the simulation has it. Nothing else may become part of a path."""
        if owner not in self.owners:
            raise UnknownLabelError("owner", owner, self.owners)
        return owner

    @property
    def before(self) -> str | None:
        """The arm in which owners are alone, to compare with."""
        return next((arm for arm in BEFORE if arm in self.about.get("arms", ())), None)

    @property
    def two_tracks(self) -> bool:
        """Whether what owners share is tested on other facts than the lone owner: the two are not to be compared."""
        return bool(self.about.get("two_tracks"))

    def state(self) -> dict[str, Any]:
        """All but the figures, as JSON. Times are seconds; ``began`` counts from 1970."""
        with self.lock:
            said = self.history.said
            first = max(0, len(said) - LINES)
            return {
                "run": self.run.resolve().name,
                "status": self.status,
                **{key: self.about.get(key) for key in ("federation", "engine", "seed")},
                "before": self.before,
                "privacy": self.privacy,
                "budget": self.budget,
                "headline": None if self.result is None else headline(self.result),
                "now": None if self.history.now is None else self.history.now.arm,
                "arms": [self._arm(name) for name in self.about.get("arms", ())],
                "owners": [self._owner(name) for name in self.owners],
                "log": {
                    "first": first,
                    "lines": [[arm, round(t, 1), owner, text] for arm, t, owner, text in said[first:]],
                },
            }

    def _arm(self, name: str) -> dict[str, Any]:
        stage = self.history.stages.get(name)
        if stage is None:
            return {"name": name, "state": "due"}
        total = stage.epochs * len(stage.courses)
        state = "over" if stage.over else "under way" if self.status == "running" else "broken off"
        return {
            "name": name, "state": state, "done": total if stage.over else min(stage.done, total), "total": total,
            "began": stage.began, "seconds": stage.seconds if stage.over else round(stage.end, 1),
            "restarts": stage.restarts,
        }  # fmt: skip

    def _owner(self, name: str) -> dict[str, Any]:
        now, shared = self.history.now, self.history.stages.get("federated")
        course, met = self._course(now, name), self._course(shared, name)
        epochs = 0 if now is None else now.epochs
        state = course.state
        if self.status in ("interrupted", "finished") and state not in ("done", "dead"):
            state = "done" if self.status == "finished" else "stopped"
        return {
            "name": name, "state": state, "peers": course.peers if self.status == "running" else (), "why": course.why,
            "epoch": epochs if state == "done" else course.epoch, "epochs": epochs,
            "best": {arm: stage.courses[name].best for arm, stage in self.history.stages.items()
                     if name in stage.courses and stage.courses[name].best is not None},
            "alongside": self._alongside(name, met), "met": shared is not None,
            "accepted": met.accepted, "turned_down": met.turned_down, "backtracked": met.backtracked,
            "sent": met.sent, "spent": met.spent,
        }  # fmt: skip

    def _alongside(self, name: str, met: Course) -> float | None:
        """The best that the lone owner had reached when it had spent as many epochs as the federated one by now."""
        if self.two_tracks:
            return None
        lone = self._course(self.history.stages.get(self.before or ""), name)
        epoch = met.tests[-1].epoch if met.tests else 0
        return lone.best_by(epoch)

    @staticmethod
    def _course(stage: Stage | None, name: str) -> Course:
        return Course(name) if stage is None else stage.courses.get(name, Course(name))


def check(run: Path) -> None:
    """Refuse what is no simulation's folder and cannot become one."""
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file; the live page shows the folder of a simulation (fkge simulate … --out RUN)")
    if (run / "model.safetensors").exists() and not (run / "simulation.json").exists():
        raise RunError(f"{run}: holds a single owner's run; the live page shows the folder that `fkge simulate` makes")


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is; it is written once, in one step."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
