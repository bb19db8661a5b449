"""One owner and its peers: what an exchange does to its vectors, and what survives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fkge.embed import Snapshot, batches
from fkge.errors import RunError
from fkge.evaluation import Known, metrics, rank
from fkge.federation.exchange import ReceivedUpdate
from fkge.federation.owner import Outcome, Owner
from fkge.federation.owner.training import TOGETHER
from fkge.graph import Graph
from tests.conftest import COMPLEX, random_graph
from tests.unit.federation import pairs
from tests.unit.federation.pairs import (
    THREE,
    TWO,
    exchange,
    federation_settings,
    make_owners,
    numbers,
    same,
    seeded,
)


def junk(owner: Owner, peer: str, frame: str, seed: int = 0) -> ReceivedUpdate:
    """An update that makes everything worse."""
    rows: Any = {
        kind: torch.randn(x.shape, generator=seeded(seed)) * 5 for kind, x in owner.exchange.rows(peer).items()
    }
    return ReceivedUpdate(peer, rows, frame=frame)


@pytest.mark.parametrize("start", ["alone", "together"])
def test_the_best_score_never_falls(start: str) -> None:
    owners = make_owners(TWO, federation_settings(start=start, exchanges=6, patience=2), together=True)
    scores: dict[str, list[float]] = {name: [] for name in owners}
    for owner in owners.values():
        assert owner.improve(initial=True).news
    for session in range(1, 7):
        updates = {x: exchange(owners[y], owners[x], session) for x, y in (("a", "b"), ("b", "a"))}
        for name, owner in owners.items():
            outcome = owner.improve([updates[name]])
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
    {"test_every": 2, "patience": 2, "neighbours": True, "train": COMPLEX},
    {"test_every": 1, "patience": 0, "start": "together", "aggregate": "average", "train": COMPLEX},
]
SMALL = {name: random_graph(15 + seed, 3, 90, seed=seed) for seed, name in enumerate("abc")}


def sixty_rounds(number: int, folder: Path) -> None:
    """Updates of peers, rubbish in any frame, both at once and none; some rounds are halted."""
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
        updates = []
        for peer in rng.permutation(["a", "c"])[: rng.integers(0, 3)]:
            kind = rng.integers(4)
            update = exchange(owners[peer], host, session)
            if kind == 1:
                scale = float(10.0 ** rng.uniform(-6, 12))
                update = replace(update, rows={k: torch.randn(x.shape, generator=seeded(session)) * scale
                                           for k, x in update.rows.items()})  # fmt: skip
            elif kind == 2:
                update = replace(update, rows={k: torch.zeros_like(x) for k, x in update.rows.items()}, virtual=None)
            if kind and rng.random() < 0.5:
                update = replace(
                    update, frame=str(rng.choice(["", "a", "b", "c", "zz"])), refine=bool(rng.random() < 0.5)
                )
            updates.append(update)
        owners[str(rng.choice(["a", "c"]))].improve()
        outcome = host.improve(updates, pause=EveryNth(3) if rng.random() < 0.1 else None)
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
def test_the_best_score_never_falls_with_hostile_updates(number: int, tmp_path: Path) -> None:
    sixty_rounds(number, tmp_path)


def keeps_the_last(owner: Owner) -> tuple[float, bool]:
    owner.activity.best_score = None
    return Owner._validate(owner)


def forgets_its_vectors(owner: Owner) -> tuple[float, bool]:
    kept = (
        None
        if owner.loop.best.snapshot is None
        else Snapshot({key: t.clone() for key, t in owner.loop.best.snapshot.tensors.items()})
    )
    out = Owner._validate(owner)
    owner.loop.best.snapshot = kept or owner.loop.best.snapshot
    return out


@pytest.mark.parametrize("broken", [keeps_the_last, forgets_its_vectors])
def test_the_rounds_detect_an_owner_that_does_not_keep_its_best(
    broken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Owner):
        _validate = broken

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


def test_rolling_back_restores_every_number_and_the_frame() -> None:
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


@pytest.mark.parametrize("looks", [True, False])
def test_a_mean_that_is_better_than_what_training_makes_of_it_is_kept(looks: bool) -> None:
    """A peer sends good rows, and the training that follows ruins them: the best is what the exchange brought."""
    ways: dict[str, Any] = {"start": "together", "test_every": 1, "epochs": 1, "aggregate": "replace"}
    owner, twin = (
        make_owners(TWO, federation_settings(exchanges=40, validate_means=looks, **ways), together=True)["a"]
        for _ in range(2)
    )
    owner.improve(initial=True)
    before = owner.activity.best_score
    while not twin.spent:
        twin.improve(initial=twin.trainer.epoch == 0)
    owner.trainer.lr_scale = 1e4
    outcome = owner.improve([ReceivedUpdate("b", twin.exchange.rows("b"), frame=TOGETHER)])
    assert before is not None
    assert outcome.score is not None
    assert outcome.best is not None
    assert outcome.score < before
    assert (outcome.best > before) == looks
    owner.best()
    assert owner.score() == owner.activity.best_score == outcome.best
    assert owner.activity.tests == (3 if looks else 2)


def test_validates_every_few_exchanges_and_at_the_end() -> None:
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


def test_pauses_between_chunks_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNK_IDS", 1)
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
    assert first.score() == second.score()
    assert first.score() != Owner("a", TWO["a"], federation_settings()).score()
    some = TWO["a"].valid[:3]
    owner = Owner("a", TWO["a"], settings, decide=some)
    assert owner.score() == metrics(rank(owner.tables, some, known=Known.of(TWO["a"])))["mrr"]


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
    monkeypatch.setattr(batches, "CHUNK_IDS", 1)


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
def test_a_first_training_halted_anywhere_ends_in_the_same_bits(tmp_path: Path, schedule: str, n: int) -> None:
    """Tests are not missed either: the first training ends at the same best vectors."""

    def fresh() -> Owner:
        return Owner("a", TWO["a"], federation_settings({"schedule": schedule, "lr": 0.5}, initial_epochs=7))

    straight, halting, pause = fresh(), fresh(), EveryNth(n)
    straight.improve(initial=True)
    halts = 0
    while (outcome := halting.improve(initial=True, pause=pause)).halted:
        assert outcome == Outcome(best=halting.activity.best_score, halted=True)
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
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 9, 10, 13])
@pytest.mark.parametrize("values", [{"test_every": 2}, {"test_every": 1, "patience": 1, "train": {"lr": 2.0}}])
def test_later_rounds_halted_anywhere_validate_when_they_would(tmp_path: Path, n: int, values: dict[str, Any]) -> None:
    """Also if the epoch in which a round was halted is its last; the best vectors are the same."""
    settings = federation_settings(**{"exchanges": 7, "start": "together"} | values)

    def fresh() -> Owner:
        return Owner("a", TWO["a"], settings)

    straight, halting, pause = fresh(), fresh(), EveryNth(n)
    for owner in (straight, halting):
        assert not owner.improve(initial=True).halted
    assert to_its_end(straight) == 0
    while not halting.spent:
        if halting.improve(pause=pause).halted:
            halting.save(tmp_path / "a")
            halting = fresh()
            halting.load(tmp_path / "a")
    assert without_seconds(halting) == without_seconds(straight)
    assert same(numbers(halting), numbers(straight))
    for owner in (halting, straight):
        owner.best()
    assert same(numbers(halting), numbers(straight))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("n", [1, 3, 5, 11])
@pytest.mark.parametrize("given", [False, True])
def test_a_halted_later_round_aggregates_no_update_twice(n: int, given: bool) -> None:

    def fresh() -> tuple[Owner, list[ReceivedUpdate]]:
        owners = make_owners(TWO, federation_settings({"schedule": "linear"}))
        for owner in owners.values():
            owner.improve(initial=True)
        return owners["a"], [exchange(owners["b"], owners["a"])] if given else []

    (straight, updates), (halting, the_same), pause = fresh(), fresh(), EveryNth(n)
    straight.improve(updates)
    to_its_end(straight)
    assert halting.improve(the_same, pause=pause).halted == (n < 10)  # two epochs ask ten times
    assert to_its_end(halting, pause) >= 2
    assert same(numbers(halting), numbers(straight))
    assert halting.activity.epochs == straight.activity.epochs == 11
    assert halting.activity.rounds == halting.activity.handshakes.get("b", 0) == int(given)


@pytest.mark.usefixtures("small_chunks")
def test_an_epoch_with_virtual_triples_is_finished_before_halting() -> None:
    def fresh(epochs: int) -> dict[str, Owner]:
        return make_owners(TWO, federation_settings(neighbours=True, epochs=epochs))

    owners, pause = fresh(3), EveryNth(1)
    b, update = owners["b"], exchange(owners["a"], owners["b"])
    assert update.virtual is not None
    assert len(update.virtual.triples)
    outcome = b.improve([update], pause=pause)
    assert outcome.halted
    assert (b.trainer.epoch, b.trainer.chunk) == (1, 0)
    assert pause.asked >= 5  # others had their hearing all the same
    assert b.can_save
    assert (b.tables.entities, b.tables.relations) == (30, 4)
    once = fresh(1)
    assert not once["b"].improve([exchange(once["a"], once["b"])]).halted
    assert same(numbers(b), numbers(once["b"]))


@pytest.mark.usefixtures("small_chunks")
def test_a_halted_epoch_is_finished_before_updates_are_aggregated() -> None:
    owners = make_owners(TWO, federation_settings(neighbours=True))
    b, twin = owners["b"], make_owners(TWO, federation_settings(neighbours=True))["b"]
    assert b.improve(pause=EveryNth(2)).halted
    assert b.trainer.chunk == 2
    update = exchange(owners["a"], b)  # of peers that did not wait
    assert b.improve([update], pause=EveryNth(1)).halted
    assert b.trainer.chunk == 3
    assert b.activity.rounds == 0  # not taken yet: whoever left gives it again, or has newer
    assert not b.improve([update]).halted
    assert b.trainer.epoch == 3
    assert b.activity.rounds == 1
    twin.trainer.run_epoch()
    twin.improve([update])
    assert same(numbers(b), numbers(twin))


def test_owners_that_start_together_start_alike() -> None:
    owners = make_owners(TWO, federation_settings(start="together"), together=True)
    assert {o.frame for o in owners.values()} == {TOGETHER}
    a, b = owners["a"].exchange.rows("b"), owners["b"].exchange.rows("a")
    for kind in ("entity", "relation"):
        assert torch.equal(a[kind], b[kind])
        assert len(a[kind].unique(dim=0)) == len(a[kind])
    alone = make_owners(TWO, federation_settings(start="alone"), together=True)
    assert not torch.equal(alone["a"].exchange.rows("b")["entity"], alone["b"].exchange.rows("a")["entity"])
    assert alone["a"].frame == "a"


@pytest.mark.parametrize("neighbours", [False, True])
def test_an_interrupted_owner_resumes_bit_for_bit(tmp_path: Path, neighbours: bool) -> None:
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


def test_refuses_the_checkpoint_of_another_owner(tmp_path: Path) -> None:
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


def test_owners_of_one_graph_start_from_different_rows() -> None:
    owners = make_owners(dict.fromkeys("ab", THREE["a"]), federation_settings())
    assert not torch.equal(owners["a"].tables["entity"], owners["b"].tables["entity"])
    draws = {
        int(torch.randint(2**60, (1,), generator=owners[x]._noise(y, session, role)))
        for (x, y), session, role in itertools.product((("a", "b"), ("b", "a")), (1, 2), ("client", "host"))
    }
    assert len(draws) == 8
