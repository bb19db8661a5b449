"""The records of a ``trace.jsonl`` as typed events: one class for each kind of record that readers use.

`parse` turns a record into an event. Fields that a kind does not declare are ignored, and so are kinds that are not in
`EVENTS`: a later version of fkge may write more. Times are seconds since the arm started, unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fkge.errors import RunError
from fkge.trace import Trace


class Event(BaseModel):
    """Base of all events."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ArmStarted(Event):
    """An arm starts or is resumed. `time` is in seconds since 1970; `epochs` are those of each owner."""

    arm: str
    time: float
    epochs: int = 0
    owners: tuple[str, ...] = ()


class ArmFinished(Event):
    """An arm is finished, or several that run together (``fede and unified``); `seconds` of wall time."""

    arm: str
    seconds: float


class OwnerEvent(Event):
    """Base of events of one owner; without `arm`, in the current one, without `t`, at the time of the latest event."""

    arm: str | None = None
    owner: str
    t: float | None = None
    until: float | None = None


class StateChanged(OwnerEvent):
    """The owner is now ready, busy, sleep, private or scoring."""

    state: str


class EpochReached(OwnerEvent):
    """The owner has trained so many epochs; written now and then."""

    epoch: int


class PeerEvent(OwnerEvent):
    """Base of events between the owner and a peer."""

    peer: str


class HostingStarted(PeerEvent):
    """A translation of updates of `peer` starts; the owner is its host."""


class Translated(PeerEvent):
    """The translation of updates of `peer` is complete."""


class ExchangeAbandoned(PeerEvent):
    """An exchange with `peer` made no progress; `hosting`: the owner was its host."""

    hosting: bool


class Worked(OwnerEvent):
    """The owner aggregated updates, trained, and perhaps validated (`score` is None if it did not).

    Attributes:
        since, until: start and end; by default `t`.
        initial: the first training; peers: whose updates were aggregated.
        epoch: trained so far; score, best: validation MRR now, and the highest so far.
        improved: `score` is the highest; backtracked: the owner rolled back to its best vectors.
        sent: bytes so far; spent: ε so far.
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


class Concluded(OwnerEvent):
    """The owner has finished the arm; `spent` is the ε of everything it sent."""

    spent: float | None = None


class Died(OwnerEvent):
    """The process of the owner ended early."""

    why: str


class Refused(PeerEvent):
    """A message of `peer` was invalid."""

    why: str


class OverBudget(PeerEvent):
    """The privacy budget does not cover what `peer` asked for."""

    why: str


class PeerLost(PeerEvent):
    """The connection to `peer` is lost."""


class TrainingEpoch(Event):
    """An epoch of `fkge train`."""

    epoch: int
    loss: float
    lr: float


class TrainingValidated(Event):
    """A validation of `fkge train`; `best`: the highest MRR so far."""

    epoch: int
    mrr: float
    best: bool = False


EVENTS: dict[str, type[Event]] = {
    "arm": ArmStarted,
    "arm over": ArmFinished,
    "state": StateChanged,
    "progress": EpochReached,
    "hosting": HostingStarted,
    "translated": Translated,
    "given up": ExchangeAbandoned,
    "work": Worked,
    "concluded": Concluded,
    "died": Died,
    "refused": Refused,
    "over budget": OverBudget,
    "lost": PeerLost,
    "epoch": TrainingEpoch,
    "validated": TrainingValidated,
}
"""The class of each kind of record."""


def parse(record: dict[str, Any]) -> Event | None:
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
