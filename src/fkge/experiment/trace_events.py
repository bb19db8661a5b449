"""The records of a ``trace.jsonl`` as typed events: one class for each kind of record that readers use.

`parse` turns a record into an event. Fields that a kind does not declare are ignored, and so are kinds that are not in
`EVENTS`: a later version of fkge may write more. Times are seconds since the arm started, unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fkge.errors import RunError
from fkge.trace import Record, Trace

EVENTS: dict[str, type[Event]] = {}
"""The class of each kind of record."""


class Event(BaseModel):
    """Base of all events. A class with a `kind` is for records of that kind."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if kind:
            EVENTS[kind] = cls


class ArmStarted(Event, kind="arm"):
    """An arm starts or is resumed. `time` is in seconds since 1970; `epochs` are those of each owner."""

    arm: str
    time: float
    epochs: int = 0
    owners: tuple[str, ...] = ()


class ArmFinished(Event, kind="arm over"):
    """An arm is finished, or several that run together (``fede and unified``); `seconds` of wall time."""

    arm: str
    seconds: float


class OwnerEvent(Event):
    """Base of events of one owner; without `arm`, in the current one, without `t`, at the time of the latest event."""

    arm: str | None = None
    owner: str
    t: float | None = None
    until: float | None = None


class StateChanged(OwnerEvent, kind="state"):
    """The owner is now ready, busy, sleep, private or scoring."""

    state: str


class EpochReached(OwnerEvent, kind="progress"):
    """The owner has trained so many epochs; written now and then."""

    epoch: int


class PeerEvent(OwnerEvent):
    """Base of events between the owner and a peer."""

    peer: str


class HostingStarted(PeerEvent, kind="hosting"):
    """A translation of updates of `peer` starts; the owner is its host."""


class Translated(PeerEvent, kind="translated"):
    """The translation of updates of `peer` is complete."""


class ExchangeAbandoned(PeerEvent, kind="given up"):
    """An exchange with `peer` made no progress; `hosting`: the owner was its host."""

    hosting: bool


class Worked(OwnerEvent, kind="work"):
    """The owner aggregated updates, trained, and perhaps validated (`score` is None if it did not).

    It lasted from `since` to `until`, by default `t`. See `fkge.experiment.history.Validation` for the other fields;
    `sent` (bytes) and `spent` (ε) are sums so far.
    """

    since: float | None = None
    initial: bool = False
    peers: tuple[str, ...] = ()
    epoch: int
    score: float | None
    best: float | None = None
    improved: bool = False
    backtracked: bool = False
    sent: int | None = None
    spent: float | None = None


class Concluded(OwnerEvent, kind="concluded"):
    """The owner has finished the arm; `spent` is the ε of everything it sent."""

    spent: float | None = None


class Died(OwnerEvent, kind="died"):
    """The process of the owner ended early."""

    why: str


class Refused(PeerEvent, kind="refused"):
    """A message of `peer` was invalid."""

    why: str


class OverBudget(PeerEvent, kind="over budget"):
    """The privacy budget does not cover what `peer` asked for."""

    why: str


class PeerLost(PeerEvent, kind="lost"):
    """The connection to `peer` is lost."""


class TrainingEpoch(Event, kind="epoch"):
    """An epoch of `fkge train`."""

    epoch: int
    loss: float
    lr: float


class TrainingValidated(Event, kind="validated"):
    """A validation of `fkge train`; `best`: the highest MRR so far."""

    epoch: int
    mrr: float
    best: bool = False


def parse(record: Record) -> Event | None:
    """Turn a record of a trace into an event; None if it is of a kind that no reader uses.

    Raises:
        RunError: a field is missing, or of the wrong type.
    """
    kind = EVENTS.get(record["event"])
    try:
        return None if kind is None else kind.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise RunError(f"trace: {record['event']!r} record: {field}: {first['msg']}; the trace is damaged") from None


def read_events(run: Path) -> Iterator[Event]:
    """Read the events in the trace of the run in the folder `run`, oldest first."""
    return filter(None, map(parse, Trace(run / "trace.jsonl").read()))
