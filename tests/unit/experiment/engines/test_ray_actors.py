"""Owners in Ray actors: the in-process engine's results, on several machines, whoever dies meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fkge.errors import EngineError, SettingsError
from fkge.experiment.engines import ENGINES, InProcess
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.simulation import Simulation
from fkge.owner_events import Emit, OwnerEvent
from tests.conftest import COMPLEX, OWNERS, EventLog, kept, ray_here, reported, tiny_federation, tiny_settings
from tests.replay import replay

if TYPE_CHECKING:
    from fkge.experiment.engines.ray_actors import RayActors

FILES = ("model.safetensors", "ranks.safetensors")


@pytest.fixture(scope="module")
def here() -> Iterator[None]:
    with ray_here():
        yield


def simulation(folder: Path, engine: str = "ray", **settings: Any) -> Simulation:
    return Simulation.create(folder, tiny_federation(), tiny_settings(**settings), engine=engine)


def left(made: Simulation, arm: str) -> dict[str, Any]:
    """All that an arm left, but for seconds of CPU time."""
    out: dict[str, Any] = {}
    for member in made.owners:
        result = reported(member, arm) or {}
        files = [(member.workspace(arm).folder / name).read_bytes() for name in FILES]
        out[member.name] = files, {key: value for key, value in result.items() if key != "seconds"}
    return out


def told(log: EventLog) -> list[tuple[Any, ...]]:
    """What happened, at which virtual time, but for how far owners were in between."""
    kinds = ("state", "hosting", "translated", "given up", "work")
    fields = ("owner", "state", "peer", "epoch", "score", "peers", "sent")
    out: list[tuple[Any, ...]] = []
    for n in log:
        if n["event"] in kinds:
            begun = n.get("since", n["t"])
            out.append((begun, n["event"], *(str(n.get(field)) for field in fields)))
    return sorted(out)


# -- the same ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"neighbours": True, "window": 0.001, "train": {"dim": 512}},
        {"translate": "ppat", "exchanges": 2},
        {"translate": "procrustes"},
        {"train": {**COMPLEX, "dim": 512}},
    ],
    ids=["frame", "ppat", "procrustes", "reciprocal"],
)
def test_it_is_the_in_process_engine_to_the_bit(settings: dict[str, Any], here: None, tmp_path: Path) -> None:
    found, said = [], []
    for engine in ("in-process", "ray"):
        made, log = simulation(tmp_path / engine, engine, **settings), EventLog()
        with ENGINES[engine](made.owners, log) as running:
            assert running.run(made.arm("federated"))
        found.append(left(made, "federated"))
        said.append(told(log))
    assert found[0] == found[1]
    assert said[0] == said[1]
    assert len({files[0] for files, _ in (found[0][name] for name in OWNERS)}) == len(OWNERS)
    if "train" in settings:  # messages that lie in Ray's object store
        from fkge.experiment.engines.ray_owner import BY_REFERENCE

        result = found[0]["ant"][1]
        assert result["sent"]["bee"] / 9 > 2 * BY_REFERENCE


@pytest.mark.long
def test_owners_work_at_the_same_time(here: None, tmp_path: Path) -> None:
    """All are within their first training before any has ended it."""
    made, log = simulation(tmp_path / "run", initial_epochs=3000, start="alone"), EventLog()
    seen: list[set[str]] = []

    def met() -> bool:
        seen.append({n["owner"] for n in log.of("progress")})
        return seen[-1] == set(OWNERS)

    with ENGINES["ray"](made.owners, log) as running:
        assert not running.run(made.arm("independent"), met)
    assert log.of("work") == []  # all have begun and nobody has ended
    assert all(0 < kept(member, "independent")["trainer"]["epoch"] < 3000 for member in made.owners)


@pytest.mark.long
def test_a_recording_can_be_replayed(here: None, tmp_path: Path) -> None:
    made = simulation(tmp_path / "run", exchanges=2)
    with ENGINES["ray"](made.owners, EventLog(), recordings=tmp_path / "recordings") as running:
        assert running.run(made.arm("federated"))
    again = simulation(tmp_path / "again", exchanges=2)
    for member in again.owners:
        got = replay(member, again.arm("federated"), tmp_path / "recordings" / f"{member.name}.tape")
        assert got.same
        assert got.messages > 10


# -- places ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_owner_without_access_to_its_store_says_so(here: None, tmp_path: Path) -> None:
    made, other = simulation(tmp_path / "run"), simulation(tmp_path / "other")
    cat = made.owners[2]
    nowhere = replace(cat, folder=tmp_path / "nowhere")
    with pytest.raises(
        EngineError, match=r"owner cat failed: it was placed on .* does not see its folder .*nowhere.*share"
    ):
        ENGINES["ray"]([nowhere], EventLog()).__enter__()
    elsewhere = replace(cat, folder=other.owners[2].folder)
    with pytest.raises(EngineError, match=r"owner cat failed: .* belongs to another run"):
        ENGINES["ray"]([elsewhere], EventLog()).__enter__()


def test_shares_fit_what_is_there(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")
    from fkge.experiment.engines.ray_actors import shares

    members = simulation(tmp_path / "run").owners
    on_gpu = [replace(h, settings=tiny_settings(train={"device": "auto"})) for h in members[:2]] + members[2:]
    assert shares(members, {"CPU": 8.0, "GPU": 2.0}) == dict.fromkeys(OWNERS, (1.0, 0.0))
    assert shares(members, {"CPU": 2.0}) == dict.fromkeys(OWNERS, (0.5, 0.0))
    assert shares(members, {"CPU": 1.0}) == dict.fromkeys(OWNERS, (0.3333, 0.0))
    assert shares(on_gpu, {"CPU": 8.0, "GPU": 1.0}) == {"ant": (1.0, 0.5), "bee": (1.0, 0.5), "cat": (1.0, 0.0)}
    assert shares(on_gpu, {"CPU": 8.0, "GPU": 4.0})["ant"] == (1.0, 1.0)
    assert shares(members, {"CPU": 8.0, "GPU": 1.0}, cpus=2, gpus=0.25) == dict.fromkeys(OWNERS, (2.0, 0.25))
    with pytest.raises(EngineError, match=r"3 owners want 9 CPUs and Ray has 8; ask for less \(--cpus 2.7\)"):
        shares(members, {"CPU": 8.0}, cpus=3)
    with pytest.raises(EngineError, match="3 owners want 3 GPUs and Ray has 0"):
        shares(members, {"CPU": 8.0}, gpus=1)


# -- death -------------------------------------------------------------------------------------------


def spent(made: Simulation, arm: str) -> dict[str, tuple[int, int]]:
    """Epochs and tests, by owner."""
    results = {member.name: reported(member, arm) or {} for member in made.owners}
    return {name: (result.get("epochs", 0), result.get("tests", 0)) for name, result in results.items()}


class Struck:
    """A note that kills an owner's process when it is told what it waits for; `times` times."""

    def __init__(self, victim: str, when: Callable[..., bool], times: int = 1) -> None:
        self.log, self.engine = EventLog(), None
        self._victim, self._when, self._times = victim, when, times

    def __call__(self, event: OwnerEvent) -> None:
        self.log(event)
        if self._times and event.owner == self._victim and self._when(**event.record()):
            self._times -= 1
            assert self.engine is not None
            os.kill(self.engine.pids[self._victim], signal.SIGKILL)

    def run(self, members: list[SimulatedOwner], run: Callable[[RayActors], bool]) -> bool:
        with ENGINES["ray"](members, self) as engine:
            self.engine: Any = engine
            return run(self.engine)


