"""Events of a node about its owner: messages ready to send, exchanges, rounds of training. `owner_events` makes those
of exchanges and training from the owner's trace; `fkge.node.service` makes those of messages.
"""

from __future__ import annotations

from typing import Any

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


def owner_events(name: str, **fields: Any) -> list[Event]:
    """Translate what a participant or driver notes into events of the node; none for what concerns only a trace."""
    peer, why = str(fields.get("peer", "")), str(fields.get("why", ""))
    match name:
        case "refused":
            return [Misbehaved(peer, "malformed", why)]
        case "stray":
            return [ExchangeAbandoned(peer, "aborted", True, name)]
        case "given up":
            return [ExchangeAbandoned(peer, "aborted", not fields["hosting"], name)]
        case "over budget":
            return [ExchangeAbandoned(peer, "refused", False, name)]
        case "translated":
            return [ExchangeFinished(peer)]
        case "work":
            numbers = {key: fields[key] for key in ("epoch", "epochs", "score", "best", "spent")}
            return [WorkFinished(peers=len(fields["peers"]), **numbers)]
        case "damaged":
            damaged = Notice({"reason": "damaged"}, log="checkpoint", level="error")
            return [damaged, Notice({"sentence": why}, audit="checkpoint damaged")]
        case "spent":
            return [Notice({}, log="budget spent", level="warning"), Notice({"sentence": why}, audit="budget")]
        case "held":
            return [JoinDue()]
        case "state" if fields["state"] in ("ready", "busy", "sleep"):
            return [OwnerStateChanged(fields["state"])]
        case "concluded":
            return [Notice({}, audit="concluded"), OwnerStateChanged("concluded")]
    return []
