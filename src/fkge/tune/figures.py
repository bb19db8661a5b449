"""Draw the figures of a search's page: its course, the importance of settings, and a slice for each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fkge.report.formatting import duration, score
from fkge.report.svg import SMALL, Drawing, Sample, Scale, Shape, around, fit, labelled, legend, notice, ticks, width_of
from fkge.tune.space import Choice, Parameter
from fkge.tune.spec import PhaseResult, TrialRow

MARKS: Mapping[str, tuple[Shape, str, str]] = {
    "complete": ("circle", "busy", "complete"),
    "pruned": ("circle", "idle", "pruned"),
    "cut": ("diamond", "back", "cut by the end of the search"),
}
"""Shape, role and meaning of a trial's mark, by its state."""


def value_text(value: Any) -> str:
    """Return the value of a setting, with three digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def course(found: PhaseResult, *, width: int = 700) -> str:
    """Draw every trial's score at the time it ended, and the best one so far."""
    title = "Best validation MRR over time"
    rows = sorted(_scored(found), key=lambda row: row.at)
    if not rows:
        return notice(width, title, "no trial was validated")
    states = {row.state for row in rows}
    samples = [Sample("stroke", "line federated", "best so far"), Sample("circle", "full", "best")]
    key = legend([*samples, *(Sample(s, r, w) for state, (s, r, w) in MARKS.items() if state in states)], width)
    best = found.winner or rows[-1]
    drawing = Drawing(width, 250 + key.height, title, f"{len(rows)} trials; best {score(best.score)}")
    drawing.place(key, 0, 0)
    top, bottom = key.height + 14.0, key.height + 208.0
    end = max([found.seconds] + [row.at for row in rows]) or 1.0
    unit, name = (60.0, "minutes") if end >= 180 else (1.0, "seconds")
    x, y = Scale(0, end, 44, width - 12), _scores(rows, bottom, top)
    drawing.y_axis(y, x.start, x.end, *labelled(ticks(y.low, y.high, 4)))
    marks = ticks(0, end / unit, 8 if width > 600 else 4)
    drawing.x_axis(Scale(0, end / unit, x.start, x.end), bottom, top, marks, [f"{mark:,g}" for mark in marks])
    drawing.text(x.end, bottom + 32, f"{name} searched", "small quiet", "end")
    drawing.text(x.start, bottom + 32, "validation MRR", "small quiet")
    line: list[tuple[float, float]] = []
    high = -1.0
    for row in rows:
        assert row.score is not None
        if row.score > high:
            if line:
                line.append((x(row.at), line[-1][1]))
            line.append((x(row.at), y(row.score)))
            high = row.score
    drawing.path([*line, (x.end, line[-1][1])], "line federated")
    for row in rows:
        _mark(drawing, row, x(row.at), y(row.score or 0.0), found.best)
    return str(drawing)


def importance(found: PhaseResult) -> str:
    """Draw the importance of the most important parameters as bars."""
    width, title = 520, "Importance of each setting"
    bars = list(found.importance.items())[:12]
    if not bars:
        return notice(width, title, "too few trials to tell")
    left = 10 + min(width * 0.45, max(width_of(name) for name, _ in bars))
    words = "; ".join(f"{name} {value:.0%}" for name, value in bars)
    drawing = Drawing(width, 24 * len(bars) + 4, title, words)
    x = Scale(0, max(value for _, value in bars), left, width - 44)
    for i, (name, value) in enumerate(bars):
        y = 24 * i + 2
        drawing.text(0, y + 14, fit(name, left - 8), tip=name)
        drawing.rect(left, y + 3, max(1.0, x(value) - left), 14, "update", f"{name}: {value:.1%}")
        drawing.text(width, y + 14, f"{value:.0%}", "small quiet", "end")
    return str(drawing)


