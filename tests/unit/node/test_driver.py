"""A node's owner: trained in its thread, fed from the loop, paused, left and taken up again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from fkge.align import Common
from fkge.federation import Member, OwnerStore, PeerProfile, Plan, create_store
from fkge.federation.driver import Driver
from fkge.federation.owner.job import ProductionJob
from fkge.federation.owner.workspace import Workspace
from fkge.node.driver import NodeDriver, open_in_thread
from fkge.node.events import Event, Failed, JoinDue
from tests.conftest import EventLog, arc, tiny_settings

BEE = PeerProfile(Common(np.arange(20), np.arange(4)), "TransE", {"entity": 8, "relation": 8})


class Scene:
    """The driver of ant, which shares rows with bee; bee is never there."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = tiny_settings(**{"initial_epochs": 1, "exchanges": 2, "epochs": 1, "test_every": 1, **settings})
        found = folder / "owners" / "ant"
        store = (
            OwnerStore.open(found) if found.exists() else
            create_store(folder, "ant", Member(arc("ant", 0)), self.settings, 0, 1)
        )  # fmt: skip
        self.store = store.with_peers({"bee": BEE}, store.tokens)
        self.job = ProductionJob(self.store, Workspace(folder / "work"), Plan.of(self.settings))
        self.log, self.events, self.posted = EventLog(), list[Event](), list[tuple[str, bytes]]()

    async def open(self, order: Any = None, train_alone: bool = True) -> NodeDriver:
        self.driver, self.thread = await open_in_thread(
            self.job, lambda peer, body: self.posted.append((peer, body)), self.log
        )
        return NodeDriver(self.driver, self.thread, self.log, self.events.append, train_alone, order)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                assert not any(isinstance(event, Failed) for event in self.events), self.events
                await asyncio.sleep(0.002)


