"""The figures of the live page: the report's, drawn again when something has changed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.conftest import tiny_federation, tiny_settings

from fkge.dashboard import drawn
from fkge.dashboard.drawn import Figures, style_sheet
from fkge.dashboard.state import Watched
from fkge.simulations import Simulation


def test_a_finished_simulation_has_all_figures_wide_and_narrow(simulated: Path) -> None:
    watched = Watched(simulated)
    watched.look()
    found = Figures(watched).draw()
    assert set(found) == {"gains", "network", "accuracy", "timeline", "learned"}
    for figure in found.values():
        for svg, most in ((figure["wide"], drawn.WIDE), (figure["narrow"], 360)):
            assert float(ElementTree.fromstring(svg).attrib["viewBox"].split()[2]) <= most
            assert "style" not in svg  # the page's policy allows none


def test_what_a_run_grows_is_drawn_again_but_not_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="in-process")
    watched = Watched(tmp_path / "run")
    figures = Figures(watched)
    watched.look()
    assert figures.draw() == {}
    kept: list[dict[str, dict[str, str]]] = []

    def watch(record: dict[str, object]) -> None:
        watched.look()
        kept.append(figures.draw())

    monkeypatch.setattr(drawn, "SECONDS_BETWEEN_DRAWINGS", 1e9)
    simulation.run(watch=watch)
    assert len({id(one) for one in kept}) == 1  # once drawn, it was too early for another one
    watched.look()
    last = figures.draw()
    assert last is not kept[-1]  # what is over is drawn at once
    assert figures.draw() is last
    assert "gains" in last


def test_the_style_sheet_has_light_and_dark() -> None:
    text = style_sheet()
    assert text.count("--accent:") >= 2
    assert "prefers-color-scheme: dark" in text
    assert ".fig .federated" in text
