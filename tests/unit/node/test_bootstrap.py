"""Initial members begin where a simulation does, whatever comes first, whoever starts anew, and whoever is missing."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.align import Common, Tokens, agree_on_tokens, extend_pairs
from fkge.align.chains import Digests, candidates, digests, extend
from fkge.align.links import KINDS, Ids, Kind
from fkge.node import frames_pb2 as pb
from fkge.node.bootstrap import (
    AgreementStarted,
    Bootstrap,
    BootstrapTimeout,
    OthersShown,
    TokensAgreed,
)
from fkge.node.events import AlignmentMessage, Event, Misbehaved, Notice
from fkge.node.frames import Refused
from fkge.node.token_agreement import encode_tokens

ROWS = {"entity": 6, "relation": 3}
PATIENCE = 100.0
Pairs = dict[tuple[str, str], tuple[Common, Common]]


class Timer:
    def __init__(self, what: Callable[[], None]) -> None:
        self.what: Callable[[], None] | None = what

    def cancel(self) -> None:
        self.what = None


class Owner:
    """A node, as far as the bootstrap goes, and what it keeps when its process ends."""

    def __init__(self, world: World, name: str, seed: int, commons: dict[str, Common], others: set[str]) -> None:
        self.world, self.name, self.commons, self.others = world, name, commons, others
        self.tokens, self.begun = Tokens.draw(ROWS, seed), False
        self.missed: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.mute = False
        self.shared: dict[str, Common] = {}  # with each peer, what is found through others included
        self.start()

    def start(self) -> None:
        self.present: set[str] = set()
        self.shown: dict[str, dict[Kind, Ids]] = {}
        self.bootstrap = Bootstrap(
            self.others, self.present, PATIENCE, self.rows, self.handle, self.after, begun=self.begun,
            others=self.show_others,
        )  # fmt: skip
        self.bootstrap.check()

    def meet(self, peer: str, begun: bool) -> None:
        self.present.add(peer)
        self.shown.pop(peer, None)
        if peer in self.commons:
            self.shared[peer] = self.commons[peer]
        self.bootstrap.add(peer, begun)

    def show_others(self, tokens: Tokens, peer: str) -> Digests:
        self.shown[peer] = candidates(tokens, self.commons[peer], self.commons.values())
        return digests(tokens, self.shown[peer], self.name, peer)

    def lose(self, peer: str) -> None:
        self.present.discard(peer)
        self.bootstrap.remove(peer)

    def rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        return Tokens({kind: self.tokens[kind] for kind in KINDS}), {
            peer: self.commons[peer] for peer in peers if peer in self.commons
        }

    def handle(self, event: Event) -> None:
        match event:
            case AlignmentMessage(peer, message, "Tokens"):
                if not self.mute:
                    self.world.send(self.name, peer, message.tokens)
            case Misbehaved(peer, reason):
                self.refused.append((peer, reason))
            case AgreementStarted():
                assert not self.begun
            case Notice(fields, "founder missing"):
                self.missed.append(str(fields["peer"]))
            case TokensAgreed(tokens):
                assert not self.begun
                self.begun, self.tokens = True, tokens
            case OthersShown(peer, received):
                assert self.begun
                if (rows := self.shown.pop(peer, None)) is not None:
                    self.shared[peer] = extend(self.commons[peer], self.tokens, rows, received, self.name, peer)

    def after(self, seconds: float, event: Event) -> Timer:
        assert isinstance(event, BootstrapTimeout)
        bootstrap = self.bootstrap
        return self.world.later(seconds, lambda: bootstrap.timeout(event))


class World:
    """Initial members, the messages between those that are connected, and a clock that advances when all is still."""

    def __init__(self, pairs: Pairs, names: list[str], pick: random.Random, away: Iterable[str] = ()) -> None:
        commons = {
            n: {b if n == a else a: both[n == b] for (a, b), both in pairs.items() if n in (a, b)} for n in names
        }
        self.now, self.due, self.count = 0.0, list[tuple[float, int, Timer]](), itertools.count()
        self.away, self.cut, self.pick = set(away), set[frozenset[str]](), pick
        self.meetings: list[tuple[str, str, bool]] = []
        self.way: dict[tuple[str, str], deque[pb.Tokens]] = {}
        self.apart = {frozenset(pair) for pair in itertools.combinations(names, 2)}
        self.owners = {n: Owner(self, n, i + 1, commons[n], set(names) - {n}) for i, n in enumerate(names)}

    def later(self, seconds: float, what: Callable[[], None]) -> Timer:
        timer = Timer(what)
        heapq.heappush(self.due, (self.now + seconds, next(self.count), timer))
        return timer

    def send(self, a: str, b: str, word: pb.Tokens) -> None:
        if (a, b) in self.way:
            self.way[a, b].append(word)

    def part(self, pair: frozenset[str]) -> None:
        """A session is over."""
        self.apart.add(pair)
        self.meetings = [meeting for meeting in self.meetings if not pair >= set(meeting[:2])]
        for a, b in itertools.permutations(pair):
            if self.way.pop((a, b), None) is not None:
                self.owners[a].lose(b)

    def leave(self, name: str) -> None:
        """Its process ends."""
        self.owners[name].bootstrap.close()
        for other in self.owners[name].others:
            self.part(frozenset((name, other)))

    def restart(self, name: str) -> None:
        self.leave(name)
        self.owners[name].start()

    def connect(self, pair: frozenset[str]) -> None:
        """A fresh session, of two that know what they share, or will in a moment."""
        self.apart.discard(pair)
        for a, b in itertools.permutations(sorted(pair)):
            self.way[a, b] = deque()
            self.meetings.append((a, b, self.owners[b].begun))

    def step(self, until: float = 1e6) -> bool:
        """Something happens, whatever; False if nothing can."""
        full = [way for way, words in self.way.items() if words]
        apart = [pair for pair in self.apart - self.cut if not pair & self.away]
        if apart and (not full or self.pick.random() < 0.3):
            self.connect(self.pick.choice(sorted(apart, key=sorted)))
        elif self.meetings and (not full or self.pick.random() < 0.5):
            name, peer, begun = self.meetings.pop(self.pick.randrange(len(self.meetings)))
            self.owners[name].meet(peer, begun)
        elif full:
            a, b = self.pick.choice(full)
            try:
                self.owners[b].bootstrap.receive(a, self.way[a, b].popleft())
            except Refused:  # it comes again
                self.part(frozenset((a, b)))
        elif self.due and self.due[0][0] <= until:
            self.now, _, timer = heapq.heappop(self.due)
            if timer.what is not None:
                timer.what()
        else:
            return False
        return True

    def run(self, until: float = 1e6) -> None:
        for _ in range(20_000):
            if not self.step(until):
                return
        raise AssertionError("it does not come to an end")


@st.composite
def federations(draw: st.DrawFn) -> tuple[Pairs, list[str]]:
    names = [f"o{i}" for i in range(draw(st.integers(1, 5)))]
    pairs: Pairs = {}
    for a, b in itertools.combinations(names, 2):
        if draw(st.booleans()):
            sides = []
            counts = {kind: draw(st.integers(0, rows)) for kind, rows in ROWS.items()}
            for _ in (a, b):
                ids = {k: draw(st.permutations(range(rows)))[: counts[k]] for k, rows in ROWS.items()}
                sides.append(Common(np.array(ids["entity"]), np.array(ids["relation"])))
            if len(sides[0]):
                pairs[a, b] = (sides[0], sides[1])
    return pairs, names


def assert_settled(world: World, pairs: Pairs, names: list[str]) -> None:
    """These have begun, from where a simulation of them would."""
    expected = {name: Tokens.draw(ROWS, int(name[1:]) + 1) for name in names}
    agree_on_tokens(expected, {pair: both for pair, both in pairs.items() if set(pair) <= set(names)})
    for name in names:
        owner = world.owners[name]
        assert (owner.begun, owner.refused) == (True, []), name
        for kind in KINDS:
            assert owner.tokens[kind].tolist() == expected[name][kind].tolist(), name


def assert_shared_alike(world: World, pairs: Pairs) -> None:
    """Both sides of every connected pair have found the same rows through others."""
    for a, b in pairs:
        if frozenset((a, b)) not in world.apart and world.owners[a].begun and world.owners[b].begun:
            one, other = world.owners[a], world.owners[b]
            of_a, of_b = one.tokens.of(one.shared[b]), other.tokens.of(other.shared[a])
            for kind in KINDS:
                direct = len(one.commons[b].ids(kind))
                assert of_a[kind][direct:].tolist() == of_b[kind][direct:].tolist()


@settings(max_examples=150, deadline=None)
@given(federations(), st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=4))
def test_all_begin_where_a_simulation_does(federation: tuple[Pairs, list[str]], seed: int, restarts: list[int]) -> None:
    pairs, names = federation
    world = World(pairs, names, random.Random(seed))
    for number in range(61):
        if number in restarts:
            world.restart(world.pick.choice(names))
        world.step(until=0)
    world.run(until=0)  # nobody is ever tired of waiting
    assert_settled(world, pairs, names)
    assert_shared_alike(world, pairs)
    expected = extend_pairs({name: world.owners[name].tokens for name in names}, pairs)
    for (a, b), (of_a, of_b) in expected.items():
        assert (world.owners[a].shared[b], world.owners[b].shared[a]) == (of_a, of_b)


@settings(max_examples=150, deadline=None)
@given(federations(), st.integers(0, 2**32), st.data())
def test_one_that_is_away_holds_up_nobody_and_joins_them_when_it_comes(
    federation: tuple[Pairs, list[str]], seed: int, data: st.DataObject
) -> None:
    pairs, names = federation
    if len(names) < 3:
        return
    away = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=(len(names) - 1) // 2))
    world = World(pairs, names, random.Random(seed), away)
    world.run(until=PATIENCE - 1)
    assert not any(owner.begun for owner in world.owners.values())
    world.run(until=PATIENCE)
    here = [name for name in names if name not in away]
    assert_settled(world, pairs, here)
    assert all(world.owners[name].missed == sorted(away) for name in here)
    late = min(away)
    world.away.discard(late)
    world.run(until=world.now + 10)
    came = world.owners[late]
    assert came.begun
    partners = [world.owners[name] for name in here if name in came.commons]
    if len(partners) == 1:  # two that share no row with each other may differ on one that each shares with a third
        mine, theirs = came.tokens.of(came.commons[partners[0].name]), partners[0].tokens.of(partners[0].commons[late])
        assert all((mine[kind] == theirs[kind]).all() for kind in KINDS)
        assert_shared_alike(world, pairs)


@settings(max_examples=100, deadline=None)
@given(federations(), st.integers(0, 2**32), st.integers(0, 40))
def test_one_that_goes_for_good_in_the_middle_holds_up_nobody(
    federation: tuple[Pairs, list[str]], seed: int, when: int
) -> None:
    pairs, names = federation
    if len(names) < 2:
        return
    world = World(pairs, names, random.Random(seed))
    for _ in range(when):
        world.step()
    world.away.add(names[0])
    world.leave(names[0])
    world.run()
    here = [world.owners[name] for name in names[1:]]
    assert len(names) == 2 or all(owner.begun for owner in here)
    for (a, b), (of_a, of_b) in pairs.items():
        if len(names) > 2 and names[0] not in (a, b):
            one, other = world.owners[a].tokens.of(of_a), world.owners[b].tokens.of(of_b)
            assert all((one[kind] == other[kind]).all() for kind in KINDS)


@settings(max_examples=150, deadline=None)
@given(federations(), st.integers(0, 2**32), st.data())
def test_two_groups_that_cannot_reach_each_other_never_both_begin(
    federation: tuple[Pairs, list[str]], seed: int, data: st.DataObject
) -> None:
    pairs, names = federation
    world = World(pairs, names, random.Random(seed))
    ways = sorted(world.apart, key=sorted)
    world.cut = {pair for pair in ways if data.draw(st.booleans())}
    never = set(world.cut)
    for _ in range(data.draw(st.integers(0, 40))):
        world.step()
    for pair in ways:  # some more break off, while the members agree
        if data.draw(st.booleans()):
            world.cut.add(pair)
            world.part(pair)
    world.run(until=10 * PATIENCE)
    begun = {name for name in names if world.owners[name].begun}
    group = set(sorted(begun)[:1])
    while more := {n for n in names if n not in group and any(frozenset((n, m)) not in never for m in group)}:
        group |= more
    assert begun <= group
    for (a, b), (of_a, of_b) in pairs.items():
        if {a, b} <= begun and frozenset((a, b)) not in world.cut:
            one, other = world.owners[a].tokens.of(of_a), world.owners[b].tokens.of(of_b)
            assert all((one[kind] == other[kind]).all() for kind in KINDS)
    world.cut = set()
    world.run(until=world.now + 10 * PATIENCE)
    assert all(owner.begun for owner in world.owners.values())
    assert_shared_alike(world, pairs)


def test_half_of_them_do_not_begin_without_the_other_half() -> None:
    """Or both halves would, and their rows would begin apart."""
    names = ["o0", "o1", "o2", "o3"]
    both = (ids(0, 1), ids(1, 0))
    pairs: Pairs = dict.fromkeys(itertools.combinations(names, 2), both)
    world = World(pairs, names, random.Random(0))
    world.cut = {frozenset((a, b)) for a in names[:2] for b in names[2:]}
    world.run()
    assert not any(owner.begun for owner in world.owners.values())
    world.cut = set()
    world.run()
    assert_settled(world, pairs, names)


def test_one_that_meets_few_members_begins_when_one_of_them_does() -> None:
    """One reaches all others, each of whom reaches it alone; two of them do not even share anything with it."""
    names = ["o0", "o1", "o2", "o3"]
    world = World({("o0", "o3"): (ids(0), ids(0))}, names, random.Random(0))
    world.cut = {frozenset(pair) for pair in itertools.combinations(names[:3], 2)}
    world.run()
    assert [owner.begun for owner in world.owners.values()] == [True] * 4


def test_nobody_begins_alone_because_the_others_are_not_there_yet() -> None:
    world = World({}, ["o0", "o1", "o2"], random.Random(0), away=["o1", "o2"])
    world.run()
    assert (world.owners["o0"].begun, world.due) == (False, [])
    world.away = {"o2"}
    world.run(until=PATIENCE - 1)
    assert not world.owners["o0"].begun
    world.run()
    assert (world.owners["o0"].begun, world.owners["o0"].missed) == (True, ["o2"])


def test_an_owner_that_is_no_initial_member_changes_nothing() -> None:
    world = World({}, ["o0", "o1"], random.Random(0), away=["o1"])
    one = world.owners["o0"]
    one.meet("joiner", begun=True)
    one.bootstrap.receive("joiner", pb.Tokens(entities=bytes(8), settled=True))
    world.run()
    assert (one.begun, one.refused, one.missed) == (False, [], [])


def test_a_late_member_does_not_begin_alone_because_the_one_that_has_begun_is_gone_again() -> None:
    both = (ids(0), ids(0))
    world = World({("o0", "o1"): both}, ["o0", "o1", "o2"], random.Random(0), away=["o0"])
    world.run()
    late = world.owners["o0"]
    world.way["o0", "o1"], world.way["o1", "o0"] = deque(), deque()
    late.meet("o1", begun=True)
    world.part(frozenset(("o0", "o1")))
    world.run()
    assert not late.begun
    world.away = set()
    world.run()
    assert (late.begun, late.tokens["entity"][0]) == (True, world.owners["o1"].tokens["entity"][0])


def test_who_hears_what_is_settled_waits_no_longer() -> None:
    """It had met the other before that began."""
    names = ["o0", "o1", "o2", "o3"]
    world = World({("o0", "o1"): (ids(0), ids(0))}, names, random.Random(0), away=["o1", "o2", "o3"])
    one = world.owners["o0"]
    one.meet("o1", begun=False)
    one.bootstrap.receive("o1", encode_tokens(world.owners["o1"].tokens, ids(0), settled=True))
    world.run(until=6)
    assert (one.begun, one.missed) == (True, ["o2", "o3"])


def test_one_that_comes_again_and_again_postpones_nothing() -> None:
    world = World({}, ["o0", "o1", "o2"], random.Random(0), away=["o2"])
    for _ in range(3):
        world.run(until=world.now)
        world.later(PATIENCE / 2, lambda: world.restart("o1"))
        world.run(until=world.now + PATIENCE / 2)
    assert world.owners["o0"].begun


def test_one_that_is_there_and_says_nothing_is_left_out() -> None:
    both = (ids(0), ids(0))
    world = World(dict.fromkeys([("o0", "o1"), ("o0", "o2"), ("o1", "o2")], both), ["o0", "o1", "o2"], random.Random(0))
    world.owners["o2"].mute = True
    world.run(until=PATIENCE - 1)
    assert not world.owners["o0"].begun
    world.run()
    assert [(world.owners[n].begun, world.owners[n].missed) for n in ("o0", "o1")] == [(True, ["o2"])] * 2


def test_each_that_comes_is_another_reason_to_wait() -> None:
    world = World({}, ["o0", "o1", "o2", "o3"], random.Random(0), away=["o2", "o3"])
    world.run(until=0)
    world.later(PATIENCE / 2, lambda: world.away.discard("o2"))
    world.run(until=PATIENCE * 1.4)
    assert not world.owners["o0"].begun
    world.run(until=PATIENCE * 1.5)
    assert (world.owners["o0"].begun, world.owners["o0"].missed) == (True, ["o3"])


def test_who_is_taken_off_the_list_is_not_waited_for_in_any_state() -> None:
    both = (ids(0), ids(0))
    for talked in (False, True):
        world = World({("o0", "o1"): both, ("o0", "o2"): both}, ["o0", "o1", "o2"], random.Random(1))
        if talked:
            while world.apart or world.meetings:
                world.step()
        else:
            world.away = {"o2"}
            world.run(until=0)
        world.away = {"o2"}
        world.leave("o2")
        for name in ("o0", "o1"):
            world.owners[name].bootstrap.change({"o0", "o1"} - {name})
        world.run(until=0)
        assert all(world.owners[name].begun for name in ("o0", "o1"))


def test_words_that_waited_and_do_not_fit_are_refused_later() -> None:
    world = World({("o0", "o1"): (ids(0), ids(0))}, ["o0", "o1"], random.Random(0), away=["o1"])
    one = world.owners["o0"]
    one.bootstrap.receive("o1", pb.Tokens(entities=bytes(7)))
    one.meet("o1", begun=False)
    assert one.refused == [("o1", "malformed")]


def ids(*numbers: int) -> Common:
    return Common(np.array(numbers), np.array([], np.int64))


@pytest.mark.parametrize("reached", ["all", "neighbours"])
def test_nobody_begins_before_the_farthest_token_has_come(reached: str) -> None:
    """A line of five whose last owner has the smallest token: it takes four rounds to the first.

    Nobody may know how long the line is: where networks keep the others apart, one at its end meets one member only.
    """
    names = [f"o{i}" for i in range(5)]
    line = list(itertools.pairwise(names))
    smallest = min(range(1, 200), key=lambda seed: int(Tokens.draw(ROWS, seed)["entity"][0]))
    world = World({pair: (ids(0), ids(0)) for pair in line}, names, random.Random(0))
    if reached == "neighbours":
        world.cut = world.apart - {frozenset(pair) for pair in line}
    world.owners["o4"].tokens = Tokens.draw(ROWS, smallest)
    world.run()
    assert [owner.begun for owner in world.owners.values()] == [True] * 5
    token = int(Tokens.draw(ROWS, smallest)["entity"][0])
    assert [int(owner.tokens["entity"][0]) for owner in world.owners.values()] == [token] * 5
