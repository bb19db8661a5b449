"""The exchange of one owner: frames, aggregation, neighbours, and peers it can exchange with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fkge.align import random_rotation
from fkge.align.links import KINDS
from fkge.federation.aggregation import LEAST, MIXES
from fkge.federation.exchange import ReceivedUpdate, Update, aligned
from fkge.federation.owner import Owner
from fkge.federation.owner.training import TOGETHER
from fkge.graph import Graph, Vocabulary
from tests.unit.federation.pairs import (
    NO_TRAINING,
    THREE,
    TWO,
    exchange,
    federation_settings,
    make_owners,
    numbers,
    same,
    seeded,
)

UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another model": ({"model": "TransE"}, {"model": "TransR"}),
    "another relation width": ({"model": "TransR"}, {"model": "TransR", "relation_dim": 5}),
    "another width": ({"dim": 16}, {"dim": 24}),
    "complex numbers": ({"model": "TransE"}, {"model": "RotatE"}),
}


def test_lone_owners_end_in_one_frame_and_turning_changes_no_score() -> None:
    owners = make_owners(THREE, federation_settings(aggregate="average"))
    for owner in owners.values():
        owner.improve(initial=True)
        assert owner.frame == owner.name
    update = exchange(owners["b"], owners["c"])
    before = owners["c"].score()
    owners["c"].exchange.agree_on_frame([update])
    assert owners["c"].frame == "b"
    assert owners["c"].score() == pytest.approx(before, abs=1e-6)
    # a meets nobody but b, c nobody but b: the frame travels.
    for host, client in (("b", "a"), ("c", "b")):
        owners[host].improve([exchange(owners[client], owners[host], 2)])
    assert {o.frame for o in owners.values()} == {"a"}
    # In one frame the shared rows lie together, and pass without a turn.
    update = exchange(owners["a"], owners["b"], 3)
    assert owners["b"].exchange.bring_into_frame(update) is update
    near = (update.rows["entity"] - owners["b"].exchange.rows("a")["entity"]).norm()
    assert near < 0.8 * (update.rows["entity"].norm() + near) / 2


def test_alignment_recovers_a_rotated_copy_exactly() -> None:
    """Two owners of one graph, one of them in another frame: turning into the other's gives its numbers back."""
    owners = make_owners({"a": THREE["a"], "b": THREE["a"]}, federation_settings())
    a, b = owners["a"], owners["b"]
    q = random_rotation(8, seeded(1))
    for kind in ("entity", "relation"):
        b.tables[kind].copy_(a.tables[kind].double() @ q)
    b.exchange.agree_on_frame([exchange(a, b)])
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


FIXED: dict[str, dict[str, Any]] = {
    "L1": {"norm": 1},
    "ComplEx": {
        "model": "ComplEx", "loss": "1vsall", "reciprocal": True, "optimizer": "adagrad", "lr": 0.1,
        "regularization": 0.05, "regularizer": "n3",
    },
    "DistMult": {"model": "DistMult", "loss": "kvsall", "reciprocal": True, "optimizer": "sgd"},
    "RotatE": {"model": "RotatE", "optimizer": "adagrad"},
}  # fmt: skip
"""Models that are tied to their axes."""


@pytest.mark.parametrize("model", FIXED)
def test_a_senior_frame_is_adopted_where_the_space_cannot_be_turned(model: str) -> None:
    owners = make_owners(TWO, federation_settings(FIXED[model], aggregate="average"), plan=NO_TRAINING)
    a, b = owners["a"], owners["b"]
    for owner in owners.values():
        owner.trainer.run_epoch()
    update, before = exchange(a, b), numbers(b)
    brought = b.exchange.aggregate([update], b.score)
    assert b.frame == "a"
    for kind in KINDS:
        ids = b.exchange.ids("a", kind)
        torch.testing.assert_close(b.tables.read(kind, ids), brought[0].rows[kind])  # own rows do not count
        for number, slot in enumerate(b.exchange.slots):
            assert brought[0].moments is not None
            torch.testing.assert_close(b.tables.read_state(kind, slot, ids), brought[0].moments[kind][number])
    assert not same_rows(before, numbers(b), "entity/entity", b.exchange.ids("a", "entity"))
    # From now on the two are in one frame, and average.
    b.trainer.run_epoch()
    old, update = b.tables.read("entity", b.exchange.ids("a", "entity")), exchange(a, b, 2)
    assert not b.exchange.agree_on_frame([update])
    b.exchange.aggregate([update], b.score)
    new = b.tables.read("entity", b.exchange.ids("a", "entity"))
    torch.testing.assert_close(new, (old + update.rows["entity"]) / 2)


