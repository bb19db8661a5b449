"""Two nodes connect over real streams, refuse each other for a reason, and resume what they had under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.errors import IdentityError, NodeError
from fkge.node import frames_pb2 as pb
from fkge.node.connections import ConnectionManager, PeerConnected, PeerDisconnected, PeerRefused
from fkge.node.events import Event, Failed
from fkge.node.frames import MEETING, Refused
from fkge.node.handshake import greeting, new_incarnation, terms_of
from fkge.node.peer import MessageReceived, Peer, SessionEnded
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.pki.authority import Authority
from tests.conftest import tiny_settings
from tests.consortium import free_ports, members


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("members")
    members(folder, "ant", "bee")
    return folder


class Side:
    """One node, as far as connections go."""

    def __init__(
        self,
        folder: Path,
        name: str,
        other: str,
        listen: str,
        settings: dict[str, Any],
        grace: float = 60.0,
        **peer: Any,
    ) -> None:
        federation = tiny_settings(**settings)
        self.terms = terms_of(federation, 0)
        node = NodeSettings(name=name, graph="graph", listen=listen, grace=grace)
        self.events: list[Event] = []
        self.peers = {other: Peer(other, PeerSettings.build(peer), self.events.append)}
        config = NodeConfig(folder / name, node, federation, {n: p.settings for n, p in self.peers.items()})
        self.name, self.address, self.life = name, listen, new_incarnation()
        self.manager = ConnectionManager(config, self.terms, self.peers, self.greet, self.events.append)

    def greet(self, peer: Peer) -> pb.Hello:
        return greeting(self.life, self.manager.identity.consortium, self.name, self.terms, peer)

    @property
    def peer(self) -> Peer:
        return next(iter(self.peers.values()))

    def of(self, kind: type[Any]) -> list[Any]:
        failed = [event.error for event in self.events if isinstance(event, Failed)]
        assert not failed, failed
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def refusals(self) -> list[tuple[str, bool]]:
        return [(event.why.reason, event.why.ours) for event in self.of(PeerRefused)]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def two(
    sites: Path,
    ant: dict[str, Any] | None = None,
    bee: dict[str, Any] | None = None,
    grace: float = 60.0,
    **settings: Any,
) -> AsyncIterator[tuple[Side, Side]]:
    """`ant` listens and `bee` calls; what each has in peers.toml of the other, and how bee federates."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    one = Side(sites, "ant", "bee", address, {}, grace, **(ant or {}))
    other = Side(sites, "bee", "ant", "", settings, **{"address": address, **(bee or {})})
    await one.manager.open()
    await other.manager.open()
    try:
        yield one, other
    finally:
        await other.manager.close()
        await one.manager.close()


