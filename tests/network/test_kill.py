"""A node that is killed at any point of the protocol goes on from there: nothing is lost, and nothing is paid twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.conftest import tiny_federation
from tests.network.lives import Lives, dp_settings, game_settings

from fkge.federation import FederationSettings

NAMES = ("ant", "bee")


def survive(folder: Path, settings: FederationSettings, victim: str, points: Sequence[str]) -> None:
    """Kill one of two nodes at one point after the other; whatever it was doing, both end as if nothing had been."""
    with Lives(folder, tiny_federation(NAMES).graphs, settings) as circle:
        (other,) = set(circle.names) - {victim}
        circle.start_all(victim, tapes=True)
        for point in points:
            circle.start(victim, crash=point)
            assert circle.ended(victim, 40) == -signal.SIGKILL, f"{point}:\n{circle.output(victim)}"
            circle.check_whole(victim)
        circle.start(victim)
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        assert circle.check_nothing_twice(victim, other)
        lives = [entry["number"] for entry in circle.audit(victim, "life")]
        assert lives == sorted(set(lives))
        assert lives[-1] == len(points) + 1


def test_killed_at_four_points_and_nothing_is_lost(tmp_path: Path) -> None:
    points = ["after Pact sent 1", "after pay 3", "before Offer sent 2", "before save 2"]
    survive(tmp_path, dp_settings(), "ant", points)


def test_killed_in_a_game_no_vote_is_given_twice(tmp_path: Path) -> None:
    survive(tmp_path, game_settings(), "bee", ["after Gradient sent 4", "before Received heard 1"])


# -- everywhere --------------------------------------------------------------------------------------

MEETING = ("Keys", "Intersect", "Pact", "Tokens")
FEDERATION = ("Signal", "Request", "Accept", "Offer", "Thanks")
GAME = ("Samples", "Gradient", "Candidate", "Received")


def passing(messages: Sequence[str], count: int = 1) -> Iterator[str]:
    """Before and after each is sent, and before and after each is heard."""
    for message in messages:
        for way in ("sent", "heard"):
            for when in ("before", "after"):
                yield f"{when} {message} {way} {count}"


def calling(words: Sequence[str], count: int = 1) -> Iterator[str]:
    """Before and after each call."""
    for word in words:
        for when in ("before", "after"):
            yield f"{when} {word} {count}"


SWEEPS: dict[str, tuple[FederationSettings, str, tuple[str, ...]]] = {
    "greeting, the caller": (dp_settings(), "ant", tuple(passing(["Hello"]))),
    "greeting, the called": (dp_settings(), "bee", tuple(passing(["Hello"]))),
}
for victim, speaks in (("ant", "heard"), ("bee", "sent")):
    met = [point for point in passing(MEETING) if f"Pact {speaks}" not in point]  # the first in order names the pact
    more = ["after left 1", "before keep 2", "after keep 3", "before know 1", "after know 1"]
    SWEEPS[f"meeting, {victim}"] = dp_settings(), victim, (*met[:-4], *more, *met[-4:])
    rounds = dp_settings(exchanges=100)
    SWEEPS[f"exchanging, {victim}"] = rounds, victim, tuple(passing(FEDERATION, 2))
    words = [*calling(["pay", "leave", "left", "save", "replace", "improve", "finish"], 3), *calling(["keep"], 1)]
    SWEEPS[f"keeping, {victim}"] = rounds, victim, tuple(words)
    SWEEPS[f"concluding, {victim}"] = dp_settings(), victim, tuple(calling(["conclude", "report"]))
    games = game_settings(exchanges=60)
    SWEEPS[f"playing, {victim}"] = games, victim, (*passing(GAME, 2), *calling(["pay", "leave", "save"], 2))


@pytest.mark.long
@pytest.mark.parametrize("name", SWEEPS)
def test_killed_anywhere(name: str, tmp_path: Path) -> None:
    survive(tmp_path, *SWEEPS[name])
