"""One owner and its peers: what an exchange does to its vectors, and what survives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import pytest
import torch
from pairs import exchange, federation_settings, make_owners, seeded
from tests.conftest import random_graph, tiny_federation, tiny_settings
from torch import Tensor

from fkge.align import random_rotation
from fkge.align.links import KINDS
from fkge.embed import Snapshot, batches
from fkge.errors import RunError
from fkge.federation.aggregate import LEAST, MIXES
from fkge.federation.exchange import Gift, Offer, aligned
from fkge.federation.home import Arm, Home, make_homes
from fkge.federation.owner import TOGETHER, Outcome, Owner, Plan
from fkge.graph import Graph, Vocabulary

NO_TRAINING = Plan(initial=0, total=0, alone=False)
TWO = {"a": random_graph(seed=1), "b": random_graph(30, 4, seed=2)}
THREE = {name: random_graph(seed=seed) for seed, name in enumerate("abc")}


def numbers(owner: Owner) -> dict[str, Tensor]:
    """Every table and all that stands beside it."""
    return {name: t.clone() for name, t in owner.tables.export(state=True).items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def junk(owner: Owner, peer: str, frame: str, seed: int = 0) -> Gift:
    """A gift that makes everything worse."""
    rows: Any = {kind: torch.randn(x.shape, generator=seeded(seed)) * 5 for kind, x in owner._rows(peer).items()}
    return Gift(peer, rows, frame=frame)


# -- improving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["alone", "together"])
def test_the_best_score_never_falls(start: str) -> None:
    owners = make_owners(TWO, federation_settings(start=start, exchanges=6, patience=2), together=True)
    scores: dict[str, list[float]] = {name: [] for name in owners}
    for owner in owners.values():
        assert owner.improve(initial=True).news
    for session in range(1, 7):
        gifts = {x: exchange(owners[y], owners[x], session) for x, y in (("a", "b"), ("b", "a"))}
        for name, owner in owners.items():
            outcome = owner.improve([gifts[name]])
            assert outcome.score is not None
            assert outcome.best == owner.activity.best_score
            assert outcome.improved == (outcome.score == outcome.best)
            scores[name].append(outcome.best or 0.0)
    for name, owner in owners.items():
        assert scores[name] == sorted(scores[name])
        owner.best()
        assert owner.score() == owner.activity.best_score
        ledger = owner.activity
        assert ledger.rounds == 6
        assert 0 <= ledger.accepted <= 6
        assert ledger.handshakes == {"ab".replace(name, ""): 6}


WAYS: list[dict[str, Any]] = [
    {"test_every": 1, "patience": 1, "aggregate": "replace"},
    {"test_every": 2, "patience": 2, "aggregate": "average", "moments": "fresh"},
    {"test_every": 3, "patience": 0, "aggregate": "support", "neighbours": True},
    {"test_every": 2, "patience": 1, "aggregate": "validation", "moments": "keep"},
    {"test_every": 4, "patience": 1, "translate": "procrustes"},
    {"test_every": 1, "patience": 3, "start": "together", "train": {"schedule": "plateau"}},
]
SMALL = {name: random_graph(15 + seed, 3, 90, seed=seed) for seed, name in enumerate("abc")}


def sixty_rounds(number: int, folder: Path) -> None:
    """True gifts, rubbish in any frame, both at once and none; and somebody who halts the owner now and then."""
    ways = {"initial_epochs": 2, "epochs": 1, "exchanges": 1000, **WAYS[number]}
    settings = federation_settings(**ways)

    def fresh() -> dict[str, Owner]:
        return make_owners(SMALL, settings, together=True)

    owners, rng = fresh(), np.random.default_rng(number)
    host = owners["b"]
    for owner in owners.values():
        owner.improve(initial=True)
    best, fell = host.activity.best_score, 0
    for session in range(1, 61):
        gifts = []
        for peer in rng.permutation(["a", "c"])[: rng.integers(0, 3)]:
            kind = rng.integers(4)
            gift = exchange(owners[peer], host, session)
            if kind == 1:
                scale = float(10.0 ** rng.uniform(-6, 12))
                gift = replace(gift, rows={k: torch.randn(x.shape, generator=seeded(session)) * scale
                                           for k, x in gift.rows.items()})  # fmt: skip
            elif kind == 2:
                gift = replace(gift, rows={k: torch.zeros_like(x) for k, x in gift.rows.items()}, virtual=None)
            if kind and rng.random() < 0.5:
                gift = replace(gift, frame=str(rng.choice(["", "a", "b", "c", "zz"])), refine=bool(rng.random() < 0.5))
            gifts.append(gift)
        owners[str(rng.choice(["a", "c"]))].improve()
        outcome = host.improve(gifts, pause=EveryNth(3) if rng.random() < 0.1 else None)
        ledger = host.activity
        assert outcome.best == ledger.best_score
        if outcome.score is not None:
            assert ledger.best_score is not None
            assert outcome.improved == (best is None or outcome.score > best)
            assert ledger.best_score == (outcome.score if outcome.improved else best)
            fell += not outcome.improved
        assert best is None or (ledger.best_score is not None and ledger.best_score >= best)
        best = ledger.best_score
        if session % 10 == 0:  # what it would answer with, were this its end
            host.save(folder / "b")
            twin = fresh()["b"]
            twin.load(folder / "b")
            twin.best()
            assert twin.score() == twin.activity.best_score
            assert best is None or twin.score() >= best
    assert fell > 3  # some of it did harm, and was not kept
    host.best()
    assert host.score() == host.activity.best_score


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_the_best_score_never_falls_whatever_peers_give(number: int, tmp_path: Path) -> None:
    sixty_rounds(number, tmp_path)


def keeps_the_last(owner: Owner) -> tuple[float, bool]:
    owner.activity.best_score = None
    return Owner._test(owner)


def forgets_its_vectors(owner: Owner) -> tuple[float, bool]:
    kept = None if owner._best is None else Snapshot({key: t.clone() for key, t in owner._best.tensors.items()})
    out = Owner._test(owner)
    owner._best = kept or owner._best
    return out


@pytest.mark.parametrize("broken", [keeps_the_last, forgets_its_vectors])
def test_these_rounds_find_an_owner_that_does_not_keep_its_best(
    broken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Owner):
        _test = broken

    monkeypatch.setattr(pairs, "Owner", Broken)

    def found_out(number: int) -> bool:
        try:
            sixty_rounds(number, tmp_path)
        except AssertionError:
            return True
        return False

    assert any(found_out(number) for number in range(len(WAYS)))


def test_a_ring_is_learned(ring: Graph) -> None:
    settings = federation_settings(initial_epochs=60, exchanges=0, test_every=5)
    owner = Owner("ring", ring, settings)
    untrained = owner.score()
    outcome = owner.improve(initial=True)
    assert outcome.spent
    assert outcome.best is not None
    assert outcome.best > untrained
    assert owner.score() == outcome.best  # the first training ends at its best


def test_going_back_restores_every_number_and_the_frame() -> None:
    owner = make_owners(TWO, federation_settings(aggregate="replace", patience=1, moments="fresh"))["b"]
    owner.improve(initial=True)
    best, score, epoch = numbers(owner), owner.activity.best_score, owner.trainer.epoch
    assert owner.score() == score
    outcome = owner.improve([junk(owner, "a", frame="a")])
    assert not outcome.improved
    assert outcome.backtracked
    assert not outcome.news
    assert same(numbers(owner), best)
    assert owner.frame == "b"
    assert owner.score() == score
    assert owner.trainer.epoch == epoch + 2  # what was spent is spent
    assert owner.activity.backtracked == 1
    assert owner.activity.stale == 0


def test_patience_gives_several_chances() -> None:
    owner = make_owners(TWO, federation_settings(aggregate="replace", patience=3, test_every=1))["b"]
    owner.improve(initial=True)
    assert owner.activity.stale == 0  # the first training has gone back already
    seen = [owner.improve([junk(owner, "a", "b", seed)]) for seed in range(3)]
    assert [o.backtracked for o in seen] == [False, False, True]
    assert [o.news for o in seen] == [True, True, False]


def test_tests_come_every_so_many_exchanges_and_at_the_end() -> None:
    owners = make_owners(TWO, federation_settings(test_every=3, exchanges=4))
    owners["b"].improve(initial=True)
    owner = owners["a"]
    owner.improve(initial=True)
    seen = [owner.improve([exchange(owners["b"], owner, s)]) for s in range(1, 5)]
    assert [o.score is not None for o in seen] == [False, False, True, True]
    assert [o.spent for o in seen] == [False, False, False, True]
    assert owner.activity.accepted <= owner.activity.rounds == 4
    assert owner.activity.pending == 0


def test_the_first_training_counts_as_no_exchange() -> None:
    owners = make_owners(TWO, federation_settings(start="together", test_every=2), together=True)
    for owner in owners.values():
        owner.improve(initial=True)
    outcome = owners["a"].improve([exchange(owners["b"], owners["a"])])
    assert outcome.improved  # the first test of all
    assert owners["a"].activity.accepted == 1


def test_others_get_a_hearing_between_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_CHUNK_IDS", 1)
    owner = Owner("a", TWO["a"], federation_settings())
    calls: list[int] = []

    def pause() -> bool:
        calls.append(owner.trainer.epoch)
        return False

    assert not owner.improve(initial=True, pause=pause).halted
    assert owner.trainer.epoch == 3
    assert [calls.count(epoch) for epoch in range(4)] == [4, 5, 5, 1]  # five chunks: four between, one after


def test_the_linear_schedule_falls_in_each_phase() -> None:
    owner = Owner("a", TWO["a"], federation_settings({"schedule": "linear", "decay": 0.1}))
    scales = {}
    for initial in (True, False, False, False, False):
        owner.improve(initial=initial, pause=lambda: bool(scales.update({owner.trainer.epoch: owner.trainer.lr_scale})))
    assert [round(scales[e], 6) for e in (1, 3, 4, 11)] == [1.0, 0.1, 1.0, 0.1]  # while the epoch before ran


def test_without_validation_triples_there_is_no_score() -> None:
    g = TWO["a"]
    bare = Graph(g.entities, g.relations, {"train": g.train})
    with pytest.raises(RunError, match="a: has no validation triples"):
        Owner("a", bare, federation_settings()).score()


def test_deciding_triples_are_a_fixed_sample() -> None:
    settings = federation_settings({"validation_triples": 7})
    first, second = (Owner("a", TWO["a"], settings) for _ in range(2))
    assert len(first._decide) == 7
    assert np.array_equal(first._decide, second._decide)
    some = TWO["a"].valid[:3]
    assert np.array_equal(Owner("a", TWO["a"], settings, decide=some)._decide, some)


# -- halting ---------------------------------------------------------------------------------------


class EveryNth:
    """A pause that says to leave each nth time it is asked."""

    def __init__(self, n: int) -> None:
        self.n, self.asked = n, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked % self.n == 0


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five chunks to an epoch."""
    monkeypatch.setattr(batches, "_CHUNK_IDS", 1)


