"""The engine with a virtual clock: one seed, one run; slow, lost and late owners hold up nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.embed import Tables
from fkge.experiment.engines import InProcess, Pace
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation
from fkge.federation.exchange import ClientRole, Sender
from fkge.federation.owner import Owner
from tests.conftest import COMPLEX, OWNERS, EventLog, kept, reported, tiny_federation, tiny_settings


def simulation(
    folder: Path, seed: int = 0, window: float = 30.0, federation: Federation | None = None, **settings: Any
) -> Simulation:
    made = federation or tiny_federation()
    return Simulation.create(folder, made, tiny_settings(window=window, **settings), engine="in-process", seed=seed)


def spent(made: Simulation, arm: str) -> dict[str, tuple[int, int]]:
    """Epochs and tests, by owner."""
    results = {member.name: reported(member, arm) or {} for member in made.owners}
    return {name: (result.get("epochs", 0), result.get("tests", 0)) for name, result in results.items()}


def models(made: Simulation) -> dict[str, bytes]:
    return {h.name: (h.workspace("federated").folder / "model.safetensors").read_bytes() for h in made.owners}


@pytest.mark.parametrize("train", [{}, COMPLEX], ids=["TransE", "ComplEx"])
def test_one_seed_is_one_run(train: dict[str, Any], tmp_path: Path) -> None:
    runs, told = [], []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        made, log = simulation(tmp_path / name, seed, train=train), EventLog()
        assert InProcess(made.owners, log).run(made.arm("federated"))
        runs.append(models(made))
        told.append(log)
    assert runs[0] == runs[1]
    assert told[0] == told[1]  # and everything happens at the same virtual time
    assert all(runs[0][name] != runs[2][name] for name in OWNERS)


def test_asked_to_stop_before_anything_it_stops(tmp_path: Path) -> None:
    made = simulation(tmp_path / "run")
    assert not InProcess(made.owners, EventLog()).run(made.arm("federated"), stop=lambda: True)
    assert InProcess(made.owners, EventLog()).run(made.arm("federated"))
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))


def test_what_makes_no_sense_ends_its_exchange_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's rows are no numbers, once."""
    made, log, sick = simulation(tmp_path / "run"), EventLog(), []
    well = Owner.client

    def client(owner: Owner, peer: str, session: int) -> ClientRole:
        role = well(owner, peer, session)
        if (owner.name, peer) == ("bee", "cat") and owner.trainer.epoch >= 6 and not sick:
            sick.append(session)
            offer = role.start()
            return Sender(replace(offer, entity=torch.full_like(offer.entity, torch.nan)))  # type: ignore[attr-defined,type-var]
        return role

    monkeypatch.setattr(Owner, "client", client)
    assert InProcess(made.owners, log).run(made.arm("federated"))
    assert len(sick) == 1
    refused = log.of("refused")
    assert [(n["owner"], n["peer"]) for n in refused] == [("cat", "bee")]
    given_up = log.of("given up")
    assert {(n["owner"], n["peer"], n["hosting"]) for n in given_up} == {("cat", "bee", True), ("bee", "cat", False)}
    assert log.of("lost") == []
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))
    later = [n for n in log.of("translated", owner="cat", peer="bee") if n["t"] > refused[0]["t"]]
    assert len(later) >= 4  # they deal with each other as before


def test_one_without_peers_has_nothing_to_mix_up(tmp_path: Path) -> None:
    made = tiny_federation()
    lonely = replace(made, links={names: links for names, links in made.links.items() if "cat" not in names})
    run = simulation(tmp_path / "run", federation=lonely)
    for arm in ("permuted", "federated"):
        assert InProcess(run.owners, EventLog()).run(run.arm(arm))
        assert spent(run, arm) == dict.fromkeys(OWNERS, (20, 5))


def test_a_late_owner_turns_into_the_others_frame_and_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned, rotate = [], Tables.rotate

    def spied(tables: Tables, matrix: torch.Tensor) -> None:
        turned.append(tables.entities)
        rotate(tables, matrix)

    monkeypatch.setattr(Tables, "rotate", spied)
    train = {"norm": 2, "dim": 16, "negatives": 16, "init": 0.5, "margin": 2.0}
    made, log = simulation(tmp_path / "run", exchanges=38, test_every=5, train=train), EventLog()
    with InProcess(made.owners, log, Pace(triples=10_000, late={"cat": 0.1})) as engine:
        assert all(engine.run(made.arm(arm)) for arm in ("control", "permuted", "federated"))
    for arm in ("control", "permuted", "federated"):
        assert spent(made, arm) == dict.fromkeys(OWNERS, (80, 8))
    work = log.of("work", arm="federated", owner="cat")
    assert work[0]["initial"]
    assert work[0]["t"] >= 0.1
    members = {member.name: member for member in made.owners}
    states = [kept(member, "federated") for member in members.values()]
    assert [state["frame"] for state in states] == ["", "", ""]
    assert len(turned) == 2  # the late one, once in either arm where it has peers
    scores = {arm: (reported(members["cat"], arm) or {})["best_score"] for arm in ("control", "permuted", "federated")}
    assert scores["federated"] > max(scores["control"], scores["permuted"]) + 0.05


def test_a_late_owner_whose_space_cannot_be_turned_adopts_the_frame_and_gains(tmp_path: Path) -> None:
    train = {**COMPLEX, "dim": 16, "regularization": 0.01}
    made, log = simulation(tmp_path / "run", test_every=1, train=train), EventLog()
    arms = ("control", "permuted", "federated")
    with InProcess(made.owners, log, Pace(triples=10_000, late={"cat": 0.1})) as engine:
        assert all(engine.run(made.arm(arm)) for arm in arms)
    assert log.of("work", arm="federated", owner="cat")[0]["t"] >= 0.1
    assert [kept(member, "federated")["frame"] for member in made.owners] == ["", "", ""]
    # All learn a circle by heart in the end; what peers know shows in the first test after their rows came.
    first = {arm: log.of("work", arm=arm, owner="cat", epoch=4)[0]["score"] for arm in arms}
    assert first["federated"] > max(first["control"], first["permuted"]) + 0.05
