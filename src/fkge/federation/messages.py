"""Control messages of the protocol (Signal, Request, Accept, Defer, Refuse, Abort), as they pass on the wire. The
receiver sees each as an event of its protocol, with the sender as its `peer`. Messages within an exchange, such as
`Update`, are in `fkge.federation.exchange` and `fkge.ppat.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, get_args

Peer: TypeAlias = str


@dataclass(frozen=True)
class OfPeer:
    """About a peer."""

    peer: Peer


@dataclass(frozen=True)
class OfSession(OfPeer):
    """About one exchange with `peer`, which its host has numbered `session`."""

    session: int


@dataclass(frozen=True)
class Signal(OfPeer):
    """A peer has news, or announces that there will be no more after this (`last`)."""

    news: bool = True
    last: bool = False


class Request(OfSession):
    """A peer wants to host: it asks this owner to translate for it."""


class Accept(OfSession):
    """A peer agrees to translate for this owner."""


class Defer(OfSession):
    """A peer is Busy; it will send a signal when it is not."""


class Refuse(OfSession):
    """A peer will not translate for this owner, for as long as it takes part."""


@dataclass(frozen=True)
class Abort(OfSession):
    """A peer abandons an exchange. `host`: the peer is the one that hosts, and this owner serves."""

    host: bool


Handshake: TypeAlias = Signal | Request | Accept | Defer | Refuse | Abort
HANDSHAKE: tuple[type[Handshake], ...] = get_args(Handshake)
