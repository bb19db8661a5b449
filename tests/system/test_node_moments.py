"""Moments in a node's life that a test from outside would rarely hit: nodes within this process, with real streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import arc, tiny_federation, tiny_settings
from tests.consortium import Consortium, write_graph
from tests.network.lives import dp_settings

from fkge.errors import NodeError
from fkge.federation.gate import Step, budgets
from fkge.node.auditlog import entries
from fkge.node.node import Node
from fkge.node.runner import Runner
from fkge.node.settings import NodeConfig
from fkge.privacy import Ledger, noise_for

OWNERS = ("ant", "bee", "cat")


def node(of: Consortium, name: str, **options: Any) -> Node:
    return Node(NodeConfig.load(of.config(name)), **options)


def is_done(one: Node) -> bool:
    return one._state == "done"


def live(*nodes: Node, until: Callable[[], bool]) -> list[BaseException | None]:
    """Let nodes live until something is so, and stop them; how each ended."""

    async def all_of_them() -> list[BaseException | None]:
        lives = [asyncio.create_task(one.run()) for one in nodes]
        async with asyncio.timeout(120):
            while not until() and not any(life.done() for life in lives):
                await asyncio.sleep(0.02)
        for one in nodes:
            one.stop()
        return await asyncio.gather(*lives, return_exceptions=True)

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
        ledger.pay("in an earlier time", Step(noise, rate).release(steps), peer=None)
    for _ in range(2):  # and again when it is started again
        one = node(nodes, "ant")
        assert live(one, until=partial(is_done, one)) == [None]
        assert json.loads(nodes.result("ant").read_text())["epochs"] == 0
    assert [e["event"] for e in entries(nodes.state("ant") / "audit")].count("budget") == 2


def test_what_goes_wrong_while_it_waits_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer of its own is no reason for a node to stand still with a full disk."""
    nodes = Consortium(tmp_path, tiny_federation(OWNERS).graphs, tiny_settings())
    nodes.write("ant", wait=0.2)
    ant, bee = node(nodes, "ant"), node(nodes, "bee")

    def full(peer: str) -> None:
        raise NodeError("audit log: no space left on device")

    monkeypatch.setattr(ant, "left_behind", full)
    end = time.monotonic() + 60
    ended = live(ant, bee, until=lambda: time.monotonic() > end)
    assert (str(ended[0]), ended[1]) == ("audit log: no space left on device", None)


def test_one_that_aligns_anew_while_the_owner_is_made_is_not_dealt_with_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = Consortium(tmp_path, tiny_federation(OWNERS[:2]).graphs, tiny_settings(exchanges=300))
    ant, bee = node(nodes, "ant"), node(nodes, "bee")

    def under_way() -> bool:
        return all(one._company.owner is not None and one._company.owner.trainer.epoch > 4 for one in (ant, bee))

    assert live(ant, bee, until=under_way) == [None, None]
    before = ant._home.peers["bee"]
    write_graph(arc("bee", 10), nodes.site("bee") / "graph")
    ant, bee = node(nodes, "ant"), node(nodes, "bee", anew=True)
    real = Runner._make_owner

    def slow(runner: Runner) -> Any:
        made = real(runner)
        end = time.monotonic() + 60
        while runner.home.name == "ant" and ant._home.peers["bee"] == before and time.monotonic() < end:
            time.sleep(0.02)  # a large graph, and a checkpoint to read
        return made

    monkeypatch.setattr(Runner, "_make_owner", slow)
    assert live(ant, bee, until=lambda: "bee" in ant._company.joined) == [None, None]
    assert ant._home.peers["bee"] != before
    assert ant._company.owner is not None
    assert ant._company.owner.peers["bee"] == ant._home.peers["bee"]