def to_its_end(owner: Owner, pause: EveryNth | None = None) -> int:
    """Train alone until all is spent; how often it halted."""
    halts = 0
    while not owner.spent:
        halts += owner.improve(pause=pause).halted
    return halts


def without_seconds(owner: Owner) -> Any:
    return replace(owner.activity, seconds={})


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 12])
@pytest.mark.parametrize("schedule", ["linear", "plateau"])
def test_a_first_training_may_be_left_anywhere_and_ends_as_if_it_had_not_been(
    tmp_path: Path, schedule: str, n: int
) -> None:
    """Tests are not missed either: the first training ends at the same best vectors."""

    def fresh() -> Owner:
        return Owner("a", TWO["a"], federation_settings({"schedule": schedule, "lr": 0.5}, initial_epochs=7))

    straight, halting, pause = fresh(), fresh(), EveryNth(n)
    straight.improve(initial=True)
    halts = 0
    while (outcome := halting.improve(initial=True, pause=pause)).halted:
        assert outcome == Outcome(False, False, None, halting.activity.best_score, False, False, halted=True)
        assert halting.can_save
        halts += 1
        if halts % 2:  # in another life
            halting.save(tmp_path / "a")
            halting = fresh()
            halting.load(tmp_path / "a")
    assert halts >= 2
    assert outcome.news
    assert same(numbers(halting), numbers(straight))
    assert without_seconds(halting) == without_seconds(straight)
    assert halting.trainer.position() == straight.trainer.position()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n", [1, 3, 5, 11])
