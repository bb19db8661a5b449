"""Private training under audit: right noise is not refuted, a tenth of it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from torch import Generator

from fkge.audit.attacks.membership import calibrated, translations
from fkge.audit.private_training import (
    CanaryScore,
    State,
    Trajectory,
    audit_dp,
    dedicated_canaries,
    drift,
    insert,
    matched_filter,
    noisy_sums,
    private_trajectory,
    translation_gradient,
)
from fkge.embed import DpSettings, Tables, make_tables
from fkge.errors import SettingsError
from fkge.graph import Graph, read_graph
from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, Release, noise_for, price
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
            return private_trajectory(tables_for(umls), triples, SETTINGS, lying, epochs, Generator().manual_seed(3))

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
            return private_trajectory(tables_for(umls), triples, SETTINGS, lying, epochs, Generator().manual_seed(3))

        bounds[share] = audit_dp(train, umls.train, canaries, DELTA, np.random.default_rng(1), score=drift())
    assert bounds[1.0].epsilon_lower < claim
    assert bounds[0.05].epsilon_lower > bounds[1.0].epsilon_lower + 1


def test_noisy_sums_have_the_noise_that_is_claimed(umls: Graph) -> None:
    """Rows that no triple meets hold noise and nothing else: its size can be measured."""
    private = DpSettings(noise=3.0, optimizer="momentum", negatives=1)
    tables = tables_for(umls)
    triples = umls.train[:5]
    sums = noisy_sums(private_trajectory(tables, triples, SETTINGS, private, 4, Generator().manual_seed(5)), private)
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
    facts, sizes = umls.train[:200], (len(umls.entities), len(umls.relations))

    def train(triples: np.ndarray) -> list[State]:
        tables = make_tables(SETTINGS, sizes[0] + 400, sizes[1] + 200)
        return private_trajectory(tables, triples, SETTINGS, private, epochs=1)

    found = audit_dp(
        train, facts, dedicated_canaries(*sizes, 200), DELTA, np.random.default_rng(2),
        score=matched_filter(SETTINGS, private, facts), confidence=1 - 1e-9,
    )  # fmt: skip
    assert not found.refutes(1.0)


# -- canaries and their scores -----------------------------------------------------------------------


def random_canaries(
    facts: np.ndarray, entities: int, relations: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """`count` distinct random triples without loops that are not among `facts`, (count, 3)."""
    taken = {tuple(fact) for fact in np.asarray(facts, np.int64).reshape(-1, 3).tolist()}
    out: list[tuple[int, int, int]] = []
    while len(out) < count:
        heads, tails = rng.integers(entities, size=(2, count)).tolist()
        for triple in zip(heads, rng.integers(relations, size=count).tolist(), tails, strict=True):
            if triple[0] != triple[2] and triple not in taken:
                taken.add(triple)
                out.append(triple)
    return np.array(out[:count], np.int64)


def plausibility(norm: int = 2, corruptions: int = 64, seed: int = 0) -> CanaryScore:
    """How well a canary stands out among its corruptions, in the last state alone."""

    def score(trajectory: Trajectory, canaries: np.ndarray) -> np.ndarray:
        last = trajectory[-1]
        among = np.unique(canaries[:, [0, 2]])
        return calibrated(
            translations(last.entity, last.relation, norm=norm), canaries, among, np.random.default_rng(seed),
            corruptions=corruptions,
        )  # fmt: skip

    return score


def test_dedicated_canaries_share_no_row() -> None:
    canaries = dedicated_canaries(10, 4, 50)
    ends = canaries[:, [0, 2]].ravel()
    assert sorted(ends) == list(range(10, 110))
    assert sorted(canaries[:, 1]) == list(range(4, 54))


def test_insert_takes_exactly_what_the_coins_say() -> None:
    canaries = dedicated_canaries(2, 1, 3)
    out = insert(np.array([[0, 0, 1]]), canaries, np.array([True, False, True]))
    assert out.tolist() == [[0, 0, 1], canaries[0].tolist(), canaries[2].tolist()]
    with pytest.raises(SettingsError, match="coins"):
        insert(canaries, canaries, np.array([1, 0, 1]))


@pytest.mark.parametrize("norm", [1, 2])
def test_gradient_is_that_of_the_distance(norm: int) -> None:
    rng = np.random.default_rng(1)
    state = State(rng.normal(size=(6, 5)), rng.normal(size=(2, 5)))
    canary = np.array([[3, 1, 4]])
    gradient = translation_gradient(state, canary, norm)[0]
    assert np.linalg.norm(gradient) == pytest.approx(1)
    slopes = np.zeros((3, 5))
    for row, (table, i) in enumerate(((0, 3), (1, 1), (0, 4))):
        for j in range(5):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [t.copy() for t in state]
                moved[table][i, j] += step
                ends.append(np.linalg.norm(moved[0][3] + moved[1][1] - moved[0][4], norm))
            slopes[row, j] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(gradient, slopes / np.linalg.norm(slopes), atol=1e-6)


# -- a mechanism with a known price ------------------------------------------------------------------


def noisy_descent(
    triples: np.ndarray, entities: int, relations: int, *, steps: int, sigma: float, seed: int, dim: int = 8
) -> list[State]:
    """Full-batch descent on Σ ‖h + r − t‖, every triple's gradient of length 1, Gaussian noise σ on every step's sum.

    Each step is a Gaussian mechanism of sensitivity 1, whatever the steps before it gave.
    """
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(rows, dim)) for rows in (entities, relations)]
    out = [State(tables[0].copy(), tables[1].copy())]
    for _ in range(steps):
        sums = [sigma * rng.normal(size=t.shape) for t in tables]
        gradient = translation_gradient(out[-1], triples)
        np.add.at(sums[0], triples[:, 0], gradient[:, 0])
        np.add.at(sums[1], triples[:, 1], gradient[:, 1])
        np.add.at(sums[0], triples[:, 2], gradient[:, 2])
        tables = [t - 0.01 * s for t, s in zip(tables, sums, strict=True)]
        out.append(State(*tables))
    return out


@pytest.mark.parametrize("steps", [1, 10])
def test_right_noise_stands_and_a_tenth_of_it_falls(steps: int) -> None:
    rng = np.random.default_rng(2)
    base, m = rng.integers([30, 3, 30], size=(200, 3)), 2000
    canaries = dedicated_canaries(30, 3, m)
    claim = 4.0
    sigma = noise_for(claim, DELTA, steps)

    def audited(noise: float) -> float:
        def train(triples: np.ndarray) -> list[State]:
            return noisy_descent(triples, 30 + 2 * m, 3 + m, steps=steps, sigma=noise, seed=7)

        return audit_dp(train, base, canaries, DELTA, np.random.default_rng(3), score=drift()).epsilon_lower

    assert claim / 4 < audited(sigma) < claim
    assert audited(sigma / 10) > claim


def test_last_state_alone_tells_less_but_something() -> None:
    rng = np.random.default_rng(4)
    base, m = rng.integers([30, 3, 30], size=(200, 3)), 1000
    canaries = dedicated_canaries(30, 3, m)

    def train(triples: np.ndarray) -> list[State]:
        return noisy_descent(triples, 30 + 2 * m, 3 + m, steps=100, sigma=1.0, seed=7)

    bounds = [
        audit_dp(train, base, canaries, DELTA, np.random.default_rng(5), score=score).epsilon_lower
        for score in (plausibility(), drift())
    ]
    assert 0.2 < bounds[0] < bounds[1]


def test_random_canaries_among_real_facts_are_found_where_nothing_protects() -> None:
    rng = np.random.default_rng(6)
    facts = np.unique(rng.integers([200, 4, 200], size=(300, 3)), axis=0)
    canaries = random_canaries(facts, 200, 4, 300, rng)

    def audited(score: CanaryScore, noise: float) -> float:
        def train(triples: np.ndarray) -> list[State]:
            return noisy_descent(triples, 200, 4, steps=60, sigma=noise, seed=8, dim=64)

        return audit_dp(train, facts, canaries, DELTA, np.random.default_rng(9), score=score).epsilon_lower

    assert audited(drift(), 0.0) > 0.5
    assert audited(plausibility(), 0.0) > 0.5
    assert audited(drift(), 100.0) == 0
    assert audited(plausibility(), 100.0) == 0


def test_drift_needs_steps() -> None:
    rng = np.random.default_rng(10)
    start = State(rng.normal(size=(8, 5)), rng.normal(size=(4, 5)))
    with pytest.raises(SettingsError, match="two or more states"):
        drift()([start], dedicated_canaries(0, 0, 4))
