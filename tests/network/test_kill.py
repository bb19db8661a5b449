"""A node that is killed at any point of the protocol goes on from there: nothing is lost, and nothing is paid twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fkge.federation import FederationSettings
from tests.conftest import tiny_federation
from tests.network.lives import Lives, dp_settings, game_settings

NAMES = ("ant", "bee")


def survive(
    folder: Path, settings: FederationSettings, victim: str, points: Sequence[str], calls: bool = True,
    names: tuple[str, ...] = NAMES,
) -> None:  # fmt: skip
    """Kill one node at one point after the other; whatever it was doing, all end as if nothing had been.

    Args:
        calls: it is the victim that calls the others, as soon as it lives.
        names: of all nodes.
    """
    with Lives(folder, tiny_federation(names).graphs, settings, grace=60.0) as circle:
        if calls:
            circle.write(victim, listen="", grace=60.0)
        circle.start_all(victim, tapes=True)
        for point in points:
            circle.start(victim, crash=point)
            life = circle.processes.pop(victim)
            circle.wait_for(lambda: life.poll() is not None or circle.result(victim).exists(), 40)  # noqa: B023
            assert life.wait(10) == -signal.SIGKILL, f"{point}:\n{circle.output(victim)}"
            circle.check_whole(victim)
        circle.start(victim)
        circle.await_results()
        circle.await_state(victim, "done")
        circle.stop_all()
        circle.check_ended()
        assert circle.check_nothing_twice(victim, *(set(names) - {victim}))
        lives = [entry["number"] for entry in circle.audit(victim, "life")]
        assert lives == sorted(set(lives))


def test_killed_at_four_points_and_nothing_is_lost(tmp_path: Path) -> None:
    points = ["after Pact sent 1", "after pay 3", "before Update sent 2", "before save 2"]
    survive(tmp_path, dp_settings(), "ant", points)


@pytest.mark.long
def test_killed_in_a_game_no_vote_is_given_twice(tmp_path: Path) -> None:
    survive(tmp_path, game_settings(), "bee", ["after Gradient sent 4", "before Received heard 1"])


# -- everywhere --------------------------------------------------------------------------------------

MEETING = ("Keys", "Intersect", "Pact")
FEDERATION = ("Signal", "Request", "Accept", "Update", "Ack")
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


Sweep = tuple[FederationSettings, str, tuple[str, ...]]


def sweeps(victim: str) -> Iterator[tuple[str, Sweep]]:
    """For one of the two nodes, all points, in an order in which each can be reached; a federation for each part."""
    unheard = "Pact heard" if victim == "ant" else "Pact sent"  # the first in order names the pact
    met = [point for point in passing(MEETING) if unheard not in point]
    align = ["after left 1", "before keep 2", "before know 1", "after know 1"]
    settle = ["before Tokens heard 1", "before Tokens sent 1", "after Tokens sent 1"]
    yield "meeting", (dp_settings(), victim, (*met, *align, *settle))
    rounds = dp_settings(exchanges=150)
    yield "exchanging", (rounds, victim, tuple(passing(FEDERATION, 2)))
    words = ["pay", "leave", "left", "save", "replace", "improve", "finish"]
    yield "keeping", (rounds, victim, (*calling(words, 3), *calling(["keep"])))
    games = game_settings(exchanges=100)
    yield "playing", (games, victim, (*passing(GAME, 2), *calling(["pay", "leave", "save"], 2)))
    # What was settled, or has concluded, is so for good.
    end = ("before conclude 1", "before report 1", "after report 1") if victim == "ant" else ("after conclude 1",)
    yield "concluding", (dp_settings(), victim, ("after Tokens heard 1", *end))


SWEEPS = {f"{part}, {victim}": sweep for victim in NAMES for part, sweep in sweeps(victim)}


@pytest.mark.long
@pytest.mark.parametrize("name", SWEEPS)
def test_killed_anywhere(name: str, tmp_path: Path) -> None:
    survive(tmp_path, *SWEEPS[name])


@pytest.mark.long
def test_killed_while_somebody_is_put_off(tmp_path: Path) -> None:
    """Of two nodes, neither asks while the other is busy; of three, some do."""
    points = tuple(passing(["Defer"]))
    survive(tmp_path, dp_settings(exchanges=150), "bee", points, names=(*NAMES, "cat"))


@pytest.mark.long
@pytest.mark.parametrize("victim", NAMES)
def test_killed_while_greeting(victim: str, tmp_path: Path) -> None:
    """Of two that listen, the first in order calls."""
    survive(tmp_path, dp_settings(), victim, tuple(passing(["Hello"])), calls=False)
