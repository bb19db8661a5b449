"""Draw the two figures of exchanges between owners: who learned from whom, and the state of the federation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fkge.experiment.history import Course, History, Stage
from fkge.report.svg import SMALL, Anchor, Drawing, Sample, Shape, fit, legend, notice, width_of

STATES: Mapping[str, tuple[Shape, str]] = {
    "idle": ("circle", "idle"), "ready": ("circle", "idle"), "training": ("square", "busy"),
    "translating": ("diamond", "worse"), "updating": ("square", "full"), "sleeping": ("circle", "idle"),
    "private": ("diamond", "apart"), "lone": ("square", "apart"), "scoring": ("diamond", "idle"),
    "done": ("circle", "done"), "dead": ("cross", "dead"),
}  # fmt: skip
"""Shape and role of each state of an owner; the word is shown next to it."""

Shares = Mapping[str, Mapping[str, int]]
"""Number of entities in common, by owner and peer."""


def learned(history: History, *, width: int = 360) -> str:
    """Draw who learned from whom: of the updates an owner translated, those it aggregated before its score improved.

    A row is an owner that learned, a column a peer it learned from. The area of a disc is the share of those updates;
    without a ring, nothing was translated. The figure is wider than `width` where there are many owners.
    """
    title = "Who learned from whom"
    stage = history.stages.get("federated")
    if stage is None or not any(course.hosted for course in stage.courses.values()):
        return notice(width, title, "nothing was translated yet")
    if not any(course.tests for course in stage.courses.values()):
        return notice(width, title, "translated, but not validated: nothing shows what was learned")
    owners = list(stage.courses)
    left = 10 + min(width * 0.26, max(width_of(owner) for owner in owners))
    cell = max(14.0, min(64.0, (width - left) / len(owners)))
    wide = max(width, left + cell * len(owners))
    numbers = cell >= 38
    flat = all(width_of(owner, SMALL) <= cell - 4 for owner in owners)
    top = 36 if flat else 26 + min(80.0, max(width_of(owner, SMALL) for owner in owners))
    drawing = Drawing(wide, top + cell * len(owners) + 4, title, _who(stage))
    drawing.text(0, 12, "learned ↓  from →", "small quiet")
    for i, owner in enumerate(owners):
        x = left + cell * (i + 0.5)
        if flat:
            drawing.text(x, top - 8, owner, "small", "middle")
        else:
            drawing.text(x + 4, top - 6, fit(owner, top - 26, SMALL), "small", turn=-90, tip=owner)
        drawing.text(0, top + cell * (i + 0.5) + 4, fit(owner, left - 8, SMALL), "small", tip=owner)
    for i, owner in enumerate(owners):
        for j, peer in enumerate(owners):
            x, y = left + cell * (j + 0.5), top + cell * (i + 0.5)
            _cell(drawing, stage.courses[owner], peer, x, y, cell, numbers)
    return str(drawing)


def _cell(drawing: Drawing, course: Course, peer: str, x: float, y: float, cell: float, numbers: bool) -> None:
    if peer == course.owner:
        drawing.rect(x - cell / 2 + 1, y - cell / 2 + 1, cell - 2, cell - 2, "track")
        return
    hosted = course.hosted[peer]
    if not hosted:
        drawing.mark("circle", x, y, 1.2, "dot", f"{course.owner} translated nothing of {peer}")
        return
    took = min(course.learned[peer], hosted)
    r = cell * (0.3 if numbers else 0.4)
    at = y - 6 if numbers else y
    tip = f"{course.owner} learned from {took} of {hosted} updates of {peer}"
    drawing.mark("circle", x, at, r, "track", tip)
    if took:
        drawing.mark("circle", x, at, max(1.0, r * math.sqrt(took / hosted)), "update", tip)
    if numbers:
        drawing.text(x, y + cell / 2 - 5, f"{took}/{hosted}", "small", "middle")


def _who(stage: Stage) -> str:
    parts = [
        f"{owner} from {peer}: {min(course.learned[peer], many)} of {many}"
        for owner, course in stage.courses.items()
        for peer, many in course.hosted.items()
    ]
    return "Updates aggregated before the validation score improved, of those translated. " + "; ".join(parts)


def network(history: History, shares: Shares | None = None, arm: str | None = None) -> str:
    """Draw the owners in a circle with their states, what they share, and running translations.

    Args:
        history: of a simulation.
        shares: entities in common; None: owners that have exchanged updates are linked.
        arm: which arm; None: the running one, or the last.
    """
    width, title = 360, "The federation: who shares with whom, and the state of each owner"
    stage = history.now if arm is None else history.stages.get(arm)
    if stage is None or not stage.courses:
        return notice(width, title, "no owner has started yet")
    owners = list(stage.courses)
    crowded = len(owners) > 10
    # Always leave room for the longest state, so that the figure does not move when a state changes.
    widest = max(width_of(owner) for owner in owners) if crowded else max(map(width_of, [*owners, "translating"]))
    room = min(width * 0.3, 16 + widest)
    radius = max(60.0, width / 2 - room - 10)
    edge = room + 8 if crowded else 42
    places = [_place(i, len(owners), radius) for i in range(len(owners))]
    top, bottom = min(y for _, y in places), max(y for _, y in places)
    height = bottom - top + 2 * edge
    at = {owner: (width / 2 + x, edge - top + y) for owner, (x, y) in zip(owners, places, strict=True)}
    samples = [Sample("stroke", "edge", "shares entities (thicker: more)")]
    if crowded:  # no room for the words next to the owners
        states = dict.fromkeys(course.state for course in stage.courses.values())
        samples += [Sample(*STATES.get(state, STATES["idle"]), state) for state in states]
    live = [(peer, o) for o, c in stage.courses.items() if c.state == "translating" for peer in c.peers if peer in at]
    if live:
        samples.append(Sample("stroke", "live", "translation running"))
    words = "; ".join(f"{o}: {c.state}" + (f" with {', '.join(c.peers)}" if c.peers else "")
                      for o, c in stage.courses.items())  # fmt: skip
    key = legend(samples, width)
    drawing = Drawing(width, height + key.height + 6, title, f"{stage.arm}: {words}")
    _edges(drawing, stage, shares, at)
    for peer, owner in live:
        _arrow(drawing, at[peer], at[owner], f"{peer} → {owner}: translation running")
    for i, owner in enumerate(owners):
        _node(drawing, stage.courses[owner], at[owner], math.tau * i / len(owners) - math.pi / 2, room, crowded)
    drawing.place(key, 0, height + 2)
    return str(drawing)


def _place(i: int, many: int, radius: float) -> tuple[float, float]:
    """Return the i-th of `many` points on a circle around (0, 0), from the top; a single owner is in the centre."""
    angle = math.tau * i / many - math.pi / 2
    radius = 0 if many == 1 else radius
    return radius * math.cos(angle), radius * math.sin(angle)


def _edges(drawing: Drawing, stage: Stage, shares: Shares | None, at: Mapping[str, tuple[float, float]]) -> None:
    pairs: dict[tuple[str, str], int] = {}
    for owner, course in stage.courses.items():
        common = shares.get(owner, {}) if shares is not None else dict.fromkeys(course.hosted, 0)
        for peer, many in common.items():
            if peer in at:
                pairs[min(owner, peer), max(owner, peer)] = many
    most = max(pairs.values(), default=0)
    thin = min(1.0, 5 / len(at))
    for (a, b), many in pairs.items():
        width = thin * (1 + 5 * math.sqrt(many / most) if most else 1.5)
        tip = f"{a} and {b} share {many:,} entities" if most else f"{a} and {b} have exchanged updates"
        drawing.line(*at[a], *at[b], "edge", tip, width)


def _arrow(drawing: Drawing, start: tuple[float, float], end: tuple[float, float], tip: str) -> None:
    """Draw an arrow from client to host, the direction in which updates are sent."""
    length = math.dist(start, end) or 1.0
    ux, uy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    x, y = end[0] - 12 * ux, end[1] - 12 * uy
    drawing.line(*start, x - 4 * ux, y - 4 * uy, "live", tip)
    left, right = (x - 9 * ux - 5 * uy, y - 9 * uy + 5 * ux), (x - 9 * ux + 5 * uy, y - 9 * uy - 5 * ux)
    drawing.path([left, (x, y), right, left], "tip", tip)


def _node(drawing: Drawing, course: Course, at: Sequence[float], angle: float, room: float, crowded: bool) -> None:
    shape, role = STATES.get(course.state, ("circle", "idle"))
    x, y = at
    doing = course.state + (f" with {', '.join(course.peers)}" if course.peers else "")
    tip = f"{course.owner}: {doing}, epoch {course.epoch:,}" + (f"; {course.why}" if course.why else "")
    r = 4.5 if crowded else 7
    drawing.mark("circle", x, y, r + 1.5, "inverse")
    drawing.mark(shape, x, y, r, role, tip)
    cos, sin = math.cos(angle), math.sin(angle)
    if crowded:
        left = cos < -0.01
        anchor: Anchor = "end" if left else "start"
        turn = math.degrees(angle) + (180 if left else 0)
        caption = fit(course.owner, room - 4, SMALL)
        drawing.text(x + 12 * cos, y + 12 * sin, caption, "small", anchor, turn, tip)
        return
    side: Anchor = "middle" if abs(cos) < 0.3 else "start" if cos > 0 else "end"
    dx = 0 if side == "middle" else 14 * (1 if cos > 0 else -1)
    dy = (20 if sin > 0 else -26) if side == "middle" else -2
    wide = room * 1.8 if side == "middle" else room - 4
    drawing.text(x + dx, y + dy, fit(course.owner, wide), "strong", side, tip=tip)
    drawing.text(x + dx, y + dy + 14, fit(course.state, wide, SMALL), "small quiet", side)
