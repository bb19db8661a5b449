"""The live view fits every terminal and shows what happened."""

from __future__ import annotations

from io import StringIO
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from fkge.cli.live import View, clock_text, short_bytes
from fkge.experiment.history import History


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(view: View, arm: str, owners: list[str], epochs: int = 20) -> None:
    view.feed({"event": "arm", "arm": arm, "time": 0.0, "epochs": epochs, "owners": owners})


def work(arm: str, owner: str, epoch: int, score: float, best: float, **more: Any) -> dict[str, Any]:
    record = {"event": "work", "arm": arm, "owner": owner, "t": float(epoch), "since": epoch - 1.0, "epoch": epoch}
    outcome = {"initial": False, "score": score, "best": best, "improved": score >= best, "backtracked": False}
    return record | outcome | more


def drawn(view: View, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(view)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line for line in text.split("\n") if line]


def federated(owners: list[str]) -> tuple[View, Clock]:
    """Halfway through the second of two arms."""
    clock = Clock()
    view = View("circle", {"control": 20, "federated": 20}, History(), clock)
    begin(view, "control", owners)
    for owner in owners:
        view.feed(work("control", owner, 10, 0.312, 0.312))
        view.feed(work("control", owner, 20, 0.4, 0.4))  # the federated ones are not that far yet
    view.feed({"event": "arm over", "arm": "control", "seconds": 5.0})
    begin(view, "federated", owners)
    for owner in owners:
        peer = owners[0] if owner != owners[0] else owners[-1]
        for number in range(3):
            hosting = {"arm": "federated", "owner": owner, "peer": peer, "t": float(number)}
            view.feed({"event": "hosting", **hosting})
            view.feed({"event": "translated", **hosting})
        view.feed(work("federated", owner, 6, 0.3, 0.3, peers=[peer]))
        view.feed(work("federated", owner, 10, 0.331, 0.331, peers=[peer], sent=1_234_567, spent=1.5))
    clock.now = 60.0
    return view, clock


def test_a_shared_track_is_not_compared_with_control() -> None:
    view, _ = federated(["ant", "bee"])
    assert "Δ ctrl" in drawn(view, width=100)[1]
    view.two_tracks = True
    assert "Δ ctrl" not in drawn(view, width=100)[1]


def test_a_row_shows_the_figures_of_an_owner() -> None:
    view, _ = federated(["ant", "bee"])
    view.feed({"event": "state", "arm": "federated", "owner": "bee", "state": "sleep", "t": 11.0})
    view.feed({"event": "died", "arm": "federated", "owner": "ant", "why": "killed by signal 9", "t": 12.0})
    head, titles, ant, bee, *said = drawn(view, width=100)
    assert "circle  federated (arm 2 of 2)" in head
    assert head.endswith("75%  1:00, about 0:20 left")
    words = ["owner", "does", "epochs", "MRR", "best", "Δ", "ctrl", "exch.", "kept", "back", "sent", "ε"]
    assert titles.split() == words
    assert ant.split()[:2] == ["ant", "died"]
    assert bee.split()[:2] == ["bee", "sleeping"]
    assert bee.split()[-8:] == [".331", "+.019", "3", "2", "0", "1.2", "MB", "1.5"]
    assert said[-1] == "ant died: killed by signal 9"
    assert "bee learned from ant: 0.300 → 0.331" in said


def test_less_important_columns_are_left_out_first() -> None:
    view, _ = federated(["ant", "bee"])
    assert "sent" in drawn(view, 90)[1]
    assert "sent" not in drawn(view, 60)[1]
    assert "best" in drawn(view, 40)[1]
    assert "MRR" not in drawn(view, 40)[1]


def test_a_resumed_run_counts_its_speed_from_where_it_was() -> None:
    view, _ = federated(["ant", "bee"])
    clock = Clock()
    resumed = View("circle", view.plan, view.history, clock)
    assert resumed.share == 0.75
    clock.now = 10.0
    assert resumed.remaining is None
    for owner in ("ant", "bee"):
        resumed.feed({"event": "progress", "arm": "federated", "owner": owner, "epoch": 15, "t": 20.0})
    assert resumed.remaining == 10.0  # an eighth of all took ten seconds, and an eighth is left


def test_an_empty_view_has_one_line() -> None:
    view = View("circle", {"control": 20}, History(), Clock())
    assert [line.split()[0] for line in drawn(view)] == ["circle"]


@settings(max_examples=60, deadline=None)
@given(
    owners=st.lists(st.text("abcé漢", min_size=1, max_size=24), min_size=2, max_size=30, unique=True),
    width=st.integers(40, 200),
    height=st.integers(8, 60),
)
def test_it_fits_for_any_number_of_owners(owners: list[str], width: int, height: int) -> None:
    view, _ = federated(owners)
    lines = drawn(view, width, height)
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) < height
    shown = len(owners) if len(owners) <= height - 3 else height - 4
    assert ("more owners" in "".join(lines)) is (shown < len(owners))


def test_figures_are_short() -> None:
    assert [short_bytes(n) for n in (0, 999, 1000, 99_499, 1_234_567, 123_456_789, 5.2e9, 7e12)] == [
        "0 B", "999 B", "1.0 kB", "99.5 kB", "1.2 MB", "123 MB", "5.2 GB", "7.0 TB",
    ]  # fmt: skip
    assert [clock_text(s) for s in (0, 59.6, 61, 3661)] == ["0:00", "1:00", "1:01", "1:01:01"]