@pytest.mark.parametrize("given", [False, True])
def test_later_work_may_be_left_too_and_no_gift_is_taken_twice(n: int, given: bool) -> None:
    """Tests come at other times then; but epochs are epochs."""

    def fresh() -> tuple[Owner, list[Gift]]:
        owners = make_owners(TWO, federation_settings({"schedule": "linear"}))
        for owner in owners.values():
            owner.improve(initial=True)
        return owners["a"], [exchange(owners["b"], owners["a"])] if given else []

    (straight, gifts), (halting, the_same), pause = fresh(), fresh(), EveryNth(n)
    straight.improve(gifts)
    to_its_end(straight)
    assert halting.improve(the_same, pause=pause).halted == (n < 10)  # two epochs ask ten times
    assert to_its_end(halting, pause) >= 2
    assert same(numbers(halting), numbers(straight))
    assert halting.activity.epochs == straight.activity.epochs == 11
    assert halting.activity.rounds == halting.activity.handshakes.get("b", 0) == int(given)


@pytest.mark.usefixtures("small_chunks")
def test_an_epoch_with_virtual_triples_is_finished_before_an_owner_leaves() -> None:
    def fresh(epochs: int) -> dict[str, Owner]:
        return make_owners(TWO, federation_settings(neighbours=True, epochs=epochs))

    owners, pause = fresh(3), EveryNth(1)
    b, gift = owners["b"], exchange(owners["a"], owners["b"])
    assert gift.virtual is not None
    assert len(gift.virtual.triples)
    outcome = b.improve([gift], pause=pause)
    assert outcome.halted
    assert (b.trainer.epoch, b.trainer.chunk) == (1, 0)
    assert pause.asked >= 5  # others had their hearing all the same
    assert b.can_save
    assert (b.tables.entities, b.tables.relations) == (30, 4)
    once = fresh(1)
    assert not once["b"].improve([exchange(once["a"], once["b"])]).halted
    assert same(numbers(b), numbers(once["b"]))