def same_rows(one: dict[str, Tensor], other: dict[str, Tensor], table: str, ids: Tensor) -> bool:
    return torch.equal(one[table][ids], other[table][ids])


@pytest.mark.parametrize("model", FIXED)
def test_rows_of_a_junior_frame_are_left_out_until_their_sender_adopts(model: str) -> None:
    owners = make_owners(THREE, federation_settings(FIXED[model], aggregate="average"), plan=NO_TRAINING)
    a, b, c = (owners[name] for name in "abc")
    before = numbers(a)
    assert a.exchange.aggregate([exchange(b, a), exchange(c, a)], a.score) == []
    assert a.frame == "a"
    assert same(numbers(a), before)
    # Of two, only the one in the senior frame counts.
    brought = c.exchange.aggregate([exchange(b, c), exchange(a, c)], c.score)
    assert [update.peer for update in brought] == ["a"]
    assert c.frame == "a"


def test_rows_that_nobody_sent_begin_afresh_in_an_adopted_frame() -> None:
    graphs = {"a": TWO["b"], "b": TWO["a"]}  # a's 30 entities are 30 of b's 40
    owners = make_owners(graphs, federation_settings(FIXED["ComplEx"]), plan=NO_TRAINING)
    b = owners["b"]
    for owner in owners.values():
        owner.trainer.run_epoch()
    before = numbers(b)
    b.exchange.aggregate([exchange(owners["a"], b)], b.score)
    for kind in KINDS:
        rest = torch.ones(b.tables.count(kind), dtype=torch.bool)
        rest[b.exchange.ids("a", kind)] = False
        assert int(rest.sum()) == {"entity": 10, "relation": 1}[kind]
        for name in b.tables.exchanged(kind):
            assert not b.tables.state(name, "sum")[rest].any()
            assert float(b.tables[name][rest].abs().max()) <= 1e-3 < float(before[f"{kind}/{name}"][rest].abs().max())


def test_rolling_back_leaves_an_adopted_frame() -> None:
    owners = make_owners(TWO, federation_settings(FIXED["ComplEx"], patience=1, test_every=1))
    a, b = owners["a"], owners["b"]
    for owner in owners.values():
        owner.improve(initial=True)
    b.activity.best_score = 2.0  # nothing that follows is better
    best = numbers(b)
    b.improve([exchange(a, b)])
    assert b.activity.backtracked == 1
    assert b.frame == "b"
    assert torch.equal(b.tables["entity"], best["entity/entity"])


def aggregated(how: str, **values: Any) -> tuple[Owner, ReceivedUpdate, dict[str, Tensor]]:
    """An owner that aggregated an update and did not train; the update; its numbers before. Both in one frame."""
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
    update = exchange(owners["b"], owners["a"])
    owners["a"].improve([update])
    return owners["a"], update, before


def support(graph: Graph, kind: str, ids: Tensor) -> Tensor:
    columns = [0, 2] if kind == "entity" else [1]
    counts = [(graph.train[:, columns] == i).sum() for i in ids.tolist()]
    return torch.tensor(np.log1p(counts))


@pytest.mark.parametrize("kind", ["entity", "relation"])
@pytest.mark.parametrize("how", ["replace", "average", "support"])
def test_aggregation_by_hand(how: str, kind: Any) -> None:
    owner, update, before = aggregated(how)
    ids, other = owner.exchange.ids("b", kind), torch.arange(len(update.rows[kind]))
    old, got, new = before[f"{kind}/{kind}"], update.rows[kind], owner.tables[kind]
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


