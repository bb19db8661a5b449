"""What a simulation has come to, from its trace: what people look at, growing with every record.

`History` is fed with records as they happen (`Simulation.run(watch=history.feed)`), or with those of a ``trace.jsonl``
(`History.read`). The view on the terminal, the report and the live page show nothing else while a run is under way.

Times are seconds since the arm began: of a clock on the wall, or of the engine's own where owners run in one process.
An arm that was broken off and taken up again goes on where its last record lay. What an owner does once more, because
its checkpoint is older than that record, or because the arm has a server and begins anew, is told once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fkge.trace import Trace

Kind = Literal["train", "translate", "update", "sleep", "private", "score"]
"""What an owner spends time on, in the paper's words where it has them: its first training; PPAT with a peer as its
host; KGEmb-Update: aggregating, retraining and testing; sleep. Then a private track, and scoring at the end."""

_ONGOING: dict[str, Kind] = {"sleep": "sleep", "private": "private", "scoring": "score"}
_WORDS = {"sleep": "sleeping", "private": "private", "scoring": "scoring", "ready": "ready"}


@dataclass
class Span:
    """A stretch of an owner's time; `peers` took part. `end` is None while it lasts."""

    kind: Kind
    start: float
    end: float | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Test:
    """A look at the validation triples that decide.

    Attributes:
        time, epoch: when.
        score, best: MRR now, and the highest so far.
        improved: this one is; backtracked: the owner went back to its best vectors.
        peers: whose gifts were taken in since the last test, each once.
    """

    __test__ = False  # no matter for pytest

    time: float
    epoch: int
    score: float
    best: float
    improved: bool
    backtracked: bool
    peers: tuple[str, ...] = ()


@dataclass
class Course:
    """What one owner did in one arm.

    Attributes:
        owner: who.
        state: idle, ready, training, translating, updating, sleeping, private, scoring, done or dead.
        peers: with whom, while it deals with someone.
        epoch: spent so far.
        best: the highest validation score so far.
        tests, spans: oldest first.
        hosted: by peer, its gifts that were translated.
        learned: by peer, gifts taken in before a test that was better than all before it.
        backtracked: times it went back; accepted: tests after gifts that were better; turned_down: that were not.
        sent: bytes; spent: ε, where that has a meaning; while it works, of up to two seconds ago.
        why: what it died of.
    """

    owner: str
    state: str = "idle"
    peers: tuple[str, ...] = ()
    epoch: int = 0
    best: float | None = None
    tests: list[Test] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    hosted: Counter[str] = field(default_factory=Counter)
    learned: Counter[str] = field(default_factory=Counter)
    backtracked: int = 0
    accepted: int = 0
    turned_down: int = 0
    sent: int = 0
    spent: float | None = None
    why: str | None = None
    _gifts: Counter[str] = field(default_factory=Counter)
    _rest: Span | None = None
    _games: dict[str, Span] = field(default_factory=dict)

    def best_by(self, epoch: int) -> float | None:
        """The highest score of its tests within so many epochs: what another arm compares with while it runs."""
        return max((test.best for test in self.tests if test.epoch <= epoch), default=None)

    def _rests(self, kind: Kind | None, time: float) -> None:
        """What the owner was at by itself ends; `kind` begins."""
        if self._rest is not None:
            self._rest.end = max(self._rest.start, time)
        self._rest = None if kind is None else Span(kind, time)
        if self._rest is not None:
            self.spans.append(self._rest)

    def _ends(self, time: float) -> None:
        """Everything that goes on ends."""
        self._rests(None, time)
        for span in self._games.values():
            span.end = max(span.start, time)
        self._games.clear()
        self._gifts.clear()
        self.peers = ()


@dataclass
class Stage:
    """One arm.

    Attributes:
        arm: its name.
        epochs: that each owner has in it.
        courses: by owner.
        began: of the last time it was started, seconds since 1970.
        seconds: wall-clock time, once it is over.
        end: time of the latest record.
        restarts: how often it was taken up again.
    """

    arm: str
    epochs: int
    courses: dict[str, Course]
    began: float
    seconds: float | None = None
    end: float = 0.0
    restarts: int = 0
    _offset: float = 0.0

    @property
    def over(self) -> bool:
        return self.seconds is not None

    @property
    def done(self) -> int:
        """Epochs of all owners so far."""
        return sum(course.epoch for course in self.courses.values())


