"""What cannot be searched is refused with a way out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fkge.errors import FkgeError
from fkge.experiment.setup import check_valid
from fkge.federation import FederationSettings
from fkge.graph import tidy
from fkge.settings import TrainSettings
from fkge.tune.proposal import Proposal
from fkge.tune.start import check_budget, check_privacy, check_trains, start_of, with_valid
from tests.conftest import random_graph, tiny_federation


def test_the_start_is_recommended_unless_a_file_says_otherwise() -> None:
    begin = start_of(TrainSettings, {"dim": 50}, triples=200_000, seed=3, config=False)
    assert (begin.model, begin.dim, begin.seed, begin.validate_every) == ("ComplEx", 50, 3, 1)  # type: ignore[attr-defined]
    plain = start_of(TrainSettings, {"dim": 50}, triples=1, seed=3, config=True)
    assert plain == TrainSettings.build({"dim": 50, "seed": 3})
    federated = start_of(FederationSettings, {"train.dim": 9}, triples=1, seed=0, config=False)
    assert (federated.train.dim, federated.train.loss) == (9, "1vsall")  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["complex", "DistMult", "TransE", "TransH", "TransR", "TransD", "RotatE"])
def test_a_fixed_model_starts_with_settings_that_suit_it(model: str) -> None:
    begin = start_of(TrainSettings, {"model": model}, triples=1, seed=0, config=False)
    check_trains(random_graph(), begin)
    assert begin.model == model  # type: ignore[attr-defined]
    proposal = Proposal.around(begin, {"model": model})
    assert proposal.first()


def test_a_valid_split_is_split_off_from_train() -> None:
    graph = random_graph()
    bare = replace(graph, splits={"train": graph.train, "test": graph.test})
    made = with_valid(bare, 0)
    assert len(made.valid) == round(0.05 * len(graph.train))
    assert np.array_equal(tidy(np.concatenate([made.train, made.valid])), tidy(graph.train))
    assert np.array_equal(made.test, graph.test)
    assert np.array_equal(made.valid, with_valid(bare, 0).valid)
    with pytest.raises(FkgeError, match="too few training triples to split any off"):
        with_valid(replace(graph, splits={"train": graph.train[:1]}), 0)


def test_mistakes_are_refused() -> None:
    with pytest.raises(FkgeError, match="give the search some time"):
        check_budget(0.0, 1)
    with pytest.raises(FkgeError, match="give the search some time"):
        check_budget(float("nan"), 1)
    with pytest.raises(FkgeError, match="at least one process"):
        check_budget(1.0, 0)
    with pytest.raises(FkgeError, match="choose fewer"):
        check_budget(1.0, 100_000)
    with pytest.raises(FkgeError, match="every trial would release vectors"):
        check_privacy(FederationSettings.build({"privacy": {"mode": "dp", "epsilon": 8.0}}))
    with pytest.raises(FkgeError, match="use sampled, sigmoid or margin"):
        check_trains(random_graph(), TrainSettings.build({"model": "TransR", "loss": "1vsall"}))
    graph = random_graph()
    with pytest.raises(FkgeError, match="no training triples"):
        check_trains(replace(graph, splits={"valid": graph.valid}), TrainSettings.build({}))
    federation = tiny_federation()
    ant = federation.members["ant"]
    bare = replace(ant, graph=replace(ant.graph, splits={"train": ant.graph.train}))
    with pytest.raises(FkgeError, match="ant: has no validation triples"):
        check_valid(replace(federation, members={**federation.members, "ant": bare}))
