"""A node that is killed at any point of the protocol goes on from there: nothing is lost, and nothing is paid twice."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.conftest import tiny_federation
from tests.network.lives import Lives, dp_settings, game_settings

from fkge.federation import FederationSettings


def survive(folder: Path, settings: FederationSettings, victim: str, points: Sequence[str]) -> None:
    """Kill one of two nodes at one point after the other; whatever it was doing, both end as if nothing had been."""
    with Lives(folder, tiny_federation(("ant", "bee")).graphs, settings) as circle:
        (other,) = set(circle.names) - {victim}
        circle.start_all(victim, tapes=True)
        for point in points:
            circle.start(victim, crash=point)
            assert circle.ended(victim) == -signal.SIGKILL, f"{point}:\n{circle.output(victim)}"
            circle.check_whole(victim)
        circle.start(victim)
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        assert circle.check_nothing_twice(victim, other)
        lives = [entry["number"] for entry in circle.audit(victim, "life")]
        assert lives == list(range(1, len(points) + 2))


def test_killed_at_four_points_and_nothing_is_lost(tmp_path: Path) -> None:
    points = ["after Pact sent 1", "after pay 3", "before Offer sent 2", "before save 2"]
    survive(tmp_path, dp_settings(), "ant", points)
