"""Membership: found where training left it, not found where there is none to find."""

from __future__ import annotations

import numpy as np
import pytest

from fkge.audit.attacks.membership import (
    Scorer,
    between,
    calibrated,
    corrupted,
    scorer,
    shadow_scores,
    translations,
)
from fkge.audit.roc import measure
from fkge.embed import Trainer, make_tables
from fkge.evaluation import score_triples
from fkge.graph import Graph, read_graph
from fkge.settings import TrainSettings
from tests.unit.federation.pairs import TWO, federation_settings, make_owners

# -- on real graphs ----------------------------------------------------------------------------------


def trained(graph: Graph, triples: np.ndarray, seed: int, epochs: int = 60) -> tuple[np.ndarray, np.ndarray]:
    settings = TrainSettings(
        model="transe", dim=64, norm=2, batch=256, negatives=16, optimizer="adam", lr=0.01, device="cpu", seed=seed
    )
    tables = make_tables(settings, len(graph.entities), len(graph.relations))
    trainer = Trainer(tables, triples, settings)
    for _ in range(epochs):
        trainer.run_epoch()
    return tables["entity"].numpy().copy(), tables["relation"].numpy().copy()


@pytest.fixture(scope="module", params=["umls", pytest.param("kinships", marks=pytest.mark.long)])
def victim(request: pytest.FixtureRequest) -> tuple[Graph, list[np.ndarray], Scorer]:
    """A graph, three random thirds of its facts, and a model overfitted to the first."""
    graph = read_graph(f"pykeen:{request.param}")
    thirds = np.array_split(np.random.default_rng(0).permutation(graph.facts), 3)
    return graph, thirds, translations(*trained(graph, thirds[0], seed=0))


def test_overfitted_rows_tell_who_was_there(victim: tuple[Graph, list[np.ndarray], Scorer]) -> None:
    graph, (members, others, further), score = victim
    attack = measure(score(members), score(others))
    assert attack.auc > 0.7
    assert attack.succeeds
    assert attack.tpr_at_1 > 0.03
    # The same attack on triples of which none was trained on is guessing.
    nothing = measure(score(further), score(others), level=0.999)
    assert nothing.low < 0.5 < nothing.high
    assert abs(nothing.auc - 0.5) < 0.03
    ids = np.arange(len(graph.entities))
    rng = np.random.default_rng(3)
    eased = [calibrated(score, triples, ids, rng) for triples in (members, others, further)]
    assert measure(eased[0], eased[1]).low > 0.65
    assert abs(measure(eased[2], eased[1]).auc - 0.5) < 0.03


def test_vectors_that_know_nothing_give_nothing_away(victim: tuple[Graph, list[np.ndarray], Scorer]) -> None:
    graph, (members, others, _), _ = victim
    rng = np.random.default_rng(1)
    score = translations(rng.normal(size=(len(graph.entities), 64)), rng.normal(size=(len(graph.relations), 64)))
    attack = measure(score(members), score(others), level=0.999)
    assert attack.low < 0.5 < attack.high


def test_shadows_do_better_than_the_distance_and_know_when_there_is_nothing(
    victim: tuple[Graph, list[np.ndarray], Scorer],
) -> None:
    graph, (members, others, further), score = victim

    def train(triples: np.ndarray, seed: int) -> Scorer:
        return translations(*trained(graph, triples, seed))

    n = len(members)
    ratio = shadow_scores(train, score, np.concatenate([members, others]), members[:0], shadows=8, seed=50)
    attack = measure(ratio[:n], ratio[n:])
    assert attack.low > measure(score(members), score(others)).high
    # A victim that trained on neither half: its scores fit members and others alike.
    stranger = translations(*trained(graph, further, seed=9))
    ratio = shadow_scores(train, stranger, np.concatenate([members, others]), members[:0], shadows=2, seed=60)
    assert abs(measure(ratio[:n], ratio[n:]).auc - 0.5) < 0.03


def test_a_rotation_hides_nothing_from_it() -> None:
    rng = np.random.default_rng(2)
    entity, relation = rng.normal(size=(20, 8)), rng.normal(size=(3, 8))
    triples = rng.integers([20, 3, 20], size=(50, 3))
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    np.testing.assert_allclose(
        translations(entity @ turn, relation @ turn)(triples), translations(entity, relation)(triples)
    )
    h, r, t = triples[7]
    expected = -np.abs(entity[h] + relation[r] - entity[t]).sum()
    assert translations(entity, relation, norm=1)(triples)[7] == pytest.approx(expected)


def test_corruptions_change_one_side_each() -> None:
    triples = np.array([[0, 1, 2], [3, 0, 4]])
    out = corrupted(triples, np.array([7, 8, 9]), 6, np.random.default_rng(0))
    assert out.shape == (2, 6, 3)
    assert (out[:, 0::2, :2] == triples[:, None, :2]).all()
    assert (out[:, 1::2, 1:] == triples[:, None, 1:]).all()
    assert np.isin(out[:, 0::2, 2], [7, 8, 9]).all()
    assert np.isin(out[:, 1::2, 0], [7, 8, 9]).all()


def test_only_triples_between_rows_that_were_sent_are_in_question() -> None:
    triples = np.array([[5, 2, 9], [9, 2, 5], [5, 1, 9], [5, 2, 6], [6, 2, 9]])
    assert between(triples, np.array([9, 5]), np.array([2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert between(triples[:0], np.array([9, 5]), np.array([2])).shape == (0, 3)


# -- whose score ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("translate", ["frame", "procrustes"])
def test_triples_are_scored_by_the_victims_own_model(translate: str) -> None:
    """Inverse rows included; of TransE under a secret rotation, what distances tell."""
    reciprocal = {"model": "ComplEx", "loss": "1vsall", "reciprocal": True, "optimizer": "adagrad"}
    for train in (reciprocal, {}, {"reciprocal": True}):
        owner = make_owners(TWO, federation_settings(train, translate=translate))["a"]
        common = owner.exchange.peers["b"].common
        positions = np.array([[0, 1, 2], [3, 0, 3]])
        ids = [[common.entities[h], common.relations[r], common.entities[t]] for h, r, t in positions]
        expected = score_triples(owner.tables, np.array(ids)).double().numpy()
        np.testing.assert_allclose(scorer(owner.tables, common, owner)(positions), expected, rtol=1e-5)
