"""Two peers over real streams that break, are replaced, and are hung up on, by either side and at odd moments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.node import peer as module
from fkge.node.events import Event, Failed
from fkge.node.frames import FEDERATION, MEETING, Refused
from fkge.node.peer import Bucket, MessageReceived, Peer, SessionEnded
from fkge.node.settings import PeerSettings
from fkge.node.transport import Line, Transport
from fkge.pki.site import Identity
from tests.consortium import members


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    return members(tmp_path_factory.mktemp("members"), "ant", "bee")


class Sink:
    """Takes the events of one peer; `react` may do something about a message."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.react: Callable[[Peer, bytes], None] = lambda peer, body: None
        self.ended: list[Refused | None] = []
        self.errors: list[BaseException] = []
        self.came = asyncio.Event()

    def __call__(self, event: Event) -> None:
        match event:
            case MessageReceived(peer, channel, body):
                self.messages.append((channel, body))
                self.came.set()
                self.react(peer, body)
            case SessionEnded(_, why):
                self.ended.append(why)
            case Failed(error):
                self.errors.append(error)


class Link:
    """`ant` listens, `bee` calls; each sees the other as a peer. A session outlives its streams."""

    def __init__(self, transport: Transport, address: str, **settings: Any) -> None:
        self._transport, self._address = transport, address
        self.sinks = (Sink(), Sink())
        self.ant = Peer("bee", PeerSettings(**settings), self.sinks[0])
        self.bee = Peer("ant", PeerSettings(**settings), self.sinks[1])
        self.fresh()
        self.line: Line | None = None
        self.ends: list[asyncio.Task[Refused | None]] = []
        self._welcomed: asyncio.Future[asyncio.Task[Refused | None]]

    def fresh(self) -> None:
        for peer in (self.ant, self.bee):
            peer.fresh(bytes(16))
            assert peer.session is not None
            peer.session.limits[FEDERATION] = 1 << 24

    async def welcome(self, line: Line) -> None:
        await line.read()
        if self.ant.session is not None and self.bee.session is not None:
            self.ant.session.resume(self.bee.session.received)
        end = asyncio.create_task(self.ant.carry(line))
        self._welcomed.set_result(end)
        await asyncio.wait((end,))

    async def connect(self) -> None:
        self._welcomed = asyncio.get_running_loop().create_future()
        self.line = await self._transport.call(self._address, "ant")
        assert self.ant.session is not None
        assert self.bee.session is not None
        self.bee.session.resume(self.ant.session.received)
        await self.line.write(b"here I am")
        called = await self._welcomed
        self.ends = [called, asyncio.create_task(self.bee.carry(self.line))]
        await until(lambda: self.bee.here)

    async def ended(self) -> list[Refused | None]:
        """What either side says of the end of the stream."""
        async with asyncio.timeout(20):
            calling = await self.ends[1]
            assert self.line is not None
            await self.line.close()
            return [await self.ends[0], calling]


@asynccontextmanager
async def linked(identities: dict[str, Identity], **settings: Any) -> AsyncIterator[Link]:
    server, client = Transport(lambda: identities["ant"]), Transport(lambda: identities["bee"])
    links: list[Link] = []
    port = await server.listen("127.0.0.1", 0, lambda line: links[0].welcome(line))
    links.append(Link(client, f"127.0.0.1:{port}", **settings))
    try:
        await links[0].connect()
        yield links[0]
    finally:
        if links[0].line is not None:
            await links[0].line.close()
        await server.close()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


def test_messages_pass_both_ways_over_streams_that_break(identities: dict[str, Identity]) -> None:
    said = [bytes([i]) * size for i, size in enumerate((0, 1, 3 << 20, 100, 2 << 20, 5, 1 << 20, 7))]

    async def go() -> None:
        async with linked(identities) as link:
            for number, body in enumerate(said):
                link.ant.send(FEDERATION, body)
                link.bee.send(FEDERATION, body)
                if number % 2:
                    assert link.line is not None
                    await link.line.close()  # with whatever is on its way
                    assert await link.ended() == [None, None]
                    await link.connect()
            await until(lambda: all(len(sink.messages) == len(said) for sink in link.sinks))
            for sink in link.sinks:
                assert sink.messages == [(FEDERATION, body) for body in said]
                assert sink.errors == sink.ended == []

    asyncio.run(go())


@pytest.mark.parametrize("side", ["ant", "bee"])
def test_the_other_side_learns_why(identities: dict[str, Identity], side: str) -> None:
    async def go() -> None:
        async with linked(identities) as link:
            getattr(link, side).hang_up(Refused("budget", "nothing left"))
            for ended, name in zip(await link.ended(), ("ant", "bee"), strict=True):
                assert ended is not None
                assert (ended.reason, str(ended), ended.ours) == ("budget", "nothing left", name == side)
            assert link.ant.session is link.bee.session is None
            assert (link.ant.state, link.ant.reason) == ("refused", "budget")

    asyncio.run(go())


