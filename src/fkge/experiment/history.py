"""What happened in a simulation, from the events of its trace.

`History` takes events as they happen (`Simulation.run(watch=history.feed)`), or reads those of a ``trace.jsonl``
(`History.read`). The terminal view, the report and the live page show nothing else while a simulation runs.

Times are seconds since the arm started: wall time, or the engine's own clock where all owners run in one process. An
arm that was interrupted and resumed continues at the time of its last event. What an owner does again, because its
checkpoint is older than that event or because the arm has a server and starts over, is recorded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

from fkge import owner_events as events
from fkge.experiment.trace_events import ArmFinished, ArmStarted, Died, parse
from fkge.trace import Record, Trace

Kind = Literal["train", "translate", "update", "sleep", "private", "lone", "score"]
"""What an owner spends time on, in the paper's words where it has them: its first training; PPAT with a peer, as host;
KGEmb-Update (aggregating, retraining and validating); sleep. Then the private track, the lone model to blend with, and
scoring at the end."""

_KINDS: dict[str, Kind] = {"sleep": "sleep", "private": "private", "lone": "lone", "scoring": "score"}
_NAMES = {state: state for state in (*_KINDS, "ready")} | {"sleep": "sleeping"}


@dataclass
class Span:
    """A period of an owner's time; `peers` took part. `end` is None while it lasts."""

    kind: Kind
    start: float
    end: float | None = None
    peers: tuple[str, ...] = ()


class Validation(NamedTuple):
    """A validation.

    Attributes:
        score, best: MRR now, and the highest so far.
        improved: `score` is the highest so far; backtracked: the owner rolled back to its best vectors.
        peers: whose updates were aggregated since the last validation, each once.
    """

    time: float
    epoch: int
    score: float
    best: float
    improved: bool
    backtracked: bool
    peers: tuple[str, ...] = ()


class LogLine(NamedTuple):
    """An event in words."""

    arm: str
    time: float
    owner: str
    text: str


@dataclass
class Course:
    """The course of one owner in one arm.

    Attributes:
        state: idle, ready, training, translating, updating, sleeping, private, lone, scoring, done or dead.
        peers: with which peers it is translating or updating.
        tests: validations, oldest first; spans: periods, oldest first.
        hosted: translated updates, by peer.
        learned: updates aggregated before the validation score improved, by peer.
        backtracked: roll-backs; accepted: validations after updates that improved; rejected: that did not.
        sent: bytes; spent: ε, where one applies; while it works, up to two seconds old.
        why: what it died of.
    """

    owner: str
    state: str = "idle"
    peers: tuple[str, ...] = ()
    epoch: int = 0
    best: float | None = None
    tests: list[Validation] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    hosted: Counter[str] = field(default_factory=Counter)
    learned: Counter[str] = field(default_factory=Counter)
    backtracked: int = 0
    accepted: int = 0
    rejected: int = 0
    sent: int = 0
    spent: float | None = None
    why: str | None = None
    _untested: Counter[str] = field(default_factory=Counter)  # updates since the last validation, by peer
    _own: Span | None = None  # what the owner does by itself now
    _hosting: dict[str, Span] = field(default_factory=dict)  # translations that run now, by peer

    def best_by(self, epoch: int) -> float | None:
        """The highest score within so many epochs, to compare arms while one of them runs."""
        return max((test.best for test in self.tests if test.epoch <= epoch), default=None)

    def begin(self, kind: Kind | None, time: float) -> None:
        """End what the owner does by itself, and begin something of `kind`, or nothing."""
        if self._own is not None:
            self._own.end = max(self._own.start, time)
        self._own = None
        if kind is not None:
            self._own = Span(kind, time)
            self.spans.append(self._own)

    def end(self, state: str, time: float, why: str | None = None) -> None:
        """End everything that is going on; the owner is in `state` then."""
        self.begin(None, time)
        for peer in list(self._hosting):
            self.end_hosting(peer, time)
        self._untested.clear()
        self.state, self.why, self.peers = state, why, ()

    def begin_hosting(self, peer: str, time: float) -> None:
        self._hosting[peer] = Span("translate", time, None, (peer,))
        self.spans.append(self._hosting[peer])
        self.state, self.peers = "translating", tuple(self._hosting)

    def end_hosting(self, peer: str, time: float) -> None:
        if peer in self._hosting:
            span = self._hosting.pop(peer)
            span.end = max(span.start, time)

    def work(self, event: events.Worked, start: float, end: float) -> Validation | None:
        """Take in what the owner has done; returns the validation at its end, if there was one."""
        peers = tuple(dict.fromkeys(event.peers))
        self.begin(None, start)
        self.spans.append(Span("train" if event.initial else "update", start, end, peers))
        self.epoch = max(self.epoch, event.epoch)
        self.state, self.peers = "updating" if peers else "training", peers
        self.sent = self.sent if event.sent is None else event.sent
        if "spent" in event.model_fields_set:
            self.spent = event.spent
        self._untested.update(peers)
        if event.score is None:
            return None
        self.best = event.score if event.best is None else event.best
        test = Validation(end, event.epoch, event.score, self.best, event.improved, event.backtracked,
                    tuple(sorted(self._untested)))  # fmt: skip
        self.tests.append(test)
        self.backtracked += test.backtracked
        if test.peers:
            self.accepted += test.improved
            self.rejected += not test.improved
        if test.improved:
            self.learned.update(self._untested)
        self._untested.clear()
        return test


