"""The figures of the live page: the report's, drawn again when something has changed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fkge.dashboard import figures as module
from fkge.dashboard.figures import Figures
from fkge.dashboard.state import WatchedRun
from fkge.experiment.simulation import Simulation
from tests.conftest import tiny_federation, tiny_settings


def test_a_finished_simulation_has_all_figures_wide_and_narrow(simulated: Path) -> None:
    watched = WatchedRun(simulated)
    watched.refresh()
    found = Figures(watched).draw()
    assert set(found) == {"gains", "network", "accuracy", "timeline", "learned"}
    for figure in found.values():
        for svg, most in ((figure["wide"], module.WIDE), (figure["narrow"], 360)):
            assert float(ElementTree.fromstring(svg).attrib["viewBox"].split()[2]) <= most
            assert "style" not in svg  # the page's policy allows none


def test_figures_are_drawn_again_but_not_at_every_refresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="in-process")
    watched = WatchedRun(tmp_path / "run")
    figures = Figures(watched)
    watched.refresh()
    assert figures.draw() == {}
    kept: list[dict[str, dict[str, str]]] = []

    def watch(record: dict[str, object]) -> None:
        watched.refresh()
        kept.append(figures.draw())

    monkeypatch.setattr(module, "SECONDS_BETWEEN_DRAWINGS", 1e9)
    simulation.run(watch=watch)
    assert len({id(one) for one in kept}) == 1  # once drawn, it was too early for another one
    watched.refresh()
    last = figures.draw()
    assert last is not kept[-1]  # what is over is drawn at once
    assert figures.draw() is last
    assert "gains" in last