@pytest.mark.usefixtures("small_chunks")
def test_an_epoch_that_broke_off_is_finished_before_gifts_come_into_it() -> None:
    owners = make_owners(TWO, federation_settings(neighbours=True))
    b, twin = owners["b"], make_owners(TWO, federation_settings(neighbours=True))["b"]
    assert b.improve(pause=EveryNth(2)).halted
    assert b.trainer.chunk == 2
    gift = exchange(owners["a"], b)  # of peers that did not wait
    assert b.improve([gift], pause=EveryNth(1)).halted
    assert b.trainer.chunk == 3
    assert b.activity.rounds == 0  # not taken yet: whoever left gives it again, or has newer
    assert not b.improve([gift]).halted
    assert b.trainer.epoch == 3
    assert b.activity.rounds == 1
    twin.trainer.run_epoch()
    twin.improve([gift])
    assert same(numbers(b), numbers(twin))


# -- starting together, and frames -----------------------------------------------------------------


def test_owners_that_start_together_start_alike() -> None:
    owners = make_owners(TWO, federation_settings(start="together"), together=True)
    assert {o.frame for o in owners.values()} == {TOGETHER}
    a, b = owners["a"]._rows("b"), owners["b"]._rows("a")
    for kind in ("entity", "relation"):
        assert torch.equal(a[kind], b[kind])
        assert len(a[kind].unique(dim=0)) == len(a[kind])
    alone = make_owners(TWO, federation_settings(start="alone"), together=True)
    assert not torch.equal(alone["a"]._rows("b")["entity"], alone["b"]._rows("a")["entity"])
    assert alone["a"].frame == "a"


def test_lone_owners_end_in_one_frame_and_turning_changes_no_score() -> None:
    owners = make_owners(THREE, federation_settings(aggregate="average"))
    for owner in owners.values():
        owner.improve(initial=True)
        assert owner.frame == owner.name
    gift = exchange(owners["b"], owners["c"])
    before = owners["c"].score()
    owners["c"]._agree_on_frame([gift])
    assert owners["c"].frame == "b"
    assert owners["c"].score() == pytest.approx(before, abs=1e-6)
    # a meets nobody but b, c nobody but b: the frame travels.
    for host, client in (("b", "a"), ("c", "b")):
        owners[host].improve([exchange(owners[client], owners[host], 2)])
    assert {o.frame for o in owners.values()} == {"a"}
    # In one frame the shared rows lie together, and pass without a turn.
    gift = exchange(owners["a"], owners["b"], 3)
    assert owners["b"]._bring_home(gift) is gift
    near = (gift.rows["entity"] - owners["b"]._rows("a")["entity"]).norm()
    assert near < 0.8 * (gift.rows["entity"].norm() + near) / 2


def test_a_turned_copy_comes_home_exactly() -> None:
    """Two owners of one graph, one of them in another frame: turning into the other's gives its numbers back."""
    owners = make_owners({"a": THREE["a"], "b": THREE["a"]}, federation_settings())
    a, b = owners["a"], owners["b"]
    q = random_rotation(8, seeded(1))
    for kind in ("entity", "relation"):
        b.tables[kind].copy_(a.tables[kind].double() @ q)
    b._agree_on_frame([exchange(a, b)])
    assert b.frame == "a"
    for kind in ("entity", "relation"):
        torch.testing.assert_close(b.tables[kind], a.tables[kind], atol=1e-5, rtol=1e-5)


def test_a_late_joiner_turns_into_the_frame_of_those_who_began_together() -> None:
    settings = federation_settings(start="together")
    early = make_owners(THREE, settings, together=True)
    late = make_owners(THREE, settings)["c"]  # nobody told it any tokens
    early["a"].improve(initial=True)
    late.improve(initial=True)
    assert late.frame == "c"
    late.improve([exchange(early["a"], late)])
    assert late.frame == TOGETHER
    early["a"].improve([exchange(late, early["a"], 2)])
    assert early["a"].frame == TOGETHER  # nobody turns towards a newcomer


def test_where_the_space_cannot_be_turned_gifts_are_brought_home_instead() -> None:
    owners = make_owners(TWO, federation_settings({"norm": 1}))
    gift = exchange(owners["a"], owners["b"])
    owners["b"].improve([gift])
    assert owners["b"].frame == "b"
    assert owners["b"]._bring_home(gift).frame == "b"


def test_confused_owners_begin_alike_where_they_meet_and_confuse_the_same_towards_all(tmp_path: Path) -> None:
    federation = tiny_federation()
    make_homes(tmp_path, federation, tiny_settings(), seed=3)
    homes = {name: Home.open(tmp_path / "owners" / name) for name in federation.members}
    plan = Plan(2, 20, alone=False)
    right = {name: home.owner(Arm("federated", plan))[0] for name, home in homes.items()}
    mixed = {name: home.owner(Arm("permuted", plan, permuted=True))[0] for name, home in homes.items()}
    for (x, y), kind in itertools.product(itertools.permutations(mixed, 2), ("entity", "relation")):
        assert torch.equal(mixed[x]._rows(y)[kind], mixed[y]._rows(x)[kind])  # type: ignore[index]
        assert torch.equal(mixed[x]._rows(y)[kind], right[x]._rows(y)[kind])  # type: ignore[index]
    for (name, owner), kind in itertools.product(mixed.items(), ("entity", "relation")):
        taken: dict[int, int] = {}
        for peer in owner.peers:
            was, now = right[name]._ids(peer, kind), owner._ids(peer, kind)  # type: ignore[arg-type]
            assert not (was == now).any()
            for own, place in zip(was.tolist(), now.tolist(), strict=True):
                assert taken.setdefault(own, place) == place
        assert sorted(taken) == sorted(taken.values())


