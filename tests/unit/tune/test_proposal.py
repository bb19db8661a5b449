"""Proposals are settings that can be trained with, around a start, and leave what is fixed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fkge import recipes
from fkge.embed import Trainer, make_tables
from fkge.federation import FederationSettings
from fkge.settings import TrainSettings
from fkge.tune import space
from fkge.tune.proposal import Proposal, flat, given, holds, nested
from fkge.tune.space import Choice, Range
from fkge.tune.start import start_of
from tests.conftest import random_graph


class Dice:
    """Proposes by chance, and remembers what."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        self.rng, self.fixed, self.asked = np.random.default_rng(seed), fixed, dict[str, Any]()

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.asked[name] = self.fixed.get(name, choices[int(self.rng.integers(len(choices)))])
        return self.asked[name]

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        self.asked[name] = self.fixed.get(name, int(self.rng.integers(low, high + 1)))
        return int(self.asked[name])

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        self.asked[name] = self.fixed.get(name, float(self.rng.uniform(low, high)))
        return float(self.asked[name])


def start(kind: Any = TrainSettings, **changes: Any) -> Any:
    return start_of(kind, changes, triples=1000, seed=0, config=False)


def labels_of(proposal: Proposal) -> set[str]:
    return {parameter.label for parameter in proposal.parameters}


def test_every_proposal_trains() -> None:
    graph, proposal = random_graph(triples=60), Proposal.around(start(), {})
    seen = set()
    for seed in range(60):
        values = proposal.suggest(Dice(seed)) | {"dim": 4, "batch": 16, "negatives": 4, "device": "cpu"}
        settings = proposal.settings(values)
        trainer = Trainer(
            make_tables(settings, len(graph.entities), len(graph.relations)), graph.train, settings
        )  # an impossible combination raises here, or below
        if settings.model not in [model for model, _ in seen]:
            trainer.run_epoch()
        seen.add((settings.model, settings.loss))
    assert {"ComplEx", "DistMult", "RotatE", "TransE"} == {model for model, _ in seen}
    assert {"1vsall", "kvsall", "sampled", "sigmoid"} == {loss for _, loss in seen}


def test_the_first_trial_is_the_start_exactly() -> None:
    for kind in (TrainSettings, FederationSettings):
        begin = start(kind)
        proposal = Proposal.around(begin, {})
        dice = Dice(0, **proposal.first()[0])
        assert flat(proposal.settings(proposal.suggest(dice))) == flat(begin)
        assert dice.asked == proposal.first()[0]


@pytest.mark.parametrize("name", ["transe", "transr", "complex", "distmult", "rotate", "atlas", "dbp5l"])
def test_the_first_trial_of_a_recipe_is_the_recipe(name: str) -> None:
    kind: Any = FederationSettings if name in ("atlas", "dbp5l") else TrainSettings
    begin = kind.load(recipes.find(name))
    proposal = Proposal.around(begin, {})
    made = flat(proposal.settings(proposal.suggest(Dice(0, **proposal.first()[0]))))
    assert {key: value for key, value in made.items() if flat(begin)[key] != value} == {}


def test_a_start_beyond_the_space_widens_it() -> None:
    begin = TrainSettings.build({"model": "TransR", "dim": 900, "lr": 1e-5, "batch": 7, "negatives": 3, "margin": 40.0})
    proposal = Proposal.around(begin, {})
    by_label = {parameter.label: parameter.domain for parameter in proposal.parameters}
    assert "TransR" in by_label["model"].values  # type: ignore[union-attr]
    dim = by_label["dim"]
    assert isinstance(dim, Range)
    assert (dim.low, dim.high) == (32, 900)
    assert proposal.settings(proposal.suggest(Dice(0, **proposal.first()[0]))).dim == 900


def test_what_is_fixed_stays() -> None:
    fixed = {"model": "ComplEx", "dim": 13, "dropout": 0.3}
    proposal = Proposal.around(start(**fixed), fixed)
    assert not {"model", "dim", "dropout"} & labels_of(proposal)
    for seed in range(20):
        values = proposal.suggest(Dice(seed))
        assert {key: values[key] for key in fixed} == fixed
    assert len(proposal.first()) == 2, "variants of other models contradict what is fixed"


def test_a_model_without_the_loss_gets_none_of_its_settings() -> None:
    proposal = Proposal.around(start(init=0.5), {})
    values = proposal.suggest(Dice(1, model="TransE", **{"loss of TransE": "sigmoid"}))
    assert (values["regularization"], values["dropout"], values["relation_weight"]) == (0.0, 0.0, 0.0)
    assert values["share"] == 8
    assert values["init"] is None, "the start's is for another model"
    assert values["margin"] is not None


def test_lone_owners_have_no_settings_of_exchanges() -> None:
    begin = start(FederationSettings)
    lone, federated = (labels_of(Proposal.around(begin, {}, lone=lone)) for lone in (True, False))
    assert federated - lone == {"aggregate", "moments"}
    assert "lr of adagrad" in lone
    values = Proposal.around(begin, {}).suggest(Dice(3))
    assert isinstance(Proposal.around(begin, {}).settings(values), FederationSettings)


def test_flat_and_nested_are_inverse() -> None:
    begin = start(FederationSettings)
    assert FederationSettings.build(nested(flat(begin))) == begin
    assert given(FederationSettings.load(None, ["train.dim=9", "epochs=2"])) == {"train.dim": 9, "epochs": 2}


def test_conditions_name_parents_that_come_before() -> None:
    known = set(TrainSettings.model_fields)
    for i, parameter in enumerate(space.TRAIN):
        assert parameter.key in known
        searched = {other.key for other in space.TRAIN}
        before = {other.key for other in space.TRAIN[:i]}
        assert all(key in before for key in parameter.when if key in searched), parameter.label
    assert len({parameter.label for parameter in space.TRAIN}) == len(space.TRAIN)
    assert set(space.NEUTRAL) <= known
    assert holds({"model": ("ComplEx",)}, {"model": "complex"})
    assert not holds({"model": ("ComplEx",)}, {"model": "rotate"})


@pytest.mark.parametrize("parameter", [p for p in space.TRAIN if isinstance(p.domain, Range)], ids=lambda p: p.label)
def test_the_ends_of_each_range_are_allowed(parameter: Any) -> None:
    for end in (parameter.domain.low, parameter.domain.high):
        TrainSettings.build({parameter.key: end})
    assert not isinstance(parameter.domain, Choice)
