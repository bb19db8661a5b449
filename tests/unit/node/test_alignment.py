"""Two owners know the same shared rows: what each asks of the other, and what both find through third owners."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.align import Common, Tokens, agree_on_tokens
from fkge.align.chains import digests
from fkge.align.links import KINDS
from fkge.federation import FederationSettings, Member, OwnerStore, PeerProfile, create_store
from fkge.node import frames_pb2 as pb
from fkge.node.alignment import Alignments, PeerAligned, longest
from fkge.node.bootstrap import Bootstrap, OthersShown
from fkge.node.events import AlignmentMessage, Event, Failed, Notice
from fkge.node.frames import MEETING, Refused
from fkge.node.handshake import terms_of
from fkge.node.peer import Peer, SessionEnded
from fkge.node.persistence import PersistentState
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.node.token_agreement import decode_others, encode_tokens
from tests.conftest import arc, random_graph, tiny_settings

WIDTHS = {"entity": 8, "relation": 8}
LINKS: dict[tuple[str, str], tuple[list[int], list[int]]] = {
    ("ant", "bee"): ([0, 1, 2, 3, 4, 5], [0]),
    ("bee", "cat"): ([3, 4, 5, 6, 7], [0, 1]),
    ("ant", "cat"): ([20, 21], [2]),
}
"""Entities and relations that two owners link to those of the same number: 3, 4 and 5 reach from ant to cat by bee."""


def config(folder: Path, name: str, settings: FederationSettings, **peers: Mapping[str, Any]) -> NodeConfig:
    node = NodeSettings(name=name, graph="graph", peers="peers.toml")
    return NodeConfig(folder, node, settings, {other: PeerSettings.build(dict(t)) for other, t in peers.items()})


class Owner:
    """An owner that is aligned with the two others, and has agreed with them on tokens."""

    def __init__(self, folder: Path, name: str, tokens: Tokens, commons: Mapping[str, Common], **changes: Any) -> None:
        peer, agreed = changes.pop("peer", {}), changes.pop("agreed", None)
        settings = tiny_settings(**changes)
        store = create_store(folder, name, Member(random_graph()), settings, 0, 0)
        self.config = config(folder, name, settings, **dict.fromkeys(commons, peer))
        self.state = PersistentState(folder / "node.json")
        self.state.alignments = {other: f"{min(name, other)}{max(name, other)}".encode().hex() for other in commons}
        self.events: list[Event] = []
        self.alignments = Alignments(
            self.config, self.state,
            store.with_peers({n: PeerProfile(common, "TransE", WIDTHS) for n, common in commons.items()}, tokens),
            self.events.append, agreed,
        )  # fmt: skip

    def realign(self, peer: str, entities: list[int]) -> None:
        """Let other entities be shared with a peer, as if the two had aligned anew."""
        store, common = self.alignments.store, Common(np.array(entities, np.int64), np.empty(0, np.int64))
        peers = {**store.peers, peer: PeerProfile(common, "TransE", WIDTHS)}
        self.alignments.store = store.with_peers(peers, store.tokens)

    def show(self, peer: str) -> Any:
        return self.alignments.show_others(self.alignments.store.tokens, peer)

    def rows(self, peer: str) -> dict[str, list[int]]:
        common = self.alignments.store.peers[peer].common
        return {kind: common.ids(kind).tolist() for kind in KINDS}

    def found(self, peer: str) -> list[list[int]]:
        """Tokens of the rows shared with a peer, in their order."""
        store = self.alignments.store
        return [array.tolist() for array in store.tokens.of(store.peers[peer].common).values()]


def trio(folder: Path, links: Any = LINKS, **changes: Mapping[str, Any]) -> dict[str, Owner]:
    """Three owners; `changes`: of one of them."""
    names = ("ant", "bee", "cat")
    pairs = {
        pair: (Common(np.array(e, np.int64), np.array(r, np.int64)),) * 2 for pair, (e, r) in links.items()
    }  # fmt: skip
    tokens = {name: Tokens.draw(random_graph(), number) for number, name in enumerate(names)}
    agree_on_tokens(tokens, pairs)
    commons = {n: {b if n == a else a: both[n == b] for (a, b), both in pairs.items() if n in (a, b)} for n in names}
    return {n: Owner(folder / n, n, tokens[n], commons[n], **changes.get(n, {})) for n in names}


# -- through third owners --------------------------------------------------------------------------------


@pytest.mark.parametrize("shows", [("ant", "cat"), ("cat", "ant")])
@pytest.mark.parametrize("receives", [("ant", "cat"), ("cat", "ant")])
def test_both_sides_end_with_the_same_rows_in_any_order(
    tmp_path: Path, shows: tuple[str, ...], receives: tuple[str, ...]
) -> None:
    owners, other = trio(tmp_path), {"ant": "cat", "cat": "ant"}
    sent = {name: owners[name].show(other[name]) for name in shows}
    for name in receives:
        assert owners[name].alignments.extend(other[name], sent[other[name]]) is not None
    ant, cat = owners["ant"], owners["cat"]
    assert ant.rows("cat")["entity"][:2] == [20, 21]
    assert sorted(ant.rows("cat")["entity"]) == [3, 4, 5, 20, 21]
    assert ant.rows("cat")["relation"] == [2, 0]
    assert ant.rows("cat") == cat.rows("ant")
    assert ant.found("cat") == cat.found("ant")
    assert ant.rows("bee")["entity"] == LINKS["ant", "bee"][0]


def test_only_what_was_shown_counts_whatever_changed_meanwhile(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant, cat = owners["ant"], owners["cat"]
    sent = {"ant": ant.show("cat"), "cat": cat.show("ant")}
    ant.realign("bee", [])
    ant.alignments.extend("cat", sent["cat"])
    cat.alignments.extend("ant", sent["ant"])
    assert ant.found("cat") == cat.found("ant")
    assert len(ant.rows("cat")["entity"]) == 5


def test_what_is_shown_again_before_it_is_answered_is_the_same(tmp_path: Path) -> None:
    """Whichever of the two messages the peer takes."""
    owners = trio(tmp_path)
    ant, cat = owners["ant"], owners["cat"]
    ant.realign("bee", [0, 3])
    first, received = ant.show("cat"), cat.show("ant")
    ant.realign("bee", [0, 3, 4, 5])  # a row more in between
    again = ant.show("cat")
    assert all(np.array_equal(first[kind], again[kind]) for kind in KINDS)
    ant.alignments.extend("cat", received)
    cat.alignments.extend("ant", first)
    assert ant.found("cat") == cat.found("ant")
    assert len(ant.show("cat")["entity"]) == 3  # 0, 4 and 5: the next time it is what is shared then


def test_the_id_changes_alike_on_both_sides_and_is_kept(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant, cat = owners["ant"], owners["cat"]
    before = ant.state.alignments["cat"]
    assert cat.state.alignments["ant"] == before
    shown = ant.show("cat"), cat.show("ant")
    ant.alignments.extend("cat", shown[1])
    assert ant.state.alignments["cat"] != before
    assert cat.state.alignments["ant"] == before  # should it miss ant's digests, both would know when they meet again
    cat.alignments.extend("ant", shown[0])
    kept = [PersistentState.open(owner.state.path).alignments for owner in (ant, cat)]
    assert kept[0]["cat"] == kept[1]["ant"] == ant.state.alignments["cat"]
    assert len(bytes.fromhex(kept[0]["cat"])) == 16
    assert kept[0]["bee"] == b"antbee".hex()
    for owner, peer in ((ant, "cat"), (cat, "ant")):
        store = owner.alignments.store
        assert OwnerStore.open(store.folder).peers[peer].common == store.peers[peer].common
        assert [e.audit or e.log for e in owner.events if isinstance(e, Notice)] == ["aligned", "aligned"]


def test_other_rows_make_another_id(tmp_path: Path) -> None:
    ids = []
    for more in ([3, 4, 5, 6, 7], [3, 4, 6, 7]):
        owners = trio(tmp_path / str(len(more)), LINKS | {("bee", "cat"): (more, [0, 1])})
        shown = owners["cat"].show("ant")
        owners["ant"].show("cat")
        owners["ant"].alignments.extend("cat", shown)
        ids.append(owners["ant"].state.alignments["cat"])
    assert ids[0] != ids[1]


def test_digests_change_nothing_where_none_were_shown(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant, received = owners["ant"], owners["cat"].show("ant")
    before = ant.rows("cat")
    assert ant.alignments.extend("cat", received) is None
    ant.show("bee")
    assert ant.alignments.extend("cat", received) is None  # shown to another
    ant.show("cat")
    assert ant.alignments.extend("cat", received) is not None
    after, new_id = ant.rows("cat"), ant.state.alignments["cat"]
    assert ant.alignments.extend("cat", received) is None  # nor do they count twice
    assert (before, after, new_id) == (
        {"entity": [20, 21], "relation": [2]},
        ant.rows("cat"),
        ant.state.alignments["cat"],
    )


def test_digests_that_show_nothing_new_leave_the_id_alone(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant, cat = owners["ant"], owners["cat"]
    ant.show("cat")
    empty = {kind: np.empty(0, np.uint64) for kind in KINDS}
    assert ant.alignments.extend("cat", empty) is None
    echo = ant.show("cat")
    assert ant.alignments.extend("cat", echo) is None  # its own, sent back
    assert ant.state.alignments["cat"] == cat.state.alignments["ant"]
    assert not ant.state.path.exists()
    assert ant.events == []


@pytest.mark.parametrize(
    "changes",
    [
        {"ratio": 0.9}, {"peer": {"ratio": 0.9}}, {"chains": False}, {"start": "alone"},
        {"agreed": {"bee": "00" * 16, "cat": "00" * 16}},
    ],
    ids=["own ratio", "ratio for the peer", "chains", "alone", "rehearsal"],
)  # fmt: skip
def test_one_side_that_follows_no_chains_shows_nothing_and_nothing_changes(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    owners = trio(tmp_path, ant=changes)
    ant, cat = owners["ant"], owners["cat"]
    assert ant.show("cat") is None
    received = cat.show("ant")
    assert received is not None
    assert ant.alignments.extend("cat", received) is None
    assert ant.rows("cat") == cat.rows("ant") == {"entity": [20, 21], "relation": [2]}


def test_nothing_is_shown_to_one_that_is_not_aligned_or_is_no_peer(tmp_path: Path) -> None:
    ant = trio(tmp_path)["ant"]
    assert ant.show("dog") is None
    ant.config.peers["dog"] = PeerSettings()
    assert ant.show("dog") is None
    assert ant.show("cat") is not None
    del ant.config.peers["cat"]
    assert ant.show("cat") is None


def test_one_that_lost_its_alignment_meanwhile_adds_nothing(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant, received = owners["ant"], owners["cat"].show("ant")
    ant.show("cat")
    del ant.state.alignments["cat"]  # it aligns anew
    assert ant.alignments.extend("cat", received) is None


def test_digests_pass_the_wire_as_they_are(tmp_path: Path) -> None:
    owners = trio(tmp_path)
    ant = owners["ant"].alignments
    shown, common = owners["ant"].show("cat"), ant.store.peers["cat"].common
    sent = encode_tokens(ant.store.tokens, common, shown, settled=True).SerializeToString()
    received = decode_others(pb.Tokens.FromString(sent))
    assert received is not None
    assert all(np.array_equal(received[kind], shown[kind]) for kind in KINDS)
    assert decode_others(encode_tokens(ant.store.tokens, common, None, settled=True)) is None


@pytest.mark.parametrize("field", ["other_entities", "other_relations"])
@pytest.mark.parametrize("begun", [False, True])
def test_digests_that_are_not_whole_are_refused_before_and_after_the_beginning(field: str, begun: bool) -> None:
    events: list[Event] = []
    timer: Any = lambda seconds, event: None  # noqa: E731
    rows = Tokens.draw(random_graph(), 0), dict[str, Common]()
    bootstrap = Bootstrap({"bee"}, {"bee"}, 9.0, lambda peers: rows, events.append, timer, begun=begun)
    with pytest.raises(Refused, match="digests of tokens that are not whole") as refused:
        bootstrap.receive("bee", pb.Tokens(settled=True, **{field: bytes(7)}))
    assert refused.value.reason == "malformed"
    assert not [event for event in events if isinstance(event, OthersShown)]


# -- with a peer that is connected -----------------------------------------------------------------------


class Side:
    """One of two owners that are connected in memory; messages reach the other's queue."""

    def __init__(self, folder: Path, name: str, other: str, first: int, changes: dict[str, Any], peer: Any) -> None:
        self.name, self.settings = name, tiny_settings(**changes)
        self.config = config(folder, name, self.settings, **{other: {"same": True, **peer}})
        self.state = PersistentState.open(folder / "node.json")
        found = folder / "owners" / name
        store = (
            OwnerStore.open(found) if found.exists() else
            create_store(folder, name, Member(arc(name, first)), self.settings, 0, first)
        )  # fmt: skip
        self.peer = Peer(other, self.config.peers[other], self.handle)
        self.events: list[Event] = []
        self.said: list[str] = []
        self.to: Side
        self.over = asyncio.Event()
        self.alignments = Alignments(self.config, self.state, store, self.handle)

    def handle(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case AlignmentMessage(_, message, kind):
                self.said.append(kind)
                self.to.peer.meeting.put_nowait(message.SerializeToString())
            case PeerAligned() | SessionEnded() | Failed():
                self.over.set()

    def hello(self) -> pb.Hello:
        held = self.alignments.id_with(self.peer)
        return pb.Hello(terms=terms_of(self.settings, 0), pact=bytes.fromhex(held), begun=self.name == "ant")

    @property
    def end(self) -> Event:
        return next(e for e in self.events if isinstance(e, PeerAligned | SessionEnded | Failed))

    @property
    def aligned(self) -> PeerAligned:
        assert isinstance(self.end, PeerAligned), self.end
        return self.end

    @property
    def refused(self) -> str:
        assert isinstance(self.end, SessionEnded), self.end
        assert self.end.why is not None
        return self.end.why.reason


def pair(folder: Path, ant: Any = None, bee: Any = None, peer: Any = None) -> tuple[Side, Side]:
    """Two owners of arcs that have 20 places and all relations in common."""
    one = Side(folder / "ant", "ant", "bee", 0, ant or {}, peer or {})
    other = Side(folder / "bee", "bee", "ant", 20, bee or {}, {})
    one.to, other.to = other, one
    return one, other


async def meet(one: Side, other: Side, hellos: tuple[pb.Hello, pb.Hello] | None = None, both: bool = True) -> None:
    """Start a session, and wait until both sides know how it went."""
    for_one, for_other = hellos or (other.hello(), one.hello())
    for side in (one, other):
        side.peer.fresh(bytes(16))
        side.events.clear()
        side.said.clear()
        side.over.clear()
    one.alignments.start(one.peer, for_one)
    other.alignments.start(other.peer, for_other)
    async with asyncio.timeout(20):
        await one.over.wait()
        if both:
            await other.over.wait()
    await one.alignments.close()
    await other.alignments.close()


def labels(side: Side) -> dict[str, list[str]]:
    graph, common = side.alignments.store.graph, side.aligned.known.common
    return {
        "entity": [graph.entities[i] for i in common.entities],
        "relation": [graph.relations[i] for i in common.relations],
    }


def test_two_find_what_they_share_and_know_it_when_they_meet_again(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        await meet(ant, bee)
        assert labels(ant) == labels(bee)
        assert labels(ant)["entity"] == [f"place{i}" for i in range(20, 40)]
        assert len(labels(ant)["relation"]) == 4
        assert (ant.aligned.fresh, ant.aligned.begun, bee.aligned.begun) == (True, False, True)
        assert ant.said[0] == "Keys"
        assert sorted({*ant.said, *bee.said}) == ["Intersect", "Keys", "Pact"]
        assert ant.state.alignments["bee"] == bee.state.alignments["ant"]
        await meet(ant, bee)
        assert (ant.aligned.fresh, ant.said, bee.said) == (False, [], [])
        ant, bee = pair(tmp_path)  # their next processes
        await meet(ant, bee)
        assert (ant.aligned.fresh, bee.aligned.fresh, ant.said) == (False, False, [])
        assert labels(ant) == labels(bee)

    asyncio.run(go())


def test_one_that_has_extended_its_rows_and_one_that_has_not_align_anew(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        await meet(ant, bee)
        direct = labels(ant)
        ant.state.alignments["bee"] = "77" * 16  # bee has missed the digests that gave it this id
        await meet(ant, bee)
        assert (ant.aligned.fresh, bee.aligned.fresh) == (True, True)
        assert labels(ant) == labels(bee) == direct
        assert ant.state.alignments["bee"] == bee.state.alignments["ant"] != "77" * 16

    asyncio.run(go())


def test_digests_shown_in_an_earlier_session_do_not_count_in_the_next(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        await meet(ant, bee)
        store = ant.alignments.store
        third = PeerProfile(Common(np.array([0]), np.empty(0, np.int64)), "TransE", WIDTHS)
        ant.alignments.store = store = store.with_peers({**store.peers, "cat": third}, store.tokens)
        assert ant.alignments.show_others(store.tokens, "bee") is not None
        await meet(ant, bee)
        same = {"entity": np.array([0]), "relation": np.empty(0, np.int64)}
        received = digests(store.tokens, same, "bee", "ant")  # bee shares that row with cat, too
        assert ant.alignments.extend("bee", received) is None
        ant.alignments.show_others(store.tokens, "bee")
        assert ant.alignments.extend("bee", received) is not None

    asyncio.run(go())


def test_the_smaller_ratio_of_both_sides_applies(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path, peer={"ratio": 0.5})
        await meet(ant, bee)
        assert labels(ant) == labels(bee)
        assert len(labels(ant)["entity"]) == 10

    asyncio.run(go())


def test_only_kinds_that_both_share_are_compared(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path, {"share": "relations"}, {"share": "relations"})
        await meet(ant, bee)
        assert labels(ant) == labels(bee)
        assert (len(labels(ant)["entity"]), len(labels(ant)["relation"])) == (0, 4)

    asyncio.run(go())


def test_too_little_in_common_is_an_empty_alignment_that_stands(tmp_path: Path) -> None:
    async def go() -> None:
        few = {"psi": {"min_overlap": 21}}
        ant, bee = pair(tmp_path, few, few)
        await meet(ant, bee)
        assert (len(ant.aligned.known.common), len(bee.aligned.known.common)) == (0, 0)
        said = [e for e in ant.events if isinstance(e, Notice) and e.log == "aligned"]
        assert said[0].level == "warning"
        await meet(ant, bee)
        assert not ant.aligned.fresh

    asyncio.run(go())


def test_a_peer_may_intersect_so_often_and_a_new_process_does_not_forget(tmp_path: Path) -> None:
    async def go() -> None:
        twice = {"psi": {"runs": 2}}
        for _ in range(2):
            ant, bee = pair(tmp_path, twice)
            ant.state.alignments.clear()
            await meet(ant, bee)
            assert ant.aligned.fresh
        ant, bee = pair(tmp_path, twice)
        ant.state.alignments.clear()
        await meet(ant, bee, both=False)
        assert ant.refused == "too_many"
        assert (ant.said, "bee" in ant.state.alignments) == ([], False)

    asyncio.run(go())


def test_a_larger_set_than_allowed_is_refused_before_anything_is_revealed(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path, peer={"items": 39})
        await meet(ant, bee, both=False)
        assert ant.refused == "too_large"
        assert ant.said == ["Keys"]
        assert [e.audit for e in ant.events if isinstance(e, Notice)] == ["alignment", "alignment broken off"]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (pb.Meeting(pact=pb.Pact(name=bytes(16))), "out_of_order"),
        (pb.Meeting(keys=pb.Keys(entities=1, relations=1, ratio=0.0)), "malformed"),
        (pb.Meeting(keys=pb.Keys(entities=1, relations=1, ratio=1.5)), "malformed"),
        (pb.Meeting(keys=pb.Keys(entities=1, relations=1, ratio=float("nan"))), "malformed"),
        (pb.Meeting(), "malformed"),
    ],
)
def test_words_that_do_not_fit_break_an_alignment_off(tmp_path: Path, message: pb.Meeting, reason: str) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        ant.peer.fresh(bytes(16))
        ant.peer.meeting.put_nowait(message.SerializeToString())
        ant.alignments.start(ant.peer, bee.hello())
        async with asyncio.timeout(20):
            await ant.over.wait()
        assert ant.refused == reason
        assert "bee" not in ant.alignments.store.peers
        assert ant.state.admitted.keys() == {"bee"}  # it counts

    asyncio.run(go())


def test_a_peer_with_another_model_than_when_they_aligned_is_refused(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        await meet(ant, bee)
        hello = bee.hello()
        hello.terms["width.entity"] = "9"
        await meet(ant, bee, (hello, ant.hello()), both=False)
        assert ant.refused == "terms"

    asyncio.run(go())


def test_what_an_alignment_rests_on_changes_with_links_ratio_and_secret(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        await meet(ant, bee)
        held = ant.alignments.id_with(ant.peer)
        assert held == ant.state.alignments["bee"]
        again = Peer("bee", PeerSettings(same=True), ant.handle)
        assert ant.alignments.id_with(again) == held
        (ant.config.folder / "links.tsv").write_text("place01\tplace21\n")
        for change in ({"ratio": 0.5}, {"same": False}, {"entities": "links.tsv"}):
            other = Peer("bee", PeerSettings.build({"same": True, **change}), ant.handle)
            assert ant.alignments.id_with(other) == "", change
        assert ant.alignments.id_with(Peer("cat", PeerSettings(same=True), ant.handle)) == ""
        ant.state.secret += 1
        fresh = Alignments(ant.config, ant.state, ant.alignments.store, ant.handle)
        assert fresh.id_with(ant.peer) == ""

    asyncio.run(go())


def test_the_session_lets_tokens_and_digests_pass_but_digests_only_where_chains_are_followed(tmp_path: Path) -> None:
    async def go() -> None:
        limits = []
        for chains in (True, False):
            ant, bee = pair(tmp_path / str(chains), {"chains": chains}, peer={"items": 1000})
            await meet(ant, bee)
            assert ant.peer.session is not None
            limits.append(ant.peer.session.limits[MEETING])
        assert limits[0] - limits[1] == 16 * 1000
        assert limits[1] >= 8 * 24

    asyncio.run(go())


def test_cancelled_work_changes_nothing(tmp_path: Path) -> None:
    async def go() -> None:
        ant, bee = pair(tmp_path)
        ant.peer.fresh(bytes(16))
        ant.alignments.start(ant.peer, bee.hello())
        await asyncio.sleep(0)
        ant.alignments.cancel("bee")
        ant.alignments.cancel("cat")  # nothing is under way
        await asyncio.sleep(0.01)
        assert not ant.over.is_set()
        assert "bee" not in ant.alignments.store.peers

    asyncio.run(go())


def test_the_longest_message_grows_with_what_is_shared_and_with_wide_vectors() -> None:
    settings = tiny_settings()

    def size(rows: int, width: int = 8, settings: FederationSettings = settings) -> int:
        common = Common(np.arange(rows), np.empty(0, np.int64))
        return longest(PeerProfile(common, "TransE", {"entity": width, "relation": width}), settings)

    assert size(0) == size(settings.ppat.batch)  # a batch of the game is the least
    assert size(1000) > 1000 * 4 * 8
    assert size(1000, 80) > 4 * size(1000)
    assert size(1, settings=tiny_settings(neighbours=True)) > size(1000)  # other rows come along
