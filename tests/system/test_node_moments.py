"""Race conditions that a test from outside would rarely hit: nodes within this process, with real streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import NodeError
from fkge.federation import PeerProfile
from fkge.federation.driver import Driver
from fkge.federation.egress import budgets, dp_sgd
from fkge.node import driver
from fkge.node.ops.audit_log import AuditLog, entries
from fkge.node.service import Node, open_node
from fkge.node.settings import NodeConfig
from fkge.node.state import NodeState
from fkge.privacy import Ledger, noise_for
from tests.conftest import arc, tiny_federation, tiny_settings
from tests.consortium import Consortium, write_graph
from tests.network.lives import dp_settings

OWNERS = ("ant", "bee", "cat")


class Run:
    """A node to run in this process; `node` is there while it runs, and afterwards."""

    def __init__(self, of: Consortium, name: str, anew: bool = False) -> None:
        self._config, self._anew = NodeConfig.load(of.config(name)), anew
        self.node: Node | None = None

    async def run(self) -> None:
        with open_node(self._config, anew=self._anew) as self.node:
            await self.node.run()

    @property
    def done(self) -> bool:
        return self.node is not None and self.node.life_cycle.state is NodeState.DONE

    @property
    def epoch(self) -> int:
        owner = None if self.node is None else self.node.membership.owner
        return 0 if owner is None else owner.trainer.epoch


def run(*runs: Run, until: Callable[[], bool]) -> list[BaseException | None]:
    """Run nodes until something is so, and stop them; how each ended."""

    async def all_of_them() -> list[BaseException | None]:
        running = [asyncio.create_task(one.run()) for one in runs]
        async with asyncio.timeout(120):
            while not until() and not any(task.done() for task in running):
                await asyncio.sleep(0.02)
        for one in runs:
            if one.node is not None:
                one.node.stop()
        return await asyncio.gather(*running, return_exceptions=True)

    return asyncio.run(all_of_them())


def test_one_whose_budget_is_spent_before_its_first_training_ends_where_it_is(tmp_path: Path) -> None:
    settings = dp_settings()
    nodes = Consortium(tmp_path, tiny_federation(OWNERS[:2]).graphs, settings)
    nodes.write("ant", founder=False)
    config = NodeConfig.load(nodes.config("ant"))
    folder = Path(str(config.federation.privacy.ledger))
    folder.mkdir(parents=True)
    assert settings.privacy.epsilon is not None
    steps, rate = settings.dp.steps_in(settings.total_epochs), settings.dp.rate if settings.dp.rate < 1 else None
    noise = noise_for(settings.privacy.epsilon, settings.privacy.delta, steps, rate)
    with Ledger.open(folder / "ant.sqlite", graph="ant", budgets=budgets(config.federation)) as ledger:
        ledger.pay("in an earlier time", dp_sgd(noise, steps, rate), peer=None)
    for _ in range(2):  # and again when it is started again
        one = Run(nodes, "ant")
        assert run(one, until=partial(getattr, one, "done")) == [None]
        assert json.loads(nodes.result("ant").read_text())["epochs"] == 0
    assert [e["event"] for e in entries(nodes.state("ant") / "audit")].count("budget") == 2


def test_what_goes_wrong_while_it_waits_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of its own is no reason for a node to stand still with a full disk."""
    nodes = Consortium(tmp_path, tiny_federation(OWNERS).graphs, tiny_settings())
    nodes.write("ant", wait=0.2)
    real = AuditLog.note

    def full(log: AuditLog, event: str, **fields: Any) -> None:
        if event == "founder missing":
            raise NodeError("audit log: no space left on device")
        real(log, event, **fields)

    monkeypatch.setattr(AuditLog, "note", full)
    end = time.monotonic() + 60
    ended = run(Run(nodes, "ant"), Run(nodes, "bee"), until=lambda: time.monotonic() > end)
    assert (str(ended[0]), ended[1]) == ("audit log: no space left on device", None)


def test_one_that_aligns_anew_while_the_owner_is_made_is_not_dealt_with_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Consortium(tmp_path, tiny_federation(OWNERS[:2]).graphs, tiny_settings(exchanges=300))
    ant, bee = Run(nodes, "ant"), Run(nodes, "bee")

    def known() -> PeerProfile | None:
        store = None if ant.node is None else ant.node.store
        return None if store is None else store.peers["bee"]

    assert run(ant, bee, until=lambda: ant.epoch > 4 and bee.epoch > 4) == [None, None]
    before = known()
    write_graph(arc("bee", 10), nodes.site("bee") / "graph")
    ant, bee = Run(nodes, "ant"), Run(nodes, "bee", anew=True)
    real = driver.Driver

    def slow(*job: Any, **options: Any) -> Driver:
        made = real(*job, **options)
        end = time.monotonic() + 60
        while made.owner.name == "ant" and known() == before and time.monotonic() < end:
            time.sleep(0.02)  # a large graph, and a checkpoint to read
        return made

    monkeypatch.setattr(driver, "Driver", slow)
    assert run(ant, bee, until=lambda: ant.node is not None and "bee" in ant.node.membership.joined) == [None, None]
    assert known() != before
    assert ant.node is not None
    assert ant.node.membership.owner is not None
    assert ant.node.membership.owner.peers["bee"] == known()