def test_two_updates_at_once_are_averaged_with_the_own_rows() -> None:
    owners = make_owners(THREE, federation_settings(start="together", aggregate="average"), plan=NO_TRAINING,
                         together=True)  # fmt: skip
    for name, owner in owners.items():
        owner.tables["entity"].add_(float(ord(name)))
    updates = [exchange(owners[name], owners["a"]) for name in "bc"]
    old = [owners[name].tables["entity"].clone() for name in "abc"]
    owners["a"].improve(updates)
    torch.testing.assert_close(owners["a"].tables["entity"], sum(old) / 3)  # type: ignore[arg-type]


def test_the_mix_is_chosen_on_validation_triples() -> None:
    owner, update, before = aggregated("validation")
    ids = owner.exchange.ids("b", "entity")
    old, new = before["entity/entity"][ids], owner.tables["entity"][ids]
    fits = {m: torch.lerp(old, update.rows["entity"], m) for m in MIXES}
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
    owner, update, before = aggregated("average", moments=moments)
    for kind in ("entity", "relation"):
        ids = owner.exchange.ids("b", kind)  # type: ignore[arg-type]
        rest = np.setdiff1d(np.arange(owner.tables.count(kind)), ids.numpy())  # type: ignore[arg-type]
        for number, slot in enumerate(("mean", "square")):
            old, new = before[f"{kind}/{kind}.{slot}"], owner.tables.state(kind, slot)
            assert torch.equal(new[rest], old[rest])
            if moments == "average":
                assert update.moments is not None
                torch.testing.assert_close(new[ids], (old[ids] + update.moments[kind][number]) / 2)  # type: ignore[index]
            else:
                assert update.moments is None
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


def test_choosing_a_mix_counts_as_validation() -> None:
    owner, _, _ = aggregated("validation")
    assert owner.activity.tests == 2 * len(MIXES) + 1  # both kinds, and the test that was due


@pytest.mark.parametrize("mode", ["procrustes", "ppat+refine"])
def test_neighbours_are_aligned_with_the_shared_rows(mode: str) -> None:
    owners = make_owners(TWO, federation_settings(translate=mode, neighbours=True))
    b = owners["b"]
    update = exchange(owners["a"], b)
    w = aligned(update, b.exchange.rows("a"))
    member = b.exchange.bring_into_frame(update)
    assert update.virtual is not None
    assert member.virtual is not None
    torch.testing.assert_close(member.rows["entity"], update.rows["entity"] @ w)
    torch.testing.assert_close(member.virtual.entities, update.virtual.entities @ w)
    torch.testing.assert_close(member.virtual.relations, update.virtual.relations @ w)


def test_a_row_without_training_triples_takes_what_peers_know() -> None:
    g = TWO["a"]
    lonely = int(np.bincount(g.train[:, [0, 2]].reshape(-1))[:30].argmin())
    train = g.train[(g.train[:, 0] != lonely) & (g.train[:, 2] != lonely)]
    graphs = {"a": Graph(g.entities, g.relations, {**g.splits, "train": train}), "b": TWO["b"]}
    owners = make_owners(graphs, federation_settings(start="together"), plan=NO_TRAINING, together=True)
    owners["b"].tables["entity"].add_(1.0)
    update = exchange(owners["b"], owners["a"])
    owners["a"].improve([update])
    at = owners["a"].exchange.ids("b", "entity").tolist().index(lonely)
    torch.testing.assert_close(owners["a"].tables["entity"][lonely], update.rows["entity"][at])


