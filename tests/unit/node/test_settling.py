"""Founders settle on the same tokens as a simulation, whatever comes first, and whoever starts anew meanwhile."""

from __future__ import annotations

import itertools
import random
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.align import Common, Tokens, settle
from fkge.align.links import KINDS
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused
from fkge.node.settling import Settling, listened, spoken

ROWS = {"entity": 6, "relation": 3}
Pairs = dict[tuple[str, str], tuple[Common, Common]]


class Founder:
    """What a node does about tokens, and what it keeps when its process ends."""

    def __init__(self, name: str, seed: int, commons: dict[str, Common], others: set[str]) -> None:
        self.name, self.commons, self.others = name, commons, others
        self.drawn, self.begun = Tokens.draw(ROWS, seed), False
        self.tokens = self.drawn
        self.forget()

    def forget(self) -> None:
        self.settling: Settling | None = None
        self.met: set[str] = set()
        self.early: dict[str, list[pb.Tokens]] = {}


class World:
    """Founders, and the words on their way between those that are connected."""

    def __init__(self, pairs: Pairs, names: list[str], pick: random.Random) -> None:
        commons = {
            n: {b if n == a else a: both[n == b] for (a, b), both in pairs.items() if n in (a, b)} for n in names
        }
        self.owners = {n: Founder(n, i + 1, commons[n], set(names) - {n}) for i, n in enumerate(names)}
        self.way: dict[tuple[str, str], deque[pb.Tokens]] = {}
        self.apart = {frozenset(pair) for pair in itertools.combinations(names, 2)}
        self.pick = pick

    def tell(self, a: str, b: str, word: pb.Tokens) -> None:
        if (a, b) in self.way:
            self.way[a, b].append(word)

    def tell_all(self, owner: Founder, rounds: list[dict[str, pb.Tokens]]) -> None:
        for words in rounds:
            for peer, word in words.items():
                self.tell(owner.name, peer, word)

    def restart(self, name: str) -> None:
        for other in self.owners[name].others:
            self.way.pop((name, other), None)
            self.way.pop((other, name), None)
            self.apart.add(frozenset((name, other)))
        self.owners[name].forget()

    def connect(self, pair: frozenset[str]) -> None:
        """A fresh session, of two that know what they share."""
        self.apart.discard(pair)
        a, b = self.pick.sample(sorted(pair), 2)
        begun = {name: self.owners[name].begun for name in pair}
        self.way[a, b], self.way[b, a] = deque(), deque()
        for one, other in ((a, b), (b, a)):
            self.owners[one].early.pop(other, None)
            self.introduced(self.owners[one], other, begun[other])

    def introduced(self, owner: Founder, peer: str, begun: bool) -> None:
        again = peer in owner.met
        owner.met.add(peer)
        if owner.begun:
            if not begun and peer in owner.commons:
                self.tell(owner.name, peer, spoken(owner.tokens, owner.commons[peer], settled=True))
        elif owner.settling is not None:
            if again:
                owner.settling.anew()
                self.tell_all(owner, [owner.settling.words()])
        elif owner.others <= owner.met:
            tokens = Tokens.restore({kind: owner.drawn[kind] for kind in KINDS})
            owner.settling = Settling(tokens, owner.commons, len(owner.others) + 1)
            self.tell_all(owner, [owner.settling.words()])
            for other, words in owner.early.items():
                for word in words:
                    self.hear(owner, other, word)
            owner.early = {}
            self.finish(owner)

    def hear(self, owner: Founder, peer: str, word: pb.Tokens) -> None:
        if owner.begun:
            if not word.settled:
                self.tell(owner.name, peer, spoken(owner.tokens, owner.commons[peer], settled=True))
        elif owner.settling is None:
            kept = [w for w in owner.early.get(peer, []) if w.generation >= word.generation]
            owner.early[peer] = [*kept, word]
            assert len(owner.early[peer]) <= 8
        else:
            self.tell_all(owner, owner.settling.hear(peer, word))
            self.finish(owner)

    def finish(self, owner: Founder) -> None:
        if owner.settling is not None and owner.settling.done and not owner.begun:
            owner.begun, owner.tokens = True, owner.settling.tokens

    def step(self) -> bool:
        """Something happens, whatever; False if nothing can."""
        full = [way for way, words in self.way.items() if words]
        if self.apart and (not full or self.pick.random() < 0.3):
            self.connect(self.pick.choice(sorted(self.apart, key=sorted)))
        elif full:
            a, b = self.pick.choice(full)
            self.hear(self.owners[b], a, self.way[a, b].popleft())
        else:
            return False
        return True


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


