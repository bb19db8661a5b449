"""The settings of a federation that are chosen where none are given."""

from __future__ import annotations

from typing import Any

import pytest

from fkge.federation import FederationSettings
from fkge.federation.recommended import SCHEDULE, recommended_federation
from fkge.graph import Graph


def build(**values: Any) -> FederationSettings:
    return FederationSettings.build(values)


def test_owners_blend_a_federated_and_a_lone_complex(graph: Graph) -> None:
    found = recommended_federation(build(), [graph])
    assert (found.train.model, found.train.loss) == ("ComplEx", "1vsall")
    assert found.lone_epochs == SCHEDULE["lone_epochs"] > 0
    assert found == FederationSettings.build(found.model_dump())


def test_what_was_given_stays(graph: Graph) -> None:
    found = recommended_federation(build(exchanges=2, lone_epochs=0, train={"dim": 5}), [graph])
    assert (found.exchanges, found.lone_epochs, found.train.dim, found.epochs) == (2, 0, 5, SCHEDULE["epochs"])


@pytest.mark.parametrize(
    "given",
    [
        {"train": {"model": "TransE"}},
        {"train": {"loss": "sigmoid"}},
        {"start": "alone"},
        {"translate": "procrustes"},
        {"privacy": {"mode": "dp", "epsilon": 8.0}},
    ],
)
def test_another_method_is_left_alone(graph: Graph, given: dict[str, Any]) -> None:
    settings = build(**given)
    assert recommended_federation(settings, [graph]) is settings


def test_owners_that_exchange_are_regularised_less_than_lone_ones(graph: Graph) -> None:
    found = recommended_federation(build(), [graph])
    assert found.shared_train.regularization == found.train.regularization / 2 > 0
    given = recommended_federation(build(train={"regularization": 0.03}), [graph])
    assert given.shared_train == given.train  # what was given is meant
    assert given.train.regularization == 0.03


def test_owners_on_one_machine_wait_for_the_largest(graph: Graph) -> None:
    assert recommended_federation(build(), [graph]).window > build().window == recommended_federation(build()).window
    assert recommended_federation(build(window=2.0), [graph]).window == 2.0


def test_one_owner_with_a_method_of_its_own_is_heeded(graph: Graph) -> None:
    settings = build()
    assert recommended_federation(settings, [graph], [{}, {"model": "TransR"}]) is settings
    assert recommended_federation(settings, [graph], [{}, {"lr": 0.2}]).train.model == "ComplEx"


def test_a_node_that_knows_no_other_graph_chooses_the_same_model(graph: Graph) -> None:
    alone, together = recommended_federation(build()), recommended_federation(build(), [graph])
    assert (alone.train.model, alone.train.dim) == (together.train.model, together.train.dim)