# -- aggregating, by hand --------------------------------------------------------------------------


def aggregated(how: str, **values: Any) -> tuple[Owner, Gift, dict[str, Tensor]]:
    """An owner that aggregated a gift and did not train; the gift; its numbers before. Both in one frame."""
    settings = federation_settings(start="together", aggregate=how, **values)
    owners = make_owners(TWO, settings, plan=NO_TRAINING, together=True)
    for name, owner in owners.items():
        for at, key in enumerate(("entity", "relation")):
            table = owner.tables[key]
            table.add_(torch.randn(table.shape, generator=seeded(at + ord(name))))
            for slot in ("mean", "square"):
                owner.tables.state(key, slot).copy_(torch.rand(table.shape, generator=seeded(at + 2 * ord(name))))
            owner.tables.state(key, "steps", columns=False).fill_(7)
    before = numbers(owners["a"])
    gift = exchange(owners["b"], owners["a"])
    owners["a"].improve([gift])
    return owners["a"], gift, before


def support(graph: Graph, kind: str, ids: Tensor) -> Tensor:
    columns = [0, 2] if kind == "entity" else [1]
    counts = [(graph.train[:, columns] == i).sum() for i in ids.tolist()]
    return torch.tensor(np.log1p(counts))


@pytest.mark.parametrize("kind", ["entity", "relation"])
@pytest.mark.parametrize("how", ["replace", "average", "support"])
def test_aggregation_by_hand(how: str, kind: Any) -> None:
    owner, gift, before = aggregated(how)
    ids, other = owner._ids("b", kind), torch.arange(len(gift.rows[kind]))
    old, got, new = before[f"{kind}/{kind}"], gift.rows[kind], owner.tables[kind]
    if how == "replace":
        expected = got.double()
    elif how == "average":
        expected = (old[ids].double() + got.double()) / 2
    else:
        mine, theirs = support(TWO["a"], kind, ids), support(TWO["b"], kind, other)
        u, v = (mine + LEAST * (mine > 0))[:, None], (theirs + LEAST)[:, None]
        expected = (u * old[ids].double() + v * got.double()) / (u + v)
    torch.testing.assert_close(new[ids].double(), expected, atol=1e-5, rtol=1e-5)
    rest = np.setdiff1d(np.arange(len(old)), ids.numpy())
    assert torch.equal(new[rest], old[rest])
    assert kind == "relation" or len(rest) == 10


def test_two_gifts_at_once_are_averaged_with_ones_own() -> None:
    owners = make_owners(THREE, federation_settings(start="together", aggregate="average"), plan=NO_TRAINING,
                         together=True)  # fmt: skip
    for name, owner in owners.items():
        owner.tables["entity"].add_(float(ord(name)))
    gifts = [exchange(owners[name], owners["a"]) for name in "bc"]
    old = [owners[name].tables["entity"].clone() for name in "abc"]
    owners["a"].improve(gifts)
    torch.testing.assert_close(owners["a"].tables["entity"], sum(old) / 3)  # type: ignore[arg-type]


def test_the_mix_is_chosen_on_validation_triples() -> None:
    owner, gift, before = aggregated("validation")
    ids = owner._ids("b", "entity")
    old, new = before["entity/entity"][ids], owner.tables["entity"][ids]
    fits = {m: torch.lerp(old, gift.rows["entity"], m) for m in MIXES}
    chosen = [m for m, rows in fits.items() if torch.allclose(rows, new, atol=1e-6)]
    assert len(chosen) == 1
    # By hand: entities are mixed first, with the relations still as they were.
    twin = make_owners(TWO, federation_settings(start="together"), plan=NO_TRAINING, together=True)["a"]
    twin.tables["relation"].copy_(before["relation/relation"])
    scores = {}
    for m, rows in fits.items():
        twin.tables["entity"].copy_(before["entity/entity"])
        twin.tables["entity"][ids] = rows
        scores[m] = twin.score()
    assert scores[chosen[0]] == max(scores.values())


@pytest.mark.parametrize("moments", ["average", "keep", "fresh"])
def test_moments(moments: str) -> None:
    owner, gift, before = aggregated("average", moments=moments)
    for kind in ("entity", "relation"):
        ids = owner._ids("b", kind)  # type: ignore[arg-type]
        rest = np.setdiff1d(np.arange(owner.tables.count(kind)), ids.numpy())  # type: ignore[arg-type]
        for number, slot in enumerate(("mean", "square")):
            old, new = before[f"{kind}/{kind}.{slot}"], owner.tables.state(kind, slot)
            assert torch.equal(new[rest], old[rest])
            if moments == "average":
                assert gift.moments is not None
                torch.testing.assert_close(new[ids], (old[ids] + gift.moments[kind][number]) / 2)  # type: ignore[index]
            else:
                assert gift.moments is None
                assert torch.equal(new[ids], old[ids] if moments == "keep" else torch.zeros_like(old[ids]))
        steps = owner.tables.state(kind, "steps", columns=False)
        assert steps[ids].unique().tolist() == ([0.0] if moments == "fresh" else [7.0])


