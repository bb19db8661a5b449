"""How founders begin: they wait for each other, once, and agree on where their common rows begin.

A founder waits until all others have come. One that is away must not hold up the rest for good: when none has come for
a while, those that are here begin without. There must be more than half of all founders, or one that is here must be on
its way already, with more than half of them behind it. So two groups that cannot reach each other never both begin:
their rows would begin apart, and nobody would notice.

A founder that comes later finds that the others have begun, waits for no more, and takes over what they settled on: a
founder that has begun says that to each that has not. Owners that are no founders have no part in any of this.

Rows that late founders share with each other and not with those that have begun may begin apart, if one of them shares
them with a third that has: what is settled stays, and reaches them through that one only. Training brings them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Protocol

from fkge.align import Common, Tokens
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused
from fkge.node.settling import Settling, spoken

_OTHERS = 5.0  # seconds for other founders to come, once one has that has begun


class Timer(Protocol):
    """What was put off."""

    def cancel(self) -> None:
        """Let it be."""


class Founder(Protocol):
    """The node that founds."""

    def common_rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        """Its tokens, as drawn or as settled, and what it shares with those of these with whom it shares anything."""

    def tell_tokens(self, peer: str, word: pb.Tokens) -> None:
        """Say this to a peer."""

    def refuse(self, peer: str, why: Refused) -> None:
        """Have no more to do with a peer's present life."""

    def settling(self) -> None:
        """Nobody is waited for any more."""

    def left_behind(self, peer: str) -> None:
        """It begins without one of the founders."""

    def settled(self, tokens: Tokens) -> None:
        """Begin, with these."""


