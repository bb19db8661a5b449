"""What every engine does with the same homes and arms, whatever it runs them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OWNERS, Notes, tiny_federation, tiny_settings

from fkge.embed import load_model
from fkge.engines import ENGINES, run_central
from fkge.federation import Federation, load_ranks
from fkge.simulations import Simulation
from fkge.trace import Trace

FILES = ("checkpoint.safetensors", "model.safetensors", "ranks.safetensors", "result.json")


class Ran:
    """A simulation whose arms an engine has run, and what it told meanwhile."""

    def __init__(self, simulation: Simulation, arms: list[str]) -> None:
        self.simulation, self.homes, self.notes = simulation, simulation.homes, Notes()
        self.total = simulation.settings.total_epochs
        with ENGINES[simulation.about["engine"]](self.homes, self.notes) as engine:
            self.whole = [engine.run(simulation.arm(arm)) for arm in arms if arm not in ("fede", "unified")]
            engine.central([arm for arm in arms if arm in ("fede", "unified")], run_central)
        self.results: dict[str, dict[str, Any]] = {
            arm: {home.name: home.result(arm) or {} for home in self.homes} for arm in arms
        }

    def model(self, arm: str, owner: str) -> bytes:
        return (self.simulation.folder / "arms" / arm / owner / "model.safetensors").read_bytes()


def ran(folder: Path, engine: str, arms: list[str], federation: Federation | None = None, **settings: Any) -> Ran:
    made = Simulation.create(
        folder / "run", federation or tiny_federation(), tiny_settings(**settings), engine=engine,
        baselines=[arm for arm in arms if arm != "federated"],
    )  # fmt: skip
    return Ran(made, arms)


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


TOGETHER = ["control", "permuted", "federated", "fede", "unified"]


@pytest.fixture(scope="module")
def together(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("together"), engine, TOGETHER)


def test_every_owner_ends_every_arm_with_a_model_ranks_and_a_result(together: Ran) -> None:
    assert together.whole == [True, True, True]
    for arm in TOGETHER:
        for home in together.homes:
            files = FILES if arm in ("control", "permuted", "federated") else FILES[1:]
            assert [f for f in files if not (home.arm_folder(arm) / f).is_file()] == []
            tables, settings = load_model(home.arm_folder(arm) / "model.safetensors")
            assert (tables.entities, settings.dim) == (len(home.graph.entities), 8)
            ranks, parts = load_ranks(home.arm_folder(arm) / "ranks.safetensors")
            result = together.results[arm][home.name]
            assert {part: scores["triples"] for part, scores in result["test"].items()} == {
                part: int(mask.sum()) for part, mask in parts.items() if mask.any()
            }
            assert len(ranks) == len(home.graph.test)


def test_all_arms_spend_the_same(together: Ran) -> None:
    for arm in TOGETHER:
        for name in OWNERS:
            assert together.notes.of("work", arm=arm, owner=name)[-1]["epoch"] == together.total
            assert together.results[arm][name]["tests"] == 5


def test_the_lone_owner_says_nothing_and_the_federated_hear_from_all(together: Ran) -> None:
    for name in OWNERS:
        peers = set(OWNERS) - {name}
        alone, federated = together.results["control"][name], together.results["federated"][name]
        assert (alone["sent"], alone["handshakes"], alone["rounds"]) == ({}, {}, 0)
        assert set(federated["sent"]) == set(federated["handshakes"]) == peers
        assert federated["rounds"] == 9  # total 20 epochs, the first 2 before there is anything to exchange
        assert set(together.results["fede"][name]["sent"]) == {"server"}


def test_mixed_up_rows_are_another_run(together: Ran) -> None:
    for name in OWNERS:
        models = {together.model(arm, name) for arm in TOGETHER}
        assert len(models) == len(TOGETHER)


def test_the_best_score_never_falls(together: Ran) -> None:
    for arm in TOGETHER:
        for name in OWNERS:
            scores = [n["score"] for n in together.notes.of("work", arm=arm, owner=name) if n["tested"]]
            assert len(scores) == 5
            assert scores == sorted(scores)
            assert scores[-1] == together.results[arm][name]["best_score"]


def test_owners_that_start_alone_begin_where_the_lone_one_ended(engine: str, tmp_path: Path) -> None:
    arms = ["independent", "control", "federated"]
    got = ran(tmp_path, engine, arms, tiny_federation(OWNERS[:2]), start="alone")
    for name in OWNERS[:2]:
        first = got.results["independent"][name]
        assert [n["initial"] for n in got.notes.of("work", arm="independent", owner=name)] == [True]
        for arm in ("control", "federated"):
            then = got.results[arm][name]
            work = got.notes.of("work", arm=arm, owner=name)
            assert (work[0]["initial"], work[0]["epoch"], work[-1]["epoch"]) == (False, 6, got.total)
            assert min(n["score"] for n in work) >= first["best_score"]
            assert then["tests"] == first["tests"] + 4


@pytest.mark.parametrize("translate", ["procrustes", "ppat", "ppat+refine"])
def test_every_translation(translate: str, engine: str, tmp_path: Path) -> None:
    got = ran(tmp_path, engine, ["federated"], tiny_federation(OWNERS[:2]), translate=translate, exchanges=2)
    for name, peer in (("ant", "bee"), ("bee", "ant")):
        result = got.results["federated"][name]
        assert result["handshakes"] == {peer: 3}
        assert got.notes.of("work", owner=name)[-1]["epoch"] == got.total
        assert bool(result["price"]) == translate.startswith("ppat")


def test_different_models_neighbours_and_a_grudge(engine: str, tmp_path: Path) -> None:
    """Owners whose models differ; one pair that does not speak; neighbours where the models allow them."""
    owners = ("ant", "bee", "cat", "dog")
    own = {"bee": {"model": "TransR", "dim": 12}}
    federation = tiny_federation(owners, own, refuses=("cat", "ant"))
    got = ran(tmp_path, engine, ["federated"], federation, neighbours=True, exchanges=2)
    hosted = {name: set(got.results["federated"][name]["handshakes"]) for name in owners}
    assert hosted == {"ant": {"bee", "dog"}, "bee": {"ant", "cat", "dog"}, "cat": {"bee", "dog"}, "dog": {*owners[:3]}}
    assert set(got.results["federated"]["cat"]["sent"]) == {"bee", "dog"}
    for home in got.homes:
        tables, settings = load_model(home.arm_folder("federated") / "model.safetensors")
        assert settings.model == ("TransR" if home.name == "bee" else "TransE")
        assert tables.entities == len(home.graph.entities)  # neighbours are guests
        assert got.notes.of("work", owner=home.name)[-1]["epoch"] == got.total


def test_what_was_stopped_is_taken_up_again(engine: str, tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(exchanges=23), engine=engine)
    arm, notes, last = made.arm("federated"), Notes(), {}

    def enough(of: Notes, epochs: int) -> bool:
        return any(n["epoch"] >= epochs for n in of.of("work"))

    with ENGINES[engine](made.homes, notes) as first:
        for epochs in (14, 28):  # the same engine again, with a halted run's messages still in its pipes
            assert first.run(arm, lambda epochs=epochs: enough(notes, epochs)) is False
            now = {n["owner"]: n for n in notes.of("work")}
            assert all(now[name]["score"] >= last[name]["score"] for name in last)
            last = now
    assert all(home.result("federated") is None for home in made.homes)
    then = Notes()
    with ENGINES[engine](made.homes, then) as second:
        assert second.run(arm) is True
    assert then.of("refused") == notes.of("refused") == []
    for home in made.homes:
        result, again = home.result(arm.name), then.of("work", owner=home.name)
        assert result is not None
        assert again[0]["epoch"] == last[home.name]["epoch"] + 2  # no epoch is done twice
        assert again[-1]["epoch"] == made.settings.total_epochs
        assert result["best_score"] >= last[home.name]["score"]


def test_what_is_finished_is_not_run_again(together: Ran) -> None:
    simulation = together.simulation
    trace = Trace(simulation.folder / "trace.jsonl")
    before = {arm: together.model(arm, "ant") for arm in TOGETHER}
    result = simulation.run()
    assert result is not None
    assert trace.read() == []  # not even an engine was started
    assert {arm: together.model(arm, "ant") for arm in TOGETHER} == before
    assert result["owners"]["bee"]["arms"]["federated"] == together.results["federated"]["bee"]