@pytest.mark.parametrize("mode", ["frame", "procrustes", "ppat", "ppat+refine"])
def test_virtual_neighbours_are_gone_after_training(mode: str) -> None:
    owners = make_owners(TWO, federation_settings(translate=mode, neighbours=True))
    b = owners["b"]
    triples = b.trainer.triples
    seen: list[tuple[int, int, int]] = []
    update = exchange(owners["a"], b)
    assert update.virtual is not None
    run = b.trainer.run_epoch

    def watched(*args: Any, **kwargs: Any) -> float | None:
        seen.append((b.tables.entities, b.tables.relations, b.trainer.triples))
        return run(*args, **kwargs)

    b.trainer.run_epoch = watched  # type: ignore[method-assign]
    b.improve([update])
    assert seen == [(40, 5, triples + len(update.virtual.triples))] * 2
    assert (b.tables.entities, b.tables.relations, b.trainer.triples) == (30, 4, triples)
    offer = b.make_update("a", b.exchange.mode("a"))
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
    offer = a.make_update("b", "frame")
    assert offer.triples is not None
    assert offer.neighbours is not None
    assert offer.joining is not None
    common = a.exchange.common("b")
    outside = sorted({int(x) for x in a.graph.train[:, [0, 2]].reshape(-1)} - set(common.entities.tolist()))
    entities = [*common.entities.tolist(), *outside]
    relations = [*common.relations.tolist(), 4]
    decoded = {(entities[h], relations[r], entities[t]) for h, r, t in offer.triples.tolist()}
    shared = set(common.entities.tolist())
    assert decoded == {(h, r, t) for h, r, t in a.graph.train.tolist() if (h in shared) != (t in shared)}
    assert torch.equal(offer.neighbours, a.tables["entity"][outside])


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
        assert host.exchange.mode(y) == ("procrustes" if mode == "frame" else mode)
        assert len(host.exchange.common(y).relations) == 0
        update = exchange(owners[y], host)
        assert len(update.rows["relation"]) == 0
        assert update.virtual is None
        before = numbers(host)
        host.exchange.aggregate([update], host.score)
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
    if not owners["a"].exchange.one_space:
        update = exchange(owners["b"], owners["a"], 9)
        update = ReceivedUpdate(update.peer, update.rows, frame="z", virtual=update.virtual)
        member = owners["a"].exchange.bring_into_frame(update)
        assert torch.equal(member.rows["relation"], owners["a"].exchange.rows("b")["relation"])
        assert member.virtual is None


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
def test_refuses_peers_that_share_too_little(entities: int, relations: int, modes: str) -> None:
    """The game needs a row for each of its two teachers; the other ways need one."""
    for mode in ("frame", "procrustes", "ppat", "ppat+refine"):
        owners = make_owners(overlapping(entities, relations), federation_settings(translate=mode, exchanges=1))
        enough = modes == "all" or mode in modes.split()
        for x, y in (("a", "b"), ("b", "a")):
            assert list(owners[x].peers) == [y] * enough
            if enough:
                owners[x].improve([exchange(owners[y], owners[x])])


def test_refuses_a_peer_of_another_model_that_shares_only_relations() -> None:
    ways = {"a": federation_settings(), "b": federation_settings({"model": "DistMult"})}
    assert all(o.peers == {} for o in make_owners(overlapping(0, 5), ways).values())
    assert all(len(o.peers) == 1 for o in make_owners(overlapping(1, 5), ways).values())


def test_an_offer_that_claims_the_hosts_frame_does_no_harm() -> None:
    ways = {"a": federation_settings({"dim": 16}), "b": federation_settings({"dim": 24})}
    owners = make_owners(TWO, ways)
    host = owners["a"].host("b", 1)
    rows = owners["b"].exchange.rows("a")
    host.step(Update(0, "a", rows["entity"], rows["relation"]))
    assert host.update is not None
    owners["a"].improve([host.update])


def test_limits_rows_weights_and_moments_of_a_peer() -> None:
    """Rows, weights and moments are held within what the host's own numbers allow; honest ones stay to the bit."""
    owners = make_owners(TWO, federation_settings(start="together"), together=True)
    host = owners["b"]
    host.improve(initial=True)
    owners["a"].improve(initial=True)
    honest = exchange(owners["a"], host)
    limited = host.exchange.limit(honest)
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
    held = host.exchange.limit(wild)
    assert held.weights is not None
    assert held.moments is not None
    for kind in KINDS:
        own = host.exchange.rows("a")[kind]
        moved = (held.rows[kind] - own).norm(dim=1)
        assert float(moved.max()) <= host.settings.limit * float(own.norm(dim=1).median()) * 1.001
        assert float(held.weights[kind].max()) <= 1.5 * float(host.exchange.support[kind].max())
        assert not held.moments[kind][0].any()  # a mean that no square allows


