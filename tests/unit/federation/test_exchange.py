"""What passes between a client and a host: every way of it, and what a hostile client may try."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fkge.align import random_rotation
from fkge.errors import PeerError
from fkge.federation.exchange import (
    EXTRAS,
    HIDDEN,
    Ack,
    GameClient,
    GameHost,
    ReceivedUpdate,
    Receiver,
    Sender,
    Structure,
    Update,
    aligned,
    client_role,
    hidden,
    host_role,
)
from fkge.ppat import PpatSettings, Received
from tests.conftest import random_graph
from tests.unit.federation.pairs import PPAT, exchange, federation_settings, make_owners, play, seeded

ALL = frozenset(EXTRAS)
GAME = PpatSettings.build(PPAT)
SHAPES: dict[Any, tuple[int, int]] = {"entity": (5, 3), "relation": (2, 3)}


def cloud(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=seeded(seed))


def offer(**values: Any) -> Update:
    return replace(Update(0, "a", cloud(5, 3, 1), cloud(2, 3, 2)), **values)


# -- one message -----------------------------------------------------------------------------------


def test_a_frame_passes_everything_as_it_is() -> None:
    sent = offer(
        entity_weight=torch.ones(5), relation_weight=torch.ones(2), entity_moments=torch.ones(2, 5, 3),
        relation_moments=torch.ones(2, 2, 3), neighbours=cloud(4, 3), joining=cloud(1, 3),
        triples=torch.tensor([[0, 2, 8], [5, 1, 4]]),
    )  # fmt: skip
    host = host_role("frame", "a", {"entity": cloud(5, 3), "relation": cloud(2, 3)}, {"entity": 3, "relation": 3},
                     GAME, seeded(0), wanted=ALL)  # fmt: skip
    update = play(client_role("frame", sent, 3, GAME, seeded(1)), host)
    assert update.frame == "a"
    assert not update.refine
    assert not update.price
    assert update.rows["entity"] is sent.entity
    assert update.rows["relation"] is sent.relation
    assert update.weights is not None
    assert update.moments is not None
    assert update.virtual is not None
    assert update.virtual.triples is sent.triples


def test_half_of_the_weights_are_none() -> None:
    host = Receiver("a", SHAPES, torch.float32, wanted=ALL)
    host.step(offer(entity_weight=torch.ones(5), relation_moments=torch.ones(2, 2, 3)))
    assert host.update is not None
    assert host.update.weights is None
    assert host.update.moments is None


def test_a_hidden_offer_differs_from_the_rows_and_keeps_every_angle() -> None:
    sent = offer(neighbours=cloud(4, 3), joining=cloud(1, 3), triples=torch.tensor([[0, 2, 8]]),
                 entity_moments=torch.ones(2, 5, 3), entity_weight=torch.ones(5))  # fmt: skip
    turned = hidden(sent, seeded(3))
    assert turned.frame == HIDDEN
    assert turned.entity_moments is None  # moments tell axes
    before = torch.cat([sent.entity, sent.relation, sent.neighbours, sent.joining])
    after = torch.cat([turned.entity, turned.relation, turned.neighbours, turned.joining])
    assert float((before - after).abs().min(1).values.max()) > 0.01
    torch.testing.assert_close(after @ after.T, before @ before.T, atol=1e-5, rtol=1e-5)
    other = hidden(sent, seeded(4))
    assert not torch.allclose(other.entity, turned.entity, atol=1e-2)  # a new rotation every time


def test_a_hidden_offer_without_relations_or_neighbours() -> None:
    turned = hidden(offer(relation=torch.empty(0, 7), neighbours=torch.empty(0, 3), triples=torch.empty(0, 3).long()),
                    seeded(0))  # fmt: skip
    assert turned.relation.shape == (0, 7)
    assert turned.neighbours is None
    host = Receiver("a", {"entity": (5, 3), "relation": (0, 7)}, torch.float32, wanted=ALL)
    host.step(turned)
    assert host.update is not None
    assert host.update.virtual is None


@pytest.mark.parametrize("width", [3, 6])
def test_alignment_recovers_a_turned_copy(width: int) -> None:
    """A host whose rows are the client's, turned (and, if wider, embedded), gets exactly its own back."""
    rows = {"entity": cloud(9, 3, 5), "relation": cloud(4, 3, 6)}
    q = random_rotation(width, seeded(7)).float()[:3]
    own: Any = {kind: x @ q for kind, x in rows.items()}
    sent = Update(0, "a", rows["entity"], rows["relation"])
    host = host_role("procrustes", "a", own, {"entity": 3, "relation": 3}, GAME, seeded(0), wanted=ALL)
    update = play(client_role("procrustes", sent, width, GAME, seeded(8)), host)
    assert update.refine
    assert update.frame == HIDDEN
    w = aligned(update, own)
    for kind in ("entity", "relation"):
        torch.testing.assert_close(update.rows[kind] @ w, own[kind], atol=1e-5, rtol=1e-5)


