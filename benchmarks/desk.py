"""A node that answers at once, and light peers that call it: what the transport costs, without any training.

The node is a whole one, with its certificates, greetings, sessions, logs and limits; only its owner is missing, so
every step of an exchange is answered with as many numbers as came. A caller is a peer without a graph: it has its own
certificate and its own session, and greets as a node does.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fkge.federation import FederationSettings
from fkge.federation.codec import LIMIT, decode, encode
from fkge.federation.gate import Gate
from fkge.node import frames_pb2 as pb
from fkge.node.consortium import Consortium
from fkge.node.frames import FEDERATION, VERSIONS, Refused, decode_frame, refusal
from fkge.node.greeting import CAPABILITIES, check_greeting, check_proof, new_life, program, terms_of
from fkge.node.identity import Identity
from fkge.node.kits import Member
from fkge.node.node import Node
from fkge.node.peer import Peer, hello_frame
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.node.site import provision
from fkge.node.transport import Line, Transport
from fkge.ppat import Candidate, Gradient, Received, Samples

DESK = "desk"
_SETTINGS = FederationSettings.build({"start": "together", "privacy": {"mode": "none"}, "train": {"dim": 8}})
_BACKLOG = 2 * LIMIT
_NO_MESSAGE = b"\0"  # a message of the codec begins with the number of a field, which is not zero


def found(folder: Path, callers: Sequence[str]) -> None:
    """A consortium of the desk and its callers: a key, a certificate and a folder for each."""
    provision(Consortium("desk", {name: Member.build({}) for name in (DESK, *callers)}), folder, datetime.now(UTC))
    graph = folder / "graph"
    graph.mkdir()
    for split in ("train", "valid", "test"):
        (graph / f"{split}.tsv").write_text("".join(f"e{i}\tnext\te{i + 1}\n" for i in range(8)))


def site(folder: Path, name: str) -> Path:
    """Where a member's key is."""
    return folder / "kits" / name


