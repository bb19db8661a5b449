"""`Membership` decides which connected peers the owner exchanges with, and passes messages between them and the owner.

A peer that is aligned joins as soon as the owner can take it in: not before the owner is loaded, and not while it works
with what it received under an older alignment. Messages that arrive until then wait, up to a limit. A peer that shares
too few rows never joins, and the owner does not wait for its news.
"""

from __future__ import annotations

from collections.abc import Mapping

from fkge.federation import FederationSettings, PeerProfile
from fkge.federation.owner import Owner
from fkge.node.alignment import longest
from fkge.node.driver import NodeDriver
from fkge.node.events import Emit, Notice
from fkge.node.frames import FEDERATION, Refused
from fkge.node.peer import Peer

_PENDING = 64  # messages that may wait: one of the longest, and some small ones
_PENDING_BYTES = 1 << 16  # in addition to one of the longest


class Membership:
    """The members among a node's peers.

    Args:
        peers: all that the node knows, by name; a view that changes with `peers.toml`.
        settings, emit: how the owner federates, and what is called with notices.
    """

    def __init__(self, peers: Mapping[str, Peer], settings: FederationSettings, emit: Emit) -> None:
        self.aligned: dict[str, PeerProfile] = {}  # peers that are connected, each with what is shared with it
        self.joined: set[str] = set()  # those of them that the owner exchanges with
        self.paused = False
        self._peers, self._settings, self._emit = peers, settings, emit
        self._pending: dict[str, list[bytes]] = {}
        self._left_out: set[str] = set()
        self._driver: NodeDriver | None = None

    @property
    def owner(self) -> Owner | None:
        """The owner that works, once it is loaded."""
        return None if self._driver is None else self._driver.owner

    def begin(self, driver: NodeDriver) -> None:
        """Start the owner's work with the peers that are here; `join_all` has to follow.

        A peer that was aligned again while the owner was opened joins then, like any other.
        """
        self._driver, known = driver, driver.owner.peers
        driver.pause(self.paused)
        self.limit()
        here = {name for name in self.aligned if self._peers[name].session is not None}
        self.joined = {name for name in here if known.get(name) == self.aligned[name]}
        for name in self.joined:
            self._open(self._peers[name])
        driver.begin(self.joined)

    async def leave(self) -> None:
        """Stop the owner's work and save it."""
        if self._driver is not None:
            await self._driver.leave()

    def pause(self, paused: bool) -> None:
        """Pause training, or resume it; peers are served all the same."""
        self.paused = paused
        if self._driver is not None:
            self._driver.pause(paused)

    def limit(self) -> None:
        """Apply what `peers.toml` allows: which peers may not ask, and what votes for each may cost."""
        if self._driver is not None:
            refuses = [name for name, peer in self._peers.items() if not peer.settings.ask]
            caps = {n: p.settings.epsilon for n, p in self._peers.items() if p.settings.epsilon is not None}
            self._driver.limit(refuses, caps, not self._peers.keys() <= self._left_out)

    # -- joining and leaving -------------------------------------------------------------------------

    def add(self, peer: Peer, known: PeerProfile) -> None:
        """Add a peer that is aligned; it joins now or as soon as it can."""
        self.aligned[peer.name] = known
        self._join(peer)

    def replace(self, peer: Peer, known: PeerProfile) -> None:
        """Replace what is shared with a peer that is aligned; it joins again as soon as it can."""
        if peer.name not in self.aligned:
            return
        if peer.name in self.joined:
            self.joined.discard(peer.name)
            if self._driver is not None:
                self._driver.lose(peer.name)
        self.add(peer, known)

    def remove(self, name: str) -> None:
        """Remove a peer whose session is over."""
        self.aligned.pop(name, None)
        self._pending.pop(name, None)
        if name in self.joined:
            self.joined.discard(name)
            if self._driver is not None:
                self._driver.lose(name)

    def forget(self, name: str) -> None:
        """Forget that too few rows were shared with a peer: its settings have changed."""
        self._left_out.discard(name)

    def join_all(self) -> None:
        """Join every aligned peer that can join now; called when the owner has finished a round or an exchange."""
        for peer in list(self._peers.values()):
            self._join(peer)

    def _join(self, peer: Peer) -> None:
        driver, known = self._driver, self.aligned.get(peer.name)
        if driver is None or known is None or peer.session is None:
            return
        if peer.name not in self.joined:
            if not driver.may_join(peer.name, known):
                return  # `join_all` tries again when the work is over
            self.joined.add(peer.name)  # before `join`, whose first message must pass `post`
            if not driver.join(peer.name, known):
                self.joined.discard(peer.name)
                self._leave_out(peer, known)
                return
            if peer.name in self._left_out:  # it has other data than it had
                self._left_out.remove(peer.name)
                self.limit()
            self._open(peer)
            self._emit(Notice({"peer": peer.name}, log="peer joined"))
        while (pending := self._pending.get(peer.name)) and not driver.held:
            driver.deliver(peer.name, pending.pop(0))

    def _open(self, peer: Peer) -> None:
        """Raise the session's limits, so that whole exchanges pass."""
        assert peer.session is not None
        most = longest(self.aligned[peer.name], self._settings)
        peer.session.limits[FEDERATION] = most
        peer.session.backlog = 2 * most + (64 << 20)

    def _leave_out(self, peer: Peer, known: PeerProfile) -> None:
        if peer.name not in self._left_out:
            self._left_out.add(peer.name)
            self._emit(Notice({"peer": peer.name, "rows": len(known.common)}, log="alignment refused"))
            self.limit()

    # -- messages ------------------------------------------------------------------------------------

    def post(self, name: str, data: bytes) -> None:
        """Send a message of the owner's to a peer, if it has joined."""
        if name in self.joined and (peer := self._peers.get(name)) is not None:
            peer.send(FEDERATION, data)

    def receive(self, peer: Peer, body: bytes) -> None:
        """Deliver a message to the owner, or keep it until the peer has joined.

        Raises:
            Refused: more messages than may wait.
        """
        driver = self._driver
        if driver is not None and peer.name in self.joined and not driver.held:
            driver.deliver(peer.name, body)
            return
        pending = self._pending.setdefault(peer.name, [])
        longest_now = 0 if peer.session is None else peer.session.limits[FEDERATION]
        if len(pending) >= _PENDING or sum(map(len, pending)) + len(body) > longest_now + _PENDING_BYTES:
            raise Refused("too_many", "too many messages before the peer has joined")
        pending.append(body)