def test_sums_of_a_peer_are_limited_from_above_and_below() -> None:
    """A sum of 0 would make a step of any length, a huge one no step ever again."""
    owners = make_owners(TWO, federation_settings(FIXED["ComplEx"], start="together"), together=True)
    host = owners["b"]
    for owner in owners.values():
        owner.improve(initial=True)
    honest = exchange(owners["a"], host)
    assert honest.moments is not None
    assert {kind: m.shape for kind, m in honest.moments.items()} == {"entity": (1, 30, 16), "relation": (1, 4, 32)}
    for factor in (0.0, 1e9):
        wild = replace(honest, moments={kind: m * factor for kind, m in honest.moments.items()})
        held = host.exchange.limit(wild).moments
        assert held is not None
        for kind in KINDS:
            own = host.tables.read_state(kind, "sum", host.exchange.ids("a", kind))
            assert bool((held[kind][0] >= own / 100).all())
            most = max(float(host.tables.state(name, "sum").max()) for name in host.tables.exchanged(kind))
            assert float(held[kind].max()) <= 100.001 * most


@pytest.mark.parametrize(("host", "client"), [("adagrad", "adam"), ("adam", "adagrad"), ("sgd", "adam")])
def test_moments_of_another_optimizer_are_ignored(host: str, client: str) -> None:
    ways = {
        name: federation_settings({"optimizer": optimizer}, start="together")
        for name, optimizer in (("a", host), ("b", client))
    }
    owners = make_owners(TWO, ways, plan=NO_TRAINING, together=True)
    owners["b"].trainer.run_epoch()
    update = exchange(owners["b"], owners["a"])
    assert update.moments is not None
    assert len(update.moments["entity"]) == {"adam": 2, "adagrad": 1}[client]
    assert owners["a"].exchange.limit(update).moments is None
    before = numbers(owners["a"])
    owners["a"].improve([update])
    after = numbers(owners["a"])
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before if "." in key)


def test_inverse_rows_travel_beside_the_relations() -> None:
    settings = federation_settings(FIXED["ComplEx"], start="together", aggregate="average", limit=1e6)
    owners = make_owners(TWO, settings, plan=NO_TRAINING, together=True)
    a, b = owners["a"], owners["b"]
    shared = a.exchange.ids("b", "relation"), b.exchange.ids("a", "relation")
    for name in ("relation", "inverse"):  # they begin alike
        assert torch.equal(a.tables[name][shared[0]], b.tables[name][shared[1]])
        assert not torch.equal(a.tables["relation"], a.tables["inverse"])
        b.tables[name].add_(torch.randn(b.tables[name].shape, generator=seeded(len(name))))
        b.tables.state(name, "sum").fill_(len(name))
        a.tables.state(name, "sum").fill_(1)
    before = numbers(a)
    a.improve([exchange(b, a)])
    for name in ("relation", "inverse"):
        old, got = before[f"relation/{name}"][shared[0]], b.tables[name][shared[1]]
        torch.testing.assert_close(a.tables[name][shared[0]], (old + got) / 2)
        assert a.tables.state(name, "sum")[shared[0]].unique().tolist() == [(1 + len(name)) / 2]


def test_another_reciprocal_exchanges_entities_only() -> None:
    train = FIXED["ComplEx"]
    ways = {"a": federation_settings(train), "b": federation_settings({**train, "reciprocal": False})}
    owners = make_owners(TWO, ways)
    for x, y in (("a", "b"), ("b", "a")):
        assert owners[x].exchange.mode(y) == "procrustes"
        assert len(owners[x].exchange.common(y).relations) == 0
        owners[x].improve([exchange(owners[y], owners[x])])


@pytest.mark.parametrize("translate", ["frame", "procrustes"])
def test_neighbours_of_reciprocal_owners(translate: str) -> None:
    """Virtual relations bring their inverse rows, and both are taken out again."""
    settings = federation_settings(FIXED["ComplEx"], start="together", neighbours=True, translate=translate)
    owners = make_owners(TWO, settings, together=True)
    for owner in owners.values():
        owner.improve(initial=True)
    update = exchange(owners["a"], owners["b"])
    if translate == "frame":
        assert update.virtual is not None
        assert update.virtual.relations.shape == (1, 32)
    owners["b"].improve([update])
    assert len(owners["b"].tables["inverse"]) == owners["b"].tables.relations == 4
