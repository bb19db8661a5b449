"""What an owner reports while it works, as typed events: to the trace of a simulation, or to its node.

Light on purpose: `fkge.experiment.trace_events` reads them for reports, without importing torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from fkge.trace import Record

EVENTS: dict[str, type[TraceEvent]] = {}
"""The class of each kind of record in a trace."""


class TraceEvent(BaseModel):
    """Base of all events of a trace. A class with a `kind` is for records of that kind."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if kind:
            cls.kind, EVENTS[kind] = kind, cls

    def record(self) -> Record:
        """The event as it is written; what was never set is left out."""
        return {"event": self.kind, **self.model_dump(mode="json", exclude_unset=True)}

    def stamped(self, **fields: Any) -> Self:
        """The event with those of `fields` that it does not say itself."""
        return self.model_copy(update={k: v for k, v in fields.items() if k not in self.model_fields_set})


class OwnerEvent(TraceEvent):
    """Base of events of one owner. Who runs the owner stamps them with `arm`, `owner` and `t`.

    Without `arm` an event belongs to the current one, without `t` to the time of the latest event. Times are seconds
    since the arm started.
    """

    arm: str | None = None
    owner: str = ""
    t: float | None = None
    until: float | None = None


Emit = Callable[[OwnerEvent], None]


class StateChanged(OwnerEvent, kind="state"):
    """The owner is now ready, busy, sleep, private, lone or scoring."""

    state: str


class EpochReached(OwnerEvent, kind="progress"):
    """The owner has trained so many epochs; written now and then."""

    epoch: int


class Worked(OwnerEvent, kind="work"):
    """The owner aggregated updates, trained, and perhaps validated, from `since` to `until`, by default `t`.

    Attributes:
        initial: the first training of all.
        peers: whose updates were aggregated.
        epoch: epochs so far; epochs: those of this round.
        score: MRR, if it validated; best: the highest so far; improved: this one is; backtracked: it rolled back.
        sent: bytes so far, to all peers; spent: ε so far, where something has a price.
    """

    since: float | None = None
    initial: bool = False
    peers: tuple[str, ...] = ()
    epoch: int
    epochs: int = 0
    score: float | None
    best: float | None = None
    improved: bool = False
    backtracked: bool = False
    sent: int | None = None
    spent: float | None = None


class Concluded(OwnerEvent, kind="concluded"):
    """The owner has finished; `spent` is the ε of everything it sent."""

    spent: float | None = None


class CheckpointDamaged(OwnerEvent, kind="damaged"):
    """The owner's checkpoint was damaged, and the one before took its place."""

    why: str


class BudgetExhausted(OwnerEvent, kind="spent"):
    """The owner's privacy budget ends its training."""

    why: str


class PeerEvent(OwnerEvent):
    """Base of events between the owner and a peer."""

    peer: str


class HostingStarted(PeerEvent, kind="hosting"):
    """An exchange starts in which the owner is the host of `peer`."""


class HostingFinished(PeerEvent, kind="translated"):
    """The owner has all of an update from `peer`; with PPAT, what the exchange cost by the paper's formula."""

    queries: int | None = None
    epsilon_paper_per_sample: float | None = None
    epsilon_paper_per_batch: float | None = None


class ExchangeAbandoned(PeerEvent, kind="given up"):
    """An exchange with `peer` made no progress; `hosting`: the owner was its host."""

    hosting: bool


class StrayMessage(PeerEvent, kind="stray"):
    """A message of `peer` belongs to an exchange that the owner has abandoned."""

    why: str


class Refused(PeerEvent, kind="refused"):
    """A message of `peer` was invalid."""

    why: str


class OverBudget(PeerEvent, kind="over budget"):
    """The privacy budget does not cover what `peer` asked for."""

    why: str


class PeerLost(PeerEvent, kind="lost"):
    """The connection to `peer` is lost."""