class History:
    """All arms of a simulation, in the order they began.

    Attributes:
        stages: by arm.
        now: the arm under way, or the last one.
        said: events worth a line, in words, oldest first: (arm, time, owner, text).
    """

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.now: Stage | None = None
        self.said: list[tuple[str, float, str, str]] = []

    @classmethod
    def read(cls, run: Path) -> History:
        """Of the simulation in the folder `run`, as far as it has come."""
        return cls.of(Trace(run / "trace.jsonl").read())

    @classmethod
    def of(cls, records: Iterable[dict[str, Any]]) -> History:
        history = cls()
        for record in records:
            history.feed(record)
        return history

    def feed(self, record: dict[str, Any]) -> None:
        """Take in one more record. Of those it does not know, it takes nothing."""
        event = record["event"]
        if event == "arm":
            self._begin(record)
            return
        if event == "arm over":
            self._end(record)
            return
        stage = self.stages.get(record["arm"]) if record.get("arm") else self.now
        if stage is None or record.get("owner") not in stage.courses:
            return
        time = stage._offset + float(record.get("t", stage.end - stage._offset))
        stage.end = max(stage.end, time, stage._offset + float(record.get("until", 0.0)))
        course = stage.courses[record["owner"]]
        if event in _EVENTS:
            getattr(self, "_" + event.replace(" ", "_"))(stage, course, time, record)

    def _begin(self, record: dict[str, Any]) -> None:
        name, began = record["arm"], record["time"]
        stage = self.stages.get(name)
        if stage is None:
            courses = {owner: Course(owner) for owner in record.get("owners", ())}
            stage = self.stages[name] = Stage(name, record.get("epochs", 0), courses, began)
        else:  # what was under way when it broke off ended there
            stage.began, stage._offset, stage.restarts = began, stage.end, stage.restarts + 1
            for course in stage.courses.values():
                course._ends(stage.end)
                course.state, course.why = "idle", None
        self.now = stage

    def _end(self, record: dict[str, Any]) -> None:
        """Arms with a server are over together."""
        for name in record["arm"].split(" and "):
            if name in self.stages:
                stage = self.stages[name]
                stage.seconds = record["seconds"]
                for course in stage.courses.values():
                    course._ends(stage.end)
                    course.state, course.why = "done", None

    # -- events of an owner --------------------------------------------------------------------------

    def _state(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        state = record["state"]
        course._rests(_ONGOING.get(state), time)
        course.peers = ()
        course.state = _WORDS.get(state, "training" if not course.hosted else "updating")

    def _progress(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        course.epoch = max(course.epoch, record["epoch"])

    def _hosting(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        peer = record["peer"]
        course._games[peer] = Span("translate", time, None, (peer,))
        course.spans.append(course._games[peer])
        course.state, course.peers = "translating", tuple(course._games)

    def _translated(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        peer = record["peer"]
        course.hosted[peer] += 1
        if peer in course._games:
            course._games.pop(peer).end = time

    def _work(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        start = stage._offset + float(record["since"]) if "since" in record else time
        end = stage._offset + float(record["until"]) if "until" in record else time
        peers = tuple(dict.fromkeys(record.get("peers", ())))
        course._rests(None, start)
        course.spans.append(Span("train" if record.get("initial") else "update", start, end, peers))
        course.epoch = max(course.epoch, record["epoch"])
        course.state, course.peers = "updating" if peers else "training", peers
        course.sent = record.get("sent", course.sent)
        course.spent = record.get("spent", course.spent)
        course._gifts.update(peers)
        if record["score"] is None:
            return
        before, course.best = course.best, record["best"]
        test = Test(end, record["epoch"], record["score"], record["best"], record["improved"], record["backtracked"],
                    tuple(sorted(course._gifts)))  # fmt: skip
        course.tests.append(test)
        course.backtracked += test.backtracked
        if test.peers:
            course.accepted += test.improved
            course.turned_down += not test.improved
        if test.improved:
            course.learned.update(course._gifts)
        course._gifts.clear()
        self._say(stage, course, end, _in_words(before, test))

    def _concluded(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        course._ends(time)
        course.state = "done"
        course.spent = record.get("spent", course.spent)

    def _died(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        course._ends(time)
        course.state, course.why = "dead", record["why"]
        self._say(stage, course, time, f"died: {record['why']}")

    def _refused(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        self._say(stage, course, time, f"turned {record['peer']} away: {record['why']}")

    def _over_budget(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        self._say(stage, course, time, f"cannot afford what {record['peer']} asks for: {record['why']}")

    def _given_up(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        if record["hosting"] and record["peer"] in course._games:
            course._games.pop(record["peer"]).end = time

    def _lost(self, stage: Stage, course: Course, time: float, record: dict[str, Any]) -> None:
        self._say(stage, course, time, f"lost {record['peer']} and goes on without")

    def _say(self, stage: Stage, course: Course, time: float, text: str) -> None:
        self.said.append((stage.arm, time, course.owner, text))


_EVENTS = {
    "state", "progress", "hosting", "translated", "given up", "work", "concluded", "died", "refused", "over budget",
    "lost",
}  # fmt: skip


def _in_words(before: float | None, test: Test) -> str:
    """What a test showed: ``learned from x, y: .312 → .331``."""
    score = f"{test.score:.3f}"
    who = ", ".join(test.peers)
    if before is None:
        return f"first score {score}"
    if test.improved:
        return (f"learned from {who}: " if who else "better: ") + f"{before:.3f} → {score}"
    back = "; went back to its best" if test.backtracked else ""
    return f"no better{f' with {who}' if who else ''}: {score}, best {before:.3f}{back}"
