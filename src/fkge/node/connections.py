"""Connections to peers: accept and dial streams, check identities and greetings, and hand each stream to its `Peer`.

A stream is used only if the peer proves that it is who it claims to be, and if `peers.toml` names it and lets it
connect at this time. When a stream breaks, the session waits `grace` seconds for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from fkge.errors import IdentityError
from fkge.files import stamp
from fkge.node import frames_pb2 as pb
from fkge.node.events import Emit, Event, Failed, supervised
from fkge.node.frames import Refused, bye
from fkge.node.handshake import check_greeting, check_proof, read_greeting, signed, trusted
from fkge.node.peer import Peer, SessionEnded, hello_frame
from fkge.node.settings import NodeConfig, address
from fkge.node.transport import Line, Transport
from fkge.pki.certificates import KIT, fingerprint, name_of, public_key, read_certificate
from fkge.pki.site import Identity

_GREETING = 15.0  # seconds that a greeting may take
_RETRY = (0.2, 15.0)  # seconds before a peer is dialled again: at first, and at most
_RETRY_REFUSED = 60.0  # at most, after it refused
_LAST_WORD = 2.0  # seconds that sending the reason for a refusal may take


class PeerConnected(Event):
    """A stream to a peer is open. `resumed`: its session continues; if not, it has just started."""

    peer: Peer
    hello: pb.Hello
    resumed: bool


class PeerDisconnected(Event):
    """The stream to a peer has ended; `why` is None if it broke, and the session then waits for the next one."""

    peer: Peer
    why: Refused | None


class PeerRefused(Event):
    """One side has refused the other before a stream was used; `peer` is None for a stranger."""

    peer: Peer | None
    name: str
    why: Refused


class ConnectionManager:
    """Accept and dial connections to peers.

    Args:
        config, terms: of the node, and how it federates (`fkge.node.handshake.terms_of`).
        peers: by name; a view that changes with `peers.toml`.
        greet: makes this node's greeting to a peer.
        emit: called with `PeerConnected`, `PeerDisconnected`, `PeerRefused`, `SessionEnded` and `Failed`.

    Raises:
        IdentityError: the node's key or certificate cannot be used.
    """

    def __init__(
        self,
        config: NodeConfig,
        terms: Mapping[str, str],
        peers: Mapping[str, Peer],
        greet: Callable[[Peer], pb.Hello],
        emit: Emit,
    ) -> None:
        self._config, self._terms, self._peers = config, terms, peers
        self._greet, self._emit = greet, emit
        self.identity = Identity.load(config.folder / config.node.identity)  # as it is now; see `reload`
        self._seen = stamp(self.identity.folder / KIT)
        self._transport = Transport(lambda: self.identity, at_once=32 * len(peers) + 64)
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._grace: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    async def open(self) -> None:
        """Listen, if the node does, and dial the peers that it has to dial.

        Raises:
            NodeError: it cannot listen there.
        """
        if self._config.node.listen:
            await self._transport.listen(*address(self._config.node.listen), self.accept)
        for peer in self._peers.values():
            self.dial(peer)

    async def close(self) -> None:
        """End all streams, and accept no more; sessions end with them."""
        self._closed = True
        for peer in self._peers.values():
            peer.hang_up(Refused("leaving", "the node stops"))
        for timer in self._grace.values():
            timer.cancel()
        for task in self._dialling.values():
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        await self._transport.close()

    def forget(self, peer: Peer) -> None:
        """Stop dialling a peer, and waiting for it: `peers.toml` has changed."""
        if (task := self._dialling.pop(peer.name, None)) is not None:
            task.cancel()
        if (timer := self._grace.pop(peer.name, None)) is not None:
            timer.cancel()

    # -- sessions over streams -----------------------------------------------------------------------

    async def _use(self, peer: Peer, line: Line, hello: pb.Hello, ours: pb.Hello) -> None:
        """Carry the peer's session over a stream, both greetings having been checked, until the stream ends.

        Both sides resume a session if each names the other's incarnation; `heard` says where to continue. Otherwise one
        of the processes is new: what was under way with the old one is over, and a new session starts.
        """
        if self._peers.get(peer.name) is not peer:
            raise Refused("stranger", "its settings in peers.toml have changed; connect again")
        if (timer := self._grace.pop(peer.name, None)) is not None:
            timer.cancel()
        resumed = bool(ours.your_life) and hello.life == peer.incarnation and hello.your_life == ours.life
        if resumed:
            try:
                if peer.session is None:
                    raise Refused("leaving", "its session ended a moment ago; connect again")
                peer.session.resume(hello.heard)
            except Refused:
                self._end_session(peer)
                raise
        else:
            self._end_session(peer)
            peer.fresh(hello.life)
        self._emit(PeerConnected(peer, hello, resumed))
        why = await peer.carry(line)
        if (why is None or why.reason == "replaced") and not self._closed and self._peers.get(peer.name) is peer:
            loop = asyncio.get_running_loop()
            self._grace[peer.name] = loop.call_later(self._config.node.grace, self._give_up, peer)
        self._emit(PeerDisconnected(peer, why))

    def _give_up(self, peer: Peer) -> None:
        self._grace.pop(peer.name, None)
        if not peer.here:
            self._end_session(peer)

    def _end_session(self, peer: Peer) -> None:
        peer.session = None
        self._emit(SessionEnded(peer, None))

    # -- accepting -----------------------------------------------------------------------------------

    async def accept(self, line: Line) -> None:
        """Check who has opened a stream, greet it, and use the stream until it ends."""
        name = ""
        try:
            certificate = line.certificate or b""
            with contextlib.suppress(IdentityError):
                name = name_of(read_certificate(certificate))
            name = trusted(self.identity, certificate, _now())
            peer = self._peers.get(name)
            if peer is None:
                raise Refused("stranger", f"{name} is not in this node's peers.toml; its owner would have to add it")
            self._check_pin(peer, certificate)
            if not peer.hellos.allows():
                raise Refused("too_many", f"{name} connects too often; it may do so again in a while")
            hello = await self._greeted(line)
            self._check_again(peer, certificate)
            self._check(peer, hello)
            if hello.probe:
                await self._answer(line, peer, hello)
                return
            async with peer.alone():
                answer = await self._answer(line, peer, hello)
                if answer is not None:
                    peer.certificate = certificate
                    await self._use(peer, line, hello, answer)
        except Refused as error:
            self._refused(self._peers.get(name), name, error)
            await _send_reason(line, error, patient=name in self._peers and error.reason != "too_many")
        except asyncio.CancelledError:
            pass  # the other side is gone
        except Exception as error:
            self._emit(Failed(error))

    async def _answer(self, line: Line, peer: Peer, hello: pb.Hello) -> pb.Hello | None:
        """Answer the greeting of a peer; return the answer, or None if the peer is gone."""
        answer = signed(self._greet(peer), self.identity, self.identity.certificate_pem, hello)
        try:
            async with asyncio.timeout(_GREETING):
                return answer if await line.write(hello_frame(answer)) else None
        except TimeoutError:
            raise Refused("stalled", f"read no greeting for {_GREETING:g} seconds") from None

    # -- dialling ------------------------------------------------------------------------------------

    def dial(self, peer: Peer) -> None:
        """Keep dialling a peer, if this side dials: of two that listen, the one whose name sorts first does."""
        node = self._config.node
        if peer.settings.address and (not node.listen or node.name < peer.name):
            self._dialling[peer.name] = supervised(self._dial(peer), f"dial {peer.name}", self._emit)

    async def _dial(self, peer: Peer) -> None:
        wait, most = _RETRY
        while True:
            if not peer.here and peer.settings.open_at(_now()):
                connected = await self._dial_once(peer)
                wait = _RETRY[0] if connected else wait
                most = _RETRY_REFUSED if peer.state == "refused" else _RETRY[1]
            await asyncio.sleep(wait * (0.75 + secrets.randbelow(1000) / 2000))
            wait = min(2 * wait, most)

    async def _dial_once(self, peer: Peer) -> bool:
        """Open a stream and use it until it ends; return whether the two got past their greetings."""
        assert peer.settings.address is not None
        line = await self._transport.call(peer.settings.address, peer.name)
        try:
            async with peer.alone():
                ours = self._greet(peer)
                async with asyncio.timeout(_GREETING):
                    if not await line.write(hello_frame(ours)):
                        return False
                hello = await self._greeted(line)
                self._check(peer, hello)
                check_proof(hello, self.identity, ours.nonce, peer.name, _now())
                self._check_pin(peer, hello.certificate)
                peer.certificate = hello.certificate
                await self._use(peer, line, hello, ours)
            return True
        except TimeoutError:
            return False
        except Refused as error:
            self._refused(peer, peer.name, error)
            if error.ours:
                await _send_reason(line, error)
            return False
        finally:
            await line.close()

    # -- checking ------------------------------------------------------------------------------------

    async def _greeted(self, line: Line) -> pb.Hello:
        try:
            async with asyncio.timeout(_GREETING):
                return await read_greeting(line)
        except TimeoutError:
            raise Refused("stalled", f"no greeting within {_GREETING:g} seconds") from None

    def _check(self, peer: Peer, hello: pb.Hello) -> None:
        check_greeting(hello, peer.name, self.identity.consortium, self._terms, peer.settings, self._config, _now())

    def _check_again(self, peer: Peer, certificate: bytes) -> None:
        """Check what may have changed while the greeting was awaited."""
        if self._peers.get(peer.name) is not peer:
            raise Refused("stranger", "its settings in peers.toml have changed; connect again")
        trusted(self.identity, certificate, _now(), peer.name)

    @staticmethod
    def _check_pin(peer: Peer, certificate: bytes) -> None:
        pin = peer.settings.certificate
        if pin is not None and pin != fingerprint(public_key(read_certificate(certificate))):
            raise Refused("stranger", f"{peer.name} shows another certificate than the one pinned in peers.toml")

    def _refused(self, peer: Peer | None, name: str, why: Refused) -> None:
        if peer is not None:
            peer.refuse(why)
        self._emit(PeerRefused(peer, name, why))

    # -- while connected -----------------------------------------------------------------------------

    def reload(self) -> bool:
        """Read a later revocation list, or a new certificate, if there is one; return whether there was.

        Raises:
            IdentityError: the file that has changed cannot be used.
        """
        changed = self.identity.trust.reload()
        if (seen := stamp(self.identity.folder / KIT)) != self._seen:
            self._seen = seen
            self.identity = Identity.load(self.identity.folder)
            changed = True
        return changed

    def check_open(self) -> None:
        """Disconnect peers whose hours are over, or whose certificate is not valid any more."""
        now = _now()
        for peer in self._peers.values():
            if peer.here and not peer.settings.open_at(now):
                peer.hang_up(Refused("hours", f"not now: the hours are {peer.settings.hours} UTC"))
            elif peer.here:
                try:
                    trusted(self.identity, peer.certificate, now, peer.name)
                except Refused as error:
                    peer.hang_up(error)


def _now() -> datetime:
    return datetime.now(UTC)


async def _send_reason(line: Line, why: Refused, patient: bool = True) -> None:
    """Send why a stream ends. `patient`: wait until the other side has read it, which strangers do not get."""
    with contextlib.suppress(Refused, TimeoutError):
        async with asyncio.timeout(_LAST_WORD):
            if await line.write(bye(why.reason, str(why))) and patient:
                await line.done()
                await line.drain()
