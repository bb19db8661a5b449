"""Figures are well-formed, show every owner, stay within their frame, and never fail on a run that has just begun."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.experiment.history import History
from fkge.experiment.trace_events import TrainingValidated
from fkge.report import figures
from fkge.report.figures import accuracy, curve, gains, learned, network, spending, timeline
from fkge.report.svg import width_of
from tests.unit.report.made import history, records, result

ALL: dict[str, Callable[[History], str]] = {
    "accuracy": accuracy, "timeline": timeline, "learned": learned, "network": network,
    "spending": lambda h: spending(h, 8.0), "narrow timeline": lambda h: timeline(h, width=360),
}  # fmt: skip
HARD = ["Ångström & Söhne <GmbH>", 'a "quoted" one', "株式会社ナレッジ", "x" * 80, "\x00\x1b[0m"]


def parsed(svg: str) -> ET.Element:
    root = ET.fromstring(svg)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.find("title") is not None
    assert root.find("desc") is not None
    return root


def placed(element: ET.Element, dx: float = 0, dy: float = 0) -> Iterator[tuple[ET.Element, float, float]]:
    """All elements with how far they were moved."""
    moved = re.fullmatch(r"translate\(([-\d.]+),([-\d.]+)\)", element.get("transform", ""))
    dx, dy = (dx + float(moved[1]), dy + float(moved[2])) if moved else (dx, dy)
    yield element, dx, dy
    for child in element:
        yield from placed(child, dx, dy)


def corners(element: ET.Element) -> list[tuple[float, float]]:
    """Points that an element reaches, but for text."""
    at = {key: float(value) for key, value in element.attrib.items() if re.fullmatch(r"-?[\d.]+", value)}
    if element.tag == "rect":
        return [(at["x"], at["y"]), (at["x"] + at["width"], at["y"] + at["height"])]
    if element.tag == "line":
        return [(at["x1"], at["y1"]), (at["x2"], at["y2"])]
    if element.tag == "circle":
        r = at["r"]
        return [(at["cx"] - r, at["cy"] - r), (at["cx"] + r, at["cy"] + r)]
    if element.tag == "path":
        return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", element.get("d", ""))]
    return []


def check_within(svg: str) -> ET.Element:
    root = parsed(svg)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    for element, dx, dy in placed(root):
        for x, y in corners(element):
            assert -1 <= x + dx <= width + 1, ET.tostring(element)
            assert -1 <= y + dy <= height + 1, ET.tostring(element)
        if element.tag == "text" and "rotate" not in element.get("transform", ""):
            wide = width_of("".join(t for t in [element.text or "", *(c.tail or "" for c in element)]), 11)
            x = float(element.get("x", 0)) + dx
            left = {"end": x - wide, "middle": x - wide / 2}.get(element.get("text-anchor", ""), x)
            # Real fonts are narrower than `width_of` says; what it says must fit.
            assert left >= -2, ET.tostring(element)
            assert left + wide <= width + 2, ET.tostring(element)
            assert 0 < float(element.get("y", 0)) + dy <= height
    return root


def words(root: ET.Element) -> str:
    return "\n".join(t for e in root.iter() for t in [e.text or "", e.tail or ""])


@pytest.mark.parametrize("name", ALL)
@given(owners=st.integers(1, 30), rounds=st.integers(0, 4), hard=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_any_run_is_drawn_within_its_frame(name: str, owners: int, rounds: int, hard: bool, seed: int) -> None:
    names = [(HARD[i] if hard and i < len(HARD) else f"owner{i}") for i in range(owners)]
    svg = ALL[name](history(names, rounds, seed=seed))
    root = check_within(svg)
    if rounds >= 2 and owners >= 2:
        told = words(root)
        assert all(f"owner{i}" in told for i in range(len(HARD), owners))


@pytest.mark.parametrize("name", ALL)
@given(cut=st.integers(0, 60), data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_run_interrupted_anywhere_is_drawn(name: str, cut: int, data: st.DataObject) -> None:
    made = records(["ant", "bee", "cat"], 3)[:cut]
    if made and data.draw(st.booleans()):
        made.append({"event": "died", "arm": made[0]["arm"], "owner": "ant", "t": 9.0, "why": "killed <9>"})
    check_within(ALL[name](History.of(made)))


def test_an_empty_history_says_so() -> None:
    for draw in ALL.values():
        assert re.search("nothing|no owner", words(parsed(draw(History()))))
    assert "no owner" not in words(parsed(accuracy(history(["ant"], 1))))


def test_accuracy_tells_arms_apart_and_marks_tests() -> None:
    made = history(["ant", "bee", "cat"], 4, arms=("control", "federated", "fede"))
    root = parsed(accuracy(made, "ant"))
    lines = [e.get("class") for e in root.iter("path") if "line" in e.get("class", "")]
    assert set(lines) == {"line federated", "line control", "line fede"}
    assert lines[-1] == "line federated", "drawn last, so that it is on top"
    course = made.stages["federated"].courses["ant"]
    marks = [e.get("class") for e in root.iter() if e.get("class") in ("full", "back")]
    assert marks.count("full") == sum(t.improved and bool(t.peers) for t in course.tests) > 0
    assert marks.count("back") == course.backtracked > 0
    assert "learned from bee, cat" in words(root)


def test_under_two_tracks_no_gain_on_control_is_told() -> None:
    made = history(["ant", "bee"], 2)
    assert "over control" in accuracy(made, "ant")
    assert "over control" not in accuracy(made, "ant", two_tracks=True)


def test_timeline_has_a_lane_for_translations_and_leaves_trailing_sleep_out() -> None:
    made = records(["ant", "bee"], 2, arms=["federated"])
    over = next(i for i, r in enumerate(made) if r["event"] == "concluded")
    made[over]["t"] = 900.0  # ant slept long before it was told that all is over
    root = check_within(timeline(History.of(made)))
    spans = [e for e in root.iter("rect") if e.get("class") == "update"]
    assert len(spans) == 3, "one in the legend, one for each owner"
    assert not re.search(r"\b[2-9]00\b", words(root)), "the axis ends where work ends"
    rects = [(e.get("class"), e.get("y")) for e in root.iter("rect")]
    update, translate = ({y for role, y in rects if role == wanted} for wanted in ("update", "translate"))
    assert update
    assert translate
    assert not update & translate


def test_spans_narrower_than_a_pixel_become_one() -> None:
    start = {"event": "arm", "arm": "federated", "time": 0, "epochs": 9, "owners": ["ant"]}
    work = [{"event": "work", "arm": "federated", "owner": "ant", "t": i / 100, "since": i / 100 - 0.005, "peers": [],
             "epoch": 1, "score": None} for i in range(1, 100_000, 10)]  # fmt: skip
    svg = timeline(History.of([start, *work]), width=400)
    assert svg.count('class="update"') < 420
    assert re.search(r"\d+ × KGEmb-Update", svg)


def test_learned_counts_updates() -> None:
    made = history(["ant", "bee", "cat"], 4)
    told = words(parsed(learned(made)))
    for owner, course in made.stages["federated"].courses.items():
        for peer, many in course.hosted.items():
            assert f"{owner} learned from {course.learned[peer]} of {many} updates of {peer}" in told


def test_network_shows_states_and_handshakes_running() -> None:
    made = history(["ant", "bee", "cat"], 1, arms=["federated"])
    made.feed({"event": "arm", "arm": "federated", "time": 1e9, "epochs": 9, "owners": ["ant", "bee", "cat"]})
    made.feed({"event": "hosting", "arm": "federated", "owner": "ant", "peer": "cat", "t": 1.0})
    made.feed({"event": "died", "arm": "federated", "owner": "bee", "t": 1.0, "why": "out of memory"})
    told = words(check_within(network(made, {"ant": {"bee": 5, "cat": 900}})))
    assert "cat → ant: translation running" in told
    assert "ant and cat share 900 entities" in told
    assert "out of memory" in told
    assert "dead" in told


def test_gains_are_filled_where_zero_is_left_out() -> None:
    found = result({"ant": {"strict": (0.01, 0.03), "held": (-0.02, 0.05)}, "bee": {"strict": (-0.04, -0.01)}})
    root = check_within(gains(found))
    marks = [(e.get("class"), e.findtext("title")) for e in root.iter("path")]
    assert [m for m in marks if m[0] == "full"] == [("full", "ant: +.020 (+.010 … +.030); significant")]
    assert [m for m in marks if m[0] == "worse"] == [("worse", "bee: −.025 (−.040 … −.010); significant")]
    assert [m for m in marks if m[0] == "hollow"] == [("hollow", "ant: +.015 (−.020 … +.050); may be chance")]
    assert "bee" not in words(parsed(gains(found, "held")))
    assert "nothing to compare" in gains(result({"ant": {"strict": (0, 1)}}, arms=["federated"]))


@given(st.lists(st.tuples(st.floats(-0.9, 0.9), st.floats(0, 0.5)), min_size=1, max_size=30))
@settings(deadline=None)
def test_any_gains_stay_within_their_frame(intervals: list[tuple[float, float]]) -> None:
    made = {f"owner{i}": {"strict": (low, low + more)} for i, (low, more) in enumerate(intervals)}
    check_within(gains(result(made), "strict"))


def test_curve_of_a_training() -> None:
    found = [TrainingValidated(epoch=e, mrr=e / 100, best=True) for e in range(5, 50, 5)]
    assert "epoch 45: .450" in words(check_within(curve(found)))
    assert "no validation yet" in curve([])


def test_the_names_of_this_room() -> None:
    assert set(figures.__all__) >= {"accuracy", "timeline", "learned", "gains", "network", "spending", "curve"}