@settings(max_examples=150, deadline=None)
@given(federations(), st.integers(0, 2**32), st.lists(st.integers(0, 60), max_size=4))
def test_all_settle_on_what_a_simulation_settles_on(
    federation: tuple[Pairs, list[str]], seed: int, restarts: list[int]
) -> None:
    pairs, names = federation
    pick = random.Random(seed)
    world = World(pairs, names, pick)
    if len(names) == 1:
        assert Settling(Tokens.draw(ROWS, 1), {}, 1).done
        return
    for number in range(20_000):
        if number in restarts:
            world.restart(pick.choice(names))
        if not world.step():
            break
    assert all(owner.begun for owner in world.owners.values())
    expected = {name: Tokens.draw(ROWS, i + 1) for i, name in enumerate(names)}
    settle(expected, pairs)
    for name, owner in world.owners.items():
        for kind in KINDS:
            assert owner.tokens[kind].tolist() == expected[name][kind].tolist(), name


def ids(*numbers: int) -> Common:
    return Common(np.array(numbers), np.array([], np.int64))


def test_nobody_is_done_before_the_farthest_token_has_come() -> None:
    """A line of four whose last owner has the smallest token: it takes three rounds to the first."""
    names = ["a", "b", "c", "d"]
    pairs: Pairs = {pair: (ids(0), ids(0)) for pair in itertools.pairwise(names)}
    smallest = min(range(1, 200), key=lambda seed: int(Tokens.draw(ROWS, seed)["entity"][0]))
    world = World(pairs, names, random.Random(0))
    world.owners["d"].drawn = Tokens.draw(ROWS, smallest)
    while world.step():
        pass
    assert {int(o.tokens["entity"][0]) for o in world.owners.values()} == {
        int(Tokens.draw(ROWS, smallest)["entity"][0])
    }


def test_words_that_do_not_fit_are_refused_and_change_nothing() -> None:
    tokens = Tokens.draw(ROWS, 1)
    settling = Settling(tokens, {"b": ids(0, 1)}, 2)
    before = tokens["entity"].tolist()
    word = spoken(Tokens.restore({k: np.zeros(n, np.uint64) for k, n in ROWS.items()}), ids(2, 3), round=0)
    for peer, wrong, reason in (
        ("c", word, "out_of_order"),
        ("b", pb.Tokens(entities=bytes(15)), "malformed"),
        ("b", pb.Tokens(entities=bytes(16), relations=b"x"), "malformed"),
        ("b", pb.Tokens(entities=bytes(16), round=9), "out_of_order"),
    ):
        with pytest.raises(Refused) as refused:
            settling.hear(peer, wrong)
        assert refused.value.reason == reason
    assert tokens["entity"].tolist() == before
    assert settling.hear("b", word)
    assert tokens["entity"].tolist() != before


def test_tokens_pass_the_wire_as_they_are() -> None:
    tokens, common = Tokens.draw(ROWS, 7), Common(np.array([4, 0]), np.array([2]))
    heard = listened(common, pb.Tokens.FromString(spoken(tokens, common, round=3).SerializeToString()))
    assert heard["entity"].tolist() == tokens["entity"][[4, 0]].tolist()
    assert heard["relation"].tolist() == tokens["relation"][[2]].tolist()


def test_who_begins_anew_takes_over_what_the_others_have_settled_on() -> None:
    """Also where its own tokens, drawn anew, are the smaller ones: the others have begun with theirs."""
    both = Common(np.array([0, 2]), np.array([0]))
    settled, fresh = Tokens.draw({"entity": 3, "relation": 1}, 1), Tokens.draw({"entity": 3, "relation": 1}, 2)
    one = Settling(fresh, {"bee": both}, 2)
    assert one.hear("bee", spoken(settled, both, settled=True)) != []
    assert one.done
    for kind in KINDS:
        assert (one.tokens[kind][both.ids(kind)] == settled[kind][both.ids(kind)]).all()
    assert one.tokens["entity"][1] == Tokens.draw({"entity": 3, "relation": 1}, 2)["entity"][1]
