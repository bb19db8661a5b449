"""The settings that are chosen where none are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fkge.embed.losses import scaled_to
from fkge.embed.recommended import CELLS, METHOD, recommended, recommended_settings
from fkge.graph import Graph
from fkge.settings import TrainSettings


def of_size(entities: int, triples: int) -> Any:
    return SimpleNamespace(train=range(triples), entities=range(entities))


def test_a_graph_is_trained_by_cross_entropy_over_all_entities(graph: Graph) -> None:
    found = recommended(TrainSettings.build({}), graph)
    assert (found.model, found.loss, found.reciprocal) == ("ComplEx", "1vsall", True)
    assert found == TrainSettings.build(found.model_dump())


def test_what_was_given_stays(graph: Graph) -> None:
    found = recommended(TrainSettings.build({"dim": 7, "epochs": 3}), graph)
    assert (found.dim, found.epochs, found.model) == (7, 3, "ComplEx")


@pytest.mark.parametrize(
    "given", [{"model": "TransE"}, {"loss": "margin"}, {"model": "ComplEx", "dim": 5}, {"negatives": 8}, {"norm": 2}]
)
def test_a_method_that_was_given_is_left_alone(graph: Graph, given: dict[str, object]) -> None:
    settings = TrainSettings.build(given)
    assert recommended(settings, graph) is settings


def test_a_rate_belongs_to_its_optimiser_and_its_schedule(graph: Graph) -> None:
    defaults = TrainSettings.build({})
    assert recommended(TrainSettings.build({"optimizer": "adam"}), graph).lr == defaults.lr
    assert recommended(TrainSettings.build({"schedule": "linear"}), graph).decay == defaults.decay


def test_a_weight_that_was_given_is_not_scaled(graph: Graph) -> None:
    assert recommended(TrainSettings.build({"regularization": 0.3}), graph).regularization_scale == "fixed"
    assert recommended(TrainSettings.build({"dim": 5}), graph).regularization_scale == "sparsity"


@pytest.mark.parametrize(
    ("entities", "triples", "least", "most"),
    [
        (135, 5_216, 0.005, 0.02), (104, 8_544, 0.005, 0.02), (2_034, 32_888, 0.01, 0.03),
        (14_541, 272_115, 0.03, 0.07),
        (4_020, 8_670, 0.05, 0.2), (40_943, 86_835, 0.1, 0.2), (17_146, 25_206, 0.08, 0.15),
    ],
)  # fmt: skip
def test_the_weight_of_the_regulariser_is_near_the_best_ones_found(
    entities: int, triples: int, least: float, most: float
) -> None:
    settings = TrainSettings.build(recommended_settings(triples))
    assert least <= scaled_to(settings, entities, triples).regularization <= most


def test_settings_that_only_other_methods_have_are_known() -> None:
    assert set(TrainSettings.model_fields) >= METHOD


def test_a_graph_too_large_for_that_has_sampled_negatives() -> None:
    least = int(CELLS / (2 * 1_000_000)) + 1
    assert recommended(TrainSettings.build({}), of_size(least, 1_000_000)).loss == "sigmoid"
    assert recommended(TrainSettings.build({}), of_size(least // 2, 1_000_000)).loss == "1vsall"


@pytest.mark.parametrize(("triples", "batch"), [(10, 100), (4_000, 400), (10**6, 1000)])
def test_batches_of_small_graphs_are_small(triples: int, batch: int) -> None:
    assert recommended_settings(triples)["batch"] == batch
