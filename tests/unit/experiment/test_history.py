"""A history is the same whether records are fed one by one or read from a file, interrupted or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.experiment.history import History, Span
from fkge.experiment.simulation import Simulation
from tests.conftest import OWNERS, tiny_federation, tiny_settings


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
def test_the_history_of_a_real_run_matches_its_result(tmp_path: Path, engine: str) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS), tiny_settings(exchanges=4), engine=engine)
    live = History()
    result = made.run(watch=live.feed)
    assert result is not None
    read = History.read(tmp_path / "run")
    assert list(read.stages) == list(live.stages) == ["control", "federated"]
    for arm, stage in read.stages.items():
        assert stage.over
        for owner, course in stage.courses.items():
            report = result.owners[owner].arms[arm]
            assert course.state == "done"
            assert (course.epoch, course.best) == (report.epochs, report.best_score)
            assert (len(course.tests), course.backtracked) == (report.tests, report.backtracked)
            for peer, aggregated in report.handshakes.items():  # a last update may come too late to be used
                assert 0 <= course.hosted[peer] - aggregated <= 1
            assert course.spans == live.stages[arm].courses[owner].spans
            assert all(span.end is not None and span.end >= span.start for span in course.spans)
            assert sum(course.learned.values()) <= sum(course.hosted.values())
    lone = read.stages["control"].courses.values()
    assert not any(course.hosted or course.learned for course in lone)
    assert any(course.learned for course in read.stages["federated"].courses.values())


def test_improvements_are_credited_to_the_peers_of_updates() -> None:
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
    assert (course.accepted, course.rejected, course.backtracked) == (1, 1, 1)
    assert (course.best, course.sent, course.spent, course.epoch) == (0.3, 70, 1.5, 9)
    assert course.spans == [
        Span("train", 0.0, 1.0), Span("translate", 1.0, 1.5, ("b",)), Span("update", 1.5, 2.0, ("b",)),
        Span("translate", 2.0, 2.5, ("b",)), Span("update", 2.5, 3.0, ("b",)),
    ]  # fmt: skip
    assert [text for _, _, _, text in history.log] == [
        "first score 0.300", "not better with b: 0.200, best 0.300; rolled back",
    ]  # fmt: skip


def test_an_exceeded_budget_is_logged() -> None:
    told = History.of([begin(), record("over budget", owner="a", peer="b", t=1.0, why="the budget is 3")]).log
    assert told == [("federated", 1.0, "a", "has no budget for what b asks for: the budget is 3")]


def test_a_resumed_arm_continues_at_its_last_event() -> None:
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
                          "refused", "lost", "over budget", "unknown"])  # fmt: skip


@given(st.lists(st.tuples(EVENTS, st.sampled_from(["a", "b", "stranger"]), st.booleans()), max_size=30))
def test_events_in_any_order_are_accepted(happened: list[tuple[str, str, bool]]) -> None:
    history = History()
    history.feed(record("state", owner="a", t=0.0, state="busy"))  # before any arm started
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


def test_the_lone_model_of_a_blend_is_work_of_its_own() -> None:
    history = History.of([begin(), record("state", owner="a", t=2.0, state="lone")])
    course = history.stages["federated"].courses["a"]
    assert (course.state, [span.kind for span in course.spans]) == ("lone", ["lone"])
