"""The events that one owner's protocol takes (what happens to the owner, or messages of a peer:
`fkge.federation.messages`), and the instructions that it returns to `fkge.federation.participant`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, get_args

from fkge.federation.messages import Handshake, OfPeer, OfSession, Peer


@dataclass(frozen=True)
class Begin:
    """The owner joins.

    Attributes:
        trained: it has vectors to offer, from an earlier incarnation.
        spent: it has no epochs left.
    """

    trained: bool = False
    spent: bool = False


@dataclass(frozen=True)
class Finished:
    """The `Improve` under way is over.

    Attributes:
        news: there is something new to offer.
        spent: the owner has used up its epochs; from now on it only serves.
    """

    news: bool
    spent: bool = False


@dataclass(frozen=True)
class Wake:
    """The time asked for with `Timer` is over."""


class Received(OfSession):
    """A translation this owner hosts is complete."""


class Served(OfSession):
    """A translation this owner serves is complete."""


class Lost(OfPeer):
    """A peer cannot be reached any more."""


class Joined(OfPeer):
    """A peer is there, for the first time or again."""


Event: TypeAlias = Begin | Finished | Wake | Handshake | Received | Served | Lost | Joined
EVENTS: tuple[type, ...] = get_args(Event)


@dataclass(frozen=True)
class Improve:
    """Aggregate what came from `peers`, train, validate, keep or roll back; then report `Finished`.

    Attributes:
        peers: sessions whose translations to aggregate, as (peer, session); none for training alone.
        initial: the first training of all.
    """

    peers: tuple[tuple[Peer, int], ...] = ()
    initial: bool = False


@dataclass(frozen=True)
class Send:
    """Send a peer a message of type `message`, with this owner as its `peer` and the other fields that the type has."""

    to: Peer
    message: type[Handshake]
    session: int = 0
    news: bool = True
    last: bool = False
    host: bool = False


class Host(OfSession):
    """Take the host's role in a translation; then report `Received`."""


class Serve(OfSession):
    """Take the client's role in a translation; then report `Served`."""


class Drop(OfPeer):
    """Forget every translation with this peer, as host or client."""


@dataclass(frozen=True)
class Forget(OfSession):
    """Forget one translation. `hosting`: this owner is its host."""

    hosting: bool


@dataclass(frozen=True)
class Timer:
    """Report `Wake` after this many seconds; replaces any timer set before."""

    seconds: float


Instruction: TypeAlias = Improve | Send | Host | Serve | Drop | Forget | Timer
