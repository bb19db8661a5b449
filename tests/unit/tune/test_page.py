"""The page and its figures: whole, self-contained, and true to the result, however little there is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fkge.tune import figures
from fkge.tune.recipe import write_page
from fkge.tune.space import Choice, Parameter, Range
from fkge.tune.spec import PhaseResult, TrialRow, TuneResult
from fkge.tune.study import Tuning
from tests.unit.report.test_page import Page
from tests.unit.tune.conftest import new_search


def trial(number: int, state: Any = "complete", score: float | None = 0.5, **parameters: Any) -> TrialRow:
    return TrialRow(
        number=number, state=state, score=score, why="", epochs=3, best_epoch=2, seconds=2.0, at=number + 1.0,
        parameters=parameters, settings=parameters,
    )  # fmt: skip


def phase(*trials: TrialRow, importance: dict[str, float] | None = None) -> PhaseResult:
    best = max((t for t in trials if t.score is not None), key=lambda t: t.score or 0.0, default=None)
    return PhaseResult(
        phase="train", seconds=10.0, trials=list(trials), best=None if best is None else best.number,
        importance=importance or {},
    )  # fmt: skip


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


CHOICE = Parameter("model", Choice(("TransE", "RotatE")))
NUMBER = Parameter("lr", Range(0.001, 1.0, log=True))
LINEAR = Parameter("dropout", Range(0.0, 0.5))


@pytest.mark.parametrize(
    "found",
    [
        phase(),
        phase(trial(0, "failed", None)),
        phase(trial(0, model="TransE", lr=0.1, dropout=0.0)),
        phase(
            *(trial(i, state, 0.1 * i, model=model, lr=0.001 * 3**i, dropout=0.1 * i)
              for i, (state, model) in enumerate([("complete", "TransE"), ("pruned", "RotatE"), ("cut", "RotatE")])),
            importance={"lr": 0.7, "model": 0.3},
        ),
    ],
    ids=["empty", "failed", "one", "three"],
)  # fmt: skip
def test_figures_of_any_state_are_drawn_within_their_frame(found: PhaseResult) -> None:
    drawn = [figures.course(found), figures.course(found, width=360), figures.importance(found)]
    drawn += [figures.slice_of(found, parameter) for parameter in (CHOICE, NUMBER, LINEAR)]
    for svg in drawn:
        root = ET.fromstring(svg)
        _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
        for mark in root.iter("circle"):
            assert 0 <= float(mark.attrib["cx"]) <= width
            assert 0 <= float(mark.attrib["cy"]) <= height


def test_slices_are_of_settings_that_vary_the_most_important_first() -> None:
    found = phase(
        trial(0, model="TransE", lr=0.1, dropout=0.1), trial(1, model="RotatE", lr=0.1, dropout=0.2),
        importance={"dropout": 0.9, "model": 0.1},
    )  # fmt: skip
    assert figures.slices(found, (CHOICE, NUMBER, LINEAR)) == [LINEAR, CHOICE]
    assert figures.slices(found, (CHOICE, NUMBER, LINEAR), most=1) == [LINEAR]
    assert "the best" in figures.slice_of(found, CHOICE)


def test_values_are_short() -> None:
    assert [figures.value_text(v) for v in (True, 0.123456, 1234.5, 7, "n3")] == ["yes", "0.123", "1,234", "7", "n3"]
