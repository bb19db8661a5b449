"""What a search writes: a page that needs nothing else, and a recipe that is read back as what was found."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fkge.federation import FederationSettings
from fkge.settings import TrainSettings
from fkge.tune.proposal import flat
from fkge.tune.recipe import LOCAL, recipe_text, write_page
from fkge.tune.spec import PhaseResult, Spec, TuneResult
from fkge.tune.study import Tuning
from tests.unit.report.test_page import Page
from tests.unit.tune.conftest import new_search
from tests.unit.tune.trials import phase, trial


def test_a_page_is_whole_and_loads_nothing(searched: Tuning) -> None:
    text = (searched.folder / "tune.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.all("h1")) == 1
    assert len(page.all("table")) == len(page.all("caption")) == 1
    assert not page.all("img")
    assert [attrs for attrs in page.all("link") if attrs.get("href") != "data:,"] == []
    found = TuneResult.read(searched.folder / "result.json", "")
    assert found.test is not None
    assert "The test triples were looked at once" in text
    for row in found.phases[0].trials:
        if row.score is not None:
            assert f"{row.score:.3f}"[1:] in text
    assert "lr" in text
    assert (searched.folder / "recipe.toml").read_text().splitlines()[-1] in text


def test_a_page_without_a_trial(tmp_path: Path) -> None:
    tuning = new_search(tmp_path / "run")
    found = tuning.result()
    write_page(tmp_path / "tune.html", tuning.spec, found, "")
    text = (tmp_path / "tune.html").read_text(encoding="utf-8")
    Page(text)
    assert "No trial was validated yet." in text
    assert "Too few trials to tell the importance" in text


def spec(kind: Any = "graph", **changes: Any) -> Spec:
    values: dict[str, Any] = {
        "fkge": "0.9", "kind": kind, "source": "g.tsv", "name": "g", "seed": 4, "minutes": 2.0, "jobs": 1,
        "pruner": "median", "start": {}, "fixed": {},
    }  # fmt: skip
    return Spec(**{**values, **changes})


def read(text: str, kind: Any = TrainSettings) -> Any:
    return kind.build(tomllib.loads(text))


def test_a_recipe_is_read_back_as_the_settings_but_for_the_machine() -> None:
    settings = TrainSettings.build(
        {"model": "RotatE", "dim": 33, "lr": 0.0123456789, "regularizer": "n3", "reciprocal": True, "epochs": 3,
         "device": "cpu", "threads": 3, "seed": 9}
    )  # fmt: skip
    text = recipe_text(spec(), phase(trial(0)), settings)
    assert not any(f"{key} =" in text for key in LOCAL)
    here = TrainSettings()
    assert flat(read(text)) == flat(settings) | {key: getattr(here, key) for key in LOCAL}


def test_what_makes_a_training_what_it_is_stays_though_it_is_the_default() -> None:
    text = recipe_text(spec(), phase(trial(0)), TrainSettings())
    assert {"model", "dim", "loss"} == set(tomllib.loads(text))


def test_sections_of_a_federation_come_after_its_own_settings() -> None:
    settings = FederationSettings.build({"exchanges": 7, "train": {"model": "ComplEx", "loss": "1vsall"}})
    found = PhaseResult.model_validate(phase(trial(0)).model_dump() | {"phase": "lone"})
    text = recipe_text(spec("federation", source="f"), found, settings)
    again = read(text, FederationSettings)
    assert (again.exchanges, again.train.model, again.train.loss) == (7, "ComplEx", "1vsall")
    assert "of owners that train alone (control)" in text
    assert "fkge simulate FEDERATION --config lone.toml" in text


def test_a_source_of_several_lines_stays_a_comment() -> None:
    text = recipe_text(spec(source="a\nmodel = 'TransD'\n", name="b\n[train]"), phase(trial(0)), TrainSettings())
    assert read(text).model == TrainSettings().model
    assert all(line.startswith("#") for line in text.splitlines() if "TransD" in line)


@pytest.mark.parametrize(
    ("state", "epochs", "told"), [("cut", 5, True), ("complete", 3, True), ("complete", 5, False), ("pruned", 3, False)]
)
def test_a_trial_that_ended_early_is_told(state: Any, epochs: int, told: bool) -> None:
    row = trial(0, state).model_copy(update={"epochs": epochs})
    text = recipe_text(spec(), phase(row), TrainSettings(epochs=5))
    assert ("ended before its last epoch" in text) == told


def test_a_best_trial_that_still_improved_is_told() -> None:
    hurried = phase(trial(0)).model_copy(update={"hurried": True})
    assert "still improving" in recipe_text(spec(), hurried, TrainSettings())
    assert "still improving" not in recipe_text(spec(), phase(trial(0)), TrainSettings())


def test_without_validation_triples_of_its_own_the_epochs_are_those_of_the_best() -> None:
    text = recipe_text(spec(split_off=True), phase(trial(0)), TrainSettings(epochs=50))
    assert read(text).epochs == 2
    never = trial(0).model_copy(update={"best_epoch": 0})
    assert read(recipe_text(spec(split_off=True), phase(never), TrainSettings(epochs=50))).epochs == 1
