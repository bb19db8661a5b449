"""A whole node in this process: what it opens, how it is asked, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.errors import NodeError, RunError, SettingsError
from fkge.federation import FederationSettings
from fkge.node.ops import control
from fkge.node.ops.audit_log import entries
from fkge.node.service import Inputs, Node, open_node, run_node
from fkge.node.settings import NodeConfig
from fkge.node.state import NodeState
from tests.conftest import arc, tiny_settings
from tests.consortium import Consortium

SHORT: dict[str, Any] = {"initial_epochs": 1, "exchanges": 2, "epochs": 1, "test_every": 1}


class Site:
    """The files of one owner without peers, and its node while it runs."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.files = Consortium(folder, {"ant": arc("ant", 0)}, tiny_settings(**{**SHORT, **settings}))
        self.files.write("ant", listen="")
        self.folder, self.state = self.files.site("ant"), self.files.state("ant")

    @property
    def config(self) -> NodeConfig:
        return NodeConfig.load(self.files.config("ant"))

    async def ask(self, command: str) -> Any:
        return await asyncio.to_thread(control.call, self.state / control.SOCKET, command)

    def events(self) -> list[str]:
        return [entry["event"] for entry in entries(self.state / "audit")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    import signal

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def running(
    site: Site, go: Callable[[Node], Awaitable[None]], inputs: Inputs | None = None, anew: bool = False
) -> None:
    """Run the node, and do something meanwhile; then it is stopped, if it still runs."""

    async def run() -> None:
        with open_node(site.config, inputs, anew=anew) as node:
            task = asyncio.create_task(node.run())
            try:
                await go(node)
            finally:
                node.stop()
                await task

    asyncio.run(run())


def done(node: Node) -> bool:
    return node.life_cycle.state is NodeState.DONE


def test_one_without_peers_trains_alone_and_is_done(site: Site) -> None:
    noted: list[str] = []

    async def go(node: Node) -> None:
        await until(lambda: done(node))
        told = await site.ask("status")
        assert (told["state"], told["epoch"], told["epochs"], told["peers"]) == ("done", 3, 3, [])
        assert node.membership.owner is not None

    running(site, go, Inputs(observe=lambda event: noted.append(event.kind)))
    assert site.files.result("ant").exists()
    assert {"work", "concluded"} <= set(noted)
    assert (site.events()[0], site.events()[-1]) == ("opened", "end")
    assert not (site.state / control.SOCKET).exists()


def test_one_that_is_done_starts_again_as_done(site: Site) -> None:
    async def go(node: Node) -> None:
        await until(lambda: done(node))

    running(site, go)
    result = site.files.result("ant").read_bytes()

    async def again(node: Node) -> None:
        await until(lambda: done(node))
        assert (await site.ask("status"))["life"] == 2

    running(site, again)
    assert site.files.result("ant").read_bytes() == result


def test_anew_it_begins_from_nothing_and_keeps_what_was_written_down(site: Site) -> None:
    async def go(node: Node) -> None:
        await until(lambda: done(node))

    running(site, go)
    before = len(site.events())

    async def again(node: Node) -> None:
        await until(lambda: done(node))

    running(site, again, anew=True)
    assert (site.state / "before-1" / "arms").is_dir()
    assert len(site.events()) > before


def test_an_operator_pauses_it_continues_it_and_stops_it(tmp_path: Path) -> None:
    site = Site(tmp_path, exchanges=4000)

    async def go(node: Node) -> None:
        await until(lambda: node.membership.owner is not None)
        assert (await site.ask("pause"))["state"] == "paused"
        assert (await site.ask("status"))["state"] == "paused"
        owner = node.membership.owner
        assert owner is not None
        await asyncio.sleep(0.05)
        epoch = owner.trainer.epoch
        await asyncio.sleep(0.05)
        assert owner.trainer.epoch == epoch
        assert (await site.ask("resume"))["state"] != "paused"
        await until(lambda: owner.trainer.epoch > epoch)
        assert (await site.ask("stop"))["state"] == "stopping"
        await until(lambda: node.life_cycle.over)

    running(site, go)
    assert [event for event in site.events() if event in ("paused", "resumed")] == ["paused", "resumed"]
    assert not site.files.result("ant").exists()


def test_two_processes_are_never_the_same_node(site: Site) -> None:
    async def go(node: Node) -> None:
        with pytest.raises(NodeError, match="another process is this node"):
            await run_node(site.config)
        assert not node.life_cycle.over

    running(site, go)


def test_a_certificate_of_another_owner_is_refused(tmp_path: Path, site: Site) -> None:
    site.files.write("ant", name="eel", listen="")
    config = site.config
    with pytest.raises(SettingsError, match=r"node\.toml is eel's, and the certificate in \. is ant's"):
        asyncio.run(run_node(config))


def test_what_changed_since_the_first_start_is_told_and_nothing_is_lost(site: Site) -> None:
    async def go(node: Node) -> None:
        await until(lambda: done(node))

    running(site, go)
    settings = FederationSettings.load(site.folder / "federation.toml")
    (site.folder / "federation.toml").write_text(
        settings.model_copy(update={"train": settings.train.model_copy(update={"dim": 16})}).to_toml()
    )
    with pytest.raises(RunError, match="how it trains changed since this node began"):
        asyncio.run(run_node(site.config))
    assert site.files.result("ant").exists()
    assert site.events()[-1] == "end"


def test_a_peer_that_is_named_later_is_known_from_then_on(site: Site) -> None:
    async def go(node: Node) -> None:
        await until(lambda: done(node))
        (site.folder / "peers.toml").write_text("[peers.bee]\nsame = true\n")
        await until(lambda: node.config.peers)
        (told,) = (await site.ask("status"))["peers"]
        assert (told["name"], told["state"]) == ("bee", "away")
        (site.folder / "peers.toml").write_text("")
        await until(lambda: not node.config.peers)
        assert (await site.ask("status"))["peers"] == []

    running(site, go)
    assert site.events().count("peers") == 2


def test_a_founder_waits_for_one_that_is_not_there(site: Site) -> None:
    (site.folder / "peers.toml").write_text("[peers.bee]\nsame = true\n")

    async def go(node: Node) -> None:
        await until(lambda: node.life_cycle.state is NodeState.WAITING)
        await asyncio.sleep(0.05)
        assert node.life_cycle.state is NodeState.WAITING
        assert node.store is not None
        assert (await site.ask("status"))["epoch"] is None

    running(site, go)


def test_one_that_is_no_founder_waits_for_nobody(site: Site) -> None:
    (site.folder / "peers.toml").write_text("[peers.bee]\nsame = true\n")
    site.files.write("ant", founder=False, listen="")

    async def go(node: Node) -> None:
        await until(lambda: node.membership.owner is not None)

    running(site, go)
