"""A node's door: who may come in, and whom it calls.

What is let through is a stream to a peer that is who it says it is, and that this node's owner deals with, now.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from fkge.errors import IdentityError
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused, bye, decode_frame, refusal
from fkge.node.greeting import check_greeting, check_proof, not_trusted, signed
from fkge.node.identity import Identity
from fkge.node.peer import Peer, hello_frame
from fkge.node.settings import NodeConfig
from fkge.node.transport import Line, Transport
from fkge.node.trust import fingerprint, name_of, public_key, read_certificate

_GREETING = 15.0  # seconds that a greeting may take
_PATIENCE = (0.2, 15.0)  # seconds before a peer is called again: at first, and at most
_LONG_PATIENCE = 60.0  # after it said no
_LAST_WORD = 2.0

Through = Callable[[Peer, Line, pb.Hello, pb.Hello], Awaitable[None]]
"""Carries a stream: the peer, the stream, its greeting and ours."""


class Door:
    """Of one node.

    Args:
        config: whom it deals with.
        terms: how it federates.
        peers: by name.
        hello: this node's greeting to a peer.
        through: what becomes of a stream that is let through, until it ends.
        refused: is told of every refusal, on either side: the peer, if it is one, the name, and why.
        failed: is told of what nobody thought of.
    """

    def __init__(
        self,
        config: NodeConfig,
        terms: Mapping[str, str],
        peers: Mapping[str, Peer],
        hello: Callable[[Peer], pb.Hello],
        through: Through,
        refused: Callable[[Peer | None, str, Refused], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._config, self._terms, self._peers = config, terms, peers
        self._hello, self._through, self._refused, self._failed = hello, through, refused, failed
        self.identity = Identity.load(config.folder / config.node.identity)
        self._stamp = self._kit_stamp()
        self.transport = Transport(lambda: self.identity, at_once=32 * len(peers) + 64)

    # -- coming in -----------------------------------------------------------------------------------

    async def welcome(self, line: Line) -> None:
        """A peer has called."""
        name = ""
        try:
            certificate = line.certificate or b""
            try:
                name = self.identity.trust.check(certificate, _now())
            except IdentityError as error:
                with contextlib.suppress(IdentityError):
                    name = name_of(read_certificate(certificate))
                raise not_trusted(error) from None
            peer = self._peers.get(name)
            if peer is None:
                raise Refused("stranger", f"{name} is nobody this node deals with; its owner would have to name it")
            self._check_pin(peer, certificate)
            if not peer.hellos.allows():
                raise Refused("too_many", f"{name} calls too often; it may do so again in a while")
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
                    await self._through(peer, line, hello, answer)
        except Refused as error:
            self._refused(self._peers.get(name), name, error)
            await _last_word(line, error, patient=name in self._peers and error.reason != "too_many")
        except asyncio.CancelledError:
            pass  # the caller is gone
        except Exception as error:
            self._failed(error)

    async def _answer(self, line: Line, peer: Peer, hello: pb.Hello) -> pb.Hello | None:
        """Greet a peer that has called; None if it is gone."""
        answer = signed(self._hello(peer), self.identity, self.identity.certificate_pem, hello)
        try:
            async with asyncio.timeout(_GREETING):
                return answer if await line.write(hello_frame(answer)) else None
        except TimeoutError:
            raise Refused("stalled", f"took no greeting in for {_GREETING:g} seconds") from None

    # -- calling -------------------------------------------------------------------------------------

    def calls(self, peer: Peer) -> bool:
        """Whether this side calls: of two that listen, the one whose name sorts first does."""
        return bool(peer.settings.address) and (not self._config.node.listen or self._config.node.name < peer.name)

    async def call(self, peer: Peer) -> None:
        """Call a peer, again and again, for as long as this node lives."""
        wait, most = _PATIENCE
        while True:
            if not peer.here and peer.settings.open_at(_now()):
                came = await self._call_once(peer)
                wait = _PATIENCE[0] if came else wait
                most = _LONG_PATIENCE if peer.state == "refused" else _PATIENCE[1]
            await asyncio.sleep(wait * (0.75 + secrets.randbelow(1000) / 2000))
            wait = min(2 * wait, most)

    async def _call_once(self, peer: Peer) -> bool:
        """Whether the two came to speak."""
        assert peer.settings.address is not None
        line = await self.transport.call(peer.settings.address, peer.name)
        try:
            async with peer.alone():
                ours = self._hello(peer)
                async with asyncio.timeout(_GREETING):
                    if not await line.write(hello_frame(ours)):
                        return False
                hello = await self._greeted(line)
                self._check(peer, hello)
                check_proof(hello, self.identity, ours.nonce, peer.name, _now())
                self._check_pin(peer, hello.certificate)
                peer.certificate = hello.certificate
                await self._through(peer, line, hello, ours)
            return True
        except TimeoutError:
            return False
        except Refused as error:
            self._refused(peer, peer.name, error)
            if error.ours:
                await _last_word(line, error)
            return False
        finally:
            await line.close()

    # -- checking ------------------------------------------------------------------------------------

    async def _greeted(self, line: Line) -> pb.Hello:
        try:
            async with asyncio.timeout(_GREETING):
                data = await line.read()
        except TimeoutError:
            raise Refused("stalled", f"no greeting within {_GREETING:g} seconds") from None
        if data is None:
            raise Refused("unspecified", "hung up before it said anything", ours=False)
        frame = decode_frame(data)
        if frame.WhichOneof("is") == "bye":
            raise refusal(frame.bye)
        if frame.WhichOneof("is") != "hello":
            raise Refused("out_of_order", "something else came where a greeting was due")
        return frame.hello

    def _check(self, peer: Peer, hello: pb.Hello) -> None:
        config = self._config
        check_greeting(
            hello, peer.name, self.identity.consortium, self._terms, peer.settings, config.federation, _now(),
            config.node.clock,
        )  # fmt: skip

    def _check_again(self, peer: Peer, certificate: bytes) -> None:
        """It took its time to greet; what held then may not hold now."""
        if self._peers.get(peer.name) is not peer:
            raise Refused("stranger", "its owner has changed what it may have meanwhile; call again")
        try:
            self.identity.trust.check(certificate, _now(), peer.name)
        except IdentityError as error:
            raise not_trusted(error) from None

    @staticmethod
    def _check_pin(peer: Peer, certificate: bytes) -> None:
        pin = peer.settings.certificate
        if pin is not None and pin != fingerprint(public_key(read_certificate(certificate))):
            raise Refused("stranger", f"{peer.name} shows another certificate than the one that its owner pinned")

    # -- while it is open ----------------------------------------------------------------------------

    def reread(self) -> bool:
        """Take in a later revocation list, or a new certificate, if there is one; `IdentityError` if that is none."""
        changed = self.identity.trust.reload()
        if (stamp := self._kit_stamp()) != self._stamp:
            self._stamp = stamp
            self.identity = Identity.load(self.identity.folder)
            changed = True
        return changed

    def look_round(self) -> None:
        """Hang up on those whose hours are over, or whose certificate does not hold any more."""
        now = _now()
        for peer in self._peers.values():
            if peer.here and not peer.settings.open_at(now):
                peer.hang_up(Refused("hours", f"not now: the hours are {peer.settings.hours} UTC"))
            elif peer.here:
                try:
                    self.identity.trust.check(peer.certificate, now, peer.name)
                except IdentityError as error:
                    peer.hang_up(not_trusted(error))

    def _kit_stamp(self) -> tuple[int, int]:
        stat = (self.identity.folder / "consortium.json").stat()
        return stat.st_mtime_ns, stat.st_size


def _now() -> datetime:
    return datetime.now(UTC)


async def _last_word(line: Line, why: Refused, patient: bool = True) -> None:
    """Say why. `patient`: wait until the other side has seen it; whoever just knocks does not get that much."""
    with contextlib.suppress(Refused, TimeoutError):
        async with asyncio.timeout(_LAST_WORD):
            if await line.write(bye(why.reason, str(why))) and patient:
                await line.done()
                await line.drain()
