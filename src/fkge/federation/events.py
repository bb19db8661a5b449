"""Events that one owner's protocol takes: something that happens to the owner itself, or a message of a peer
(`fkge.federation.messages`). It answers with `fkge.federation.instructions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, get_args

from fkge.federation.messages import Handshake, OfPeer, OfSession


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
