"""Draw the report's figures again as a run grows."""

from __future__ import annotations

import time
from collections.abc import Callable

from fkge.dashboard.state import WatchedRun
from fkge.report.exchange_figures import learned, network
from fkge.report.figures import accuracy, gains, spending, timeline
from fkge.report.run_folder import clock_of

SECONDS_BETWEEN_DRAWINGS = 1.5
"""While a simulation runs; drawing must not take CPU time from it."""

WIDE, NARROW = 960, 340
"""Widths of figures in units of the view box: on a screen, and on a phone."""

Drawn = dict[str, dict[str, str]]
"""Figures as SVG, ``wide`` and ``narrow``, by name."""


class Figures:
    """All figures of a simulation, drawn when something has changed."""

    def __init__(self, watched: WatchedRun) -> None:
        self._watched = watched
        self._drawn: Drawn = {}
        self._version = -1
        self._when = 0.0

    def draw(self) -> Drawn:
        """Return the figures as they are now or, while the simulation runs, were a moment ago."""
        w = self._watched
        with w.lock:
            due = w.status != "running" or time.monotonic() - self._when > SECONDS_BETWEEN_DRAWINGS
            if self._version != w.version and due:
                self._drawn = self._draw()
                self._version, self._when = w.version, time.monotonic()
            return self._drawn

    def _draw(self) -> Drawn:
        w, history = self._watched, self._watched.history
        if not history.stages or w.simulation is None:
            return {}
        clock = clock_of(w.simulation.spec.engine)
        arm = "federated" if "federated" in history.stages else next(reversed(history.stages))
        out: Drawn = {}
        if (result := w.result) is not None and (baseline := w.baseline) is not None:
            out["gains"] = _each(lambda width: gains(result, over=baseline, width=min(width, 460)))
        owners = w.simulation.owners
        shares = {o.name: {peer: len(known.common.entities) for peer, known in o.peers.items()} for o in owners}
        one = network(history, shares, None if w.status == "running" else arm)
        out["network"] = {"wide": one, "narrow": one}
        out["accuracy"] = _each(lambda width: accuracy(history, width=width, two_tracks=w.two_tracks))
        out["timeline"] = _each(lambda width: timeline(history, arm, width=width, clock=clock))
        if "federated" in history.stages:
            out["learned"] = _each(lambda width: learned(history, width=min(width, 400)))
            if any(course.spent is not None for course in history.stages["federated"].courses.values()):
                out["spending"] = _each(lambda width: spending(history, w.budget, width=min(width, 460)))
        return out

    def of_owner(self, owner: str) -> dict[str, str]:
        """Return the validation scores of one owner."""
        w = self._watched
        with w.lock:
            return _each(lambda width: accuracy(w.history, owner, width=min(width, 620), two_tracks=w.two_tracks))


def _each(draw: Callable[[int], str]) -> dict[str, str]:
    return {"wide": draw(WIDE), "narrow": draw(NARROW)}