class Founding:
    """A founder's part in it, before and after it has begun.

    Args:
        node: whose it is.
        founders: the others.
        met: all peers with whom it knows what it shares, and that are here; the node's own set, as it changes.
        patience: seconds without another founder coming, after which it begins with those that are here.
        later: how to have something done in so many seconds.
        begun: in an earlier life.
    """

    def __init__(
        self, node: Founder, founders: Iterable[str], met: Set[str], patience: float,
        later: Callable[[float, Callable[[], None]], Timer], begun: bool = False,
    ) -> None:  # fmt: skip
        self._node, self._founders, self._met = node, set(founders), met
        self._patience, self._later = patience, later
        self._begun, self._ended = begun, False
        self._settling: Settling | None = None
        self._ahead: set[str] = set()  # founders that have begun
        self._seen: set[str] = set()  # founders that have come at all
        self._early: dict[str, pb.Tokens] = {}  # what they said before this one could listen
        self._told: set[str] = set()  # who knows what this one has settled on
        self._timer: Timer | None = None
        self._tired = False
        self._silent: set[str] = set()

    def look(self) -> None:
        """See whether there is anybody to wait for."""
        if not self._begun and self._settling is None and (self._founders <= self._met or self._goes_without()):
            self._settle()

    def introduced(self, peer: str, begun: bool) -> None:
        """A peer has been met, also one that was before and has forgotten. `begun`: it has settled with the others."""
        self._told.discard(peer)
        if peer not in self._founders:
            return
        if self._begun:
            if not begun:
                self._say_settled(peer)
            return
        if peer not in self._seen:
            self._seen.add(peer)
            self._wait()
        if begun:
            self._follow(peer)
        if self._settling is None:
            self.look()
        elif common := self._node.common_rows([peer])[1]:
            self._settling.include(peer, common[peer])
            self._tell([self._settling.words()])
            self._listen_to(peer)
            self._see()

    def hear(self, peer: str, word: pb.Tokens) -> None:
        """A peer has said its tokens. `Refused` if they do not fit."""
        if peer not in self._founders:
            return
        if self._begun:
            if not word.settled and peer not in self._told:
                self._say_settled(peer)
        elif self._settling is not None and peer in self._met:
            if peer in self._settling.partners or not word.settled:  # else it says no more than that it has begun
                self._tell(self._settling.hear(peer, word))
                self._see()
        else:
            before = self._early.get(peer)
            if before is None or word.settled or (not before.settled and word.generation >= before.generation):
                self._early[peer] = word
            if word.settled:
                self._follow(peer)
            self.look()

    def lost(self, peer: str) -> None:
        """A life of a peer is over, and what it has said does not count; its next one will say it again."""
        self._early.pop(peer, None)
        self._ahead.discard(peer)
        self._told.discard(peer)

    def changed(self, founders: Iterable[str]) -> None:
        """These are the others now."""
        self._founders = set(founders)
        if self._settling is None:
            self.look()
        elif not self._begun:
            self._leave_out(self._settling.partners - self._founders)

    def end(self) -> None:
        """Nothing more is to come of it."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    # -- waiting

    def _wait(self) -> None:
        """From now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._tired = self._later(self._patience, self._tire), False

    def _tire(self) -> None:
        if self._begun or self._ended:
            return
        if self._settling is None:
            self._tired = True
            self.look()
            return
        # One that is here and silent may be waiting itself, and will be tired of it soon; or it will never say anything
        silent, self._silent = self._settling.silent & self._silent, self._settling.silent
        missing = silent | (self._settling.partners - self._met)
        if self._enough(self._founders & self._met - missing):
            self._name(missing)
            self._leave_out(missing)
        if not self._begun:
            self._wait()

    def _goes_without(self) -> bool:
        """It has waited for long enough, and may begin with those that are here."""
        here = self._founders & self._met
        return self._tired and bool(here) and (self._enough(here) or not here.isdisjoint(self._early))

    def _enough(self, others: Set[str]) -> bool:
        """With this one they are more than half of all founders."""
        return 2 * (len(others) + 1) > len(self._founders) + 1

    def _follow(self, peer: str) -> None:
        """A founder has begun: give the others a moment to come, and do as they did."""
        self._ahead.add(peer)
        self._later(_OTHERS, self._settle_late)

    def _settle_late(self) -> None:
        if self._ahead & self._met:
            self._settle()

    def _name(self, missing: Iterable[str]) -> None:
        for peer in sorted(missing):
            self._node.left_behind(peer)

    # -- settling

    def _settle(self) -> None:
        """All are there that will be."""
        if self._settling is not None or self._begun or self._ended:
            return
        self._name(self._founders - self._met)
        self._wait()
        self._node.settling()
        # None of them is farther from another than there are founders, whoever of them has come
        self._settling = Settling(*self._node.common_rows(self._founders & self._met), len(self._founders) + 1)
        self._tell([self._settling.words()])
        for peer in sorted(self._met):
            self._listen_to(peer)
        self._see()

    def _listen_to(self, peer: str) -> None:
        """Take in what it had said before this one could listen."""
        if (word := self._early.pop(peer, None)) is not None:
            try:
                self.hear(peer, word)
            except Refused as error:
                self._node.refuse(peer, error)

    def _leave_out(self, peers: Set[str]) -> None:
        assert self._settling is not None
        if peers:
            self._settling.leave_out(peers)
            self._tell([self._settling.words()])
            self._see()

    def _tell(self, rounds: list[dict[str, pb.Tokens]]) -> None:
        """One that is not here, or has forgotten the rounds, will be told when it is introduced."""
        for words in rounds:
            for peer, word in words.items():
                if peer in self._met:
                    self._node.tell_tokens(peer, word)

    def _say_settled(self, peer: str) -> None:
        """Also to one that shares nothing with this one, and may wait for others: it hears that they have begun."""
        self._told.add(peer)
        tokens, commons = self._node.common_rows([peer])
        word = spoken(tokens, commons[peer], settled=True) if peer in commons else pb.Tokens(settled=True)
        self._node.tell_tokens(peer, word)

    def _see(self) -> None:
        assert self._settling is not None
        if self._settling.done and not self._begun:
            self._begun = True
            self.end()
            self._node.settled(self._settling.tokens)
            for peer in sorted(self._founders & self._met - self._settling.partners):
                self._say_settled(peer)
