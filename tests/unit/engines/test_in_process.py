"""The engine with a virtual clock: one seed, one run; slow, lost and late owners hold up nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import OWNERS, Notes, kept, tiny_federation, tiny_settings

from fkge.embed import Tables
from fkge.engines import InProcess, Pace
from fkge.federation import Federation
from fkge.federation.exchange import ClientRole, Sender
from fkge.federation.owner import Owner
from fkge.simulations import Simulation


def simulation(
    folder: Path, seed: int = 0, window: float = 30.0, federation: Federation | None = None, **settings: Any
) -> Simulation:
    made = federation or tiny_federation()
    return Simulation.create(folder, made, tiny_settings(window=window, **settings), engine="in-process", seed=seed)


def spent(made: Simulation, arm: str) -> dict[str, tuple[int, int]]:
    """Epochs and tests, by owner."""
    results = {home.name: home.result(arm) or {} for home in made.homes}
    return {name: (result.get("epochs", 0), result.get("tests", 0)) for name, result in results.items()}


def models(made: Simulation) -> dict[str, bytes]:
    return {h.name: (h.arm_folder("federated") / "model.safetensors").read_bytes() for h in made.homes}


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    runs, told = [], []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        made, notes = simulation(tmp_path / name, seed), Notes()
        assert InProcess(made.homes, notes).run(made.arm("federated"))
        runs.append(models(made))
        told.append(notes)
    assert runs[0] == runs[1]
    assert told[0] == told[1]  # and everything happens at the same virtual time
    assert all(runs[0][name] != runs[2][name] for name in OWNERS)


def test_nobody_waits_for_the_slowest(tmp_path: Path) -> None:
    made, notes = simulation(tmp_path / "run", window=0.01), Notes()
    with InProcess(made.homes, notes, Pace(triples=10_000, slow={"cat": 50.0})) as engine:
        assert all(engine.run(made.arm(arm)) for arm in ("control", "permuted", "federated"))
    for arm in ("control", "permuted", "federated"):  # and nobody gets less, or more, for it
        assert spent(made, arm) == dict.fromkeys(OWNERS, (20, 5))
    notes = Notes(n for n in notes if n["arm"] == "federated")
    until = {name: [n["until"] for n in notes.of("work", owner=name)] for name in OWNERS}
    for fast in ("ant", "bee"):
        assert len(until[fast]) == 10
        assert notes.of("work", owner=fast)[-1]["epoch"] == made.settings.total_epochs
        assert until[fast][-1] < until["cat"][1]  # all their rounds are over before its first one is
    results = {home.name: home.result("federated") or {} for home in made.homes}
    assert results["cat"]["handshakes"] == {"ant": 1, "bee": 1}  # when it comes round, it gets what they reached
    assert results["cat"]["rounds"] >= 1


def test_the_clock_is_no_part_of_what_equals_compute(tmp_path: Path) -> None:
    """Owners that keep step do the same sums, however long everything takes."""
    runs = []
    for name, pace in (("quick", Pace()), ("slow", Pace(triples=10.0, latency=0.5, bandwidth=1e4))):
        made = simulation(tmp_path / name, window=1e6)
        assert InProcess(made.homes, Notes(), pace).run(made.arm("control"))
        runs.append({h.name: (h.arm_folder("control") / "model.safetensors").read_bytes() for h in made.homes})
    assert runs[0] == runs[1]


def test_a_lost_owner_stops_nobody(tmp_path: Path) -> None:
    whole, notes = simulation(tmp_path / "whole"), Notes()
    assert InProcess(whole.homes, notes).run(whole.arm("federated"))
    once = {"ant": (20, 5), "bee": (0, 0), "cat": (20, 5)}
    times = sorted({n["t"] for n in notes})
    for number, moment in enumerate([times[0], times[len(times) // 3], times[len(times) // 2], times[-2]]):
        made, told = simulation(tmp_path / str(number)), Notes()
        with InProcess(made.homes, told, losses={"bee": moment + 1e-9}) as engine:
            assert not engine.run(made.arm("federated"))
        assert [home.name for home in made.homes if home.result("federated") is None] == ["bee"]
        for name in ("ant", "cat"):
            assert [n["peer"] for n in told.of("lost", owner=name)] == ["bee"]
            assert told.of("work", owner=name)[-1]["epoch"] == made.settings.total_epochs
        assert spent(made, "federated") == once
        with InProcess(made.homes, Notes()) as again:  # it comes back, and the arm can be finished
            assert again.run(made.arm("federated"))
        assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))


@pytest.mark.parametrize("translate", ["frame", "procrustes", "ppat", "ppat+refine"])
def test_one_of_two_is_lost(translate: str, tmp_path: Path) -> None:
    """Whatever passes between them, the other goes on alone, and both end with what they paid for."""
    two = tiny_federation(OWNERS[:2])
    made, notes = simulation(tmp_path / "run", federation=two, translate=translate), Notes()
    assert InProcess(made.homes, notes).run(made.arm("federated"))
    for name, peer in (("ant", "bee"), ("bee", "ant")):
        result = made.homes[OWNERS.index(name)].result("federated") or {}
        assert result["handshakes"] == {peer: 9}
        assert bool(result["price"]) == translate.startswith("ppat")
        assert result["seconds"]["translate"] > 0
    moment = sorted({n["t"] for n in notes})[4]
    made = simulation(tmp_path / "lost", federation=two, translate=translate)
    assert not InProcess(made.homes, Notes(), losses={"bee": moment}).run(made.arm("federated"))
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (0, 0)}
    assert InProcess(made.homes, Notes()).run(made.arm("federated"))
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (20, 5)}


def test_asked_to_stop_before_anything_it_stops(tmp_path: Path) -> None:
    made = simulation(tmp_path / "run")
    assert not InProcess(made.homes, Notes()).run(made.arm("federated"), stop=lambda: True)
    assert InProcess(made.homes, Notes()).run(made.arm("federated"))
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))


def test_what_makes_no_sense_ends_its_exchange_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's rows are no numbers, once."""
    made, notes, sick = simulation(tmp_path / "run"), Notes(), []
    well = Owner.client

    def client(owner: Owner, peer: str, session: int) -> ClientRole:
        role = well(owner, peer, session)
        if (owner.name, peer) == ("bee", "cat") and owner.trainer.epoch >= 6 and not sick:
            sick.append(session)
            offer = role.start()
            return Sender(replace(offer, entity=torch.full_like(offer.entity, torch.nan)))  # type: ignore[attr-defined,type-var]
        return role

    monkeypatch.setattr(Owner, "client", client)
    assert InProcess(made.homes, notes).run(made.arm("federated"))
    assert len(sick) == 1
    refused = notes.of("refused")
    assert [(n["owner"], n["peer"]) for n in refused] == [("cat", "bee")]
    given_up = notes.of("given up")
    assert {(n["owner"], n["peer"], n["hosting"]) for n in given_up} == {("cat", "bee", True), ("bee", "cat", False)}
    assert notes.of("lost") == []
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))
    later = [n for n in notes.of("translated", owner="cat", peer="bee") if n["t"] > refused[0]["t"]]
    assert len(later) >= 4  # they deal with each other as before


