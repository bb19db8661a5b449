"""Membership: found where training left it, not found where there is none to find."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fkge.embed import Trainer, make_tables
from fkge.errors import SettingsError
from fkge.evaluation.attacks import between, calibrated, membership, shadow_scores, translations, triple_scores
from fkge.evaluation.attacks.membership import Scorer, corrupted
from fkge.graph import Graph, read_graph
from fkge.settings import TrainSettings


def slow_auc(members: np.ndarray, others: np.ndarray) -> float:
    return float(np.mean([(m > o) + 0.5 * (m == o) for m in members for o in others]))


def slow_tpr(members: np.ndarray, others: np.ndarray, rate: float) -> float:
    """By trying every threshold."""
    thresholds = np.concatenate([members, others]) if len(others) else members
    allowed = [t for t in thresholds if (others > t).mean() <= rate]
    return float(max((members > t).mean() for t in allowed))


@pytest.mark.parametrize("ties", [False, True])
def test_figures_are_those_of_the_slow_twin(ties: bool) -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.7, 1, 150), rng.normal(0, 1, 130)
    if ties:
        members, others = members.round(), others.round()
    attack = membership(members, others, samples=200)
    assert attack.auc == pytest.approx(slow_auc(members, others))
    assert attack.tpr_at_1 == pytest.approx(slow_tpr(members, others, 0.01))
    assert attack.tpr_at_01 == pytest.approx(slow_tpr(members, others, 0.001))
    gaps = [(members >= t).mean() - (others >= t).mean() for t in np.concatenate([members, others])]
    assert attack.advantage == pytest.approx(max(gaps))
    assert attack.low < attack.auc < attack.high
    assert (attack.members, attack.others) == (150, 130)
    assert json.loads(json.dumps(attack.to_dict()))["auc"] == attack.auc


def test_interval_covers_the_true_auc_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    truth = 0.6381632  # Φ(½ / √2)
    covered = {truth: 0, 0.60: 0}
    for seed in range(200):
        attack = membership(rng.normal(0.5, 1, 400), rng.normal(0, 1, 400), samples=200, seed=seed)
        for value in covered:
            covered[value] += attack.low <= value <= attack.high
    assert 180 <= covered[truth] <= 199  # 190 ± 4 standard deviations
    assert covered[0.60] < 160  # a wrong value is refused often enough to be seen


def test_perfect_and_useless_scores() -> None:
    apart = membership([2.0, 3.0], [0.0, 1.0])
    assert (apart.auc, apart.tpr_at_01, apart.advantage) == (1, 1, 1)
    assert apart.succeeds
    equal = membership(np.zeros(5), np.zeros(7))
    assert (equal.auc, equal.low, equal.high, equal.tpr_at_1, equal.advantage) == (0.5, 0.5, 0.5, 0, 0)
    assert not equal.succeeds


@pytest.mark.parametrize(
    ("members", "others"), [([1.0], [0.0, 1.0]), ([0.0, np.nan], [0.0, 1.0]), ([0.0, 1.0], [np.inf, 1.0])]
)
def test_too_few_or_broken_scores_are_refused(members: list[float], others: list[float]) -> None:
    with pytest.raises(SettingsError, match="finite"):
        membership(members, others)


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
    attack = membership(score(members), score(others))
    assert attack.auc > 0.7
    assert attack.succeeds
    assert attack.tpr_at_1 > 0.03
    # The same attack on triples of which none was trained on is guessing.
    nothing = membership(score(further), score(others), level=0.999)
    assert nothing.low < 0.5 < nothing.high
    assert abs(nothing.auc - 0.5) < 0.03
    ids = np.arange(len(graph.entities))
    rng = np.random.default_rng(3)
    eased = [calibrated(score, triples, ids, rng) for triples in (members, others, further)]
    assert membership(eased[0], eased[1]).low > 0.65
    assert abs(membership(eased[2], eased[1]).auc - 0.5) < 0.03


def test_vectors_that_know_nothing_give_nothing_away(victim: tuple[Graph, list[np.ndarray], Scorer]) -> None:
    graph, (members, others, _), _ = victim
    rng = np.random.default_rng(1)
    score = translations(rng.normal(size=(len(graph.entities), 64)), rng.normal(size=(len(graph.relations), 64)))
    attack = membership(score(members), score(others), level=0.999)
    assert attack.low < 0.5 < attack.high


def test_shadows_do_better_than_the_distance_and_know_when_there_is_nothing(
    victim: tuple[Graph, list[np.ndarray], Scorer],
) -> None:
    graph, (members, others, further), score = victim

    def train(triples: np.ndarray, seed: int) -> Scorer:
        return translations(*trained(graph, triples, seed))

    n = len(members)
    ratio = shadow_scores(train, score, np.concatenate([members, others]), members[:0], shadows=8, seed=50)
    attack = membership(ratio[:n], ratio[n:])
    assert attack.low > membership(score(members), score(others)).high
    # A victim that trained on neither half: its scores fit members and others alike.
    stranger = translations(*trained(graph, further, seed=9))
    ratio = shadow_scores(train, stranger, np.concatenate([members, others]), members[:0], shadows=2, seed=60)
    assert abs(membership(ratio[:n], ratio[n:]).auc - 0.5) < 0.03


def test_a_rotation_hides_nothing_from_it() -> None:
    rng = np.random.default_rng(2)
    entity, relation = rng.normal(size=(20, 8)), rng.normal(size=(3, 8))
    triples = rng.integers([20, 3, 20], size=(50, 3))
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    np.testing.assert_allclose(
        triple_scores(entity @ turn, relation @ turn, triples), triple_scores(entity, relation, triples)
    )


def test_a_trajectory_counts_every_state() -> None:
    rng = np.random.default_rng(3)
    entity, relation = rng.normal(size=(4, 20, 8)), rng.normal(size=(4, 3, 8))
    triples = rng.integers([20, 3, 20], size=(50, 3))
    each = [triple_scores(e, r, triples, norm=1) for e, r in zip(entity, relation, strict=True)]
    np.testing.assert_allclose(triple_scores(entity, relation, triples, norm=1), np.mean(each, axis=0))
    h, r, t = triples[7]
    assert each[0][7] == pytest.approx(-np.abs(entity[0, h] + relation[0, r] - entity[0, t]).sum())
    with pytest.raises(SettingsError, match="one width"):
        triple_scores(entity, relation[:2], triples)


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
