"""A folder that is followed: not there yet, growing, interrupted, resumed, replaced, finished."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from fkge.dashboard.figures import Figures
from fkge.dashboard.state import LINES, WatchedRun, check
from fkge.errors import RunError, UnknownLabelError
from fkge.experiment import simulation as simulations
from fkge.experiment.simulation import Simulation
from fkge.files import FileLock
from tests.conftest import tiny_federation, tiny_settings

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")


def made(folder: Path, **changes: Any) -> Simulation:
    return Simulation.create(folder, tiny_federation(), tiny_settings(**changes), engine="in-process")


def hold(folder: Path, ready: Any, leave: Any) -> None:
    """Work on a simulation: hold its lock until told to leave."""
    with FileLock(folder / "lock"):
        ready.set()
        leave.wait(30)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    made(tmp_path / "run").run()
    return tmp_path / "run"


@pytest.fixture
def looked(tmp_path: Path) -> WatchedRun:
    watched = WatchedRun(tmp_path / "run")
    watched.refresh()
    return watched


def test_a_folder_that_is_not_there_is_waited_for(looked: WatchedRun) -> None:
    assert looked.state()["status"] == "waiting"
    assert looked.state()["owners"] == []
    made(looked.run)
    looked.refresh()
    assert looked.state()["status"] == "ready"
    assert [owner["name"] for owner in looked.state()["owners"]] == ["ant", "bee", "cat"]
    assert [arm["state"] for arm in looked.state()["arms"]] == ["pending", "pending"]


def test_the_state_grows_with_the_trace(looked: WatchedRun) -> None:
    simulation = made(looked.run)
    looked.refresh()
    seen: list[int] = []

    def watch(record: dict[str, Any]) -> None:
        looked.refresh()
        seen.append(len(looked.history.log))

    simulation.run(watch=watch)
    looked.refresh()
    assert sorted(seen) == seen
    assert len(set(seen)) > 3  # it did grow on the way
    version, state = looked.version, looked.state()
    looked.refresh()
    assert (looked.version, looked.state()) == (version, state)
    whole = WatchedRun(looked.run)
    whole.refresh()
    assert whole.state() == state  # bit by bit or all at once, the same


def test_while_a_process_holds_the_folder_it_runs_and_then_it_is_interrupted(tmp_path: Path) -> None:
    simulation = made(tmp_path / "run")
    simulation.run(stop=lambda: len(simulation.trace.read()) > 6)
    watched = WatchedRun(tmp_path / "run")
    watched.refresh()
    assert watched.status == "interrupted"
    assert {arm["state"] for arm in watched.state()["arms"]} == {"interrupted", "pending"}
    context = get_context("spawn")
    ready, leave = context.Event(), context.Event()
    worker = context.Process(target=hold, args=(tmp_path / "run", ready, leave))
    worker.start()
    try:
        assert ready.wait(60)
        watched.refresh()
        assert watched.status == "running"
        assert watched.state()["arms"][0]["state"] == "running"
    finally:
        worker.kill()
        worker.join()
        worker.close()
    watched.refresh()
    assert watched.status == "interrupted"
    assert {owner["state"] for owner in watched.state()["owners"]} <= {"stopped", "done", "dead"}


def test_watching_does_not_block_a_run(tmp_path: Path) -> None:
    made(tmp_path / "run")
    (tmp_path / "run" / "lock").touch()
    watched = WatchedRun(tmp_path / "run")
    for _ in range(50):
        watched.refresh()
        with FileLock(tmp_path / "run" / "lock"):
            watched.refresh()
            assert watched.status == "running"


def test_a_resumed_run_is_followed(tmp_path: Path) -> None:
    simulation = made(tmp_path / "run")
    simulation.run(stop=lambda: len(simulation.trace.read()) > 6)
    watched = WatchedRun(tmp_path / "run")
    watched.refresh()
    lines = len(watched.history.log)
    Simulation.open(tmp_path / "run").run()
    watched.refresh()
    assert watched.status == "finished"
    assert len(watched.history.log) > lines
    assert watched.state()["arms"][0]["restarts"] == 1
    assert watched.state()["headline"]


def test_another_simulation_in_the_folder_is_read_again(finished: Path, tmp_path: Path) -> None:
    watched = WatchedRun(finished)
    watched.refresh()
    finished.rename(tmp_path / "old")
    watched.refresh()
    assert watched.state()["status"] == "waiting"
    assert not watched.history.stages
    Simulation.create(finished, tiny_federation(("dog", "eel")), tiny_settings(), engine="in-process")
    watched.refresh()
    assert watched.owners == ["dog", "eel"]
    assert watched.status == "ready"


def test_a_rewritten_trace_is_read_again(finished: Path) -> None:
    watched = WatchedRun(finished)
    watched.refresh()
    records = Simulation.open(finished).trace.read()
    (finished / "results.json").unlink()
    Simulation.open(finished).trace.keep(records[:5])
    watched.refresh()
    again = WatchedRun(finished)
    again.refresh()
    assert watched.state() == again.state()
    assert watched.status == "interrupted"


def test_the_figures_of_owners_are_those_of_the_history(finished: Path) -> None:
    watched = WatchedRun(finished)
    watched.refresh()
    for row in watched.state()["owners"]:
        course = watched.history.stages["federated"].courses[row["name"]]
        assert row["best"]["federated"] == course.best
        assert row["best"]["control"] == watched.history.stages["control"].courses[row["name"]].best
        assert (row["accepted"], row["rejected"], row["sent"]) == (course.accepted, course.rejected, course.sent)
        assert row["state"] == "done"
        assert row["epoch"] == row["epochs"] == 20
    assert json.loads(json.dumps(watched.state())) == json.loads(json.dumps(watched.state()))


def test_owners_are_compared_with_themselves_alone_at_equal_epochs(tmp_path: Path) -> None:
    """A federation that has just begun has not lost against a control that is over."""
    simulation = made(tmp_path / "run")
    simulation.run(
        stop=lambda: sum(r["event"] == "work" and r["arm"] == "federated" for r in simulation.trace.read()) > 5
    )
    watched = WatchedRun(tmp_path / "run")
    watched.refresh()
    compared = 0
    for row in watched.state()["owners"]:
        tests = watched.history.stages["federated"].courses[row["name"]].tests
        lone = watched.history.stages["control"].courses[row["name"]].tests
        if tests:
            compared += 1
            assert tests[-1].epoch < lone[-1].epoch
            assert row["baseline"] == max(test.best for test in lone if test.epoch <= tests[-1].epoch)
        else:
            assert row["baseline"] is None
    assert compared


def test_a_shared_track_is_not_compared_with_a_control_that_knows_more(tmp_path: Path) -> None:
    """They are tested on different facts."""
    federation = tiny_federation().keeping(0.3, 0)
    run = Simulation.create(tmp_path / "run", federation, tiny_settings(private={"epochs": 4}), engine="in-process")
    run.run()
    watched = WatchedRun(run.folder)
    watched.refresh()
    for row in watched.state()["owners"]:
        assert set(row["best"]) == {"control", "federated"}
        assert row["baseline"] is None
    assert "on control" not in Figures(watched).draw()["accuracy"]["wide"]


def test_without_tests_there_is_no_score_but_there_is_a_federation(tmp_path: Path) -> None:
    """Under differential privacy nobody tests on the way: no best, nothing alongside; ε and bytes all the same."""
    run = made(tmp_path / "run", privacy={"mode": "dp", "epsilon": 8.0}, private={"epochs": 4})
    run.run()
    watched = WatchedRun(run.folder)
    watched.refresh()
    assert (watched.state()["privacy"], watched.budget) == ("dp", 8.0)
    for row in watched.state()["owners"]:
        assert set(row["best"]) == {"control"}
        assert row["baseline"] is None
        assert row["federated"]
        assert 0 < row["spent"] <= 8.0
        assert row["epoch"] == row["epochs"]


def test_the_trace_tells_how_far_owners_are_between_two_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations, "SECONDS_BETWEEN_EPOCHS", 0.0)
    run = made(tmp_path / "run")
    run.run()
    epochs = [r["epoch"] for r in run.trace.read() if r["event"] == "progress" and r["owner"] == "ant"]
    assert set(range(1, 21)) <= set(epochs)
    monkeypatch.setattr(simulations, "SECONDS_BETWEEN_EPOCHS", 1e9)
    run = made(tmp_path / "seldom")
    run.run()
    assert sum(r["event"] == "progress" for r in run.trace.read()) <= 3  # one for each owner, and no more


def test_the_log_is_cut_to_what_a_page_can_hold(finished: Path) -> None:
    watched = WatchedRun(finished)
    watched.refresh()
    watched.history.log *= 1 + LINES // len(watched.history.log)
    log = watched.state()["log"]
    assert len(log["lines"]) == LINES
    assert log["first"] == len(watched.history.log) - LINES


def test_only_names_of_the_simulation_are_owners(finished: Path) -> None:
    watched = WatchedRun(finished)
    watched.refresh()
    assert watched.check_owner("ant") == "ant"
    with pytest.raises(UnknownLabelError, match="did you mean ant"):
        watched.check_owner("../ant")


def test_what_can_never_become_a_simulation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is a file"):
        check(tmp_path / "file")
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RunError, match="single owner's run"):
        check(tmp_path)
    check(tmp_path / "not-there-yet")