def test_both_hang_up_at_once_and_neither_waits_for_the_other(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAST_WORD", 600.0)

    async def go() -> None:
        async with linked(identities) as link:
            for peer in (link.ant, link.bee):
                peer.hang_up(Refused("leaving", "the node stops"))
            assert [e.reason if e else None for e in await link.ended()] == ["leaving", "leaving"]

    asyncio.run(go())


@pytest.mark.parametrize("side", [0, 1])
def test_hanging_up_while_a_message_is_heard(identities: dict[str, Identity], side: int) -> None:
    async def go() -> None:
        async with linked(identities) as link:
            link.sinks[side].react = lambda peer, body: peer.hang_up(Refused("malformed", "that was wrong"))
            peers = (link.ant, link.bee)
            for _ in range(5):
                peers[1 - side].send(FEDERATION, b"x" * 200)
            assert [ended and ended.reason for ended in await link.ended()] == ["malformed", "malformed"]
            assert len(link.sinks[side].messages) == 1  # nothing after it was listened to

    asyncio.run(go())


def test_an_error_in_a_handler_is_reported(identities: dict[str, Identity]) -> None:
    error = ZeroDivisionError()

    async def go() -> None:
        async with linked(identities) as link:

            def react(peer: Peer, body: bytes) -> None:
                raise error

            link.sinks[0].react = react
            link.bee.send(FEDERATION, b"x")
            assert await link.ended() == [None, None]
            assert link.sinks[0].errors == [error]

    asyncio.run(go())


def test_without_a_stream_the_session_ends_all_the_same(identities: dict[str, Identity]) -> None:
    async def go() -> None:
        async with linked(identities) as link:
            assert link.line is not None
            await link.line.close()
            await link.ended()
            assert link.ant.session is not None  # it may come back
            link.ant.hang_up(Refused("replaced", "another stream"))
            assert link.ant.session is not None
            link.ant.session.backlog = 10
            link.ant.send(FEDERATION, bytes(20))
            link.ant.send(FEDERATION, b"one too many")
            assert link.ant.session is None
            await until(lambda: link.sinks[0].ended)
            assert [why and why.reason for why in link.sinks[0].ended] == ["stalled"]

    asyncio.run(go())


def test_a_peer_that_reads_nothing_is_hung_up_on(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(frame: bytes) -> bool:
        await asyncio.Event().wait()
        return True

    async def go() -> None:
        async with linked(identities) as link:
            assert link.line is not None
            monkeypatch.setattr(module, "STALLED", 0.1)
            monkeypatch.setattr(module, "LAST_WORD", 0.1)
            monkeypatch.setattr(link.line, "write", never)
            link.bee.send(FEDERATION, b"x")
            _, why = await link.ended()
            assert why is not None
            assert (why.reason, why.ours, str(why)) == ("stalled", True, "read nothing for 0.1 seconds")
            assert (link.bee.session, link.bee.state) == (None, "refused")
            assert link.sinks[1].errors == []

    asyncio.run(go())


def test_one_stream_at_a_time_and_the_newest_wins() -> None:
    async def go() -> list[str]:
        peer, order = Peer("bee", PeerSettings(), Sink()), []

        async def stream(name: str, hold: asyncio.Event) -> None:
            try:
                async with peer.alone():
                    order.append(f"{name} in")
                    await hold.wait()
                    order.append(f"{name} out")
            except Refused as error:
                order.append(f"{name} {error.reason}")

        holds = [asyncio.Event() for _ in range(3)]
        tasks = []
        for name, hold in zip("abc", holds, strict=True):
            tasks.append(asyncio.create_task(stream(name, hold)))
            await asyncio.sleep(0)
        for hold in holds:
            hold.set()
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(go()) == ["a in", "a out", "b replaced", "c in", "c out"]


def test_a_newer_stream_ends_the_older_and_nothing_is_lost(identities: dict[str, Identity]) -> None:
    async def go() -> None:
        async with linked(identities) as link:
            link.bee.send(MEETING, b"before")
            await link.sinks[0].came.wait()
            async with link.ant.alone():
                pass
            assert [e.reason if e else None for e in await link.ended()] == ["replaced", "replaced"]
            assert link.ant.state == link.bee.state == "away"
            link.bee.send(MEETING, b"after")
            await link.connect()
            await until(lambda: len(link.sinks[0].messages) == 2)
            assert link.sinks[0].messages == [(MEETING, b"before"), (MEETING, b"after")]

    asyncio.run(go())


def test_a_slow_peer_can_still_be_hung_up_on(identities: dict[str, Identity]) -> None:
    """At 16 kB/s a mebibyte takes a minute; nobody waits for that to say good bye."""

    async def go() -> None:
        async with linked(identities, bandwidth="16k") as link:
            link.bee.send(FEDERATION, bytes(1 << 20))
            await until(lambda: link.bee.bytes_out)
            link.bee.hang_up(Refused("leaving", "the node stops"))
            assert [e.reason if e else None for e in await link.ended()] == ["leaving", "leaving"]

    asyncio.run(go())


@pytest.mark.parametrize(("channel", "size", "most"), [(FEDERATION, 10, 20_000), (MEETING, 500, 2000)])
def test_refuses_a_flood(channel: int, size: int, most: int) -> None:
    async def go() -> int:
        peer, passed = Peer("bee", PeerSettings(), Sink()), 0
        with contextlib.suppress(Refused):
            while passed < 2 * most:
                peer._check_flood(channel, size)
                passed += 1
        return passed

    assert most <= asyncio.run(go()) < 2 * most


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 50)), min_size=1, max_size=40))
def test_a_bucket_lets_through_its_rate_and_one_burst(steps: list[tuple[float, float]]) -> None:
    now = 0.0
    bucket, taken = Bucket(3.0, 20.0, clock=lambda: now), 0.0
    for seconds, amount in steps:
        now += seconds
        if bucket.allows(amount):
            taken += amount
    assert taken <= 20 + 3 * now + 1e-6


def test_a_bucket_says_how_long_to_wait() -> None:
    now = 0.0
    bucket = Bucket(10.0, clock=lambda: now)
    assert [bucket.take(10), bucket.take(5), bucket.take(100)] == [0.0, 0.5, 10.5]
    now = 10.5
    assert bucket.take(0) == 0.0
    assert not bucket.allows(1)
    now = 1000.0
    assert bucket.allows(10)  # and no more than a second's worth was saved up
    assert not bucket.allows(0.1)