def test_moments_are_averaged_over_those_who_send_them() -> None:
    owners = make_owners(THREE, federation_settings(start="together", aggregate="average"), plan=NO_TRAINING,
                         together=True)  # fmt: skip
    for name, owner in owners.items():
        owner.tables.state("entity", "mean").fill_(float(ord(name)))
        owner.tables.state("entity", "square").fill_(float(ord(name) ** 2))
    b, c = (exchange(owners[name], owners["a"]) for name in "bc")
    owners["a"].improve([b, replace(c, moments=None)])
    assert owners["a"].tables.state("entity", "mean").unique().tolist() == [(ord("a") + ord("b")) / 2]


def test_choosing_a_mix_counts_as_looking() -> None:
    owner, _, _ = aggregated("validation")
    assert owner.activity.tests == 2 * len(MIXES) + 1  # both kinds, and the test that was due


@pytest.mark.parametrize("mode", ["procrustes", "ppat+refine"])
def test_neighbours_come_home_with_the_rows_they_stand_by(mode: str) -> None:
    owners = make_owners(TWO, federation_settings(translate=mode, neighbours=True))
    b = owners["b"]
    gift = exchange(owners["a"], b)
    w = aligned(gift, b._rows("a"))
    home = b._bring_home(gift)
    assert gift.virtual is not None
    assert home.virtual is not None
    torch.testing.assert_close(home.rows["entity"], gift.rows["entity"] @ w)
    torch.testing.assert_close(home.virtual.entities, gift.virtual.entities @ w)
    torch.testing.assert_close(home.virtual.relations, gift.virtual.relations @ w)


def test_a_row_without_training_triples_takes_what_peers_know() -> None:
    g = TWO["a"]
    lonely = int(np.bincount(g.train[:, [0, 2]].reshape(-1))[:30].argmin())
    train = g.train[(g.train[:, 0] != lonely) & (g.train[:, 2] != lonely)]
    graphs = {"a": Graph(g.entities, g.relations, {**g.splits, "train": train}), "b": TWO["b"]}
    owners = make_owners(graphs, federation_settings(start="together"), plan=NO_TRAINING, together=True)
    owners["b"].tables["entity"].add_(1.0)
    gift = exchange(owners["b"], owners["a"])
    owners["a"].improve([gift])
    at = owners["a"]._ids("b", "entity").tolist().index(lonely)
    torch.testing.assert_close(owners["a"].tables["entity"][lonely], gift.rows["entity"][at])


# -- neighbours ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["frame", "procrustes", "ppat", "ppat+refine"])
def test_virtual_neighbours_are_gone_after_training(mode: str) -> None:
    owners = make_owners(TWO, federation_settings(translate=mode, neighbours=True))
    b = owners["b"]
    triples = b.trainer.triples
    seen: list[tuple[int, int, int]] = []
    gift = exchange(owners["a"], b)
    assert gift.virtual is not None
    run = b.trainer.run_epoch

    def watched(*args: Any, **kwargs: Any) -> float | None:
        seen.append((b.tables.entities, b.tables.relations, b.trainer.triples))
        return run(*args, **kwargs)

    b.trainer.run_epoch = watched  # type: ignore[method-assign]
    b.improve([gift])
    assert seen == [(40, 5, triples + len(gift.virtual.triples))] * 2
    assert (b.tables.entities, b.tables.relations, b.trainer.triples) == (30, 4, triples)
    offer = b._offer("a", b.mode("a"))
    assert len(offer.entity) == 30
    assert offer.neighbours is not None
    assert len(offer.neighbours) == 0
    assert offer.triples is not None
    assert len(offer.triples) == 0


def test_neighbours_are_gone_after_a_training_that_failed() -> None:
    owners = make_owners(TWO, federation_settings(neighbours=True))
    b = owners["b"]

    def fails(*args: Any, **kwargs: Any) -> float | None:
        raise RuntimeError("out of luck")

    b.trainer.run_epoch = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="luck"):
        b.improve([exchange(owners["a"], b)])
    assert (b.tables.entities, b.tables.relations) == (30, 4)


def test_the_neighbourhood_is_that_of_the_graph() -> None:
    owners = make_owners(TWO, federation_settings(neighbours=True))
    a = owners["a"]
    offer = a._offer("b", "frame")
    assert offer.triples is not None
    assert offer.neighbours is not None
    assert offer.joining is not None
    common = a.common("b")
    outside = sorted({int(x) for x in a.graph.train[:, [0, 2]].reshape(-1)} - set(common.entities.tolist()))
    entities = [*common.entities.tolist(), *outside]
    relations = [*common.relations.tolist(), 4]
    decoded = {(entities[h], relations[r], entities[t]) for h, r, t in offer.triples.tolist()}
    shared = set(common.entities.tolist())
    assert decoded == {(h, r, t) for h, r, t in a.graph.train.tolist() if (h in shared) != (t in shared)}
    assert torch.equal(offer.neighbours, a.tables["entity"][outside])


