"""Instructions that one owner's protocol returns to `fkge.federation.participant`, for the events that it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fkge.federation.messages import Handshake, OfPeer, OfSession, Peer


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


class Host(OfSession):
    """Take the host's role in a translation; then report `Received`."""


class Serve(OfSession):
    """Take the client's role in a translation; then report `Served`."""


class Drop(OfPeer):
    """Forget every translation with this peer, whichever side."""


@dataclass(frozen=True)
class Forget(OfSession):
    """Forget one translation. `hosting`: this owner is its host."""

    hosting: bool


@dataclass(frozen=True)
class Timer:
    """Report `Wake` after this many seconds; replaces any timer set before."""

    seconds: float


Instruction: TypeAlias = Improve | Send | Host | Serve | Drop | Forget | Timer