@dataclass
class Stage:
    """One arm.

    Attributes:
        began: when it was last started, in seconds since 1970.
        seconds: wall time, once it is finished.
        end: time of the latest event.
        restarts: how often it was resumed; offset: time of the last one.
    """

    arm: str
    epochs: int
    courses: dict[str, Course]
    began: float
    seconds: float | None = None
    end: float = 0.0
    restarts: int = 0
    offset: float = 0.0

    @property
    def over(self) -> bool:
        return self.seconds is not None

    @property
    def done(self) -> int:
        """Epochs of all owners so far."""
        return sum(course.epoch for course in self.courses.values())


class History:
    """All arms of a simulation, in the order they started, and its events in words, oldest first (`log`)."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.now: Stage | None = None
        self.log: list[LogLine] = []

    @classmethod
    def read(cls, run: Path) -> Self:
        """The history of the simulation in the folder `run` so far."""
        return cls.of(Trace(run / "trace.jsonl").read())

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """The history that records of a trace make up."""
        history = cls()
        for record in records:
            history.feed(record)
        return history

    @property
    def owners(self) -> list[str]:
        """Owners of all arms, each once."""
        return list(dict.fromkeys(owner for stage in self.stages.values() for owner in stage.courses))

    def feed(self, record: Record) -> None:
        """Add one record of a trace; those of unknown kinds, arms and owners are ignored."""
        match event := parse(record):
            case ArmStarted():
                self._start(event)
            case ArmFinished():
                for name in event.arm.split(" and "):  # arms with a server finish together
                    if name in self.stages:
                        stage = self.stages[name]
                        stage.seconds = event.seconds
                        for course in stage.courses.values():
                            course.end("done", stage.end)
            case events.OwnerEvent():
                known = self.stages.get(event.arm) if event.arm else self.now
                if known is not None and event.owner in known.courses:
                    self._add(event, known, known.courses[event.owner])

    def _start(self, event: ArmStarted) -> None:
        stage = self.stages.get(event.arm)
        if stage is None:
            courses = {owner: Course(owner) for owner in event.owners}
            stage = self.stages[event.arm] = Stage(event.arm, event.epochs, courses, event.time)
        else:  # what was going on when it was interrupted ended then
            stage.began, stage.offset, stage.restarts = event.time, stage.end, stage.restarts + 1
            for course in stage.courses.values():
                course.end("idle", stage.end)
        self.now = stage

    def _add(self, event: events.OwnerEvent, stage: Stage, course: Course) -> None:
        time = stage.end if event.t is None else stage.offset + event.t
        until = time if event.until is None else stage.offset + event.until
        stage.end = max(stage.end, time, until)

        def log(when: float, text: str) -> None:
            self.log.append(LogLine(stage.arm, when, course.owner, text))

        match event:
            case events.StateChanged(state=state):
                course.begin(_KINDS.get(state), time)
                course.peers = ()
                course.state = _NAMES.get(state, "training" if not course.hosted else "updating")
            case events.EpochReached():
                course.epoch = max(course.epoch, event.epoch)
            case events.HostingStarted():
                course.begin_hosting(event.peer, time)
            case events.HostingFinished():
                course.hosted[event.peer] += 1
                course.end_hosting(event.peer, time)
            case events.ExchangeAbandoned(hosting=True):
                course.end_hosting(event.peer, time)
            case events.Worked():
                before = course.best
                start = time if event.since is None else stage.offset + event.since
                test = course.work(event, start, until)
                if test is not None:
                    log(until, _describe(before, test))
            case events.Concluded():
                course.end("done", time)
                if "spent" in event.model_fields_set:
                    course.spent = event.spent
            case Died(why=why):
                course.end("dead", time, why)
                log(time, f"died: {why}")
            case events.Refused():
                log(time, f"refused a message of {event.peer}: {event.why}")
            case events.OverBudget():
                log(time, f"has no budget for what {event.peer} asks for: {event.why}")
            case events.PeerLost():
                log(time, f"lost {event.peer} and continues without it")


def _describe(before: float | None, test: Validation) -> str:
    """A validation in words: ``learned from x, y: 0.312 → 0.331``."""
    score = f"{test.score:.3f}"
    who = ", ".join(test.peers)
    if before is None:
        return f"first score {score}"
    if test.improved:
        return (f"learned from {who}: " if who else "improved: ") + f"{before:.3f} → {score}"
    back = "; rolled back" if test.backtracked else ""
    return f"not better{f' with {who}' if who else ''}: {score}, best {before:.3f}{back}"
