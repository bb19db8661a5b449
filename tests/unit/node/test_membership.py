"""Peers join, leave and are left out. The owner's work is a stand-in here; the tests of nodes have real ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np
import pytest

from fkge.align import Common
from fkge.federation import PeerProfile
from fkge.node.driver import NodeDriver
from fkge.node.events import Event, Notice
from fkge.node.frames import FEDERATION, MEETING, Refused
from fkge.node.membership import Membership
from fkge.node.peer import Peer
from fkge.node.session import Session
from fkge.node.settings import PeerSettings
from tests.conftest import tiny_settings

SHARED = PeerProfile(Common(np.arange(9), np.arange(2)), "transe", {"entity": 8, "relation": 8})
OTHER = PeerProfile(Common(np.arange(5), np.arange(2)), "transe", {"entity": 8, "relation": 8})


class Work:
    """A driver as the membership sees it."""

    def __init__(self, knows: Mapping[str, PeerProfile]) -> None:
        self.peers, self.owner = dict(knows), cast(Any, self)
        self.held = self.busy = self.too_little = self.paused = False
        self.delivered: list[tuple[str, bytes]] = []
        self.lost: list[str] = []
        self.limits: list[tuple[list[str], dict[str, float], bool]] = []

    def begin(self, present: Collection[str]) -> None:
        self.present = set(present)

    def may_join(self, name: str, known: PeerProfile) -> bool:
        return not self.busy

    def join(self, name: str, known: PeerProfile) -> bool:
        return not self.too_little

    def lose(self, name: str) -> None:
        self.lost.append(name)

    def deliver(self, name: str, body: bytes) -> None:
        self.delivered.append((name, body))

    def limit(self, refuses: list[str], caps: dict[str, float], federated: bool) -> None:
        self.limits.append((refuses, caps, federated))

    def pause(self, paused: bool) -> None:
        self.paused = paused


class Scene:
    """Two connected peers, and no work yet."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        asked = {"ant": {}, "bee": {"ask": False, "epsilon": 0.5}}
        self.peers = {name: Peer(name, PeerSettings.build(table), self.events.append) for name, table in asked.items()}
        for peer in self.peers.values():
            peer.session = Session({MEETING: 1000, FEDERATION: 100})
        self.membership = Membership(self.peers, tiny_settings(), self.events.append)

    def begin(self, work: Work) -> None:
        self.membership.begin(cast(NodeDriver, work))
        self.membership.join_all()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_messages_before_the_work_wait_and_are_delivered_in_order(scene: Scene) -> None:
    ant, work = scene.peers["ant"], Work({"ant": SHARED})
    scene.membership.receive(ant, b"one")
    scene.membership.add(ant, SHARED)
    scene.membership.receive(ant, b"two")
    assert scene.membership.owner is None
    scene.begin(work)
    assert (work.present, scene.membership.joined) == ({"ant"}, {"ant"})
    scene.membership.receive(ant, b"three")
    assert work.delivered == [("ant", b"one"), ("ant", b"two"), ("ant", b"three")]
    assert ant.session is not None
    assert ant.session.limits[FEDERATION] > 100  # whole exchanges pass


def test_refuses_more_messages_than_can_wait(scene: Scene) -> None:
    for name, body, most in (("ant", b"", 64), ("bee", bytes(20_000), 3)):
        for _ in range(most):
            scene.membership.receive(scene.peers[name], body)
        with pytest.raises(Refused, match="too many messages before the peer has joined"):
            scene.membership.receive(scene.peers[name], body)
        scene.membership.remove(name)
        scene.membership.receive(scene.peers[name], body)


def test_a_peer_that_aligned_anew_meanwhile_joins_afterwards(scene: Scene) -> None:
    scene.membership.add(scene.peers["ant"], OTHER)
    work = Work({"ant": SHARED})
    work.busy = True
    scene.begin(work)
    assert (work.present, scene.membership.joined) == (set(), set())
    work.busy = False
    scene.membership.join_all()
    assert scene.membership.joined == {"ant"}


def test_a_peer_waits_while_the_owner_works_with_an_older_alignment(scene: Scene) -> None:
    work = Work({})
    scene.begin(work)
    work.busy = True
    scene.membership.add(scene.peers["ant"], SHARED)
    scene.membership.receive(scene.peers["ant"], b"news")
    assert (scene.membership.joined, work.delivered) == (set(), [])
    work.busy = False
    scene.membership.join_all()
    assert (scene.membership.joined, work.delivered) == ({"ant"}, [("ant", b"news")])
    work.held = True
    scene.membership.receive(scene.peers["ant"], b"more")
    assert work.delivered == [("ant", b"news")]
    work.held = False
    scene.membership.join_all()
    assert work.delivered[-1] == ("ant", b"more")


def test_peers_that_share_too_little_are_left_out_until_they_share_more(scene: Scene) -> None:
    work = Work({})
    scene.begin(work)
    work.too_little = True
    for name in ("ant", "bee"):
        scene.membership.add(scene.peers[name], OTHER)
        scene.membership.join_all()
    assert scene.membership.joined == set()
    assert [federated for *_, federated in work.limits] == [
        True,
        True,
        False,
    ]  # at first, without ant, without both
    work.too_little = False
    scene.membership.add(scene.peers["ant"], SHARED)
    assert scene.membership.joined == {"ant"}
    assert work.limits[-1] == (["bee"], {"bee": 0.5}, True)
    assert [(e.log, e.fields["peer"]) for e in scene.events if isinstance(e, Notice)] == [
        ("alignment refused", "ant"),
        ("alignment refused", "bee"),
        ("peer joined", "ant"),
    ]


def test_nothing_is_sent_to_a_removed_peer_and_its_messages_are_dropped(scene: Scene) -> None:
    ant, work = scene.peers["ant"], Work({})
    scene.begin(work)
    scene.membership.post("ant", b"too early")
    scene.membership.add(ant, SHARED)
    scene.membership.post("ant", b"hello")
    assert ant.session is not None
    assert ant.session.sent == 1
    work.held = True
    scene.membership.receive(ant, b"late")
    scene.membership.remove("ant")
    scene.membership.remove("ant")
    work.held = False
    scene.membership.add(ant, SHARED)
    scene.membership.remove("ant")
    assert (work.lost, work.delivered, scene.membership.aligned) == (["ant", "ant"], [], {})
    scene.membership.post("ant", b"dropped")
    assert ant.session.sent == 1


def test_a_pause_before_the_work_holds(scene: Scene) -> None:
    work = Work({})
    scene.membership.pause(True)
    scene.begin(work)
    assert work.paused
    scene.membership.pause(False)
    assert (work.paused, scene.membership.paused) == (False, False)