def at_epoch(epoch: int) -> Callable[..., bool]:
    return lambda event, **fields: event == "work" and fields["epoch"] == epoch


@pytest.mark.long
def test_a_lone_owner_that_is_killed_ends_in_the_same_bits(here: None, tmp_path: Path) -> None:
    undisturbed = simulation(tmp_path / "undisturbed", "in-process")
    assert InProcess(undisturbed.owners, EventLog()).run(undisturbed.arm("control"))
    made, struck = simulation(tmp_path / "run"), Struck("bee", at_epoch(8))
    assert struck.run(made.owners, lambda engine: engine.run(made.arm("control")))
    (back,) = struck.log.of("restarted")
    assert (back["owner"], back["epoch"], back["redone"]) == ("bee", 0, 8)  # it had kept nothing yet, and says so
    assert left(made, "control") == left(undisturbed, "control")


@pytest.mark.long
@pytest.mark.parametrize(
    "when",
    [
        at_epoch(2),
        lambda event, **fields: event == "hosting",
        lambda event, **fields: fields.get("state") == "sleep",
        lambda event, **fields: fields.get("state") == "scoring",
    ],
    ids=["after work", "in an exchange", "asleep", "at the end"],
)
def test_those_that_are_killed_come_back_and_nothing_is_lost(
    when: Callable[..., bool], here: None, tmp_path: Path
) -> None:
    made, struck = simulation(tmp_path / "run"), Struck("bee", when)
    assert struck.run(made.owners, lambda engine: engine.run(made.arm("federated")))
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (20, 5))
    assert {n["owner"] for n in struck.log.of("restarted")} <= {"bee"}
    assert struck.log.of("died") == struck.log.of("refused") == []


