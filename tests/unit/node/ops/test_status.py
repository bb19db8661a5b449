"""What an operator is told of a node, before its store is open and while it works."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.align import Common
from fkge.federation import Member, PeerProfile, create_store
from fkge.node.alignment import Alignments
from fkge.node.frames import Refused
from fkge.node.membership import Membership
from fkge.node.ops.records import open_records
from fkge.node.ops.status import StatusView
from fkge.node.peer import Peer
from fkge.node.persistence import PersistentState
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.node.state import LifeCycle, Trigger
from tests.conftest import random_graph, tiny_settings


@pytest.fixture
def view(tmp_path: Path) -> Iterator[StatusView]:
    """A node that has just been started, with three peers."""
    settings = tiny_settings()
    config = NodeConfig(tmp_path, NodeSettings(name="ant", graph="graph"), settings, {})
    peers = {name: Peer(name, PeerSettings(), lambda event: None) for name in ("bee", "cat", "dog")}
    membership = Membership(peers, settings, lambda event: None)
    with open_records("ant", peers, tmp_path / "state", False, 3) as records:
        state = PersistentState(tmp_path / "node.json", starts=3)
        yield StatusView(config, state, records, peers, membership, LifeCycle(lambda: 1000.0))


def status(view: StatusView) -> Any:
    found = asyncio.run(view.status())
    json.dumps(found)  # as it is sent
    return found


def test_before_the_store_is_open_nothing_is_made_up(view: StatusView) -> None:
    found = status(view)
    assert (found["name"], found["life"], found["pid"], found["state"]) == ("ant", 3, os.getpid(), "starting")
    assert (found["epoch"], found["validation_mrr"], found["spent"]) == (None, None, [])
    assert found["epochs"] == view.config.federation.total_epochs
    assert [(p["name"], p["state"], p["shared"], p["heard"], p["reason"]) for p in found["peers"]] == [
        (name, "away", None, None, None) for name in ("bee", "cat", "dog")
    ]
    assert found["audit"] == {"entries": view.records.audit.entries, "head": view.records.audit.head}
    assert view.health() == (False, {"state": "starting", "peers": 0, "of": 3})


def test_a_paused_node_says_so_until_it_stops(view: StatusView) -> None:
    view.membership.paused = True
    assert view.state == "paused"
    view.life_cycle.move(Trigger.STOP)
    assert view.state == "stopping"
    assert not view.health().ready


class Silent:
    """A stream on which nothing comes."""

    async def read(self) -> bytes | None:
        await asyncio.Event().wait()
        return None

    async def write(self, frame: bytes) -> bool:
        return True

    async def done(self) -> None: ...


def test_a_connected_peer_is_aligning_then_connected_then_joined(view: StatusView) -> None:
    async def go() -> list[str]:
        bee, states = view.peers["bee"], []
        bee.fresh(bytes(16))

        carrying = asyncio.create_task(bee.carry(cast(Any, Silent())))
        while not bee.here:
            await asyncio.sleep(0)
        known = PeerProfile(Common(np.arange(2), np.arange(1)), "TransE", {"entity": 8, "relation": 8})
        states.append((await view.status())["peers"][0]["state"])
        view.membership.add(bee, known)
        states.append((await view.status())["peers"][0]["state"])
        view.membership.joined.add("bee")
        states.append((await view.status())["peers"][0]["state"])
        assert view.health().details["peers"] == 1
        carrying.cancel()
        await asyncio.gather(carrying, return_exceptions=True)
        return states

    assert asyncio.run(go()) == ["aligning", "connected", "joined"]


def test_why_a_peer_is_away_and_what_is_shared_with_it(view: StatusView, tmp_path: Path) -> None:
    store = create_store(tmp_path, "ant", Member(random_graph()), view.config.federation, 0, 0)
    profiles = {
        name: PeerProfile(Common(np.arange(rows), np.empty(0, np.int64)), "TransE", {"entity": 8, "relation": 8})
        for name, rows in (("bee", 7), ("cat", 0))
    }
    store = store.with_peers(profiles, store.tokens)
    view.alignments = Alignments(view.config, view.persistent, store, lambda event: None)
    view.peers["dog"].refuse(Refused("clock", "the clocks are apart"))
    bee, cat, dog = status(view)["peers"]
    assert (bee["shared"], bee["reason"]) == (7, None)
    assert cat["shared"] == 0
    assert cat["reason"].startswith("nothing in common: see same, entities and relations")
    assert (dog["shared"], dog["state"], dog["reason"]) == (None, "refused", "the clocks are apart")
