"""A history is what its records come to, whether they are fed one by one or read from a file, broken off or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import OWNERS, tiny_federation, tiny_settings

from fkge.history import History, Span
from fkge.simulations import Simulation


def record(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, "arm": "federated", **fields}


def begin(time: float = 1000.0) -> dict[str, Any]:
    return record("arm", time=time, epochs=12, owners=["a", "b"])


def work(owner: str, t: float, since: float, epoch: int, score: float | None = None, **more: Any) -> dict[str, Any]:
    fields = {
        "initial": False, "peers": [], "epochs": 3, "best": score, "improved": score is not None, "backtracked": False,
        "sent": 0, "spent": None,
    }  # fmt: skip
    return record("work", owner=owner, t=t, since=since, epoch=epoch, score=score, **(fields | more))


@pytest.mark.parametrize("engine", ["processes", "in-process"])
def test_a_real_run_is_told_as_it_was(tmp_path: Path, engine: str) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS), tiny_settings(exchanges=4), engine=engine)
    live = History()
    result = made.run(watch=live.feed)
    assert result is not None
    read = History.read(tmp_path / "run")
    assert list(read.stages) == list(live.stages) == ["control", "federated"]
    for arm, stage in read.stages.items():
        assert stage.over
        for owner, course in stage.courses.items():
            reached = result["owners"][owner]["arms"][arm]
            assert course.state == "done"
            assert (course.epoch, course.best) == (reached["epochs"], reached["best_score"])
            assert (len(course.tests), course.backtracked) == (reached["tests"], reached["backtracked"])
            for peer, taken_in in reached["handshakes"].items():  # a last gift may come too late to be used
                assert 0 <= course.hosted[peer] - taken_in <= 1
            assert course.spans == live.stages[arm].courses[owner].spans
            assert all(span.end is not None and span.end >= span.start for span in course.spans)
            assert sum(course.learned.values()) <= sum(course.hosted.values())
    lone = read.stages["control"].courses.values()
    assert not any(course.hosted or course.learned for course in lone)
    assert any(course.learned for course in read.stages["federated"].courses.values())


def test_what_was_learned_is_credited_to_those_who_gave() -> None:
    history = History.of([
        begin(),
        work("a", 1.0, 0.0, 3, initial=True),
        record("hosting", owner="a", t=1.0, peer="b"), record("translated", owner="a", t=1.5, peer="b"),
        work("a", 2.0, 1.5, 6, 0.3, peers=["b"]),
        record("hosting", owner="a", t=2.0, peer="b"), record("translated", owner="a", t=2.5, peer="b"),
        work("a", 3.0, 2.5, 9, 0.2, best=0.3, improved=False, backtracked=True, peers=["b"], sent=70, spent=1.5),
    ])  # fmt: skip
    course = history.stages["federated"].courses["a"]
    assert (course.hosted, course.learned) == ({"b": 2}, {"b": 1})
    assert (course.accepted, course.turned_down, course.backtracked) == (1, 1, 1)
    assert (course.best, course.sent, course.spent, course.epoch) == (0.3, 70, 1.5, 9)
    assert course.spans == [
        Span("train", 0.0, 1.0), Span("translate", 1.0, 1.5, ("b",)), Span("update", 1.5, 2.0, ("b",)),
        Span("translate", 2.0, 2.5, ("b",)), Span("update", 2.5, 3.0, ("b",)),
    ]  # fmt: skip
    assert [text for _, _, _, text in history.said] == [
        "first score 0.300", "no better with b: 0.200, best 0.300; went back to its best",
    ]  # fmt: skip


def test_what_an_owner_cannot_afford_is_told() -> None:
    told = History.of([begin(), record("over budget", owner="a", peer="b", t=1.0, why="the budget is 3")]).said
    assert told == [("federated", 1.0, "a", "cannot afford what b asks for: the budget is 3")]


def test_an_arm_taken_up_again_goes_on_where_it_broke_off() -> None:
    history = History.of([
        begin(1000.0), work("a", 2.0, 0.0, 3, initial=True), record("state", owner="a", t=2.0, state="sleep"),
        record("hosting", owner="b", t=4.0, peer="a"), record("died", owner="b", why="killed"),
    ])  # fmt: skip
    stage = history.stages["federated"]
    assert [c.state for c in stage.courses.values()] == ["sleeping", "dead"]
    assert stage.courses["b"].why == "killed"
    history.feed(begin(2000.0))
    assert [c.state for c in stage.courses.values()] == ["idle", "idle"]
    assert stage.courses["a"].spans[-1] == Span("sleep", 2.0, 4.0)
    history.feed(work("a", 1.0, 0.5, 6, 0.4))
    assert stage.courses["a"].spans[-1] == Span("update", 4.5, 5.0)
    assert (stage.began, stage.restarts, stage.end) == (2000.0, 1, 5.0)


EVENTS = st.sampled_from(["state", "progress", "hosting", "translated", "given up", "work", "concluded", "died",
                          "refused", "lost", "over budget", "never heard of"])  # fmt: skip


@given(st.lists(st.tuples(EVENTS, st.sampled_from(["a", "b", "stranger"]), st.booleans()), max_size=30))
def test_nothing_that_happens_in_any_order_upsets_it(happened: list[tuple[str, str, bool]]) -> None:
    history = History()
    history.feed(record("state", owner="a", t=0.0, state="busy"))  # before any arm began
    history.feed(begin())
    for number, (event, owner, flag) in enumerate(happened):
        t = float(number)
        history.feed(
            work(owner, t, t - 0.5, number, 0.1 * number if flag else None, peers=["b"] * flag)
            if event == "work"
            else record(event, owner=owner, t=t, peer="b", state="sleep" if flag else "busy", hosting=flag, why="x",
                        epoch=number)
        )  # fmt: skip
        if flag and number % 7 == 0:
            history.feed(begin(1000.0 + number))
    for course in history.stages["federated"].courses.values():
        assert all(span.end is None or span.end >= span.start for span in course.spans)
        assert course.epoch <= len(happened)
