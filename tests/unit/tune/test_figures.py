"""Figures of a search stay within their frame and are true to the result, however little there is."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from fkge.tune import figures
from fkge.tune.space import Choice, Parameter, Range
from fkge.tune.spec import PhaseResult
from tests.unit.tune.trials import phase, trial

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


def test_what_is_missing_is_said_in_words() -> None:
    assert "no trial was validated" in figures.course(phase(trial(0, "failed", None)))
    assert "too few trials to tell" in figures.importance(phase())
    assert "no trial had a value of it" in figures.slice_of(phase(trial(0, lr=0.1)), CHOICE)
    assert figures.slices(phase(), (CHOICE, NUMBER)) == []


def marks(svg: str) -> dict[str, float]:
    """By tip of each mark, how far to the right it is."""
    found = {}
    for element in ET.fromstring(svg).iter():
        if (tip := element.findtext("title")) and tip.startswith("trial") and "cx" in element.attrib:
            found[tip.split(":")[0]] = float(element.attrib["cx"])
    return found


def test_a_logarithmic_setting_has_equal_steps_for_equal_factors() -> None:
    rows = [trial(i, score=0.1 + 0.1 * i, lr=lr, dropout=lr) for i, lr in enumerate((0.001, 0.01, 0.1))]
    at = [marks(figures.slice_of(phase(*rows), parameter)) for parameter in (NUMBER, LINEAR)]
    steps = [(found["trial 1"] - found["trial 0"], found["trial 2"] - found["trial 1"]) for found in at]
    assert math.isclose(*steps[0], abs_tol=0.2)
    assert 5 * steps[1][0] < steps[1][1]


def test_a_value_of_zero_cannot_be_drawn_on_a_logarithmic_scale() -> None:
    rows = [trial(i, lr=lr) for i, lr in enumerate((0.0, 0.01, 0.1))]
    found = marks(figures.slice_of(phase(*rows), NUMBER))
    assert len(found) == 3
    assert 5 * (found["trial 1"] - found["trial 0"]) < found["trial 2"] - found["trial 1"]


def test_the_line_of_the_best_never_falls_and_runs_to_the_end() -> None:
    found = phase(*(trial(i, score=score) for i, score in enumerate((0.2, 0.5, 0.1, 0.6))))
    (line,) = (e for e in ET.fromstring(figures.course(found)).iter("path") if "line federated" in e.get("class", ""))
    points = [tuple(map(float, point.split(","))) for point in line.attrib["d"][1:].split("L")]
    heights = [y for _, y in points]
    assert heights == sorted(heights, reverse=True)  # down the page is worse
    assert len(set(heights)) == 3
    assert points[-1][0] == max(x for x, _ in points) > points[-2][0]


def test_trials_of_one_value_stand_side_by_side() -> None:
    found = phase(*(trial(i, score=0.5, model="TransE") for i in range(4)), trial(4, model="RotatE"))
    at = marks(figures.slice_of(found, CHOICE))
    assert len(set(at.values())) == 5
    assert at["trial 4"] > max(at[f"trial {i}"] for i in range(4))


def test_what_a_mark_means_is_in_the_legend_only_if_there_is_one() -> None:
    drawn = figures.course(phase(trial(0), trial(1, "cut")))
    assert "cut by the end of the search" in drawn
    assert ">pruned<" not in drawn


def test_at_most_twelve_bars_the_largest_first() -> None:
    shares = {f"setting{i}": 0.2 - 0.01 * i for i in range(15)}
    drawn = figures.importance(phase(trial(0), importance=shares))
    assert "setting11" in drawn
    assert "setting12" not in drawn
    assert drawn.index("setting0") < drawn.index("setting11")


def test_values_of_any_kind_are_one_word() -> None:
    assert [figures.value_text(v) for v in (False, None, 0.0, 1e-9, 999.4, 999.6, -0.25)] == [
        "no", "None", "0", "1e-09", "999", "1,000", "-0.25",
    ]  # fmt: skip
