"""A member of a consortium that does not keep to the rules: it speaks frames by hand, with a real certificate."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fkge.align import Common
from fkge.federation import FederationSettings, OwnerStore, create_store
from fkge.federation.codec import decode, encode
from fkge.federation.egress import Egress
from fkge.federation.source import Member
from fkge.graph import read_graph
from fkge.node import frames_pb2 as pb
from fkge.node.alignment import align
from fkge.node.frames import FEDERATION, MEETING, VERSIONS, decode_frame, decode_meeting
from fkge.node.handshake import CAPABILITIES, new_incarnation, program, terms_of
from fkge.node.peer import Peer
from fkge.node.session import Session
from fkge.node.settings import NodeConfig
from fkge.node.transport import Line, library
from fkge.pki.site import Identity

_GATE = Egress(FederationSettings.build({}))
_PATIENCE = 30.0


def part(step: int, channel: int, body: bytes, more: bool = False) -> pb.Frame:
    """A part of a message, as it comes."""
    return pb.Frame(part=pb.Part(step=step, channel=channel, body=body, more=more))


class Villain:
    """A hostile peer of one node. Use within one loop.

    Args:
        site: its folder, as any member has one.
        address, node: whom it is after.
    """

    def __init__(self, site: Path, address: str, node: str = "ant") -> None:
        self.config = NodeConfig.load(site / "node.toml")
        self.name, self._address, self._node = self.config.node.name, address, node
        self.identity = Identity.load(site)
        self.life, self.pact, self.common = new_incarnation(), b"", None
        self.line: Line | None = None
        self.session = Session({MEETING: 1 << 26, FEDERATION: 1 << 30})
        self.heard: list[tuple[Any, int]] = []
        self.bye: pb.Bye | None = None
        self._store: OwnerStore | None = None
        self._peer: Peer | None = None
        self._pouring: asyncio.Task[None] | None = None

    @property
    def store(self) -> OwnerStore:
        """What an honest owner would have."""
        if self._store is None:
            member = Member(read_graph(str(self.config.folder / "graph")))
            self._store = create_store(self.config.state, self.name, member, self.config.federation, 0, 1)
        return self._store

    @property
    def inbox(self) -> asyncio.Queue[bytes]:
        """Alignment messages that came."""
        assert self._peer is not None
        return self._peer.meeting

    # -- by hand -------------------------------------------------------------------------------------

    async def call(self) -> Line:
        """A stream, nothing said yet."""
        await self.hang_up()
        grpc, own = library(), self.identity
        credentials = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
        options = [
            ("grpc.ssl_target_name_override", self._node), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_send_message_length", -1),
        ]  # fmt: skip
        channel = grpc.aio.secure_channel(self._address, credentials, options=options)
        stream = channel.stream_stream("/fkge.node.Node/Meet")()
        self.line, self.bye = Line(stream, self._address, None, channel), None
        return self.line

    async def hang_up(self) -> None:
        if self._pouring is not None:
            self._pouring.cancel()
            await asyncio.gather(self._pouring, return_exceptions=True)
            self._pouring = None
        if self.line is not None:
            await self.line.close()
            self.line = None

    def hello(self, **changes: Any) -> pb.Hello:
        """What an honest one would say, but for some things."""
        values: dict[str, Any] = {
            "versions": VERSIONS, "program": program(), "consortium": self.identity.consortium, "owner": self.name,
            "capabilities": CAPABILITIES, "life": self.life, "nonce": bytes(16), "clock": int(time.time() * 1000),
            "terms": terms_of(self.config.federation, 0), "pact": self.pact, "begun": True,
        }  # fmt: skip
        return pb.Hello(**(values | changes))

    async def say(self, frame: pb.Frame | bytes) -> bool:
        assert self.line is not None
        return await self.line.write(frame if isinstance(frame, bytes) else frame.SerializeToString())

    def pour(self, frames: Iterable[pb.Frame | bytes]) -> None:
        """Say so much that the node may hang up in between; listen meanwhile, or gRPC forgets its last word."""

        async def pouring() -> None:
            for frame in frames:
                if not await self.say(frame):
                    return

        self._pouring = asyncio.create_task(pouring())

    def waiting(self) -> Iterator[bytes]:
        """All frames that the session would write."""
        while (frame := self.session.following()) is not None:
            yield frame

    async def next(self) -> pb.Frame | None:
        """The node's next frame; None when the stream is over."""
        assert self.line is not None
        async with asyncio.timeout(_PATIENCE):
            data = await self.line.read()
        return None if data is None else decode_frame(data)

    async def refused(self) -> tuple[str, str]:
        """Why the node hangs up: the reason and the sentence of its last word. All before it is passed over."""
        while self.bye is None:
            frame = await self.next()
            assert frame is not None, "the stream ended without a word"
            if frame.WhichOneof("is") == "bye":
                self.bye = frame.bye
        await self.hang_up()
        return pb.Reason.Name(self.bye.reason).lower(), self.bye.sentence

    # -- like an honest one ----------------------------------------------------------------------------

    async def greet(self, **changes: Any) -> pb.Hello:
        """A stream with greetings said; a new life of this owner."""
        await self.call()
        self.life, self.session, self.heard = new_incarnation(), Session({MEETING: 1 << 26, FEDERATION: 1 << 30}), []
        self._peer = Peer(self._node, self.config.peers[self._node], lambda event: None)
        self._peer.session = self.session
        await self.say(pb.Frame(hello=self.hello(**changes)))
        frame = await self.next()
        assert frame is not None
        assert frame.WhichOneof("is") == "hello", frame
        return frame.hello

    def tell(self, message: pb.Meeting, what: str = "") -> None:
        self.session.send(MEETING, message.SerializeToString())

    def send(self, message: Any, session: int = 0) -> None:
        """A message of the federation."""
        self.session.send(FEDERATION, encode(_GATE.release(message, "peer"), session))

    async def pump(self) -> bool:
        """Write what is to be said, then take in one frame. False: the stream is over."""
        while (data := self.session.following()) is not None:
            await self.say(data)
        frame = await self.next()
        if frame is None:
            return False
        if frame.WhichOneof("is") == "bye":
            self.bye = frame.bye
            return False
        if frame.WhichOneof("is") == "heard":
            self.session.confirmed(frame.heard.step)
        elif (whole := self.session.receive(frame.part)) is not None:
            channel, body = whole
            if channel == FEDERATION:
                self.heard.append(decode(body))
            elif decode_meeting(body).WhichOneof("is") != "tokens":
                assert self._peer is not None
                self._peer.meeting.put_nowait(body)
        return True

    async def until(self, holds: Callable[[], Any]) -> Any:
        """Go on until something holds; what it gave."""
        while not (found := holds()):
            assert await self.pump(), f"the node hung up: {self.bye}"
        return found

    async def meet(self) -> Common:
        """Intersect honestly, or use what an earlier meeting found; then deal with each other."""
        answer = await self.greet()
        if not self.pact or answer.pact != self.pact:
            assert self._peer is not None
            meeting = asyncio.create_task(align(self._peer, self.config, self.store, self.tell))
            while not meeting.done():
                await asyncio.sleep(0)
                while (data := self.session.following()) is not None:
                    await self.say(data)
                if not meeting.done() and self._peer.meeting.empty():
                    assert await self.pump(), f"the node hung up: {self.bye}"
            self.pact, self.common = meeting.result()
        assert self.common is not None
        return self.common

    def said(self, kind: type) -> list[tuple[Any, int]]:
        """Messages of a kind that came."""
        return [(message, session) for message, session in self.heard if isinstance(message, kind)]


def refusals(state: Path) -> list[dict[str, Any]]:
    """The `refused` entries of a node's audit log."""
    lines = [line for file in sorted((state / "audit").glob("audit-*.log")) for line in file.read_text().splitlines()]
    return [entry for line in lines if (entry := json.loads(line))["event"] == "refused"]


def resident(pid: int) -> int:
    """Bytes of memory that a process has in hand."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} has no memory")