def test_without_peers_it_trains_alone_and_leaves_its_results(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        node.begin(present=())
        node.advance()
        await scene.until(lambda: scene.driver.concluded and not node.held)
        assert scene.job.workspace.finished
        assert any(isinstance(event, JoinDue) for event in scene.events)  # peers that came meanwhile join now
        assert [work["epoch"] for work in scene.log.of("work")][-1] == scene.settings.total_epochs
        await node.leave()
        again = Scene(tmp_path)
        node = await again.open()
        assert again.driver.concluded
        node.begin(present=())
        node.advance()
        await asyncio.sleep(0.01)
        assert not again.log.of("work")  # nothing is trained again
        await node.leave()

    asyncio.run(go())


def test_one_that_leaves_takes_up_its_training_where_it_was(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path, exchanges=4000)
        node = await scene.open()
        node.begin(present=())
        node.advance()
        await scene.until(lambda: len(scene.log.of("work")) >= 2)
        await node.leave()
        epoch, told = node.owner.trainer.epoch, len(scene.log)
        assert 0 < epoch < scene.settings.total_epochs
        node.advance()
        await asyncio.sleep(0.01)
        assert len(scene.log) == told  # it is over, whatever comes
        again = Scene(tmp_path, exchanges=4000)
        node = await again.open()
        assert node.owner.trainer.epoch == epoch
        await node.leave()

    asyncio.run(go())


def test_a_paused_one_does_not_train_until_it_continues(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        node.pause(True)
        node.begin(present=())
        node.advance()
        await asyncio.sleep(0.05)
        assert not scene.log.of("work")
        node.pause(False)
        await scene.until(lambda: scene.log.of("work"))
        await node.leave()

    asyncio.run(go())


def test_a_peer_with_another_alignment_waits_while_the_owner_trains(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        other = replace(BEE, common=Common(np.arange(10), np.arange(4)))
        assert node.may_join("bee", other)
        node.pause(True)
        node.begin(present=("bee",))
        node.advance()
        assert not node.may_join("bee", other)
        assert node.may_join("bee", BEE)  # the same as before
        assert node.may_join("cat", BEE)  # nothing of it is in use
        node.pause(False)
        await scene.until(lambda: node.may_join("bee", other))
        assert node.join("bee", other)
        assert node.owner.peers["bee"] == other
        await node.leave()

    asyncio.run(go())


def test_one_that_shares_too_little_is_not_joined(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        node.pause(True)
        none = np.empty(0, np.int64)
        assert not node.join("cat", replace(BEE, common=Common(none, none)))
        assert "cat" not in node.owner.peers
        node.lose("cat")  # one that never joined
        await node.leave()

    asyncio.run(go())


def test_limits_apply_from_now_on_and_refusals_of_the_settings_stay(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open(train_alone=False)
        protocol = scene.driver.participant.protocol
        node.limit(["cat"], {"cat": 0.5}, federated=True)
        assert (protocol.config.refuses, protocol.config.patient, protocol.config.train_alone) == (
            frozenset({"cat"}),
            True,
            False,
        )
        assert node.owner.egress.caps == {"cat": 0.5}
        node.limit([], {}, federated=True)
        assert (protocol.config.refuses, node.owner.egress.caps) == (frozenset(), {})
        before = scene.store.protocol_config()
        node.limit(["cat"], {}, federated=False)  # there is nobody to refuse, and nobody to wait for
        assert protocol.config == before
        await node.leave()

    asyncio.run(go())


class Score:
    """An order of which each step comes when it is asked for."""

    def __init__(self, *steps: Literal["begin", "wake", "finish"]) -> None:
        self.steps, self.taken = list(steps), list[str]()
        self.came: list[tuple[str, bytes]] = []

    @property
    def over(self) -> bool:
        return not self.steps

    def arrived(self, peer: str, body: bytes) -> None:
        self.came.append((peer, body))

    def following(self, finished: bool) -> tuple[Any, str, bytes] | None:
        if not self.steps or (self.steps[0] == "finish" and not finished):
            return None
        self.taken.append(self.steps.pop(0))
        return self.taken[-1], "", b""


def test_an_order_is_followed_as_far_as_it_can_be(tmp_path: Path) -> None:
    async def go() -> None:
        score = Score("begin", "finish", "wake")
        scene = Scene(tmp_path)
        node = await scene.open(order=score)
        node.begin(present=("bee",))
        assert score.taken == []  # beginning is a step of the order
        node.pause(True)
        node.deliver("bee", b"some message")
        assert (score.came, score.taken) == ([("bee", b"some message")], ["begin"])
        node.pause(False)
        await scene.until(lambda: score.over)
        assert score.taken == ["begin", "finish", "wake"]
        await node.leave()

    asyncio.run(go())


def test_an_error_in_the_thread_ends_the_node(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        node.owner.tables["entity"].fill_(float("nan"))  # as after settings under which training diverges
        node.begin(present=())
        node.advance()
        async with asyncio.timeout(60):
            while not scene.events:
                await asyncio.sleep(0.002)
        (failed,) = scene.events
        assert isinstance(failed, Failed)
        await node.leave()

    asyncio.run(go())


def test_a_damaged_checkpoint_is_told_and_the_training_begins_anew(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        node.pause(True)
        node.begin(present=())
        node.advance()
        await node.leave()
        (checkpoint,) = (tmp_path / "work").glob("checkpoint.safetensors")
        checkpoint.write_bytes(b"junk")
        again = Scene(tmp_path)
        node = await again.open()
        assert len(again.log.of("damaged")) == 1
        assert node.owner.trainer.epoch == 0
        await node.leave()

    asyncio.run(go())


def test_an_owner_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    class Broken:
        workspace = Workspace(tmp_path / "work")

        def open(self, **options: Any) -> Any:
            raise ZeroDivisionError

    async def go() -> None:
        job: Any = Broken()
        with pytest.raises(ZeroDivisionError):
            await open_in_thread(job, lambda peer, body: None, EventLog())

    before = {thread for thread in threading.enumerate() if thread.name.startswith("work")}
    asyncio.run(go())
    assert {thread for thread in threading.enumerate() if thread.name.startswith("work")} <= before


def test_what_is_opened_is_a_driver_and_one_thread(tmp_path: Path) -> None:
    async def go() -> None:
        scene = Scene(tmp_path)
        node = await scene.open()
        assert isinstance(scene.driver, Driver)
        assert isinstance(scene.thread, ThreadPoolExecutor)
        await node.leave()
        with pytest.raises(RuntimeError, match="shutdown"):
            scene.thread.submit(int)

    asyncio.run(go())
