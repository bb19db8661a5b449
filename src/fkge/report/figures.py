"""Draw the figures of the report, of its files and of the live page, as SVG text.

All of them accept a run in any state: one that has just started, an arm without validations, an owner that died.
`width` is that of the view box; text is 12 units high, so a figure of 360 is for a phone and one of 960 for a desk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fkge.experiment.history import Course, History, Span, Stage, Validation
from fkge.experiment.results import Comparison, SimulationResult
from fkge.experiment.trace_events import TrainingValidated
from fkge.report.exchange_figures import learned as learned
from fkge.report.exchange_figures import network as network
from fkge.report.findings import PARTS, comparisons
from fkge.report.formatting import epsilon, interval, score, signed
from fkge.report.svg import SMALL, Drawing, Sample, Scale, around, fit, labelled, legend, notice, ticks, width_of

ARMS = ("federated", "control", "independent", "permuted", "random", "poisoned", "fede", "unified")
__all__ = ["accuracy", "curve", "gains", "learned", "network", "spending", "timeline"]


# -- validation over epochs ------------------------------------------------------------------------


def accuracy(history: History, owner: str | None = None, *, width: int | None = None, two_tracks: bool = False) -> str:
    """Draw validation MRR over epochs, a line for each arm.

    Marks on the federated line show where a validation after updates improved, and where the owner rolled back.

    Args:
        history: of a simulation.
        owner: draws one panel, without a legend; None: a panel for each owner, with one.
        width: of the view box; by default one panel, or three side by side.
        two_tracks: the federated line is the shared track's, validated on other facts than control: shows no gain.
    """
    owners = history.owners
    if owner is not None:
        return str(_panel(history, owner, width or 340, two_tracks))
    title = "Validation MRR over epochs, by owner"
    if not owners:
        return notice(width or 340, title, "no owner has started yet")
    columns = max(1, min(len(owners), (width or 1020) // 300))
    width = width or columns * 340
    key = arms_key(history, width)
    each = (width - 16 * (columns - 1)) / columns
    panels = [_panel(history, name, each, two_tracks) for name in owners]
    top = key.height + 10
    step = panels[0].height + 14
    rows = -(-len(panels) // columns)
    drawing = Drawing(width, top + rows * step - 14, title, "; ".join(panel.about for panel in panels))
    drawing.place(key, 0, 0)
    for i, panel in enumerate(panels):
        drawing.place(panel, (i % columns) * (panel.width + 16), top + (i // columns) * step)
    return str(drawing)


def arms_key(history: History, width: int) -> Drawing:
    """Draw the legend of `accuracy`."""
    samples = [
        Sample("stroke", f"line {arm}", arm)
        for arm in _arms(history)
        if any(_tests(history, arm, owner) for owner in history.owners)
    ]
    tests = [test for owner in history.owners for test in _tests(history, "federated", owner)]
    if any(test.improved and test.peers for test in tests):
        samples.append(Sample("circle", "full", "improved after updates"))
    if any(test.backtracked for test in tests):
        samples.append(Sample("down", "back", "rolled back"))
    return legend(samples, width)


def _panel(history: History, owner: str, width: float, two_tracks: bool) -> Drawing:
    lines = {arm: tests for arm in _arms(history) if (tests := _tests(history, arm, owner))}
    best = {arm: max(test.best for test in tests) for arm, tests in lines.items()}
    about = "best " + ", ".join(f"{arm} {score(best[arm])}" for arm in lines) if lines else "no validation"
    drawing = Drawing(width, 210, f"{owner}: validation MRR over epochs", f"{owner}: {about}")
    left, right, top, bottom = 38.0, width - 10, 30.0, 172.0
    note = ""
    if "federated" in best:
        # While it runs, compared with the control after as many epochs.
        now = max(test.epoch for test in lines["federated"])
        control = history.stages["control"].courses[owner].best_by(now) if "control" in lines else None
        gain = "" if control is None or two_tracks else f" ({signed(best['federated'] - control)} over control)"
        note = f"best {score(best['federated'])}{gain}"
    drawing.text(right, 14, note, "small quiet", "end")
    drawing.text(0, 14, fit(owner, (right - width_of(note, SMALL)) / 1.15), "strong", tip=owner)
    tests = [test for line in lines.values() for test in line]
    low, high = around([test.score for test in tests]) if tests else (0.0, 1.0)
    epochs = max([test.epoch for test in tests] + [stage.epochs for stage in history.stages.values()] + [1])
    x, y = Scale(0, epochs, left, right), Scale(low, high, bottom, top)
    _epoch_axes(drawing, x, y)
    for arm in reversed(lines):  # the federated line last, on top
        points = _thinned([(x(test.epoch), y(test.score)) for test in lines[arm]])
        drawing.path(points, f"line {arm}", f"{arm}: best {score(best[arm])}")
        if len(points) == 1:
            drawing.mark("circle", *points[0], 2, "dot", f"{arm}: {score(lines[arm][0].score)}")
    for test in lines.get("federated", ()):
        place, when = (x(test.epoch), y(test.score)), f"epoch {test.epoch:,}: {score(test.score)}"
        if test.backtracked:
            drawing.mark("down", *place, 4, "back", f"{when}; rolled back to {score(test.best)}")
        elif test.improved and test.peers:
            drawing.mark("circle", *place, 3.5, "full", f"{when}; learned from {', '.join(test.peers)}")
    if not tests:
        over = history.stages and all(stage.over for stage in history.stages.values())
        words = "no validations in this run" if over else "no validation yet"
        drawing.text((left + right) / 2, (top + bottom) / 2, words, "quiet", "middle")
    return drawing


def _epoch_axes(drawing: Drawing, x: Scale, y: Scale) -> None:
    """Draw axes of validation MRR over epochs."""
    drawing.y_axis(y, x.start, x.end, *labelled(ticks(y.low, y.high, 4)))
    marks = ticks(0, x.high, 5)
    drawing.x_axis(x, y.start, y.start, marks, [f"{mark:,.0f}" for mark in marks])
    drawing.text(x.end, y.start + 33, "epochs", "small quiet", "end")
    drawing.text(x.start, y.start + 33, "validation MRR", "small quiet")


def curve(validations: Sequence[TrainingValidated]) -> str:
    """Draw validation MRR over epochs of `fkge train`."""
    width, title = 560, "Validation MRR over epochs"
    if not validations:
        return notice(width, title, "no validation yet")
    best = max(found.mrr for found in validations)
    drawing = Drawing(width, 240, title, f"best {score(best)} of {len(validations)} validations")
    low, high = around([found.mrr for found in validations])
    x, y = Scale(0, max(found.epoch for found in validations) or 1, 40, width - 10), Scale(low, high, 200, 14)
    _epoch_axes(drawing, x, y)
    drawing.path(_thinned([(x(found.epoch), y(found.mrr)) for found in validations]), "line federated")
    for found in validations[-400:]:
        if found.best:
            tip = f"epoch {found.epoch:,}: {score(found.mrr)}, the best so far"
            drawing.mark("circle", x(found.epoch), y(found.mrr), 3, "full", tip)
    return str(drawing)


# -- timeline --------------------------------------------------------------------------------------

_KINDS = {
    "train": ("Train", 14), "update": ("KGEmb-Update", 14), "translate": ("Translation (PPAT), as host", 5),
    "private": ("Private track", 10), "lone": ("Lone model", 10), "score": ("Scoring", 6), "sleep": ("Sleep", 1.5),
}  # fmt: skip
_ROW = 34


def timeline(history: History, arm: str = "federated", *, width: int = 960, clock: str = "seconds") -> str:
    """Draw what each owner did and when, as in the paper's Fig. 2. Sleep after the last work is left out.

    Args:
        history: of a simulation.
        arm: which arm.
        width: of the view box.
        clock: the label of the axis: ``"seconds"``, or of which clock they are.
    """
    title = f"Timeline of each owner ({arm})"
    stage = history.stages.get(arm)
    if stage is None or not any(course.spans for course in stage.courses.values()):
        return notice(width, title, f"nothing has happened in {arm} yet")
    end = max(_last(stage, course) for course in stage.courses.values()) or 1.0
    key = _timeline_legend(stage, width)
    left = 10 + min(width * 0.25, max(width_of(owner) for owner in stage.courses))
    top = key.height + 8
    bottom = top + _ROW * len(stage.courses)
    drawing = Drawing(width, bottom + 38, title, _timeline_words(stage, end, clock))
    drawing.place(key, 0, 0)
    x = Scale(0, end, left, width - 12)
    marks = ticks(0, end, 8 if width > 600 else 4)
    drawing.x_axis(x, bottom, top, marks, [f"{mark:,g}" for mark in marks])
    drawing.text(width - 12, bottom + 32, clock, "small quiet", "end")
    for i, (owner, course) in enumerate(stage.courses.items()):
        y = top + _ROW * i + 4
        drawing.text(0, y + 13, fit(owner, left - 8), tip=f"{owner}: {course.state}")
        _row(drawing, stage, course, x, y)
    return str(drawing)


def _row(drawing: Drawing, stage: Stage, course: Course, x: Scale, y: float) -> None:
    """Draw training in an upper lane and translations below it, since they overlap in time."""
    limit = _last(stage, course)
    spans: dict[str, list[Span]] = {}
    for span in course.spans:
        spans.setdefault(span.kind, []).append(span)
    for kind in sorted(spans, key="sleep train update private lone score translate".index):
        word, height = _KINDS[kind]
        middle = y + (22 if kind == "translate" else 9)
        for start, stop, many, peers in _merged(spans[kind], stage.end, limit, x):
            begin = min(x(start), x.end - 0.8)
            who = f" with {', '.join(peers)}" if peers else ""
            times = f"{many} × " if many > 1 else ""
            drawing.rect(begin, middle - height / 2, max(0.8, x(stop) - begin), height, kind,
                         f"{times}{word}{who}, {start:,.1f} to {stop:,.1f}")  # fmt: skip
    seen = -10.0
    for test in course.tests:
        if test.backtracked and x(test.time) - seen > 7:
            seen = x(test.time)
            tip = f"Rolled back at {test.time:,.1f}: {score(test.score)} is not better than {score(test.best)}"
            drawing.mark("down", seen, y + 1, 4, "back", tip)
    if course.state == "dead":
        drawing.mark("cross", min(x(limit) + 6, drawing.width - 5), y + 9, 5, "dead", f"died: {course.why}")


_Bar = tuple[float, float, int, tuple[str, ...]]


def _merged(spans: Sequence[Span], now: float, limit: float, x: Scale) -> list[_Bar]:
    """Return spans of one kind as (start, end, number, peers); those less than a pixel apart are merged."""
    found: list[_Bar] = []
    for span in sorted(spans, key=lambda span: span.start):
        start, stop = span.start, min(limit, now if span.end is None else span.end)
        if stop < start:
            continue
        begin, end, many, _ = found[-1] if found else (-1e9, -1e9, 0, ())
        if many and x(start) - x(end) < 0.7 and (x(stop) - x(start) < 1 or x(end) - x(begin) < 1):
            found[-1] = (begin, max(end, stop), many + 1, ())
        else:
            found.append((start, stop, 1, span.peers))
    return found


def _last(stage: Stage, course: Course) -> float:
    """Return the end of an owner's last work, leaving out what takes no time, as on an engine's own clock."""
    ends = [stage.end if span.end is None else span.end for span in course.spans
            if span.kind != "sleep" and (span.end is None or span.end > span.start)]  # fmt: skip
    return max(ends + [test.time for test in course.tests], default=0.0)


def _timeline_legend(stage: Stage, width: int) -> Drawing:
    kinds = {span.kind for course in stage.courses.values() for span in course.spans}
    samples = [Sample("rect", kind, word, height) for kind, (word, height) in _KINDS.items() if kind in kinds]
    if any(course.backtracked for course in stage.courses.values()):
        samples.append(Sample("down", "back", "Rolled back"))
    if any(course.state == "dead" for course in stage.courses.values()):
        samples.append(Sample("cross", "dead", "died"))
    return legend(samples, width)


def _timeline_words(stage: Stage, end: float, clock: str) -> str:
    counts = {owner: Counter(span.kind for span in course.spans) for owner, course in stage.courses.items()}
    parts = [f"{owner}: " + ", ".join(f"{n} × {kind}" for kind, n in found.items()) for owner, found in counts.items()]
    return f"{end:,.1f} {clock} in all. " + "; ".join(parts)


# -- gains -----------------------------------------------------------------------------------------


def gains(result: SimulationResult, part: str | None = None, *, over: str = "control", width: int = 360) -> str:
    """Draw a forest plot of each owner's gain in MRR with its 95% interval; filled where that excludes zero.

    Args:
        result: of a simulation.
        part: strict, chained or held; None: all that there are, one below the other.
        over: the arm to compare with.
        width: of the view box.
    """
    title = f"Gain in test MRR over {over}, with 95% intervals"
    parts = [p for p in ([part] if part else PARTS) if comparisons(result, p, over)]
    if not parts:
        return notice(width, title, f"nothing to compare with {over} yet")
    forests = [_forest(comparisons(result, p, over), p, over, width) for p in parts]
    if part is not None:
        return str(forests[0])
    height = sum(forest.height for forest in forests) + 16 * (len(forests) - 1)
    drawing = Drawing(width, height, title, ". ".join(forest.about for forest in forests))
    y = 0.0
    for forest in forests:
        drawing.place(forest, 0, y)
        y += forest.height + 16
    return str(drawing)


def _forest(rows: Mapping[str, Comparison], part: str, over: str, width: float) -> Drawing:
    texts = {o: f"{signed(v.difference)} ({interval(v.low, v.high)})" for o, v in rows.items()}
    right = width - 18 - max(width_of(text, SMALL) for text in texts.values())
    left = 8 + min(width * 0.22, max(width_of(owner) for owner in rows))
    words = "; ".join(f"{owner} {text}" for owner, text in texts.items())
    bottom = 26.0 + 26 * len(rows)
    drawing = Drawing(width, bottom + 36, f"Gain over {over} on {PARTS[part]}", f"{PARTS[part]}: {words}")
    drawing.text(0, 12, part, "strong")
    begin = 8 + 1.1 * width_of(part)
    drawing.text(begin, 12, fit(PARTS[part], width - begin, SMALL), "small quiet")
    bounds = [0.0] + [bound for v in rows.values() for bound in (v.low, v.high)]
    low, high = around(bounds, 0.06)
    x = Scale(low, high, left, right)
    drawing.x_axis(x, bottom, 24, *labelled(ticks(low, high, 4), signs=True))
    drawing.text(left, bottom + 31, f"gain in MRR over {over}", "small quiet")
    drawing.line(x(0), 24, x(0), bottom, "zero")
    for i, (owner, v) in enumerate(rows.items()):
        y = 26 + 26 * i + 13
        sure = v.low > 0 or v.high < 0
        worse = " worse" if v.high < 0 else ""
        tip = f"{owner}: {texts[owner]}; {'significant' if sure else 'may be chance'}"
        drawing.text(0, y + 4, fit(owner, left - 6), tip=owner)
        drawing.line(x(v.low), y, x(v.high), y, "whisker" + worse, tip)
        drawing.mark("square", x(v.difference), y, 5, (worse.strip() or "full") if sure else "hollow", tip)
        drawing.text(width, y + 4, texts[owner], "small" + ("" if sure else " quiet"), "end")
    return drawing


# -- privacy ---------------------------------------------------------------------------------------


def spending(history: History, budget: float | None = None, *, width: int = 360) -> str:
    """Draw the ε that each owner has spent in the federated arm.

    Args:
        history: of a simulation.
        budget: ε that each owner may spend; None: no limit was set.
        width: of the view box.
    """
    title = "ε spent, by owner"
    stage = history.stages.get("federated")
    spent = {o: c.spent for o, c in stage.courses.items() if c.spent is not None} if stage else {}
    if not spent:
        return notice(width, title, "nothing was spent: no ε applies here, or nothing was sent yet")
    of = f"of {epsilon(budget)}" if budget is not None else "without a limit"
    texts = {owner: f"{epsilon(value)} {of}" for owner, value in spent.items()}
    words = "; ".join(f"{owner} {text}" for owner, text in texts.items())
    left = 8 + min(width * 0.25, max(width_of(owner) for owner in spent))
    right = width - 10 - max(width_of(text, SMALL) for text in texts.values())
    drawing = Drawing(width, 26 * len(spent) + 6, title, words)
    x = Scale(0, budget or max(spent.values()) or 1.0, left, right)
    for i, (owner, value) in enumerate(spent.items()):
        y = 26 * i + 4
        drawing.text(0, y + 13, fit(owner, left - 6), tip=owner)
        if budget is not None:
            drawing.rect(left, y + 2, right - left, 14, "track", f"budget {epsilon(budget)}")
        drawing.rect(left, y + 4, max(1.0, x(value) - left), 10, "update", f"{owner}: ε = {texts[owner]}")
        drawing.text(width, y + 13, texts[owner], "small", "end")
    return str(drawing)


# -- helpers ---------------------------------------------------------------------------------------


def _arms(history: History) -> list[str]:
    """Return the arms of a history, the federated one first."""
    return [arm for arm in ARMS if arm in history.stages] + [arm for arm in history.stages if arm not in ARMS]


def _tests(history: History, arm: str, owner: str) -> list[Validation]:
    stage = history.stages.get(arm)
    return stage.courses[owner].tests if stage is not None and owner in stage.courses else []


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Leave out points less than half a unit to the right of the last one kept."""
    found: list[tuple[float, float]] = []
    for i, point in enumerate(points):
        if not found or point[0] - found[-1][0] >= 0.5 or i == len(points) - 1:
            found.append(point)
    return found