# -- peers that are different ----------------------------------------------------------------------

UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another model": ({"model": "TransE"}, {"model": "TransR"}),
    "another relation width": ({"model": "TransR"}, {"model": "TransR", "relation_dim": 5}),
    "another width": ({"dim": 16}, {"dim": 24}),
    "complex numbers": ({"model": "TransE"}, {"model": "RotatE"}),
}


@pytest.mark.parametrize("what", UNLIKE)
@pytest.mark.parametrize("mode", ["frame", "procrustes", "ppat+refine", "ppat"])
@pytest.mark.parametrize("neighbours", [False, True])
def test_unlike_owners_exchange_entities(what: str, mode: Any, neighbours: bool) -> None:
    ways = {
        name: federation_settings(train, translate=mode, neighbours=neighbours, exchanges=1, initial_epochs=1)
        for name, train in zip("ab", UNLIKE[what], strict=True)
    }
    owners = make_owners(TWO, ways)
    for x, y in (("a", "b"), ("b", "a")):
        host = owners[x]
        assert host.mode(y) == ("procrustes" if mode == "frame" else mode)
        assert host.common(y).kinds == ("entity",)
        gift = exchange(owners[y], host)
        assert len(gift.rows["relation"]) == 0
        assert gift.virtual is None
        before = numbers(host)
        host._aggregate([gift])
        after = numbers(host)
        assert [key for key in before if not torch.equal(before[key], after[key]) and "." not in key] == [
            "entity/entity"
        ]
        assert host.improve().score is not None


@pytest.mark.parametrize("train", [{"model": "RotatE"}, {"model": "TransR"}, {"model": "TransR", "relation_dim": 5},
                                   {"model": "TransD", "relation_dim": 5}, {"model": "DistMult"}])  # fmt: skip
@pytest.mark.parametrize("neighbours", [False, True])
def test_lone_owners_of_any_model_meet_in_frame_mode(train: dict[str, Any], neighbours: bool) -> None:
    """Relations that do not live in the entities' space are not turned with them, nor mixed across frames."""
    owners = make_owners(TWO, federation_settings(train, neighbours=neighbours, initial_epochs=1, exchanges=2))
    for owner in owners.values():
        owner.improve(initial=True)
    for session, (x, y) in enumerate((("a", "b"), ("b", "a"))):
        owners[x].improve([exchange(owners[y], owners[x], session)])
    if not owners["a"]._one_space:
        gift = exchange(owners["b"], owners["a"], 9)
        gift = Gift(gift.peer, gift.rows, frame="z", virtual=gift.virtual)
        home = owners["a"]._bring_home(gift)
        assert torch.equal(home.rows["relation"], owners["a"]._rows("b")["relation"])
        assert home.virtual is None


def overlapping(entities: int, relations: int = 0) -> dict[str, Graph]:
    """Two graphs that have so much in common."""
    g = TWO["a"]
    other = Graph(
        Vocabulary([x if i < entities else f"z{i:03}" for i, x in enumerate(g.entities)], "entity"),
        Vocabulary([x if i < relations else f"z{i}" for i, x in enumerate(g.relations)], "relation"),
        g.splits,
    )
    return {"a": g, "b": other}


@pytest.mark.parametrize(
    ("entities", "relations", "modes"),
    [(0, 0, ""), (1, 0, "frame procrustes"), (0, 1, "frame procrustes"), (1, 1, "all"), (2, 0, "all")],
)
def test_whoever_shares_too_little_is_not_dealt_with(entities: int, relations: int, modes: str) -> None:
    """The game needs a row for each of its two teachers; the other ways need one."""
    for mode in ("frame", "procrustes", "ppat", "ppat+refine"):
        owners = make_owners(overlapping(entities, relations), federation_settings(translate=mode, exchanges=1))
        enough = modes == "all" or mode in modes.split()
        for x, y in (("a", "b"), ("b", "a")):
            assert list(owners[x].peers) == [y] * enough
            if enough:
                owners[x].improve([exchange(owners[y], owners[x])])


def test_relations_alone_do_not_do_between_other_models() -> None:
    ways = {"a": federation_settings(), "b": federation_settings({"model": "DistMult"})}
    assert all(o.peers == {} for o in make_owners(overlapping(0, 5), ways).values())
    assert all(len(o.peers) == 1 for o in make_owners(overlapping(1, 5), ways).values())


