"""Private training under audit: what it claims stands, and a tenth of the noise is found out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fkge.embed import DpSettings, Tables, make_tables
from fkge.errors import SettingsError
from fkge.evaluation.attacks import State, audit_dp, audit_trainer, dedicated_canaries, drift, insert, matched_filter
from fkge.evaluation.attacks.private_training import noisy_sums, private_trajectory
from fkge.graph import Graph, read_graph
from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, Release, noise_for, price, seeded_for_tests
from fkge.settings import TrainSettings

DELTA = 1e-5
CANARIES = 600
SETTINGS = TrainSettings(model="transe", dim=16, norm=2, device="cpu")


@pytest.fixture(scope="module")
def umls() -> Graph:
    return read_graph("pykeen:umls")


def tables_for(graph: Graph, settings: TrainSettings = SETTINGS) -> Tables:
    return make_tables(settings, len(graph.entities) + 2 * CANARIES, len(graph.relations) + CANARIES)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize(
    "changes", [{}, {"norm": 1}, {"model": "distmult"}, {"kernels": False}, {"relations": "public"}]
)
def test_without_noise_every_coin_is_read(umls: Graph, changes: dict[str, object], optimizer: str) -> None:
    """The auditor's arithmetic is the trainer's: take it off, and nothing is left but the coins."""
    relations = changes.get("relations", "learn")
    settings = SETTINGS.model_copy(update={name: value for name, value in changes.items() if name != "relations"})
    private = DpSettings.build(
        {"noise": 0, "clip": 0.1, "relations": relations, "optimizer": optimizer, "negatives": 4}
    )
    canaries = dedicated_canaries(len(umls.entities), len(umls.relations), CANARIES)
    coin = np.random.default_rng(0).random(CANARIES) < 0.5
    base = umls.train[:500]
    seen = private_trajectory(tables_for(umls, settings), insert(base, canaries, coin), settings, private, 3)
    guess = matched_filter(settings, private, base)(seen, canaries) + 0.5
    np.testing.assert_allclose(guess, coin, atol=0.02)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize(("claim", "epochs"), [(1.0, 1), (2.0, 6), (4.0, 6)])
def test_the_claim_stands_and_a_tenth_of_its_noise_falls(
    umls: Graph, optimizer: str, claim: float, epochs: int
) -> None:
    private = DpSettings(noise=noise_for(claim, DELTA, epochs), clip=0.1, optimizer=optimizer, negatives=4)
    canaries = dedicated_canaries(len(umls.entities), len(umls.relations), CANARIES)
    bounds = {}
    for share in (1.0, 0.1):
        lying = private.model_copy(update={"noise": share * private.noise})

        def train(triples: np.ndarray, lying: DpSettings = lying) -> list[State]:
            return private_trajectory(tables_for(umls), triples, SETTINGS, lying, epochs, seeded_for_tests(3))

        score = matched_filter(SETTINGS, private, umls.train)  # the auditor believes the claim
        bounds[share] = audit_dp(train, umls.train, canaries, DELTA, np.random.default_rng(1), score=score)
    assert not bounds[1.0].refutes(claim)
    assert bounds[1.0].epsilon_lower > claim / 20  # it looks, and sees something
    assert bounds[0.1].refutes(claim)


def test_samples_are_audited_by_their_drift(umls: Graph) -> None:
    """Poisson samples, states seen once an epoch: the price of sampling is a lower one, and still stands."""
    epochs, rate = 10, 0.5
    private = DpSettings(noise=2.5, rate=rate, clip=0.1, optimizer="sgd", negatives=4)
    steps = private.steps_in(epochs)
    claim = price([Release(GAUSSIAN, "triple", ADD_OR_REMOVE, 1.0, private.noise, steps, rate)], DELTA, "pld")
    assert 3 < claim < 5
    canaries = dedicated_canaries(len(umls.entities), len(umls.relations), CANARIES)
    bounds = {}
    for share in (1.0, 0.05):
        lying = private.model_copy(update={"noise": share * private.noise})

        def train(triples: np.ndarray, lying: DpSettings = lying) -> list[State]:
            return private_trajectory(tables_for(umls), triples, SETTINGS, lying, epochs, seeded_for_tests(3))

        bounds[share] = audit_dp(train, umls.train, canaries, DELTA, np.random.default_rng(1), score=drift())
    assert bounds[1.0].epsilon_lower < claim
    assert bounds[0.05].epsilon_lower > bounds[1.0].epsilon_lower + 1


def test_noisy_sums_have_the_noise_that_is_claimed(umls: Graph) -> None:
    """Rows that no triple meets hold noise and nothing else: its size can be measured."""
    private = DpSettings(noise=3.0, optimizer="momentum", negatives=1)
    tables = tables_for(umls)
    triples = umls.train[:5]
    sums = noisy_sums(private_trajectory(tables, triples, SETTINGS, private, 4, seeded_for_tests(5)), private)
    for seen in sums:
        spread = float(np.median(np.abs(seen.entity)) / 0.6745)  # a median: five triples move a few rows
        assert abs(spread / private.noise - 1) < 0.03
        assert abs(float(np.median(np.abs(seen.relation)) / 0.6745) / private.noise - 1) < 0.03
    flat = [seen.entity.ravel() for seen in sums]
    for a, b in itertools.pairwise(flat):
        assert abs(float(np.corrcoef(a, b)[0, 1])) < 0.03  # momentum was taken off: steps are independent


def test_what_cannot_be_read_off_the_states_is_refused() -> None:
    state = State(np.zeros((4, 2)), np.zeros((1, 2)))
    for private in (DpSettings(optimizer="adam"), DpSettings(rate=0.1)):
        with pytest.raises(SettingsError, match="full-batch"):
            noisy_sums([state, state], private)


def test_noise_from_the_system_is_audited_too(umls: Graph) -> None:
    """As an owner would run it, unseeded: a bound far below the claim, for any noise that is there."""
    private = DpSettings(noise=noise_for(1.0, DELTA, 1), clip=0.1, optimizer="sgd", negatives=4)
    found = audit_trainer(
        SETTINGS, private, umls.train[:200], len(umls.entities), len(umls.relations),
        epochs=1, delta=DELTA, rng=np.random.default_rng(2), canaries=200, confidence=1 - 1e-9,
    )  # fmt: skip
    assert not found.refutes(1.0)
