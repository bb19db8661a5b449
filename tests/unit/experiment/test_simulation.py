"""Simulations as folders: whole or refused; asked for with sense; summed up once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fkge.errors import EngineError, FkgeError, GraphError, RunError, SettingsError
from fkge.experiment.arms import ARMS, CENTRAL
from fkge.experiment.engines import ENGINES, InProcess, Pace
from fkge.experiment.results import PARTS, SharedRows
from fkge.experiment.simulation import Simulation
from fkge.files import FileLock
from tests.conftest import OWNERS, tiny_federation, tiny_settings


def create(folder: Path, **changes: object) -> Simulation:
    baselines = changes.pop("baselines", ("control",))
    train = changes.pop("owners", None)
    return Simulation.create(
        folder, tiny_federation(OWNERS[:2], train), tiny_settings(exchanges=2, **changes), engine="in-process",  # type: ignore[arg-type]
        baselines=baselines,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_simulation_holds_all_it_needs(tmp_path: Path) -> None:
    result = create(tmp_path / "run", baselines=ARMS).run()
    opened = Simulation.open((tmp_path / "run").rename(tmp_path / "moved"))
    assert opened.result == opened.run() == result
    assert opened.spec.arms == list(ARMS)
    assert result is not None
    assert result.arms == list(ARMS)
    json.dumps(result.to_json(), allow_nan=False)
    assert set(result.mean) == set(ARMS)
    for name, owner in result.owners.items():
        assert set(owner.versus) == set(ARMS) - {"federated"}
        shared = SharedRows(entities=20, relations=4)
        assert owner.shares == {peer: shared for peer in OWNERS[:2] if peer != name}
        for arm in ARMS:
            for part in PARTS:
                if part in owner.versus.get(arm, {}):
                    d = owner.versus[arm][part]["mrr"]
                    gain = owner.arms["federated"].test[part].mrr - owner.arms[arm].test[part].mrr
                    assert d.difference == pytest.approx(gain)
                    assert d.low <= d.difference <= d.high
    strict = [owner.arms["control"].test["strict"].mrr for owner in result.owners.values()]
    assert result.mean["control"]["strict"]["mrr"] == pytest.approx(sum(strict) / 2)
    over = [r for r in opened.trace.read() if r["event"] == "arm over"]
    alone = [arm for arm in ARMS if arm not in CENTRAL]
    assert [r["arm"] for r in over] == [*alone, "fede and unified"]
    assert all(r["seconds"] > 0 for r in over)
    assert result.seconds == pytest.approx(sum(r["seconds"] for r in over), abs=0.1)
    for owner in result.owners.values():
        spent = {arm: (got.epochs, got.tests) for arm, got in owner.arms.items()}
        assert spent == {"independent": (4, 1)} | dict.fromkeys(ARMS[1:], (8, 2))


def test_owners_may_be_called_as_they_please(tmp_path: Path) -> None:
    names = ("held", "lock", "tokens")
    made = Simulation.create(
        tmp_path / "run", tiny_federation(names), tiny_settings(exchanges=2), engine="in-process", baselines=ARMS
    )
    result = made.run()
    assert result is not None
    for member in made.owners:
        assert set(member.masks.held) == set(member.masks.chained) == {"valid", "test"}
        assert set(member.peers) == set(names) - {member.name}
        assert set(result.owners[member.name].arms["federated"].handshakes) == set(member.peers)


def test_arms_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"there is no arm 'contrl' among independent, .*; did you mean control"):
        create(tmp_path / "run", baselines=["contrl"])
    with pytest.raises(SettingsError, match="initial_epochs is 0"):
        create(tmp_path / "run", start="alone", initial_epochs=0)
    with pytest.raises(SettingsError, match="there is no engine 'proceses'; did you mean processes"):
        Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="proceses")
    with pytest.raises(SettingsError, match=r"fede, unified: a server can only .* and bee has settings of its own"):
        create(tmp_path / "run", baselines=["fede", "unified"], owners={"bee": {"dim": 9}})
    with pytest.raises(FkgeError, match="did you mean TransE"):
        create(tmp_path / "run", train={"model": "TranseE"})
    assert not (tmp_path / "run").exists()
    assert create(tmp_path / "alone", start="alone", baselines=()).spec.arms == ["independent", "federated"]
    alike = create(tmp_path / "alike", baselines=["fede"], owners={"bee": {"dim": 8}})  # said twice, but the same
    assert alike.spec.arms == ["federated", "fede"]


def test_folders_that_are_no_simulations(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no simulation"):
        Simulation.open(tmp_path / "nowhere")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.doc").write_text("years of work")
    with pytest.raises(RunError, match=r"exists already\. Choose another --out"):
        create(tmp_path / "thesis")
    create(tmp_path / "run")
    with pytest.raises(RunError, match="Continue it: fkge simulate --resume"):
        create(tmp_path / "run")


def test_a_damaged_result_is_made_anew(tmp_path: Path) -> None:
    made = create(tmp_path / "run")
    result = made.run()
    for name, way_out in (("results.json", "sum up again"), ("arms/control/ant/result.json", "continue")):
        (made.folder / name).write_text("")
        with pytest.raises(RunError, match=f"{name}: is damaged. Remove it, and {way_out}: fkge simulate --resume"):
            made.run()
        (made.folder / name).unlink()
        (made.folder / "results.json").unlink(missing_ok=True)
    again = made.run()
    assert again is not None
    assert result is not None
    assert again.mean == result.mean


def test_an_owner_without_validation_triples_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    federation = tiny_federation(OWNERS[:2])
    ant = federation.members["ant"]
    splits = {**ant.graph.splits, "valid": ant.graph.valid[:0]}
    without = replace(ant, graph=replace(ant.graph, splits=splits))
    federation = replace(federation, members={**federation.members, "ant": without})
    with pytest.raises(GraphError, match=r"ant: has no validation triples.*Add some"):
        Simulation.create(tmp_path / "run", federation, tiny_settings())
    assert not (tmp_path / "run").exists()


def test_asked_to_stop_it_goes_on_later(tmp_path: Path) -> None:
    made = create(tmp_path / "run")
    asked = iter([False] * 12)
    assert made.run(stop=lambda: next(asked, True)) is None
    assert made.result is None
    result = Simulation.open(tmp_path / "run").run()
    assert result is not None
    whole = create(tmp_path / "whole").run()
    assert whole is not None
    for name in OWNERS[:2]:  # the lone owner's arm ends as if it had never been stopped
        here, there = (r.owners[name].arms["control"] for r in (result, whole))
        assert (here.best_score, here.test, here.tests) == (there.best_score, there.test, there.tests)


def test_the_lost_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, pace = create(tmp_path / "run"), Pace(losses={"bee": 0.0})
    monkeypatch.setitem(ENGINES, "in-process", lambda members, note: InProcess(members, note, pace))
    with pytest.raises(EngineError, match=r"^bee died during control; .* fkge simulate --resume .*run"):
        made.run()
    monkeypatch.undo()
    assert made.run() is not None


def test_one_that_dies_after_its_result_is_written_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DiesLate(InProcess):
        def run(self, *args: object) -> bool:
            super().run(*args)  # type: ignore[arg-type]
            return False

    monkeypatch.setitem(ENGINES, "in-process", DiesLate)
    assert create(tmp_path / "run", baselines=()).run() is not None


def test_a_folder_is_run_by_one_process_at_a_time(tmp_path: Path) -> None:
    simulation = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="in-process")
    with FileLock(simulation.folder / "lock"), pytest.raises(RunError, match="another process"):
        Simulation.open(tmp_path / "run").run()
    assert simulation.run() is not None