@pytest.mark.long
def test_it_goes_on_from_what_it_had_kept(here: None, tmp_path: Path) -> None:
    made = simulation(tmp_path / "run", exchanges=23)
    arm, struck, log = made.arm("federated"), Struck("bee", at_epoch(40)), EventLog()
    with ENGINES["ray"](made.owners, log) as first:
        assert not first.run(arm, lambda: any(n["epoch"] >= 20 for n in log.of("work")))
    stood = kept(made.owners[1], "federated")["trainer"]["epoch"]
    assert stood >= 10
    assert struck.run(made.owners, lambda engine: engine.run(arm))
    (back,) = struck.log.of("restarted")
    assert (back["epoch"] >= stood, back["redone"]) == (True, 40 - back["epoch"])  # more was kept if it took a minute
    assert spent(made, "federated") == dict.fromkeys(OWNERS, (50, 13))


@pytest.mark.long
def test_one_that_dies_again_and_again_is_given_up_on(here: None, tmp_path: Path) -> None:
    made, struck = simulation(tmp_path / "run"), Struck("bee", lambda event, **fields: event == "progress", times=99)
    made.spec = made.spec.model_copy(update={"engine": "struck", "arms": ["federated"]})
    with pytest.MonkeyPatch.context() as patched:

        def engine(members: list[SimulatedOwner], note: Emit) -> Any:
            def both(event: OwnerEvent) -> None:
                note(event)
                struck(event)

            struck.engine = ENGINES["ray"](members, both)
            return struck.engine

        patched.setitem(ENGINES, "struck", engine)
        with pytest.raises(EngineError, match=r"^bee died during federated \(the process of owner bee, \d+ on "):
            made.run()
    assert len(struck.log.of("restarted", owner="bee")) == 3
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (0, 0), "cat": (20, 5)}


@pytest.mark.long
def test_one_that_fails_takes_nobody_with_it(here: None, tmp_path: Path) -> None:
    """An owner whose vectors end in no numbers, and a server that cannot go on for that; both say why."""
    wild = tiny_federation(OWNERS[:2], {"bee": {"lr": 3e38}})
    made = Simulation.create(tmp_path / "run", wild, tiny_settings(), baselines=(), engine="ray")
    with pytest.raises(EngineError, match=r"^bee died during federated \(owner bee failed: SettingsError: .*diverged"):
        made.run()
    assert spent(made, "federated") == {"ant": (20, 5), "bee": (0, 0)}
    (failed,) = (r for r in made.trace.read() if r["event"] == "failed")
    assert "Traceback" in failed["trace"]
    with (
        ENGINES["ray"](made.owners, EventLog()) as engine,
        pytest.raises(EngineError, match=r"owner \w+ failed: SettingsError: fede: .* during fede; resume the run"),
    ):
        engine.central(["fede"])


@pytest.mark.long
def test_a_server_that_is_killed_begins_anew(here: None, tmp_path: Path) -> None:
    made, victims = simulation(tmp_path / "run"), ["ant"]

    def note(event: str, **fields: Any) -> None:
        if victims:
            os.kill(engine.pids[victims.pop()], signal.SIGKILL)  # type: ignore[attr-defined]

    with ENGINES["ray"](made.owners, note) as engine:
        engine.central(["fede"])
    assert victims == []
    assert spent(made, "fede") == dict.fromkeys(OWNERS, (20, 5))


# -- asking for it -----------------------------------------------------------------------------------


def test_nobody_imports_ray_who_does_not_use_it() -> None:
    code = "import sys, fkge.experiment.simulation, fkge.experiment.engines, fkge.cli; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.long
def test_what_ray_is_told_is_kept_and_belongs_to_ray_alone(here: None, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"'processes' has no option 'address'; it belongs to --engine ray"):
        Simulation.create(
            tmp_path / "no", tiny_federation(), tiny_settings(), engine_options={"address": "auto"}
        )  # fmt: skip
    made = Simulation.create(
        tmp_path / "run", tiny_federation(OWNERS[:2]), tiny_settings(exchanges=1), baselines=(), engine="ray",
        engine_options={"cpus": 99},
    )  # fmt: skip
    with pytest.raises(EngineError, match="2 owners want 198 CPUs and Ray has 4"):
        Simulation.open(made.folder).run()
    result = Simulation.open(made.folder).run(engine_options={"cpus": 0.5})
    assert result is not None
    assert result.engine == "ray"
