"""Private training adds the noise it says to every number, counts its steps, learns, and stays silent on the rest."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from fkge.embed import DpSettings, DpTrainer, make_tables
from fkge.embed.dp import EagerSteps
from fkge.embed.kernels.lazy_noise import LazySteps
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.graph import read_graph
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import DP_BASE, TRIPLES, dp_trainer_of

NOTHING = np.empty((0, 3), np.int64)


def copies(tables: Tables) -> dict[str, torch.Tensor]:
    return {name: tables[name].clone() for name in ("entity", "relation")}


def is_gaussian(found: torch.Tensor, sigma: float) -> bool:
    """KS: accepts σ, and shows on the same numbers that it would reject ⅔σ and 3⁄2σ."""
    flat = found.double().flatten().numpy()
    right, low, high = (stats.kstest(flat, "norm", args=(0, sigma * f)).pvalue for f in (1, 2 / 3, 3 / 2))
    assert max(low, high) < 1e-6, "too few numbers to tell"
    return bool(right > 0.01)


# -- noise -------------------------------------------------------------------------------------------------------------

WAYS = [("sgd", True), ("sgd", False), ("momentum", True), ("momentum", False)]


@pytest.mark.parametrize("kernels", [True, False])
def test_every_number_gets_noise_of_sigma_clips(kernels: bool) -> None:
    """One step with noise less the same step without: the noise itself, on touched rows and on all others."""
    triples, results = TRIPLES[:20], []
    for sigma in (0.0, 1.7):
        how: dict[str, Any] = {"optimizer": "sgd", "lr": 0.3, "negatives": 2, "noise": sigma}
        trainer = dp_trainer_of(triples, (400, 150), train={"kernels": kernels, "dim": 32}, clip=0.05, **how)
        begun = copies(trainer.tables)
        trainer.run_epoch()
        results.append((begun, copies(trainer.tables)))
    (begun, still), (_, noisy) = results
    for name in ("entity", "relation"):
        touched = (still[name] != begun[name]).any(1)
        assert 3 < int(touched.sum()) < len(touched) / 4
        noise = noisy[name] - still[name]
        assert is_gaussian(noise, 0.3 * 1.7)
        assert is_gaussian(noise[~touched], 0.3 * 1.7)
        if name == "entity":
            assert is_gaussian(noise[touched], 0.3 * 1.7)


def spread(optimizer: str, steps: int, momentum: float = 0.9) -> float:
    """Standard deviation, in lr · σ, of a number that `steps` steps of noise alone have moved."""
    if optimizer == "sgd":
        return math.sqrt(steps)
    return math.sqrt(sum(((1 - momentum**j) / (1 - momentum)) ** 2 for j in range(1, steps + 1)))


@pytest.mark.parametrize(("optimizer", "lazy"), WAYS)
def test_noise_of_many_steps_adds_up(optimizer: str, lazy: bool) -> None:
    trainer = dp_trainer_of(
        NOTHING, (300, 200), optimizer=optimizer, lazy=lazy, rate=0.05, lr=0.01, noise=2.0, average=0.5
    )
    assert isinstance(trainer.stepper, LazySteps if lazy else EagerSteps)
    before = copies(trainer.tables)
    for _ in range(2):
        assert trainer.run_epoch() == 0.0
    assert trainer.private.steps_in(2) == 40
    for name, value in before.items():
        assert is_gaussian(trainer.tables[name] - value, 0.02 * spread(optimizer, 40))
        if optimizer == "momentum":
            sigma = 2 * math.sqrt((1 - 0.81**40) / (1 - 0.81))
            assert is_gaussian(trainer.tables.state(name, "mean"), sigma)


def test_adam_gets_its_noise_too() -> None:
    """Its first moment is linear in the noise, so it tells."""
    trainer = dp_trainer_of(NOTHING, (300, 200), optimizer="adam", rate=0.2, lr=0.01, noise=2.0)
    assert isinstance(trainer.stepper, EagerSteps)
    trainer.run_epoch()
    sigma = 2 * 0.1 * math.sqrt((1 - 0.81**5) / (1 - 0.81))
    for name in ("entity", "relation"):
        assert is_gaussian(trainer.tables.state(name, "mean"), sigma)


def test_adam_takes_adams_steps() -> None:
    trainer = dp_trainer_of(TRIPLES, optimizer="adam", noise=0.0, lr=0.05, clip=1e6, dtype=torch.float64)
    mirror = trainer.tables["entity"].clone().requires_grad_()
    torch_adam = torch.optim.Adam([mirror], lr=0.05)
    for _ in range(4):
        trainer.run_epoch()
        mirror.grad = trainer.stepper.sums["entity"].clone()  # type: ignore[attr-defined]
        torch_adam.step()
    # Sums are in clips, so tiny that Adam's ε counts; torch's sees the same ones.
    torch.testing.assert_close(trainer.tables["entity"], mirror.detach())


# -- what a step does not depend on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [True, False])
def test_the_order_of_triples_does_not_matter(kernels: bool) -> None:
    results = []
    for order in (np.arange(len(TRIPLES)), np.random.default_rng(1).permutation(len(TRIPLES))):
        trainer = dp_trainer_of(TRIPLES[order], train={"kernels": kernels}, noise=0.3, gather=50, dtype=torch.float64)
        for _ in range(3):
            trainer.run_epoch()
        results.append(copies(trainer.tables))
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_nothing_is_divided_by_how_many_triples_there_are(rate: float) -> None:
    """Every triple twice moves the first step twice as far; its neighbours are not told of it."""
    moved = []
    for triples in (TRIPLES, np.concatenate([TRIPLES, TRIPLES])):
        how: dict[str, Any] = {"optimizer": "sgd", "noise": 0.0, "lr": 0.01, "dtype": torch.float64}
        trainer = dp_trainer_of(triples, **how)
        before = trainer.tables["entity"].clone()
        trainer.run_epoch()
        moved.append(trainer.tables["entity"] - before)
    torch.testing.assert_close(2 * moved[0], moved[1])
    assert (
        dp_trainer_of(TRIPLES, rate=rate).private.steps_in(3)
        == dp_trainer_of(NOTHING, rate=rate).private.steps_in(3)
        == round(3 / rate)
    )


@pytest.mark.parametrize(("rate", "optimizer"), [(1.0, "adam"), (0.1, "momentum")])
def test_public_relations_stay_as_they_are(rate: float, optimizer: str) -> None:
    trainer = dp_trainer_of(relations="public", rate=rate, optimizer=optimizer, average=0.5)
    before = copies(trainer.tables)
    trainer.run_epoch()
    assert torch.equal(trainer.tables["relation"], before["relation"])
    assert trainer.averaged("relation") is trainer.tables["relation"]
    assert (trainer.tables["entity"] != before["entity"]).all()


# -- life --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [True, False])
def test_whoever_looks_between_chunks_sees_all_noise(lazy: bool) -> None:
    """`stop` may save the tables. Then training goes on from there, in another life, and the noise still adds up."""
    how: dict[str, Any] = {"optimizer": "momentum", "rate": 0.05, "lr": 0.01, "noise": 2.0, "lazy": lazy}
    trainer = dp_trainer_of(NOTHING, (600, 3), **how)
    begun = trainer.tables["entity"].clone()
    assert trainer.run_epoch(stop=lambda: True) is None
    assert (trainer.epoch, trainer.chunk) == (0, 1)
    assert is_gaussian(trainer.tables["entity"] - begun, 0.02 * spread("momentum", 5))

    other = dp_trainer_of(NOTHING, (600, 3), **how)  # the same seed for its noise, as a careless caller would
    other.tables.load(trainer.tables.export(state=True))
    other.move_to(trainer.position())
    assert other.position() == trainer.position()
    halfway = other.tables["entity"].clone()
    assert other.run_epoch() == 0.0
    assert (other.epoch, other.chunk) == (1, 0)
    assert is_gaussian(other.tables["entity"] - begun, 0.02 * spread("momentum", 20))
    # What was drawn before does not come again.
    then, now = (trainer.tables["entity"] - begun).flatten(), (other.tables["entity"] - halfway).flatten()
    velocity = trainer.tables.state("entity", "mean").flatten()
    left = now + velocity * 0.01 * sum(0.9**j for j in range(1, 16))  # less what the old velocity did
    assert abs(float(torch.corrcoef(torch.stack([then, left]))[0, 1])) < 4 / math.sqrt(len(then))


def test_an_epoch_in_two_lives_has_the_steps_of_one() -> None:
    trainer = dp_trainer_of(rate=0.1, optimizer="sgd", noise=0.0)
    seen: list[int] = []
    asked = iter([False, True])
    assert trainer.run_epoch(stop=lambda: seen.append(trainer.chunk) or next(asked)) is None  # type: ignore[func-returns-value]
    assert seen == [1, 2]
    assert trainer.run_epoch() is not None
    assert trainer.epoch == 1
    trainer.fall_linearly(9, 10)
    assert trainer.lr == pytest.approx(trainer.private.lr * trainer.settings.decay)
    assert trainer.triples == len(TRIPLES)


def test_it_takes_no_graft() -> None:
    trainer = dp_trainer_of()
    with pytest.raises(SettingsError, match="no virtual triples"):
        trainer.graft(torch.zeros(1, 6), torch.zeros(0, 6), torch.zeros(0, 3))
    trainer.ungraft()
    assert not trainer.grafted
    with pytest.raises(SettingsError, match="TransR cannot be trained privately"):
        dp_trainer_of(train={"model": "TransR"})


def test_the_key_comes_from_the_system_unless_a_simulation_gives_one() -> None:
    def run(noise: torch.Generator | None) -> torch.Tensor:
        s = TrainSettings(**DP_BASE)
        trainer = DpTrainer(make_tables(s, 40, 5), TRIPLES, s, DpSettings(), noise)
        trainer.run_epoch()
        return trainer.tables["entity"]

    assert not torch.equal(run(None), run(None))
    assert torch.equal(run(torch.Generator().manual_seed(1)), run(torch.Generator().manual_seed(1)))
    assert not torch.equal(run(torch.Generator().manual_seed(1)), run(torch.Generator().manual_seed(2)))


def test_averages() -> None:
    trainer = dp_trainer_of(average=1.0, dtype=torch.float64)
    assert torch.equal(trainer.averaged("entity"), trainer.tables["entity"]), "nothing to average yet"
    seen = []
    for _ in range(5):
        trainer.run_epoch()
        seen.append(trainer.tables["entity"].clone())
    torch.testing.assert_close(trainer.averaged("entity"), torch.stack(seen).mean(0))
    # A row that was replaced is taken as it stands, and starts its mean afresh.
    trainer.tables.replace("entity", torch.tensor([3]), torch.ones(1, 6))
    assert torch.equal(trainer.averaged("entity")[3], torch.ones(6, dtype=torch.float64))
    trainer.run_epoch()
    torch.testing.assert_close(trainer.averaged("entity")[3], trainer.tables["entity"][3])
    recent = dp_trainer_of(average=0.25, noise=0.0, dtype=torch.float64)
    for step in range(1, 201):
        recent.tables["entity"].fill_(step)
        recent._average()
    assert 0.75 < float(recent.averaged("entity")[0, 0]) / 200 < 0.9  # weights t³: the mean is 4/5 of the way


def test_it_runs_where_there_is_no_numba() -> None:
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import numpy, torch
from fkge.embed import DpSettings, DpTrainer, make_tables
from fkge.settings import TrainSettings
s = TrainSettings(dim=4, device="cpu", kernels=False)
trainer = DpTrainer(make_tables(s, 9, 2), numpy.array([[0, 1, 2]]), s, DpSettings(rate=0.5, optimizer="momentum"))
assert trainer.run_epoch() is not None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_what_private_training_cannot_heed_is_replaced() -> None:
    train = TrainSettings(
        model="ComplEx", dim=16, loss="1vsall", reciprocal=True, optimizer="adagrad", smoothing=0.1, dropout=0.2,
        relation_weight=0.5, regularization=1e-3, regularizer="n3", device="cpu",
    )  # fmt: skip
    private = DpSettings(noise=1.0)
    got = private.of(train)
    assert (got.loss, got.reciprocal, got.regularizer, got.model) == ("sampled", False, "n3", "ComplEx")
    tables = make_tables(got, 12, 3)
    trainer = DpTrainer(tables, torch.tensor([[0, 1, 2], [3, 2, 4]]), got, private)
    assert trainer.run_epoch() is not None
    assert private.of(train.model_copy(update={"loss": "sigmoid"})).loss == "sigmoid"


def test_travel_needs_a_margin() -> None:
    private = DpSettings(optimizer="momentum", travel=0.5)
    assert private.rate_for(1.0, 10, 16, 4.0) > 0
    with pytest.raises(SettingsError, match=r"dp.travel counts in margins.* set dp.lr"):
        private.rate_for(1.0, 10, 16, 0.0)


def test_settings_name_what_is_wrong() -> None:
    for key, value in (("rate", 0.0), ("rate", 1.5), ("clip", 0.0), ("noise", -1.0), ("negatives", 0), ("lr", 0.0)):
        with pytest.raises(SettingsError, match=key):
            DpSettings.build({key: value})
    train = DpSettings(lr=0.3).of(TrainSettings(**DP_BASE))
    assert (train.lr, train.share, train.filtered, train.corruption) == (0.3, 1, False, "uniform")


# -- learning ----------------------------------------------------------------------------------------------------------


def sigma_for(epsilon: float, steps: int, delta: float = 1e-5) -> float:
    """σ of `steps` full-batch steps at (ε, δ), add or remove one triple: exact, by Gaussian DP (Dong et al. 2022)."""

    def excess(mu: float) -> float:
        cdf = stats.norm.cdf
        return float(cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * cdf(-epsilon / mu - mu / 2) - delta)

    return math.sqrt(steps) / float(optimize.brentq(excess, 1e-3, 50))


@pytest.mark.parametrize(
    ("graph", "model", "epsilon", "at_least"),
    [
        ("kinships", "ComplEx", None, 0.6), ("kinships", "ComplEx", 8.0, 0.3),
        ("umls", "TransE", None, 0.55), ("umls", "TransE", 8.0, 0.45),
    ],
)  # fmt: skip
def test_it_learns(graph: str, model: str, epsilon: float | None, at_least: float) -> None:
    """Chance is .05 on kinships and .04 on umls. Far above it at ε = 8, where a triple is one in thousands."""
    pytest.importorskip("pykeen")
    facts, steps = read_graph(f"pykeen:{graph}"), 60
    s = TrainSettings(model=model, norm=2, dim=32, margin=2.0 if model == "TransE" else None, device="cpu")
    tables = make_tables(s, len(facts.entities), len(facts.relations))
    noise = 0.0 if epsilon is None else sigma_for(epsilon, steps)
    trainer = DpTrainer(tables, facts.train, s, DpSettings(noise=noise, lr=0.1), torch.Generator().manual_seed(0))
    for done in range(steps):
        trainer.fall_linearly(done, steps)
        trainer.run_epoch()
    assert metrics(rank(tables, facts.test, known=Known.of(facts)))["mrr"] > at_least
