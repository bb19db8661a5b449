"""Events that one owner's protocol takes, and the instructions that it returns to `fkge.federation.participant`.

An event is something that happens to the owner itself, or a message of a peer (`fkge.federation.messages`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, get_args

from fkge.federation.messages import Handshake

Peer: TypeAlias = str


@dataclass(frozen=True)
class _OfPeer:
    peer: Peer


@dataclass(frozen=True)
class _OfSession(_OfPeer):
    session: int


# -- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """The owner joins.

    Attributes:
        trained: with vectors to offer, from an earlier incarnation.
        spent: and no epochs left.
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


class Received(_OfSession):
    """A translation this owner hosts is complete."""


class Served(_OfSession):
    """A translation this owner serves is complete."""


class Lost(_OfPeer):
    """A peer cannot be reached any more."""


class Joined(_OfPeer):
    """A peer is there, for the first time or again."""


Event: TypeAlias = Begin | Finished | Wake | Handshake | Received | Served | Lost | Joined
EVENTS: tuple[type, ...] = get_args(Event)


# -- instructions ----------------------------------------------------------------------------------


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
    """Send a message to a peer: one of this type, with this owner as its `peer` and these fields where it has them."""

    to: Peer
    message: type[Handshake]
    session: int = 0
    news: bool = True
    last: bool = False
    host: bool = False


class Host(_OfSession):
    """Take the host's role in a translation; then report `Received`."""


class Serve(_OfSession):
    """Take the client's role in a translation; then report `Served`."""


class Drop(_OfPeer):
    """Forget every translation with this peer, whichever side."""


@dataclass(frozen=True)
class Forget(_OfSession):
    """Forget one translation. `hosting`: this owner is its host."""

    hosting: bool


@dataclass(frozen=True)
class Timer:
    """Report `Wake` after this many seconds; replaces any timer set before."""

    seconds: float


Instruction: TypeAlias = Improve | Send | Host | Serve | Drop | Forget | Timer
