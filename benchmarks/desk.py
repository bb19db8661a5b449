"""A node that answers immediately, and light peers that call it, to measure the transport without training.

The node is complete, with certificates, handshakes, sessions, logs and limits; only its owner is missing, so every
step of an exchange is answered with as many numbers as it received. A caller is a peer without a graph: it has its own
certificate and its own session, and greets as a node does.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fkge.federation import FederationSettings
from fkge.federation.codec import LIMIT, decode, encode
from fkge.federation.egress import Egress
from fkge.node import frames_pb2 as pb
from fkge.node.connections import ConnectionManager, PeerConnected
from fkge.node.events import Event, EventQueue, Failed
from fkge.node.frames import FEDERATION, Refused, decode_frame, refusal
from fkge.node.handshake import check_greeting, check_proof, greeting, new_incarnation, terms_of
from fkge.node.ops.records import open_records
from fkge.node.peer import MessageReceived, Peer, SessionEnded, hello_frame
from fkge.node.persistence import lock
from fkge.node.provisioning import provision
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.node.transport import Line, Transport
from fkge.pki.kits import Consortium, Member
from fkge.pki.site import Identity
from fkge.ppat import Candidate, Gradient, Received, Samples

DESK = "desk"
_SETTINGS = FederationSettings.build({"start": "together", "privacy": {"mode": "none"}, "train": {"dim": 8}})
_CALLER = NodeConfig(Path(), NodeSettings.build({"name": "caller", "graph": "graph"}), _SETTINGS, {})
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


class Desk:
    """A node without an owner's work, of the parts that a node has: connections, sessions, audit log and metrics.

    Attributes:
        port: where it listens, once `open` is set.
    """

    settings = _SETTINGS

    def __init__(self, folder: Path, callers: Sequence[str], **peer: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = port = int(free.getsockname()[1])
        settings = NodeSettings.build({
            "name": DESK, "graph": "graph", "identity": str(site(folder, DESK)), "state": "state",
            "listen": f"127.0.0.1:{port}", "metrics": "",
        })  # fmt: skip
        self._config = NodeConfig(folder, settings, _SETTINGS, {name: PeerSettings.build(peer) for name in callers})
        self.open, self._end = asyncio.Event(), asyncio.Event()
        self._error: BaseException | None = None
        self._incarnation, self._terms, self._egress = new_incarnation(), terms_of(_SETTINGS, 0), Egress(_SETTINGS)

    async def run(self) -> None:
        """Answer until stopped. Raises what went wrong."""
        queue = EventQueue(self._handle)
        peers = {name: Peer(name, settings, queue.put) for name, settings in self._config.peers.items()}
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stop)
        state = self._config.state
        with lock(state), open_records(DESK, peers, state, False, 1) as self._records:
            connections = ConnectionManager(self._config, self._terms, peers, self._greeting, queue.put)
            await connections.open()
            self.open.set()
            await self._end.wait()
            await connections.close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._end.set()

    def _greeting(self, peer: Peer) -> pb.Hello:
        return greeting(self._incarnation, "desk", DESK, self._terms, peer)

    def _handle(self, event: Event) -> None:
        self._records.record(event)
        match event:
            case PeerConnected(peer, _, False):
                assert peer.session is not None
                peer.session.limits[FEDERATION], peer.session.backlog = LIMIT, _BACKLOG
            case MessageReceived(peer, _, body):
                self._answer(peer, body)
            case Failed(error):
                self._error = error
                self.stop()

    def _answer(self, peer: Peer, body: bytes) -> None:
        """Answer; bytes that are no message go back as they are."""
        if body.startswith(_NO_MESSAGE):
            peer.send(FEDERATION, body)
            return
        message, session = decode(body)
        answer = Gradient(message.step, message.vectors) if isinstance(message, Samples) else Received(message.step)
        released = self._egress.release(answer, peer.name, session)
        data = encode(released, session)
        self._records.released(peer.name, released, session, data, None)
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
        self._address, self._incarnation = f"127.0.0.1:{port}", new_incarnation()
        self._terms = terms_of(_SETTINGS, 0)
        self._gate = Egress(_SETTINGS)
        self._answer: asyncio.Future[bytes] | None = None
        self._line: Line | None = None
        self._carrying: asyncio.Task[Refused | None] | None = None
        self.peer = Peer(DESK, PeerSettings.build(peer), self._handle)
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
        ours = greeting(self._incarnation, "desk", self.name, self._terms, peer)
        await line.write(hello_frame(ours))
        data = await line.read()
        if data is None:
            raise Refused("unspecified", "hung up before it said anything", ours=False)
        frame = decode_frame(data)
        if frame.WhichOneof("is") != "hello":
            raise refusal(frame.bye)
        hello, now = frame.hello, datetime.now(UTC)
        check_greeting(hello, DESK, "desk", self._terms, peer.settings, _CALLER, now)
        check_proof(hello, self._identity, ours.nonce, DESK, now)
        resumed = session is not None and hello.life == peer.incarnation and hello.your_life == self._incarnation
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

    def _handle(self, event: Event) -> None:
        match event:
            case MessageReceived(_, _, body) if self._answer is not None and not self._answer.done():
                self._answer.set_result(body)
            case SessionEnded(_, Refused() as why):
                self.failed(why)
            case Failed(error):
                self.failed(error)

    def failed(self, error: BaseException) -> None:
        """What nobody thought of is the answer, too."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
