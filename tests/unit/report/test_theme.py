"""Colours of figures, on pages and in files."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

from fkge.experiment.history import History
from fkge.report.figures import accuracy, gains, learned, network, spending, timeline
from fkge.report.theme import DARK, FIGURES, LIGHT, resolved, standalone
from tests.unit.report.made import history, result

ALL: dict[str, Callable[[History], str]] = {
    "accuracy": accuracy, "timeline": timeline, "learned": learned, "network": network,
    "spending": lambda h: spending(h, 8.0), "narrow timeline": lambda h: timeline(h, width=360),
}  # fmt: skip


def test_a_file_carries_its_colours() -> None:
    svg = accuracy(history(["ant", "bee"], 2))
    alone, plain = standalone(svg), resolved(svg)
    for text in (alone, plain):
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in alone
    assert DARK["accent"] in alone
    assert "var(" not in plain
    assert LIGHT["accent"] in plain
    used = set(re.findall(r"var\(--([a-z]+)\)", FIGURES)) - {"font"}
    assert used <= LIGHT.keys() == DARK.keys()


def test_every_class_has_a_rule() -> None:
    arms = ("independent", "control", "permuted", "random", "poisoned", "federated", "fede", "unified")
    made = history([f"owner{i}" for i in range(12)], 3, arms=arms)
    drawn = [draw(made) for draw in ALL.values()]
    drawn.append(gains(result({"ant": {"strict": (0.1, 0.2), "held": (-0.2, -0.1), "chained": (-1, 1)}})))
    roles = {role for svg in drawn for found in re.findall(r'class="([^"]+)"', svg) for role in found.split()}
    ruled = set(re.findall(r"\.([a-z]+)", FIGURES))
    assert roles - {"fig"} <= ruled