def test_two_that_name_each_other_connect_and_hear_each_other(sites: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            (connected,) = ant.of(PeerConnected)
            assert (connected.hello.owner, connected.resumed) == ("bee", False)
            assert ant.peer.incarnation == bee.life
            bee.peer.send(MEETING, b"hello")
            await until(lambda: ant.of(MessageReceived))
            assert ant.of(MessageReceived)[0].body == b"hello"
            assert ant.refusals == bee.refusals == []

    asyncio.run(go())


def test_a_broken_stream_is_resumed_and_nothing_is_lost(sites: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            bee.peer.hang_up(Refused("replaced", "as if the network had failed"))
            bee.peer.send(MEETING, b"while it was broken")
            await until(lambda: len(ant.of(PeerConnected)) == 2)
            assert [event.resumed for event in ant.of(PeerConnected)] == [False, True]
            await until(lambda: ant.of(MessageReceived))
            assert len(ant.of(SessionEnded)) == 1  # before the first, where there was none

    asyncio.run(go())


def test_a_new_process_of_a_peer_has_a_new_session(sites: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            bee.life = new_incarnation()
            bee.peer.session = None
            bee.peer.hang_up(Refused("replaced", "its process was killed"))
            await until(lambda: len(ant.of(PeerConnected)) == 2)
            assert [event.resumed for event in ant.of(PeerConnected)] == [False, False]
            assert ant.peer.incarnation == bee.life
            assert len(ant.of(SessionEnded)) == 2

    asyncio.run(go())


def test_a_session_ends_when_nobody_comes_back_in_time(sites: Path) -> None:
    async def go() -> None:
        async with two(sites, grace=0.05) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            before = len(ant.of(SessionEnded))
            bee.manager.forget(bee.peer)  # it dials no more
            ant.peer.hang_up(Refused("replaced", "as if the network had failed"))
            await until(lambda: len(ant.of(SessionEnded)) > before)
            assert ant.peer.session is None

    asyncio.run(go())


@pytest.mark.parametrize(
    ("ant", "bee", "settings", "reason"),
    [
        ({"certificate": "sha256:" + "0" * 64}, {}, {}, "stranger"),
        ({"hours": "00:00-00:01"}, {}, {}, "hours"),
        ({"privacy": "dp"}, {}, {}, "privacy"),
        ({}, {}, {"share": "entities"}, "terms"),
    ],
)
def test_what_a_node_does_not_want_is_refused_and_the_other_told_why(
    sites: Path, ant: dict[str, Any], bee: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    if reason == "hours" and datetime.now(UTC).strftime("%H:%M") == "00:00":
        pytest.skip("it is the one minute of the day")

    async def go() -> None:
        async with two(sites, ant, bee, **settings) as (one, other):
            await until(lambda: one.of(PeerRefused) and other.of(PeerRefused))
            assert one.refusals[0] == (reason, True)
            assert other.refusals[0] == (reason, False)
            assert (one.peer.state, other.peer.state) == ("refused", "refused")
            assert one.of(PeerConnected) == other.of(PeerConnected) == []

    asyncio.run(go())


def test_the_side_that_calls_checks_too(sites: Path) -> None:
    async def go() -> None:
        async with two(sites, bee={"certificate": "sha256:" + "0" * 64}) as (_, bee):
            await until(lambda: bee.of(PeerRefused))
            assert bee.refusals[0] == ("stranger", True)
            assert bee.of(PeerConnected) == []

    asyncio.run(go())


def test_one_that_peers_toml_does_not_name_is_a_stranger(sites: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, _):
            await until(lambda: ant.peer.here)
            was = ant.peer
            del ant.peers["bee"]
            ant.events.clear()
            was.hang_up(Refused("leaving", "it is named no more"))
            await until(lambda: ant.of(PeerRefused))
            (refused, *_) = ant.of(PeerRefused)
            assert (refused.peer, refused.name, refused.why.reason) == (None, "bee", "stranger")

    asyncio.run(go())


def test_hours_that_are_over_end_a_stream(sites: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            ant.manager.check_open()
            assert ant.peer.here
            later = datetime.now(UTC) + timedelta(hours=2)
            ant.peer.settings = PeerSettings(hours=f"{later:%H}:00-{later:%H}:30")
            ant.manager.check_open()
            await until(lambda: ant.of(PeerDisconnected) and bee.of(PeerDisconnected))
            assert ant.of(PeerDisconnected)[0].why.reason == "hours"
            await until(lambda: bee.peer.reason == "hours")

    asyncio.run(go())


def test_a_revoked_peer_is_hung_up_on_and_not_let_in_again(tmp_path: Path) -> None:
    members(tmp_path, "ant", "bee")

    async def go() -> None:
        async with two(tmp_path) as (ant, bee):
            await until(lambda: ant.peer.here and bee.peer.here)
            assert not ant.manager.reload()
            authority = Authority.open(tmp_path / "authority")
            authority.revoke("bee", datetime.now(UTC))
            (tmp_path / "ant" / "revoked.pem").write_bytes((tmp_path / "authority" / "revoked.pem").read_bytes())
            assert ant.manager.reload()
            assert not ant.manager.reload()
            ant.manager.check_open()
            await until(lambda: ant.of(PeerDisconnected))
            assert ant.of(PeerDisconnected)[0].why.reason == "revoked"
            await until(lambda: ant.refusals)
            assert ant.refusals[0] == ("revoked", True)

    asyncio.run(go())


def test_of_two_that_listen_the_first_by_name_calls(sites: Path) -> None:
    async def go() -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
        ant = Side(sites, "ant", "bee", addresses[0], {}, address=addresses[1])
        bee = Side(sites, "bee", "ant", addresses[1], {}, address=addresses[0])
        await bee.manager.open()
        await asyncio.sleep(0.05)
        assert bee.of(PeerRefused) == []  # it waits to be called
        await ant.manager.open()
        await until(lambda: ant.peer.here and bee.peer.here)
        await ant.manager.close()
        await bee.manager.close()

    asyncio.run(go())


def test_what_cannot_be_opened_is_told(sites: Path, tmp_path: Path) -> None:
    async def go() -> None:
        async with two(sites) as (ant, _):
            taken = Side(sites, "ant", "bee", ant.address, {})
            with pytest.raises(NodeError, match="cannot listen on"):
                await taken.manager.open()
            await taken.manager.close()
        with pytest.raises(IdentityError):
            Side(tmp_path, "ant", "bee", "", {})

    asyncio.run(go())
