"""The report's figures, drawn again as a run grows, and the style sheet that they share with the page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fkge.dashboard.state import Watched
from fkge.report import theme
from fkge.report.among import learned, network
from fkge.report.figures import accuracy, gains, spending, timeline
from fkge.report.layout import colours

SECONDS_BETWEEN_DRAWINGS = 1.5
"""While a run is under way; drawing must not take time from it."""

WIDE, NARROW = 960, 340
"""Units across: on a screen, and on a phone, where the same units are as large as elsewhere."""

Drawn = dict[str, dict[str, str]]
"""By a figure's name, its SVG: ``wide`` and ``narrow``."""


class Figures:
    """All figures of a simulation, drawn when something has changed."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._drawn: Drawn = {}
        self._version = -1
        self._when = 0.0
        self._shares: tuple[dict[str, Any], dict[str, dict[str, int]]] = ({}, {})

    def draw(self) -> Drawn:
        """Those that were drawn a moment ago may be a moment old."""
        w = self._watched
        with w.lock:
            due = w.status != "running" or time.monotonic() - self._when > SECONDS_BETWEEN_DRAWINGS
            if self._version != w.version and due:
                self._drawn = self._draw()
                self._version, self._when = w.version, time.monotonic()
            return self._drawn

    def _draw(self) -> Drawn:
        w, history = self._watched, self._watched.history
        if not history.stages:
            return {}
        clock = "seconds of the engine's own clock" if w.about.get("engine") in ("in-process", "ray") else "seconds"
        arm = "federated" if "federated" in history.stages else next(reversed(history.stages))
        out: Drawn = {}
        if w.result is not None and w.before is not None:
            out["gains"] = _each(lambda width: gains(w.result or {}, over=w.before or "", width=min(width, 460)))
        one = network(history, self._common(), None if w.status == "running" else arm)
        out["network"] = {"wide": one, "narrow": one}
        out["accuracy"] = _each(lambda width: accuracy(history, width=width, two_tracks=w.two_tracks))
        out["timeline"] = _each(lambda width: timeline(history, arm, width=width, clock=clock))
        if "federated" in history.stages:
            out["learned"] = _each(lambda width: learned(history, width=min(width, 400)))
            if any(course.spent is not None for course in history.stages["federated"].courses.values()):
                out["spending"] = _each(lambda width: spending(history, w.budget, width=min(width, 460)))
        return out

    def of_owner(self, owner: str) -> dict[str, str]:
        """One owner's course."""
        w = self._watched
        with w.lock:
            return _each(lambda width: accuracy(w.history, owner, width=min(width, 620), two_tracks=w.two_tracks))

    def _common(self) -> dict[str, dict[str, int]]:
        """By owner and peer, entities in common; read once."""
        from fkge.simulations import Simulation

        about, shares = self._shares
        if about is not self._watched.about:
            homes = Simulation.open(self._watched.run).homes
            shares = {h.name: {peer: len(known.common.entities) for peer, known in h.peers.items()} for h in homes}
            self._shares = self._watched.about, shares
        return shares


def _each(draw: Callable[[int], str]) -> dict[str, str]:
    return {"wide": draw(WIDE), "narrow": draw(NARROW)}


def style_sheet() -> str:
    """Colours by role, light and dark, and what figures look like: the report's."""
    return colours() + theme.FIGURES