def test_an_offer_that_claims_the_hosts_frame_does_no_harm() -> None:
    ways = {"a": federation_settings({"dim": 16}), "b": federation_settings({"dim": 24})}
    owners = make_owners(TWO, ways)
    host = owners["a"].host("b", 1)
    rows = owners["b"]._rows("a")
    host.step(Offer(0, "a", rows["entity"], rows["relation"]))
    assert host.gift is not None
    owners["a"].improve([host.gift])


# -- surviving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", [False, True])
def test_an_owner_that_was_interrupted_goes_on_bit_for_bit(tmp_path: Path, neighbours: bool) -> None:
    def fresh() -> dict[str, Owner]:
        return make_owners(TWO, federation_settings(neighbours=neighbours, test_every=2, patience=1, exchanges=6))

    def rounds(owners: dict[str, Owner], sessions: range) -> None:
        for session in sessions:
            for x, y in (("a", "b"), ("b", "a")):
                owners[x].improve([exchange(owners[y], owners[x], session)])

    straight = fresh()
    for owner in straight.values():
        owner.improve(initial=True)
    rounds(straight, range(1, 4))
    for name, owner in straight.items():
        owner.save(tmp_path / name)
    rounds(straight, range(4, 7))

    resumed = fresh()
    for name, owner in resumed.items():
        owner.load(tmp_path / name)
        assert owner.trainer.epoch == 9
    rounds(resumed, range(4, 7))
    for name in straight:
        assert same(numbers(straight[name]), numbers(resumed[name]))
        one, two = straight[name], resumed[name]
        assert one.frame == two.frame
        assert one.spent
        assert two.spent
        one.activity.seconds = two.activity.seconds = {}
        assert one.activity == two.activity
        assert same(numbers_of(one.best()), numbers_of(two.best()))
        assert one.frame == two.frame


def numbers_of(tables: Any) -> dict[str, Tensor]:
    return dict(tables.export(state=True))


def test_a_first_training_cut_short_is_finished(tmp_path: Path) -> None:
    settings = federation_settings(initial_epochs=4)
    owner = Owner("a", TWO["a"], settings)
    owner.trainer.run_epoch()
    owner.save(tmp_path / "a")
    again = Owner("a", TWO["a"], settings)
    again.load(tmp_path / "a")
    again.improve(initial=True)
    assert again.trainer.epoch == 4


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    Owner("a", TWO["a"], federation_settings()).save(tmp_path / "a")
    for stranger in (Owner("b", TWO["a"], federation_settings()), Owner("a", TWO["b"], federation_settings())):
        with pytest.raises(RunError, match="belongs to 'a'"):
            stranger.load(tmp_path / "a")
    with pytest.raises(RunError, match="no such file"):
        Owner("a", TWO["a"], federation_settings()).load(tmp_path / "none")


def test_one_seed_gives_one_run() -> None:
    def run(seed: int) -> dict[str, Tensor]:
        owners = make_owners(TWO, federation_settings(translate="ppat+refine"), seed=seed)
        owners["a"].improve([exchange(owners["b"], owners["a"])])
        return numbers(owners["a"])

    first, second, other = run(0), run(0), run(1)
    assert same(first, second)
    assert not same(first, other)


def test_owners_differ_where_their_names_do() -> None:
    owners = make_owners(dict.fromkeys("ab", THREE["a"]), federation_settings())
    assert not torch.equal(owners["a"].tables["entity"], owners["b"].tables["entity"])
    draws = {
        int(torch.randint(2**60, (1,), generator=owners[x]._noise(y, session, role)))
        for (x, y), session, role in itertools.product((("a", "b"), ("b", "a")), (1, 2), ("client", "host"))
    }
    assert len(draws) == 8


def test_a_peer_cannot_throw_a_row_far() -> None:
    """Rows, weights and moments are held within what the host's own numbers allow; honest ones stay to the bit."""
    owners = make_owners(TWO, federation_settings(start="together"), together=True)
    host = owners["b"]
    host.improve(initial=True)
    owners["a"].improve(initial=True)
    honest = exchange(owners["a"], host)
    limited = host._limited(honest)
    assert all(torch.equal(limited.rows[kind], honest.rows[kind]) for kind in KINDS)
    assert honest.moments is not None
    assert limited.moments is not None
    assert all(torch.equal(limited.moments[kind], honest.moments[kind]) for kind in KINDS)
    wild = replace(
        honest, rows={kind: rows * 1e5 for kind, rows in honest.rows.items()},
        weights={kind: torch.full((len(rows),), 1e6) for kind, rows in honest.rows.items()},
        moments={kind: torch.stack([torch.full_like(m[0], 1e6), torch.zeros_like(m[1])])
                 for kind, m in honest.moments.items()},
    )  # fmt: skip
    held = host._limited(wild)
    assert held.weights is not None
    assert held.moments is not None
    for kind in KINDS:
        own = host._rows("a")[kind]
        moved = (held.rows[kind] - own).norm(dim=1)
        assert float(moved.max()) <= host.settings.limit * float(own.norm(dim=1).median()) * 1.001
        assert float(held.weights[kind].max()) <= 1.5 * float(host._support[kind].max())
        assert not held.moments[kind][0].any()  # a mean that no square allows
