"""How a founder begins: it waits for the others, once, and agrees with them on where their common rows begin.

It waits until all of them have come; or until none has come for a while and some are there, for one that is away must
not hold up the rest. Whoever of the founders comes later finds that the others have begun, waits for no more, and takes
over what they have settled on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Protocol

from fkge.align import Common, Tokens
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused
from fkge.node.settling import Settling

_OTHERS = 5.0  # seconds for other founders to come, once somebody has that has begun
_EARLY = 8  # words of one peer that may wait


class Timer(Protocol):
    """What was put off."""

    def cancel(self) -> None:
        """Let it be."""


class Founder(Protocol):
    """The node that founds."""

    def common_rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        """Its tokens as they were drawn, and what it shares with those of these peers with whom it shares something."""

    def tell_tokens(self, peer: str, word: pb.Tokens) -> None:
        """Say this to a peer."""

    def refuse(self, peer: str, why: Refused) -> None:
        """Have no more to do with a peer's present life."""

    def settling(self) -> None:
        """Nobody is waited for any more."""

    def left_behind(self, peer: str) -> None:
        """This begins without one of the founders."""

    def settled(self, tokens: Tokens) -> None:
        """Begin, with these."""


class Founding:
    """A founder's way to its beginning.

    Args:
        node: which it is of.
        founders: the others.
        met: all peers with whom it knows what it shares, and that are here; the node's own set, as it changes.
        patience: seconds without anybody coming, after which this begins with those that are here.
        later: how to have something done in so many seconds.
    """

    def __init__(
        self, node: Founder, founders: Iterable[str], met: Set[str], patience: float,
        later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:  # fmt: skip
        self._node, self._founders, self._met = node, set(founders), met
        self._patience, self._later = patience, later
        self._settling: Settling | None = None
        self._early: dict[str, list[pb.Tokens]] = {}
        self._timer: Timer | None = None
        self._over = False

    def look(self) -> None:
        """See whether there is anybody to wait for."""
        if self._settling is None and self._founders <= self._met:
            self._settle()

    def introduced(self, peer: str, begun: bool) -> None:
        """A peer has been met, also one that was before and has forgotten. `begun`: it waits for nobody any more."""
        self._wait()
        if self._settling is None:
            self.look()
            if self._settling is None and begun:
                self._later(_OTHERS, self._settle)
        elif peer in self._founders and (common := self._node.common_rows([peer])[1]):
            self._settling.include(peer, common[peer])
            self._tell([self._settling.words()])
            self._listen_to(peer)
            self._see()

    def hear(self, peer: str, word: pb.Tokens) -> None:
        """A peer has said its tokens. `Refused` if they do not fit."""
        if self._settling is not None and peer in self._met:
            self._tell(self._settling.hear(peer, word))
            self._see()
            return
        waiting = [early for early in self._early.get(peer, []) if early.generation >= word.generation]
        if len(waiting) >= _EARLY:
            raise Refused("too_many", "more tokens came than can wait")
        self._early[peer] = [*waiting, word]

    def lost(self, peer: str) -> None:
        """A life of a peer is over, and what it has said does not count; its next one will say it again."""
        self._early.pop(peer, None)

    def changed(self, founders: Iterable[str]) -> None:
        """These are the others now."""
        self._founders = set(founders)
        if self._settling is None:
            self.look()
        else:
            self._leave_out(self._settling.partners - self._founders)

    def end(self) -> None:
        """It does not come to a beginning, or has."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    # -- waiting

    def _wait(self) -> None:
        """From now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._later(self._patience, self._tired)

    def _tired(self) -> None:
        if self._over:
            return
        if self._settling is not None:
            missing = self._settling.partners - self._met
            self._name(missing)
            self._leave_out(missing)
            self._wait()
        elif self._founders & self._met:
            self._name(self._founders - self._met)
            self._settle()
        # else nobody is here; it waits again once somebody is

    def _name(self, missing: Iterable[str]) -> None:
        for peer in sorted(missing):
            self._node.left_behind(peer)

    # -- settling

    def _settle(self) -> None:
        """All are there that will be."""
        if self._settling is not None or self._over:
            return
        self._wait()
        self._node.settling()
        # None of them is farther from another than there are founders, whoever of them has come
        self._settling = Settling(*self._node.common_rows(self._founders & self._met), len(self._founders) + 1)
        self._tell([self._settling.words()])
        for peer in sorted(self._met):
            self._listen_to(peer)
        self._see()

    def _listen_to(self, peer: str) -> None:
        """Take in what it had said before this node could listen."""
        try:
            for word in self._early.pop(peer, []):
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

    def _see(self) -> None:
        assert self._settling is not None
        if self._settling.done and not self._over:
            self.end()
            self._node.settled(self._settling.tokens)
