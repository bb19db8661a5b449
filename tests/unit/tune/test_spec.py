"""What a search was asked for and found: its files, and what follows from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fkge.errors import FkgeError, SettingsError
from fkge.federation import FederationSettings
from fkge.settings import TrainSettings
from fkge.tune.proposal import flat
from fkge.tune.spec import TRIALS_AT_LEAST, Best, PhaseResult, Spec, TuneResult
from tests.unit.tune.trials import phase, trial


def spec(kind: Any = "graph", **changes: Any) -> Spec:
    start = flat(TrainSettings() if kind == "graph" else FederationSettings())
    values: dict[str, Any] = {
        "fkge": "0.9", "kind": kind, "source": "g.tsv", "name": "g", "seed": 4, "minutes": 2.0, "jobs": 1,
        "pruner": "median", "start": start, "fixed": {},
    }  # fmt: skip
    return Spec(**{**values, **changes})


def test_phases_share_the_time_and_a_trial_may_take_a_part_of_it() -> None:
    graph, federation = spec(), spec("federation")
    assert (graph.phases, federation.phases) == (("train",), ("lone", "federated"))
    assert (graph.seconds, federation.seconds) == (120.0, 60.0)
    assert graph.seconds_of_trial * TRIALS_AT_LEAST == graph.seconds
    assert (graph.settings, federation.settings) == (TrainSettings, FederationSettings)


def test_epochs_between_validations_are_those_of_the_start() -> None:
    assert spec(start={"validate_every": 3}).epochs_between_validations == 3
    assert spec("federation", start={"epochs": 3, "test_every": 2}).epochs_between_validations == 6


def test_owners_alone_are_not_searched_for_what_only_exchanges_have() -> None:
    federation = spec("federation", fixed={"train.model": "TransE"})
    labels = {name: {p.label for p in federation.proposal(name).parameters} for name in federation.phases}
    assert labels["federated"] - labels["lone"] == {"aggregate", "moments"}
    assert not labels["lone"] - labels["federated"]
    assert "model" not in labels["lone"]


def test_a_start_of_another_version_is_refused_with_a_way_out() -> None:
    with pytest.raises(SettingsError, match="start a new search, without --resume"):
        spec(start={**flat(TrainSettings()), "gone": 1}).proposal("train")


def test_files_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    made = spec("federation", owners=["ant", "bee"], fixed={"train.dim": 8})
    made.write(tmp_path / "tune.json")
    again = Spec.read(tmp_path / "tune.json", "")
    assert again.proposal("lone") == made.proposal("lone")
    assert again.model_dump(exclude={"start"}) == made.model_dump(exclude={"start"})
    best = Best(number=3, score=0.25, best_epoch=4, settings={"lr": 0.1, "margin": None})
    best.write(tmp_path / "best.json")
    assert Best.read(tmp_path / "best.json", "") == best
    (tmp_path / "tune.json").write_text("{")
    with pytest.raises(FkgeError, match="search again"):
        Spec.read(tmp_path / "tune.json", "Remove it, and search again.")


def test_the_best_trial_is_found_by_its_number() -> None:
    found = phase(trial(0, score=0.2), trial(1, score=0.6), trial(2, "failed", None), trial(3, "pruned", 0.1))
    assert found.winner is not None
    assert found.winner.number == 1
    assert [found.count(*states) for states in ((), ("failed",), ("complete", "pruned"))] == [0, 1, 3]
    assert [row.number for row in sorted(found.trials, key=lambda row: row.rank_key)] == [1, 0, 3, 2]
    assert phase(trial(0, "failed", None)).winner is None
    assert phase().winner is None


@pytest.mark.parametrize(
    ("state", "seconds", "best_epoch", "hurried"),
    [
        ("complete", 10.0, 3, True), ("complete", 9.4, 3, False), ("complete", 10.0, 2, False), ("cut", 0.1, 3, True),
        ("cut", 0.1, 2, False), ("pruned", 10.0, 3, False),
    ],
)  # fmt: skip
def test_a_trial_is_hurried_if_time_ended_it_at_its_best(
    state: Any, seconds: float, best_epoch: int, hurried: bool
) -> None:
    row = trial(0, state).model_copy(update={"seconds": seconds, "best_epoch": best_epoch})
    assert row.hurried(10.0) == hurried


def test_only_the_last_phase_that_was_hurried_warns() -> None:
    def result(*phases: PhaseResult) -> TuneResult:
        return TuneResult(
            kind="federation", name="f", source="f", seed=0, minutes=1.0, finished=True, phases=list(phases)
        )

    lone = PhaseResult.model_validate(phase(trial(0)).model_dump() | {"phase": "lone", "hurried": True})
    both = phase(trial(0).model_copy(update={"epochs": 77})).model_copy(update={"hurried": True})
    assert "at epoch 77" in result(lone, both).warning
    assert "at epoch 3:" in result(lone).warning
    assert result(phase(trial(0))).warning == ""
    assert result(phase().model_copy(update={"hurried": True})).warning == ""
    assert result(lone, both).phase("lone") == lone
