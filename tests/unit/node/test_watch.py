"""Files that an operator changes while a node runs are noticed, whether they can be used or not."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.node import frames_pb2 as pb
from fkge.node.connections import ConnectionManager
from fkge.node.events import Event, Notice
from fkge.node.handshake import terms_of
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.node.watch import CertificateReloaded, FileWatch, PeersChanged, Tick
from fkge.pki import site
from fkge.pki.authority import Authority
from fkge.pki.certificates import read_request
from tests.conftest import tiny_settings
from tests.consortium import members


class Scene:
    """A node's files, and what watching them reports."""

    def __init__(self, folder: Path) -> None:
        self.consortium, self.folder = folder, folder / "ant"
        self.peers = self.folder / "peers.toml"
        self.peers.write_text("[peers.bee]\nsame = true\n")
        settings = tiny_settings()
        node = NodeSettings(name="ant", graph="graph", listen="")
        config = NodeConfig(self.folder, node, settings, {"bee": PeerSettings(same=True)})
        self.events: list[Event] = []
        self.connections = ConnectionManager(
            config, terms_of(settings, 0), {}, lambda _: pb.Hello(), self.events.append
        )
        self.watch = FileWatch(config, self.connections, self.events.append, seconds=0.005)

    async def looked(self, times: int = 1) -> list[Event]:
        """What was reported until it has looked so many times; nothing of what was before."""
        self.events.clear()
        task = asyncio.create_task(self.watch.run())
        async with asyncio.timeout(10):
            while sum(isinstance(event, Tick) for event in self.events) < times:
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [event for event in self.events if not isinstance(event, Tick)]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("members")
    members(folder, "ant", "bee")
    return folder


@pytest.fixture
def folder(sites: Path, tmp_path: Path) -> Path:
    """A consortium's files, to change."""
    return Path(shutil.copytree(sites, tmp_path / "sites"))


def watching(folder: Path, go: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        await go(Scene(folder))

    asyncio.run(run())


def test_nothing_is_reported_while_nothing_changes(folder: Path) -> None:
    async def go(scene: Scene) -> None:
        assert await scene.looked(3) == []

    watching(folder, go)


def test_changed_peers_are_reported_once(folder: Path) -> None:
    async def go(scene: Scene) -> None:
        scene.peers.write_text("[peers.bee]\nsame = true\n[peers.cat]\nratio = 0.5\n")
        expected = {"bee": PeerSettings(same=True), "cat": PeerSettings(ratio=0.5)}
        assert await scene.looked(2) == [PeersChanged(expected)]
        scene.peers.write_text("")
        assert await scene.looked() == [PeersChanged({})]

    watching(folder, go)


@pytest.mark.parametrize(
    "text", ["[peers.bee\n", "[peers.ant]\n", "[peers.bee]\nentities = 'none.tsv'\n", "[peers.bee]\nsam = true\n"]
)
def test_peers_that_cannot_be_used_are_written_down_and_not_reported(folder: Path, text: str) -> None:
    async def go(scene: Scene) -> None:
        scene.peers.write_text(text)
        logged, audited = await scene.looked(2)
        assert isinstance(logged, Notice)
        assert isinstance(audited, Notice)
        assert (logged.log, logged.level, audited.audit) == ("peers", "error", "peers")
        assert str(scene.folder) in str(audited.fields["sentence"])
        assert "sentence" not in logged.fields  # which may quote a label
        scene.peers.write_text("[peers.bee]\n")
        assert await scene.looked() == [PeersChanged({"bee": PeerSettings()})]

    watching(folder, go)


def test_a_file_that_is_gone_is_written_down(folder: Path) -> None:
    async def go(scene: Scene) -> None:
        scene.peers.unlink()
        assert len(await scene.looked(2)) == 2

    watching(folder, go)


def test_a_revocation_and_a_new_certificate_are_told_apart(folder: Path) -> None:
    async def go(scene: Scene) -> None:
        authority, now = Authority.open(scene.consortium / "authority"), datetime.now(UTC)
        authority.revoke("bee", now)
        listed = scene.consortium / "authority" / "revoked.pem"
        (scene.folder / "revoked.pem").write_bytes(listed.read_bytes())
        (reloaded,) = await scene.looked(2)
        assert isinstance(reloaded, CertificateReloaded)
        assert not reloaded.replaced
        first = scene.connections.identity
        site.renew(scene.folder)
        kit = authority.approve(read_request((scene.folder / "request.csr").read_bytes(), "request"), now)
        site.check_kit(kit.read_bytes(), "kit", scene.folder, now, lambda _: None).install()
        (reloaded,) = await scene.looked(2)
        assert isinstance(reloaded, CertificateReloaded)
        assert reloaded.replaced
        assert scene.connections.identity.certificate_pem != first.certificate_pem

    watching(folder, go)


def test_a_damaged_revocation_list_is_written_down_and_the_old_one_stays(folder: Path) -> None:
    async def go(scene: Scene) -> None:
        before = scene.connections.identity.trust.revoked.number
        (scene.folder / "revoked.pem").write_bytes(b"junk")
        events = await scene.looked(2)
        assert events
        assert all(isinstance(event, Notice) and event.log == "certificate" for event in events)
        assert scene.connections.identity.trust.revoked.number == before

    watching(folder, go)
