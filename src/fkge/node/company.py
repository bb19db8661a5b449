"""The peers that a node deals with, and what passes between them and its owner's work.

A peer that was met joins as soon as the owner can take it in: not before there is one, and not while it works with what
it got under an older alignment. What the peer says until then waits, as far as that is little. One with whom too little
is shared is kept apart: nobody waits for its news.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fkge.federation import Acquaintance, FederationSettings
from fkge.federation.owner import Owner
from fkge.node.frames import FEDERATION, Refused
from fkge.node.meeting import longest
from fkge.node.peer import Peer
from fkge.node.runner import Runner

_EARLY = 64  # messages that may wait: one of the longest, and some small ones
_SMALL_ONES = 1 << 16


class Company:
    """Who takes part.

    Args:
        peers: all that the node knows; its own, as they change.
        settings: how the owner federates.
        tell: called with an event and its fields when a peer joins, or is kept apart.

    Attributes:
        met: the peers that are here, each with what is shared with it.
        joined: those of them that the owner deals with.
        paused: nobody trains for now.
    """

    def __init__(self, peers: Mapping[str, Peer], settings: FederationSettings, tell: Callable[..., None]) -> None:
        self.met: dict[str, Acquaintance] = {}
        self.joined: set[str] = set()
        self.paused = False
        self._peers, self._settings, self._tell = peers, settings, tell
        self._early: dict[str, list[bytes]] = {}
        self._apart: set[str] = set()
        self._runner: Runner | None = None

    # -- the owner's work ----------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        """Whose work it is, once it has been taken up."""
        return None if self._runner is None or self._runner.station is None else self._runner.station.owner

    async def begin(self, runner: Runner) -> None:
        """Take up the owner's work with those that are here; `join_all` has to follow."""
        self._runner = runner
        if self.paused:
            runner.pause()
        self.limit()
        await runner.begin(self._present)

    def _present(self, known: Mapping[str, Acquaintance]) -> set[str]:
        """Of the peers that the owner knows as it begins, those that are here; from now on they count as joined.

        One that has aligned anew while the owner was made joins afterwards, as any other.
        """
        here = {name for name in self.met if self._peers[name].session is not None}
        self.joined = {name for name in here if known.get(name) == self.met[name]}
        for name in self.joined:
            self._open(self._peers[name])
        return self.joined

    async def leave(self) -> None:
        """End the work where it is, and keep it."""
        if self._runner is not None:
            await self._runner.leave()

    def pause(self) -> None:
        """Do not train, until `resume`; what is asked is answered."""
        self.paused = True
        if self._runner is not None:
            self._runner.pause()

    def resume(self) -> None:
        """Train again."""
        self.paused = False
        if self._runner is not None:
            self._runner.resume()

    def limit(self) -> None:
        """Apply what the node's owner lets its peers have: who may not ask, what votes for whom may cost."""
        if self._runner is not None:
            refuses = [name for name, peer in self._peers.items() if not peer.settings.ask]
            caps = {n: p.settings.epsilon for n, p in self._peers.items() if p.settings.epsilon is not None}
            self._runner.limit(refuses, caps, not self._peers.keys() <= self._apart)

    # -- coming and going ----------------------------------------------------------------------------

    def introduced(self, peer: Peer, known: Acquaintance) -> None:
        """A peer has been met, and what it shares is known."""
        self.met[peer.name] = known
        self._join(peer)

    def lost(self, peer: Peer) -> None:
        """A life of a peer is over."""
        self.met.pop(peer.name, None)
        self._early.pop(peer.name, None)
        if peer.name in self.joined:
            self.joined.discard(peer.name)
            if self._runner is not None:
                self._runner.lose(peer.name)

    def forget(self, name: str) -> None:
        """A peer is none any more, or another one in all but name."""
        self._apart.discard(name)

    def join_all(self) -> None:
        """Something has changed: perhaps the owner can take in who has waited for it."""
        for peer in list(self._peers.values()):
            self._join(peer)

    def _join(self, peer: Peer) -> None:
        runner, known = self._runner, self.met.get(peer.name)
        if runner is None or runner.station is None or known is None or peer.session is None:
            return
        if peer.name not in self.joined:
            if not runner.may_join(peer.name, known):
                return  # when the work is over; what it says until then can wait
            self.joined.add(peer.name)
            if not runner.join(peer.name, known):
                self.joined.discard(peer.name)
                self._keep_apart(peer, known)
                return
            if peer.name in self._apart:  # it has other data than it had
                self._apart.remove(peer.name)
                self.limit()
            self._open(peer)
            self._tell("peer joined", peer=peer.name)
        while (early := self._early.get(peer.name)) and not runner.held:
            runner.deliver(peer.name, early.pop(0))

    def _open(self, peer: Peer) -> None:
        """Let whole exchanges through."""
        assert peer.session is not None
        most = longest(self.met[peer.name], self._settings)
        peer.session.limits[FEDERATION] = most
        peer.session.backlog = 2 * most + (64 << 20)

    def _keep_apart(self, peer: Peer, known: Acquaintance) -> None:
        if peer.name not in self._apart:
            self._apart.add(peer.name)
            self._tell("alignment refused", peer=peer.name, rows=len(known.common))
            self.limit()

    # -- what is said --------------------------------------------------------------------------------

    def post(self, name: str, data: bytes) -> None:
        """Say something to a peer, if it takes part."""
        if name in self.joined and (peer := self._peers.get(name)) is not None:
            peer.send(FEDERATION, data)

    def heard(self, peer: Peer, body: bytes) -> None:
        """A peer has said something. `Refused` if it says too much before it takes part."""
        runner = self._runner
        if runner is not None and peer.name in self.joined and not runner.held:
            runner.deliver(peer.name, body)
            return
        early = self._early.setdefault(peer.name, [])
        longest_now = 0 if peer.session is None else peer.session.limits[FEDERATION]
        if len(early) >= _EARLY or sum(map(len, early)) + len(body) > longest_now + _SMALL_ONES:
            raise Refused("too_many", "more came than can wait")
        early.append(body)