def test_one_without_peers_has_nothing_to_mix_up(tmp_path: Path) -> None:
    made = tiny_federation()
    lonely = replace(made, links={names: links for names, links in made.links.items() if "cat" not in names})
    run = simulation(tmp_path / "run", federation=lonely)
    for arm in ("permuted", "federated"):
        assert InProcess(run.homes, Notes()).run(run.arm(arm))
        assert spent(run, arm) == dict.fromkeys(OWNERS, (20, 5))


def test_a_late_owner_turns_into_the_others_frame_and_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned, rotate = [], Tables.rotate

    def spied(tables: Tables, matrix: torch.Tensor) -> None:
        turned.append(tables.entities)
        rotate(tables, matrix)

    monkeypatch.setattr(Tables, "rotate", spied)
    train = {"norm": 2, "dim": 16, "negatives": 16, "init": 0.5, "margin": 2.0}
    made, notes = simulation(tmp_path / "run", exchanges=38, test_every=5, train=train), Notes()
    with InProcess(made.homes, notes, Pace(triples=10_000), late={"cat": 0.1}) as engine:
        assert all(engine.run(made.arm(arm)) for arm in ("control", "permuted", "federated"))
    for arm in ("control", "permuted", "federated"):
        assert spent(made, arm) == dict.fromkeys(OWNERS, (80, 8))
    work = notes.of("work", arm="federated", owner="cat")
    assert work[0]["initial"]
    assert work[0]["t"] >= 0.1
    homes = {home.name: home for home in made.homes}
    states = [kept(home, "federated") for home in homes.values()]
    assert [state["frame"] for state in states] == ["", "", ""]
    assert len(turned) == 2  # the late one, once in either arm where it has peers
    scores = {arm: (homes["cat"].result(arm) or {})["best_score"] for arm in ("control", "permuted", "federated")}
    assert scores["federated"] > max(scores["control"], scores["permuted"]) + 0.05


def test_whoever_comes_when_all_is_over_still_gets_what_they_reached(tmp_path: Path) -> None:
    made, notes = simulation(tmp_path / "run"), Notes()
    assert InProcess(made.homes, notes, late={"cat": 1e4}).run(made.arm("federated"))
    assert max(n["t"] for n in notes.of("work", owner="ant")) < 1e4 <= notes.of("work", owner="cat")[0]["t"]
    results = {home.name: home.result("federated") or {} for home in made.homes}
    assert {name: result["handshakes"] for name, result in results.items()} == {
        "ant": {"bee": 9}, "bee": {"ant": 9}, "cat": {"ant": 1, "bee": 1},
    }  # fmt: skip
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))