def test_relations_of_another_space_do_not_pull_at_the_alignment() -> None:
    own: Any = {"entity": cloud(9, 3, 5), "relation": cloud(4, 3, 6)}
    q = random_rotation(3, seeded(7)).float()
    update = ReceivedUpdate("a", {"entity": own["entity"] @ q, "relation": 10 * cloud(4, 3, 8)})
    torch.testing.assert_close(aligned(update, own, one_space=False), q.T, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(aligned(update, own), q.T, atol=1e-2)


BAD: dict[str, dict[str, Any]] = {
    "too few rows": {"entity": cloud(4, 3)},
    "too many rows": {"relation": cloud(3, 3)},
    "another width": {"entity": cloud(5, 4)},
    "one dimension": {"entity": torch.zeros(15)},
    "another precision": {"entity": cloud(5, 3).double()},
    "a NaN": {"entity": torch.full((5, 3), float("nan"))},
    "an infinity": {"relation": torch.full((2, 3), float("inf"))},
    "huge": {"entity": torch.full((5, 3), 1e30)},
    "a negative weight": {"entity_weight": torch.tensor([1.0, 1, 1, 1, -0.5])},
    "a weight too many": {"entity_weight": torch.ones(6)},
    "weights in a column": {"entity_weight": torch.ones(5, 1)},
    "weights in a row": {"relation_weight": torch.ones(1, 2)},
    "a NaN among weights": {"relation_weight": torch.tensor([1.0, float("nan")])},
    "moments of another shape": {"entity_moments": torch.ones(2, 3, 5)},
    "three moments": {"entity_moments": torch.ones(3, 5, 3)},
    "no moments": {"entity_moments": torch.ones(0, 5, 3)},
    "a negative sum": {"entity_moments": -torch.ones(1, 5, 3)},
    "moments without slots": {"relation_moments": torch.ones(4, 3)},
    "a negative square": {"entity_moments": torch.stack([torch.ones(5, 3), -torch.ones(5, 3)])},
    "a NaN among moments": {"relation_moments": torch.full((2, 2, 3), float("nan"))},
    "neighbours of another width": {"neighbours": cloud(2, 4), "triples": torch.zeros(1, 3).long()},
    "a neighbour that is NaN": {"neighbours": torch.full((2, 3), float("nan")), "triples": torch.zeros(1, 3).long()},
    "joining relations of another width": {
        "neighbours": cloud(2, 3), "joining": cloud(2, 4), "triples": torch.zeros(1, 3).long()},
    "a triple beyond the entities": {"neighbours": cloud(2, 3), "triples": torch.tensor([[0, 0, 7]])},
    "a triple beyond the relations": {"neighbours": cloud(2, 3), "triples": torch.tensor([[0, 2, 1]])},
    "a triple below zero": {"neighbours": cloud(2, 3), "triples": torch.tensor([[0, -1, 1]])},
    "triples of two": {"neighbours": cloud(2, 3), "triples": torch.zeros(1, 2).long()},
    "triples of fractions": {"neighbours": cloud(2, 3), "triples": torch.zeros(1, 3)},
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("mode", ["frame", "procrustes"])
def test_a_hostile_offer_is_refused(what: str, mode: Any) -> None:
    own: Any = {"entity": cloud(5, 3), "relation": cloud(2, 3)}
    host = host_role(mode, "a", own, {"entity": 3, "relation": 3}, GAME, seeded(0), wanted=ALL)
    with pytest.raises(PeerError):
        host.step(offer(**BAD[what]))
    assert host.update is None
    host.step(offer())  # and nothing else has changed
    assert host.update is not None


def test_rows_that_should_have_been_hidden_are_aligned_whatever_they_claim() -> None:
    """A client that names the host's own frame must not get its rows, of another width even, used unaligned."""
    own: Any = {"entity": cloud(5, 6), "relation": cloud(0, 6)}
    host = host_role("procrustes", "a", own, {"entity": 3, "relation": 3}, GAME, seeded(0), wanted=ALL)
    host.step(Update(0, "me", cloud(5, 3), cloud(0, 3)))
    assert host.update is not None
    assert host.update.refine


def test_out_of_turn() -> None:
    with pytest.raises(PeerError, match="where Ack was due"):
        Sender(offer()).step(offer())
    with pytest.raises(PeerError, match="where Update was due"):
        Receiver("a", SHAPES, torch.float32, wanted=ALL).step(Ack(0))


# -- the game --------------------------------------------------------------------------------------


def game(client_width: int, host_width: int, *, refine: bool, relations: int = 2, **extra: Any) -> tuple[Any, Any, Any]:
    own: Any = {"entity": cloud(20, host_width, 3), "relation": cloud(relations, host_width, 4)}
    sent = Update(0, "a", cloud(20, client_width, 1), cloud(relations, client_width, 2), **extra)
    mode: Any = "ppat+refine" if refine else "ppat"
    client = client_role(mode, sent, host_width, GAME, seeded(5))
    return (
        client,
        host_role(mode, "a", own, {"entity": client_width, "relation": client_width}, GAME, seeded(6), wanted=ALL),
        own,
    )


@pytest.mark.parametrize("widths", [(4, 4), (4, 7), (7, 4)])
@pytest.mark.parametrize("refine", [False, True])
@pytest.mark.parametrize("relations", [0, 2])
def test_the_game_brings_rows_of_the_hosts_width(widths: tuple[int, int], refine: bool, relations: int) -> None:
    client, host, own = game(*widths, refine=refine, relations=relations)
    assert isinstance(client, GameClient)
    assert isinstance(host, GameHost)
    update = play(client, host)
    assert {kind: rows.shape for kind, rows in update.rows.items()} == {kind: rows.shape for kind, rows in own.items()}
    assert update.frame is None
    assert update.refine is refine
    assert update.weights is None
    assert update.virtual is None
    assert update.price["queries"] == GAME.queries(20 + relations)
    assert update.price["epsilon_paper_per_sample"] > update.price["epsilon_paper_per_batch"] > 0


def test_neighbours_come_with_the_game() -> None:
    triples = torch.tensor([[0, 2, 20], [22, 0, 3]])
    extra = {"neighbours": cloud(3, 4, 8), "joining": cloud(1, 4, 9), "triples": triples}
    client, host, _ = game(4, 7, refine=False, **extra)
    opening = client.start()
    assert isinstance(opening, Structure)
    assert isinstance(host.step(opening), Ack)
    assert isinstance(host.step(opening), Ack)  # sent again after a lost answer
    with pytest.raises(PeerError, match="twice"):
        host.step(Structure(0, 2, triples))
    with pytest.raises(PeerError, match="Ack was due"):
        client.step(Received(0))
    update = play(client, host)
    assert update.virtual is not None
    assert update.virtual.entities.shape == (3, 7)
    assert update.virtual.relations.shape == (1, 7)
    assert update.virtual.triples is triples


@pytest.mark.parametrize("triples", [[[0, 0, 99]], [[0, 3, 1]], [[-1, 0, 1]]])
def test_a_structure_that_names_what_is_not_there(triples: list[list[int]]) -> None:
    extra = {"neighbours": cloud(3, 4, 8), "joining": cloud(1, 4, 9), "triples": torch.tensor(triples)}
    client, host, _ = game(4, 4, refine=False, **extra)
    with pytest.raises(PeerError, match="virtual triple"):
        play(client, host)
    assert host.update is None


# -- between owners --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["frame", "procrustes", "ppat", "ppat+refine"])
@pytest.mark.parametrize("neighbours", [False, True])
def test_every_mode_between_two_owners(mode: str, neighbours: bool) -> None:
    graphs = {"a": random_graph(seed=1), "b": random_graph(30, 4, seed=2)}
    owners = make_owners(graphs, federation_settings(translate=mode, neighbours=neighbours, aggregate="support"))
    update = exchange(owners["b"], owners["a"])
    assert update.peer == "b"
    assert update.rows["entity"].shape == (30, 8)
    assert update.rows["relation"].shape == (4, 8)
    assert (update.weights is not None) == (mode in ("frame", "procrustes"))
    assert (update.moments is not None) == (mode == "frame")
    raw = owners["b"].tables.read("entity", owners["b"].exchange.ids("a", "entity"))
    assert torch.equal(update.rows["entity"], raw) == (mode == "frame")
    back = exchange(owners["a"], owners["b"])
    assert (back.virtual is not None) == neighbours  # a has ten entities that b does not know
    if back.virtual is not None:
        assert len(back.virtual.entities) == 10
        assert len(back.virtual.relations) == 1
    outcome = owners["a"].improve([update])
    assert outcome.score is not None
    assert owners["a"].activity.handshakes == {"b": 1}


def test_what_a_hidden_exchange_sends_is_not_what_the_owner_has() -> None:
    graphs = {"a": random_graph(seed=1), "b": random_graph(seed=2)}
    owners = make_owners(graphs, federation_settings(translate="procrustes"))
    rows = owners["a"].exchange.rows("b")["entity"]
    first, second = (owners["a"].client("b", session).start() for session in (1, 2))
    assert isinstance(first, Update)
    assert isinstance(second, Update)
    torch.testing.assert_close(first.entity @ first.entity.T, rows @ rows.T, atol=1e-5, rtol=1e-5)
    for x, y in ((first.entity, rows), (second.entity, rows), (first.entity, second.entity)):
        assert float((x - y).norm() / y.norm()) > 0.3
