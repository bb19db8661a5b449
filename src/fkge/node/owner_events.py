"""Events of a node about its owner: messages ready to send, exchanges, rounds of training. `owner_events` makes those
of exchanges and training from the owner's trace; `fkge.node.service` makes those of messages.
"""

from __future__ import annotations

from fkge import owner_events as owner
from fkge.node.events import Event, Misbehaved, Notice


class MessageReady(Event):
    """A message of the owner's for a peer; it is in the audit log already."""

    peer: str
    body: bytes


class ControlSent(Event):
    """The owner has answered a peer with a small message, of which a peer can provoke any number."""

    peer: str


class ExchangeAbandoned(Event):
    """An exchange with a peer came to nothing. `provoked`: as a hostile peer could have it, again and again."""

    peer: str
    outcome: str
    provoked: bool
    why: str


class ExchangeFinished(Event):
    """The owner has received all of an update from a peer."""

    peer: str


class WorkFinished(Event):
    """The owner has trained, aggregated or tested."""

    epoch: int  # how many are done
    epochs: int  # of them, by this work
    peers: int  # how many peers' updates went into it
    score: float | None  # mean reciprocal rank in validation, if that was measured
    best: float | None  # so far
    spent: float | None  # ε so far; None where nothing has a price


class JoinDue(Event):
    """The owner has finished its work, or its vectors were moved: peers may join, and messages be delivered."""


class OwnerStateChanged(Event):
    """The owner's protocol is in another state, ready, busy or sleep; or its results are written: concluded."""

    state: str


def owner_events(event: owner.OwnerEvent) -> list[Event]:
    """Translate what a participant or driver notes into events of the node; none for what concerns only a trace."""
    match event:
        case owner.Refused():
            return [Misbehaved(event.peer, "malformed", event.why)]
        case owner.StrayMessage():
            return [ExchangeAbandoned(event.peer, "aborted", True, event.kind)]
        case owner.ExchangeAbandoned():
            return [ExchangeAbandoned(event.peer, "aborted", not event.hosting, event.kind)]
        case owner.OverBudget():
            return [ExchangeAbandoned(event.peer, "refused", False, event.kind)]
        case owner.HostingFinished():
            return [ExchangeFinished(event.peer)]
        case owner.Worked():
            peers = len(event.peers)
            return [WorkFinished(event.epoch, event.epochs, peers, event.score, event.best, event.spent)]
        case owner.CheckpointDamaged():
            damaged = Notice({"reason": "damaged"}, log="checkpoint", level="error")
            return [damaged, Notice({"sentence": event.why}, audit="checkpoint damaged")]
        case owner.BudgetExhausted():
            log = Notice({}, log="budget spent", level="warning")
            return [log, Notice({"sentence": event.why}, audit="budget")]
        case owner.StateChanged(state="ready" | "busy" | "sleep"):
            return [OwnerStateChanged(event.state)]
        case owner.Concluded():
            return [Notice({}, audit="concluded"), OwnerStateChanged("concluded")]
    return []