def slice_of(found: PhaseResult, parameter: Parameter) -> str:
    """Draw every trial's score over its value of a parameter."""
    width, label, title = 340, parameter.label, f"Validation MRR by {parameter.label}"
    rows = [row for row in _scored(found) if label in row.parameters]
    if not rows:
        return notice(width, title, "no trial had a value of it")
    drawing = Drawing(width, 200, title, f"{label} of {len(rows)} trials")
    drawing.text(0, 14, fit(label, width), "strong", tip=label)
    left, right, top, bottom = 44.0, width - 12.0, 30.0, 170.0
    y = _scores(_scored(found), bottom, top)
    drawing.y_axis(y, left, right, *labelled(ticks(y.low, y.high, 4)))
    if isinstance(parameter.domain, Choice):
        _choices(drawing, rows, parameter, y, (left, right), found.best)
        return str(drawing)
    values = [float(row.parameters[label]) for row in rows]
    log = parameter.domain.log and min(values) > 0
    low, high = (math.log10(min(values)), math.log10(max(values))) if log else (min(values), max(values))
    x = Scale(*around([low, high], 0.05), left, right)
    marks = _log_ticks(low, high) if log else ticks(low, high, 5)
    drawing.x_axis(x, bottom, top, marks, [_number(10**mark if log else mark) for mark in marks])
    for row, value in zip(rows, values, strict=True):
        _mark(drawing, row, x(math.log10(value) if log else value), y(row.score or 0.0), found.best, label)
    return str(drawing)


def slices(found: PhaseResult, parameters: Sequence[Parameter], most: int = 6) -> list[Parameter]:
    """Return the parameters worth a slice: the most important ones of which trials have at least two values.

    Args:
        found: a phase of a search.
        parameters: the searched ones.
        most: how many at most.
    """
    by_label = {parameter.label: parameter for parameter in parameters}
    order = [*found.importance, *(label for label in by_label if label not in found.importance)]
    shown = []
    for label in order:
        values = {str(row.parameters[label]) for row in _scored(found) if label in row.parameters}
        if label in by_label and len(values) > 1:
            shown.append(by_label[label])
    return shown[:most]


def _scored(found: PhaseResult) -> list[TrialRow]:
    return [row for row in found.trials if row.score is not None]


def _scores(rows: Sequence[TrialRow], bottom: float, top: float) -> Scale:
    return Scale(*around([row.score for row in rows if row.score is not None]), bottom, top)


def _log_ticks(low: float, high: float) -> list[float]:
    """Logarithms of round numbers between two logarithms: 1, 2 and 5 times powers of ten, or of ten alone."""
    found = [
        math.log10(factor) + power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for factor in (1, 2, 5)
        if low - 1e-9 <= math.log10(factor) + power <= high + 1e-9
    ]
    tens = [mark for mark in found if abs(mark - round(mark)) < 1e-9]
    return tens if len(found) > 6 and len(tens) > 1 else found or [low]


def _choices(
    drawing: Drawing, rows: Sequence[TrialRow], parameter: Parameter, y: Scale, ends: tuple[float, float],
    best: int | None,
) -> None:  # fmt: skip
    """Draw a column of marks for each value, side by side where they would hide each other."""
    assert isinstance(parameter.domain, Choice)
    label, texts = parameter.label, [value_text(value) for value in parameter.domain.values]
    width = (ends[1] - ends[0]) / len(texts)
    drawing.line(ends[0], y.start, ends[1], y.start, "axis")
    for i, text in enumerate(texts):
        middle = ends[0] + width * (i + 0.5)
        drawing.text(middle, y.start + 15, fit(text, width - 2, SMALL), "small quiet", "middle", tip=text)
        those = [row for row in rows if value_text(row.parameters[label]) == text]
        for j, row in enumerate(sorted(those, key=lambda row: row.score or 0.0)):
            aside = ((j % 5) - 2) * min(6.0, width / 6)
            _mark(drawing, row, middle + (aside if len(those) > 1 else 0.0), y(row.score or 0.0), best, label)


def _mark(drawing: Drawing, row: TrialRow, x: float, y: float, best: int | None, label: str = "") -> None:
    shape, role, word = MARKS.get(row.state, MARKS["cut"])
    value = f", {label} {value_text(row.parameters[label])}" if label else ""
    tip = f"trial {row.number}: {score(row.score)}{value}; {word}, {duration(row.seconds)}"
    if row.number == best:
        drawing.mark("circle", x, y, 5, "full", f"{tip}; the best")
    else:
        drawing.mark(shape, x, y, 3.2, role, tip)