class Desk(Node):
    """A node without an owner's work. It listens when `open` is set."""

    settings = _SETTINGS

    def __init__(self, folder: Path, callers: Sequence[str], **peer: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = port = int(free.getsockname()[1])
        settings = NodeSettings.build({
            "name": DESK, "graph": "graph", "identity": str(site(folder, DESK)), "state": "state",
            "listen": f"127.0.0.1:{port}", "metrics": "",
        })  # fmt: skip
        peers = {name: PeerSettings.build(peer) for name in callers}
        super().__init__(NodeConfig(folder, settings, _SETTINGS, peers))
        self.open = asyncio.Event()
        self._gate = Gate(_SETTINGS)

    def _become(self, state: str) -> None:
        super()._become(state)
        if state == "waiting":
            self.open.set()

    async def _meet(self, peer: Peer, hello: pb.Hello) -> None:
        assert peer.session is not None
        peer.session.limits[FEDERATION], peer.session.backlog = LIMIT, _BACKLOG

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """Answer; bytes that are no message go back as they are."""
        if body.startswith(_NO_MESSAGE):
            peer.send(FEDERATION, body)
            return
        message, session = decode(body)
        answer = Gradient(message.step, message.vectors) if isinstance(message, Samples) else Received(message.step)
        released = self._gate.release(answer, peer.name, session)
        data = encode(released, session)
        self._left(peer.name, released, session, data)
        peer.send(FEDERATION, data)


class Caller:
    """A peer of the desk.

    Attributes:
        peer: its session, and the stream that carries it.
        steps: that were answered.
    """

    def __init__(self, folder: Path, name: str, port: int, **peer: Any) -> None:
        self._identity = Identity.load(site(folder, name))
        self._transport = Transport(lambda: self._identity)
        self._address, self._life = f"127.0.0.1:{port}", new_life()
        self._terms = terms_of(_SETTINGS, 0)
        self._gate = Gate(_SETTINGS)
        self._answer: asyncio.Future[bytes] | None = None
        self._line: Line | None = None
        self._carrying: asyncio.Task[Refused | None] | None = None
        self.peer = Peer(DESK, PeerSettings.build(peer), self)
        self.name, self.steps = name, 0

    async def call(self) -> bool:
        """Open a stream and greet; whether the session goes on from an earlier one."""
        resumed = await self._greet()
        assert self._line is not None
        self._carrying = asyncio.create_task(self._carry(self._line))
        await asyncio.sleep(0)
        return resumed

    async def _carry(self, line: Line) -> Refused | None:
        ended = await self.peer.carry(line)
        if ended is not None:  # the session is over, and not just the stream
            self.failed(ended)
        return ended

    async def deafen(self, bodies: Sequence[bytes]) -> None:
        """Open a stream, greet and say all this, but never read an answer."""
        await self._greet()
        session = self.peer.session
        assert session is not None
        assert self._line is not None
        for body in bodies:
            session.send(FEDERATION, body)
        while (frame := session.following()) is not None:
            await self._line.write(frame)

    async def hang_up(self) -> None:
        """Break off a stream that nobody reads."""
        assert self._line is not None
        await self._line.close()

    async def _greet(self) -> bool:
        peer = self.peer
        self._line = line = await self._transport.call(self._address, DESK)
        session = peer.session
        ours = pb.Hello(
            versions=VERSIONS, program=program(), consortium="desk", owner=self.name, capabilities=CAPABILITIES,
            life=self._life, your_life=peer.life, heard=0 if session is None else session.heard,
            nonce=secrets.token_bytes(16), clock=int(time.time() * 1000), terms=self._terms,
        )  # fmt: skip
        await line.write(hello_frame(ours))
        data = await line.read()
        if data is None:
            raise Refused("unspecified", "hung up before it said anything", ours=False)
        frame = decode_frame(data)
        if frame.WhichOneof("is") != "hello":
            raise refusal(frame.bye)
        hello, now = frame.hello, datetime.now(UTC)
        check_greeting(hello, DESK, "desk", self._terms, peer.settings, _SETTINGS, now, 300.0)
        check_proof(hello, self._identity, ours.nonce, DESK, now)
        resumed = session is not None and hello.life == peer.life and hello.your_life == self._life
        if resumed:
            assert session is not None
            session.resume(hello.heard)
        else:
            peer.fresh(hello.life)
            assert peer.session is not None
            peer.session.limits[FEDERATION], peer.session.backlog = LIMIT, _BACKLOG
        return resumed

    async def cut(self) -> Refused | None:
        """Break the stream off, as a network does; why it ended, if it was not just that."""
        await self.hang_up()
        assert self._carrying is not None
        return await self._carrying

    async def ask(self, message: Any) -> Any:
        """The desk's answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.peer.send(FEDERATION, encode(self._gate.release(message, DESK, 1), 1))
        answer, _ = decode(await self._answer)
        self.steps += 1
        return answer

    async def echo(self, body: bytes) -> bytes:
        """The same bytes, there and back, though one is zero: all but the codec."""
        self._answer = asyncio.get_running_loop().create_future()
        self.peer.send(FEDERATION, _NO_MESSAGE + body[1:])
        return await self._answer

    async def step(self, vectors: torch.Tensor) -> None:
        """One step of an exchange: samples there, a gradient back."""
        answer = await self.ask(Samples(self.steps, vectors))
        assert answer.step == self.steps - 1
        assert answer.vectors.shape == vectors.shape

    async def offer(self, vectors: torch.Tensor) -> None:
        """Something long there, a word back."""
        await self.ask(Candidate(self.steps, vectors))

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """An answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(body)

    def ended(self, peer: Peer, why: Refused) -> None:
        """The session is over: there is no answer."""
        self.failed(why)

    def failed(self, error: BaseException) -> None:
        """What nobody thought of is the answer, too."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
