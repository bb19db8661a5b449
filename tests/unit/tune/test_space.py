"""What is searched names settings that there are, with values that they take, and conditions that can hold."""

from __future__ import annotations

from typing import Any

import pytest

from fkge.embed import MODELS
from fkge.federation import FederationSettings
from fkge.settings import TrainSettings
from fkge.tune import space
from fkge.tune.space import Choice, Parameter, Range


def ends(domain: Choice | Range) -> tuple[Any, ...]:
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


@pytest.mark.parametrize("parameter", space.TRAIN, ids=lambda parameter: parameter.label)
def test_a_setting_of_a_training_takes_every_value_searched(parameter: Parameter) -> None:
    for value in ends(parameter.domain):
        assert getattr(TrainSettings.build({parameter.key: value}), parameter.key) == value


@pytest.mark.parametrize("parameter", space.FEDERATED, ids=lambda parameter: parameter.label)
def test_a_setting_of_a_federation_takes_every_value_searched(parameter: Parameter) -> None:
    for value in ends(parameter.domain):
        assert getattr(FederationSettings.build({parameter.key: value}), parameter.key) == value


def test_ranges_are_ranges_and_choices_are_searched_or_follow() -> None:
    for parameter in (*space.TRAIN, *space.FEDERATED):
        if isinstance(parameter.domain, Range):
            assert parameter.domain.low < parameter.domain.high
            assert parameter.domain.low > 0 or not parameter.domain.log
        else:
            assert len(set(parameter.domain.values)) == len(parameter.domain.values) > 0
    labels = [parameter.label for parameter in (*space.TRAIN, *space.FEDERATED)]
    assert len(set(labels)) == len(labels)  # each is one column of the journal


def test_a_setting_comes_after_those_it_depends_on() -> None:
    """Its condition is looked at when their values are known."""
    seen: set[str] = set()
    for parameter in space.TRAIN:
        assert set(parameter.when) <= seen | ({"loss"} if parameter.key == "loss" else set()), parameter.label
        seen.add(parameter.key)


def test_conditions_are_on_values_that_are_searched_or_may_be_fixed() -> None:
    for parameter in space.TRAIN:
        for key, allowed in parameter.when.items():
            assert all(getattr(TrainSettings.build({key: value}), key) == value for value in allowed)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_has_losses_and_a_rate_to_search(model: str) -> None:
    found = [p for p in space.TRAIN if p.key == "loss" and model in p.when.get("model", (model,))]
    assert len(found) == 1, "two would be two columns for one setting, none would leave the loss as it is"
    for optimizer in ("adagrad", "adam", "sgd"):
        rates = [p for p in space.TRAIN if p.key == "lr" and optimizer in p.when["optimizer"]]
        assert len(rates) == 1


def test_where_a_setting_does_not_matter_it_has_a_value_that_it_takes() -> None:
    for key, value in space.NEUTRAL.items():
        assert getattr(TrainSettings.build({key: value}), key) == value
    conditional = {p.key for p in space.TRAIN if p.when} - {"loss", "lr"}
    assert set(space.NEUTRAL) == conditional
    for key, value, when in space.FOLLOWS:
        TrainSettings.build({key: value, "loss": when["loss"][0]})


def test_starts_and_variants_are_settings() -> None:
    for triples in (1, 10**6):
        begin = TrainSettings.build(space.start(triples))
        assert begin.schedule == "plateau"
        for variant in space.VARIANTS:
            TrainSettings.build({**space.start(triples), **variant})
    assert len({repr(sorted(variant.items())) for variant in space.VARIANTS}) == len(space.VARIANTS)
    FederationSettings.build(dict(space.START_FEDERATED))
    assert all(key in TrainSettings.model_fields for key in space.OF_MODEL)


def test_larger_graphs_are_validated_more_often() -> None:
    sizes, epochs = zip(*space.VALIDATE_EVERY, strict=True)
    assert sorted(sizes, reverse=True) == list(sizes)
    assert sorted(epochs) == list(epochs)
    assert max(epochs) < 5


def test_a_range_of_whole_numbers_is_told_from_one_of_others() -> None:
    assert Range(1, 8).whole
    assert not Range(1.0, 8.0).whole
    assert not Range(1, 8.0).whole
