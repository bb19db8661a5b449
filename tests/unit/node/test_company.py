"""Who takes part, and since when. The owner's work is a stand-in here; the tests of nodes have real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytest
from tests.conftest import tiny_settings

from fkge.align import Common
from fkge.federation import Acquaintance
from fkge.node.company import Company
from fkge.node.frames import FEDERATION, MEETING, Refused
from fkge.node.peer import Peer
from fkge.node.runner import Runner
from fkge.node.session import Session
from fkge.node.settings import PeerSettings

SHARED = Acquaintance(Common(np.arange(9), np.arange(2)), "transe", {"entity": 8, "relation": 8})
OTHER = Acquaintance(Common(np.arange(5), np.arange(2)), "transe", {"entity": 8, "relation": 8})


class Work:
    """A runner as a company sees it."""

    def __init__(self, knows: Mapping[str, Acquaintance]) -> None:
        self.knows, self.station = dict(knows), None
        self.held = self.busy = self.too_little = self.paused = False
        self.heard: list[tuple[str, bytes]] = []
        self.lost: list[str] = []
        self.limits: list[tuple[list[str], dict[str, float], bool]] = []

    async def begin(self, present: Callable[[Mapping[str, Acquaintance]], Any]) -> None:
        self.present = set(present(self.knows))
        self.station = cast(Any, self)

    def may_join(self, name: str, known: Acquaintance) -> bool:
        return not self.busy

    def join(self, name: str, known: Acquaintance) -> bool:
        return not self.too_little

    def lose(self, name: str) -> None:
        self.lost.append(name)

    def deliver(self, name: str, body: bytes) -> None:
        self.heard.append((name, body))

    def limit(self, refuses: list[str], caps: dict[str, float], company: bool) -> None:
        self.limits.append((refuses, caps, company))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class Scene:
    """Two peers, both here, and nobody's work yet."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        asked = {"ant": {}, "bee": {"ask": False, "epsilon": 0.5}}
        self.peers = {name: Peer(name, PeerSettings.build(table), cast(Any, None)) for name, table in asked.items()}
        for peer in self.peers.values():
            peer.session = Session({MEETING: 1000, FEDERATION: 100})
        self.company = Company(self.peers, tiny_settings(), lambda event, **f: self.told.append((event, f["peer"])))

    def begin(self, work: Work) -> None:
        asyncio.run(self.company.begin(cast(Runner, work)))
        self.company.join_all()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_comes_before_the_work_waits_and_is_heard_in_order(scene: Scene) -> None:
    ant, work = scene.peers["ant"], Work({"ant": SHARED})
    scene.company.heard(ant, b"one")
    scene.company.introduced(ant, SHARED)
    scene.company.heard(ant, b"two")
    assert scene.company.owner is None
    scene.begin(work)
    assert (work.present, scene.company.joined) == ({"ant"}, {"ant"})
    scene.company.heard(ant, b"three")
    assert work.heard == [("ant", b"one"), ("ant", b"two"), ("ant", b"three")]
    assert ant.session is not None
    assert ant.session.limits[FEDERATION] > 100  # whole exchanges pass


def test_more_than_can_wait_is_refused(scene: Scene) -> None:
    for name, body, most in (("ant", b"", 64), ("bee", bytes(20_000), 3)):
        for _ in range(most):
            scene.company.heard(scene.peers[name], body)
        with pytest.raises(Refused, match="more came than can wait"):
            scene.company.heard(scene.peers[name], body)
        scene.company.lost(scene.peers[name])
        scene.company.heard(scene.peers[name], body)


def test_one_that_aligned_anew_meanwhile_joins_afterwards(scene: Scene) -> None:
    scene.company.introduced(scene.peers["ant"], OTHER)
    work = Work({"ant": SHARED})
    work.busy = True
    scene.begin(work)
    assert (work.present, scene.company.joined) == (set(), set())
    work.busy = False
    scene.company.join_all()
    assert scene.company.joined == {"ant"}


def test_while_the_owner_works_with_an_older_alignment_one_waits(scene: Scene) -> None:
    work = Work({})
    scene.begin(work)
    work.busy = True
    scene.company.introduced(scene.peers["ant"], SHARED)
    scene.company.heard(scene.peers["ant"], b"news")
    assert (scene.company.joined, work.heard) == (set(), [])
    work.busy = False
    scene.company.join_all()
    assert (scene.company.joined, work.heard) == ({"ant"}, [("ant", b"news")])
    work.held = True
    scene.company.heard(scene.peers["ant"], b"more")
    assert work.heard == [("ant", b"news")]
    work.held = False
    scene.company.join_all()
    assert work.heard[-1] == ("ant", b"more")


def test_nobody_waits_for_those_that_share_too_little_until_they_share_more(scene: Scene) -> None:
    work = Work({})
    scene.begin(work)
    work.too_little = True
    for name in ("ant", "bee"):
        scene.company.introduced(scene.peers[name], OTHER)
        scene.company.join_all()
    assert scene.company.joined == set()
    assert [company for *_, company in work.limits] == [True, True, False]  # as it begins, without ant, without both
    work.too_little = False
    scene.company.introduced(scene.peers["ant"], SHARED)
    assert scene.company.joined == {"ant"}
    assert work.limits[-1] == (["bee"], {"bee": 0.5}, True)
    assert scene.told == [("alignment refused", "ant"), ("alignment refused", "bee"), ("peer joined", "ant")]


def test_who_is_lost_is_told_nothing_and_its_words_are_forgotten(scene: Scene) -> None:
    ant, work = scene.peers["ant"], Work({})
    scene.begin(work)
    scene.company.post("ant", b"too early")
    scene.company.introduced(ant, SHARED)
    scene.company.post("ant", b"hello")
    assert ant.session is not None
    assert ant.session.sent == 1
    work.held = True
    scene.company.heard(ant, b"late")
    scene.company.lost(ant)
    scene.company.lost(ant)
    work.held = False
    scene.company.introduced(ant, SHARED)
    scene.company.lost(ant)
    assert (work.lost, work.heard, scene.company.met) == (["ant", "ant"], [], {})
    scene.company.post("ant", b"nobody hears it")
    assert ant.session.sent == 1


def test_a_pause_holds_also_before_there_is_any_work(scene: Scene) -> None:
    work = Work({})
    scene.company.pause()
    scene.begin(work)
    assert work.paused
    scene.company.resume()
    assert (work.paused, scene.company.paused) == (False, False)
