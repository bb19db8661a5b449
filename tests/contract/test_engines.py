"""What every engine does with the same owners and arms, whatever it runs them on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fkge.embed import load_model
from fkge.experiment.engines import ENGINES
from fkge.experiment.owners import load_ranks
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, Links
from fkge.trace import Trace
from tests.conftest import COMPLEX, OWNERS, EventLog, kept, ray_here, reported, tiny_federation, tiny_settings

FILES = ("checkpoint.safetensors", "model.safetensors", "ranks.safetensors", "result.json")


class Ran:
    """A simulation whose arms an engine has run, and what it told meanwhile."""

    def __init__(self, simulation: Simulation, arms: list[str]) -> None:
        self.simulation, self.members, self.log = simulation, simulation.owners, EventLog()
        self.total = simulation.settings.total_epochs
        with ENGINES[simulation.spec.engine](self.members, self.log) as engine:
            self.whole = [engine.run(simulation.arm(arm)) for arm in arms if arm not in ("fede", "unified")]
            engine.central([arm for arm in arms if arm in ("fede", "unified")])
        self.results: dict[str, dict[str, Any]] = {
            arm: {member.name: reported(member, arm) or {} for member in self.members} for arm in arms
        }

    def model(self, arm: str, owner: str) -> bytes:
        return (self.simulation.folder / "arms" / arm / owner / "model.safetensors").read_bytes()


def ran(folder: Path, engine: str, arms: list[str], federation: Federation | None = None, **settings: Any) -> Ran:
    made = Simulation.create(
        folder / "run", federation or tiny_federation(), tiny_settings(**settings), engine=engine,
        baselines=[arm for arm in arms if arm != "federated"],
    )  # fmt: skip
    return Ran(made, arms)


LONG = ("nodes",)  # a process of its own for each owner and arm takes seconds to start


@pytest.fixture(scope="module", params=[pytest.param(e, marks=[pytest.mark.long] * (e in LONG)) for e in ENGINES])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    with ray_here() if request.param == "ray" else nullcontext():
        yield str(request.param)


TOGETHER = ["control", "permuted", "federated", "fede", "unified"]


@pytest.fixture(scope="module")
def together(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(tmp_path_factory.mktemp("together"), engine, TOGETHER)


def test_every_owner_ends_every_arm_with_a_model_ranks_and_a_result(together: Ran) -> None:
    assert together.whole == [True, True, True]
    for arm in TOGETHER:
        for member in together.members:
            files = FILES if arm in ("control", "permuted", "federated") else FILES[1:]
            assert [f for f in files if not (member.workspace(arm).folder / f).is_file()] == []
            tables, settings = load_model(member.workspace(arm).folder / "model.safetensors")
            assert (tables.entities, settings.dim) == (len(member.graph.entities), 8)
            ranks, parts = load_ranks(member.workspace(arm).folder / "ranks.safetensors")
            result = together.results[arm][member.name]
            assert {part: scores["triples"] for part, scores in result["test"].items()} == {
                part: int(mask.sum()) for part, mask in parts.items() if mask.any()
            }
            assert len(ranks) == len(member.graph.test)


def test_all_arms_spend_the_same(together: Ran) -> None:
    for arm in TOGETHER:
        for name in OWNERS:
            assert together.log.of("work", arm=arm, owner=name)[-1]["epoch"] == together.total
            assert (together.results[arm][name]["epochs"], together.results[arm][name]["tests"]) == (together.total, 5)


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
            tests = [n for n in together.log.of("work", arm=arm, owner=name) if n["score"] is not None]
            best = [max(n["score"] for n in tests[: i + 1]) for i in range(5)]
            assert [n["best"] for n in tests] == best
            assert best[-1] == together.results[arm][name]["best_score"]
            assert [n["improved"] for n in tests] == [i == 0 or best[i] > best[i - 1] for i in range(5)]


@pytest.mark.parametrize("start", ["together", "alone"])
def test_reciprocal_relations_and_adagrad(engine: str, start: str, tmp_path: Path) -> None:
    """Every arm with inverse rows; all owners end in one frame, which those that started alone have adopted."""
    arms = ["federated", "permuted", "random", "poisoned", "fede", "unified"]
    if start == "alone":
        arms = ["independent", "federated"]
    got = ran(tmp_path, engine, arms, start=start, exchanges=4, train=COMPLEX)
    assert got.log.of("refused") == got.log.of("given up") == []
    for arm in arms:
        for member in got.members:
            tables, _ = load_model(member.workspace(arm).folder / "model.safetensors")
            assert (tables.width("relation"), len(tables["inverse"])) == (32, 4)
            result = got.results[arm][member.name]
            assert result["epochs"] == (4 if arm == "independent" else got.total)
            if arm in ("federated", "permuted", "random", "poisoned"):
                assert set(result["handshakes"]) == set(OWNERS) - {member.name}
    frames = {kept(member, "federated")["frame"] for member in got.members}
    assert frames == ({""} if start == "together" else {"ant"})


def test_owners_that_start_alone_begin_where_the_lone_one_ended(engine: str, tmp_path: Path) -> None:
    arms = ["independent", "control", "federated"]
    got = ran(tmp_path, engine, arms, tiny_federation(OWNERS[:2]), start="alone")
    for name in OWNERS[:2]:
        first = got.results["independent"][name]
        assert [n["initial"] for n in got.log.of("work", arm="independent", owner=name)] == [True]
        for arm in ("control", "federated"):
            then = got.results[arm][name]
            work = got.log.of("work", arm=arm, owner=name)
            assert (work[0]["initial"], work[0]["epoch"], work[-1]["epoch"]) == (False, 6, got.total)
            assert min(n["best"] for n in work) >= first["best_score"]
            assert (then["tests"], then["epochs"]) == (first["tests"] + 4, got.total)


def test_a_game_without_noise_for_those_who_share_enough(engine: str, tmp_path: Path) -> None:
    """Pairs with fewer rows than teachers have no game; without noise there is no ε, and no Infinity in JSON."""
    made = tiny_federation()
    shared = made.members["ant"].graph.entities[int(made.pairs["ant", "cat"][0].entities[0])]
    federation = replace(made, links={**made.links, ("ant", "cat"): Links(((shared, shared),))})
    got = ran(
        tmp_path, engine, ["federated"], federation, translate="ppat", exchanges=2, ppat={"lam": 0.0}, chains=False
    )
    hosted = {name: set(result["handshakes"]) for name, result in got.results["federated"].items()}
    assert hosted == {"ant": {"bee"}, "bee": {"ant", "cat"}, "cat": {"bee"}}
    for result in got.results["federated"].values():
        assert (result["epochs"], result["tests"]) == (got.total, 2)
        assert set(result["price"]) == {"queries"}
        assert result["seconds"]["translate"] > 0
    assert got.log.of("refused") == got.log.of("given up") == []
    summed = got.simulation.run()
    assert summed is not None
    for file in got.simulation.folder.rglob("*.json"):
        json.loads(file.read_text(), parse_constant=pytest.fail)


def test_different_models_neighbours_and_a_grudge(engine: str, tmp_path: Path) -> None:
    """Owners whose models differ; one pair that does not speak; neighbours where the models allow them."""
    owners = ("ant", "bee", "cat", "dog")
    own = {"bee": {"model": "TransR", "dim": 12}}
    federation = tiny_federation(owners, own, refuses=("cat", "ant"))
    got = ran(tmp_path, engine, ["federated"], federation, neighbours=True, exchanges=2)
    hosted = {name: set(got.results["federated"][name]["handshakes"]) for name in owners}
    assert hosted == {"ant": {"bee", "dog"}, "bee": {"ant", "cat", "dog"}, "cat": {"bee", "dog"}, "dog": {*owners[:3]}}
    assert set(got.results["federated"]["cat"]["sent"]) == {"bee", "dog"}
    for member in got.members:
        tables, settings = load_model(member.workspace("federated").folder / "model.safetensors")
        assert settings.model == ("TransR" if member.name == "bee" else "TransE")
        assert tables.entities == len(member.graph.entities)  # neighbours are guests
        assert got.log.of("work", owner=member.name)[-1]["epoch"] == got.total


def test_what_was_stopped_is_taken_up_again(engine: str, tmp_path: Path) -> None:
    exchanges = 300 if engine == "nodes" else 23  # a signal takes longer to arrive than some epochs do
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(exchanges=exchanges), engine=engine)
    arm, log, last, finishing = made.arm("federated"), EventLog(), {}, False

    def enough(of: EventLog, epochs: int) -> bool:
        return any(n["epoch"] >= epochs for n in of.of("work"))

    then = EventLog()
    with ENGINES[engine](made.owners, lambda *e, **f: (then if finishing else log)(*e, **f)) as running:
        for _ in range(2):  # the same engine again, with a halted run's messages still in its pipes
            goal = max((n["epoch"] for n in log.of("work")), default=0) + 14
            assert running.run(arm, lambda goal=goal: enough(log, goal)) is False
            now = {member.name: kept(member, "federated") for member in made.owners}
            assert all(now[name]["activity"]["epochs"] > last[name]["activity"]["epochs"] for name in last)
            last = now
        assert all(reported(member, "federated") is None for member in made.owners)
        finishing = True
        assert running.run(arm) is True
    assert then.of("refused") == log.of("refused") == []
    for member in made.owners:
        result, again = reported(member, arm.name), then.of("work", owner=member.name)
        assert result is not None
        before = last[member.name]["activity"]
        # No epoch is done twice, and a slice that was left half-way ends where it would have.
        assert again[0]["epoch"] == min(before["epochs"] // 2 * 2 + 2, made.settings.total_epochs)
        assert result["epochs"] == again[-1]["epoch"] == made.settings.total_epochs
        assert result["best_score"] >= before["best_score"]


def test_a_long_first_training_is_left_within_an_epoch_or_two(engine: str, tmp_path: Path) -> None:
    settings = tiny_settings(start="alone", initial_epochs=100_000, exchanges=0, train={"batch": 8})
    made = Simulation.create(tmp_path / "run", tiny_federation(OWNERS[:2]), settings, engine=engine)
    arm, log = made.arm("independent"), EventLog()
    with ENGINES[engine](made.owners, log) as running:
        assert running.run(arm, lambda: any(n["epoch"] >= 3 for n in log.of("progress"))) is False
    assert log.of("work") == []
    then = {member.name: kept(member, "independent")["trainer"]["epoch"] for member in made.owners}
    for name, epoch in then.items():
        told = [n["epoch"] for n in log.of("progress", owner=name)]
        assert max(told, default=0) <= epoch < settings.initial_epochs
    assert max(then.values()) >= 3
    if engine == "in-process":
        assert max(then.values()) == 3
    for member in made.owners:  # nothing is lost: it goes on from there
        owner, trained = member.owner(arm)
        assert (owner.trainer.epoch, trained) == (then[member.name], False)


def test_what_is_finished_is_not_run_again(together: Ran) -> None:
    simulation = together.simulation
    trace = Trace(simulation.folder / "trace.jsonl")
    before = {arm: together.model(arm, "ant") for arm in TOGETHER}
    result = simulation.run()
    assert result is not None
    assert trace.read() == []  # not even an engine was started
    assert {arm: together.model(arm, "ant") for arm in TOGETHER} == before
    assert result.owners["bee"].arms["federated"].to_json() == together.results["federated"]["bee"]


def test_a_private_track_may_be_left_and_begins_again(engine: str, tmp_path: Path) -> None:
    settings = tiny_settings(exchanges=2, private={"epochs": 400, "pull": [0.5]})
    made = Simulation.create(tmp_path / "run", tiny_federation().keeping(0.3, 1), settings, baselines=(), engine=engine)
    arm, log = made.arm("federated"), EventLog()

    def far() -> bool:
        return any(n["epoch"] > made.settings.total_epochs + 5 for n in log.of("progress"))

    with ENGINES[engine](made.owners, log) as running:
        assert running.run(arm, far) is False
        assert not all(reported(member, "federated") for member in made.owners)
        assert running.run(arm) is True
    for member in made.owners:
        result = reported(member, "federated")
        assert result is not None
        assert result["epochs"] == made.settings.total_epochs  # the shared track's
        assert result["private"]["score"] >= result["private"]["shared"]
        assert result["seconds"]["private"] > 0
        tables, _ = load_model(member.workspace("federated").folder / "model.safetensors")
        assert tables.entities == len(member.graph.entities) >= len(member.shared.entities)
