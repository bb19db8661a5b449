"""An experiment: one federation, several arms, one folder that holds all of it.

RUN/
  simulation.json     what was asked for
  settings.toml       every setting, explained
  owners/NAME/        each owner's home: its graph, settings and acquaintances
  arms/ARM/NAME/      what each owner reached in each arm: checkpoint, model, ranks, result
  trace.jsonl         one line for each thing that happened
  results.json        metrics by owner and arm, comparisons, costs

Arms, all but the first with the same number of epochs and of tests:

  independent   a lone owner's first training, `initial_epochs` long
  control       the lone owner, for as many epochs as the others get
  permuted      everything as in `federated`, but aligned rows are mixed up: what it earns is no transfer
  random        everything as in `federated`, but owners send random vectors
  federated     the federation
  fede          a server averages shared vectors (needs owners that train alike)
  unified       one graph made of all (needs that, and everybody's data)

Where owners have two tracks (a sharing policy, or differential privacy), those that deal with others federate with what
they share and end with a private track; control trains on all it knows for as many epochs as both together.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fkge.engines import ENGINES, Engine, check_engine, run_central
from fkge.errors import EngineError, GraphError, RunError, SettingsError, did_you_mean
from fkge.evaluation import paired_bootstrap
from fkge.federation import (
    PARTS,
    Arm,
    Federation,
    FederationSettings,
    Home,
    Plan,
    federation_of,
    load_ranks,
    make_homes,
)
from fkge.trace import SILENT, Progress, Task, Trace, read_json, write_atomically

ARMS = ("independent", "control", "permuted", "random", "federated", "fede", "unified")
CENTRAL = ("fede", "unified")
COMPARED = ("mrr", "hits@10")
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_EPOCHS = 2.0  # of one owner, in the trace

Watch = Callable[[dict[str, Any]], None]


class Simulation:
    """A simulation's folder. Make one with `create` or `open`."""

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        self.folder = folder
        self.about = about
        self.trace = Trace(folder / "trace.jsonl")
        self.settings = FederationSettings.load(folder / "settings.toml")
        self.arms: list[str] = about["arms"]

    # -- making and finding --------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: Path,
        federation: Federation,
        settings: FederationSettings,
        *,
        baselines: Iterable[str] = ("control",),
        engine: str = "processes",
        engine_options: Mapping[str, Any] | None = None,
        seed: int = 0,
        progress: Progress = SILENT,
    ) -> Simulation:
        """A new simulation in `folder`, which must not hold anything yet."""
        cls.check_free(folder)
        arms = cls.check_asked(settings, baselines, engine, engine_options)
        cls._check_alike(arms, federation, settings)
        for name, member in federation.members.items():
            if len(member.graph.valid) == 0:
                raise GraphError(
                    name, "has no validation triples, by which an owner decides what it keeps",
                    "Add some: a valid file beside train and test, or more triples to split.",
                )  # fmt: skip
        two_tracks = settings.privacy.mode == "dp" or any(m.policy for m in federation.members.values())
        if two_tracks and (central := [arm for arm in arms if arm in CENTRAL]):
            raise SettingsError(
                f"{', '.join(central)}: a server there sees all; leave it out where owners do not share all"
            )
        make_homes(folder, federation, settings, seed, progress)
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        about = {
            "federation": federation.name, "owners": list(federation.members), "arms": arms, "engine": engine,
            "seed": seed, "two_tracks": two_tracks,
        }  # fmt: skip
        if engine_options:
            about["engine_options"] = dict(engine_options)
        # Written last: a folder with it is a whole simulation.
        write_atomically(folder / "simulation.json", (json.dumps(about, indent=2) + "\n").encode())
        return cls(folder, about)

    @staticmethod
    def check_asked(
        settings: FederationSettings,
        baselines: Iterable[str],
        engine: str,
        engine_options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Refuse arms and engines that do not exist, or cannot be had together; the arms, in their order."""
        check_engine(engine, list(engine_options or ()))
        wanted = {"federated"}
        for name in baselines:
            if name not in ARMS:
                raise SettingsError(f"there is no arm {name!r} among {', '.join(ARMS)}{did_you_mean(name, ARMS)}")
            wanted.add(name)
        if settings.start == "alone":
            wanted.add("independent")  # the others begin where it ends
        if "independent" in wanted and settings.initial_epochs == 0:
            raise SettingsError("initial_epochs is 0, so there is no first training to begin with, or to report")
        return [arm for arm in ARMS if arm in wanted]

    @staticmethod
    def _check_alike(arms: Iterable[str], federation: Federation, settings: FederationSettings) -> None:
        """Refuse arms with a server for owners that train differently: now, not after hours of the other arms."""
        shared = settings.train.model_dump()
        other = [name for name, member in federation.members.items() if shared | dict(member.train) != shared]
        central = [arm for arm in arms if arm in CENTRAL]
        if central and other:
            raise SettingsError(
                f"{', '.join(central)}: a server can only average or merge owners that train alike, and "
                f"{', '.join(other)} has settings of its own; leave these arms out"
            )

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse a folder that holds something."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            way_out = f"Go on with it: fkge simulate --resume {folder}, or choose another --out."
            whole = (folder / "simulation.json").exists()
            raise RunError(f"{folder}: is there already. {way_out if whole else 'Choose another --out.'}")

    @classmethod
    def open(cls, folder: Path) -> Simulation:
        """The simulation in `folder`."""
        path = folder / "simulation.json"
        if not path.exists():
            raise RunError(f"{folder}: holds no simulation. `fkge simulate FEDERATION --out {folder}` makes one.")
        way_out = "Put it back from a copy, or make the simulation anew."
        return cls(folder, read_json(path, way_out, "federation", "owners", "arms", "engine", "seed", "two_tracks"))

    @property
    def homes(self) -> list[Home]:
        """The owners' homes."""
        return [Home.open(self.folder / "owners" / name) for name in self.about["owners"]]

    @property
    def federation(self) -> Federation:
        """What the simulation was made of."""
        return federation_of(self.folder, self.about["owners"])

    def arm(self, name: str) -> Arm:
        """What an arm is, to each owner."""
        s, two_tracks = self.settings, self.about["two_tracks"]
        if name == "independent":
            return Arm(name, Plan(s.initial_epochs, s.initial_epochs, alone=True), peers=False)
        plan = Plan.of(s)
        if name == "control":
            plan = replace(plan, total=plan.total + (s.private.total if two_tracks else 0))
        # A shared track has a first training of its own: what a lone owner begins with knows too much.
        begin = "independent" if s.start == "alone" and not (two_tracks and name != "control") else None
        return Arm(
            name, plan, peers=name != "control", permuted=name == "permuted", random=name == "random", begin_with=begin
        )

    @property
    def result(self) -> dict[str, Any] | None:
        """What the finished simulation found, or None."""
        path = self.folder / "results.json"
        way_out = f"Remove it, and sum up anew: fkge simulate --resume {self.folder}"
        return read_json(path, way_out, "mean", "owners") if path.exists() else None

    # -- running -------------------------------------------------------------------------------------

    def run(
        self,
        *,
        progress: Progress = SILENT,
        stop: Callable[[], bool] | None = None,
        watch: Watch | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Run every arm that is not finished, then sum up. None if asked to stop before the end.

        Args:
            watch: told of everything as it happens: each record of the trace, and how far owners are in between.
            engine_options: instead of those the simulation was made with, for this time.

        Raises:
            EngineError: an owner's process died. The other owners have finished the arm without it.
        """
        if self.result is not None:
            return self.result
        options = self.about.get("engine_options", {}) | dict(engine_options or {})
        check_engine(self.about["engine"], list(options))
        with self._alone():
            return self._run(progress, stop, watch or (lambda record: None), options)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder, so that nobody else runs it at the same time; a process that dies lets it go."""
        with (self.folder / "lock").open("w") as held:
            for glances_left in reversed(range(10)):  # whoever looks whether it is held holds it for a moment
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not glances_left:
                        raise RunError(
                            f"{self.folder}: is being run by another process; wait for it, or stop it"
                        ) from None
                    time.sleep(0.02)
            yield

    @staticmethod
    def is_running(folder: Path) -> bool:
        """Whether a process works on the simulation in `folder` at this moment."""
        try:
            with (folder / "lock").open("rb") as looked_at:
                fcntl.flock(looked_at, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _run(
        self, progress: Progress, stop: Callable[[], bool] | None, watch: Watch, options: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        homes = self.homes
        pending = [arm for arm in self.arms if any(home.result(arm) is None for home in homes)]
        if pending:
            drawn = _Drawn(self.trace, watch)
            with ENGINES[self.about["engine"]](homes, drawn.note, **options) as engine:
                for name in pending:
                    if name not in CENTRAL and not self._run_arm(engine, name, homes, drawn, progress, stop):
                        return None
                central = [name for name in pending if name in CENTRAL]
                if central and not (stop is not None and stop()):
                    total = sum(self.settings.total_epochs for _ in central) * len(homes)
                    started = time.monotonic()
                    for name in central:
                        self._announce(name, self.settings.total_epochs, drawn)
                    with drawn.drawing(progress, " and ".join(central), total):
                        engine.central(central, run_central, stop)
                    if all(home.result(arm) is not None for home in homes for arm in central):
                        seconds = round(time.monotonic() - started, 2)
                        drawn.note("arm over", arm=" and ".join(central), seconds=seconds)
        if any(home.result(arm) is None for home in homes for arm in self.arms):
            return None
        return self._sum_up(homes)

    def _run_arm(
        self,
        engine: Engine,
        name: str,
        homes: Sequence[Home],
        drawn: _Drawn,
        progress: Progress,
        stop: Callable[[], bool] | None,
    ) -> bool:
        arm = self.arm(name)
        started = time.monotonic()
        epochs = arm.plan.total + (self.settings.private.total if self.about["two_tracks"] and arm.peers else 0)
        self._announce(name, epochs, drawn)
        with drawn.drawing(progress, name, epochs * len(homes)):
            whole = engine.run(arm, stop)
        if stop is not None and stop():
            return False
        dead = [home.name for home in homes if home.result(name) is None]
        if not whole and dead:  # one that died after its result was written has lost nothing; the next arm will miss it
            why = "; ".join(drawn.deaths[owner] for owner in dead if owner in drawn.deaths)
            why = f" ({why})" if why else ""
            others = "the other owners went on without and nothing of theirs is lost" if len(dead) < len(homes) else (
                "what they had kept is not lost")  # fmt: skip
            raise EngineError(
                f"{', '.join(dead)} died during {name}{why}; {others}. "
                f"Take it up again: fkge simulate --resume {self.folder}"
            )
        drawn.note("arm over", arm=name, seconds=round(time.monotonic() - started, 2))
        return True

    def _announce(self, arm: str, epochs: int, drawn: _Drawn) -> None:
        """An arm begins, or goes on: `epochs` is what each owner has in it."""
        drawn.note("arm", arm=arm, time=round(time.time(), 1), epochs=epochs, owners=self.about["owners"])

    # -- summing up ----------------------------------------------------------------------------------

    def _sum_up(self, homes: Sequence[Home]) -> dict[str, Any]:
        owners: dict[str, Any] = {}
        for home in homes:
            graph = home.graph
            owners[home.name] = {
                "model": home.settings.train.model, "entities": len(graph.entities),
                "relations": len(graph.relations), "triples": len(graph.train),
                "shares": {
                    peer: {"entities": len(known.common.entities), "relations": len(known.common.relations)}
                    for peer, known in home.peers.items()
                },
                "arms": {arm: home.result(arm) for arm in self.arms},
                "versus": self._compare(home),
            }  # fmt: skip
        result = {
            **{key: self.about[key] for key in ("federation", "engine", "seed")},
            "start": self.settings.start, "translate": self.settings.translate, "decide": self.settings.decide,
            "epochs": self.settings.total_epochs, "privacy": self.settings.privacy.model_dump(),
            "private_epochs": self.settings.private.total if self.about["two_tracks"] else 0,
            "seconds": self._seconds(),
            "mean": {arm: self._mean(owners, arm) for arm in self.arms}, "owners": owners,
        }  # fmt: skip
        write_atomically(self.folder / "results.json", (json.dumps(result, indent=2) + "\n").encode())
        return result

    def _seconds(self) -> float:
        """Wall-clock seconds of all arms that ran to their end."""
        return round(sum(float(r["seconds"]) for r in self.trace.read() if r["event"] == "arm over"), 1)

    def _mean(self, owners: dict[str, Any], arm: str) -> dict[str, Any]:
        """Means over owners, for each part of the test triples that any of them has."""
        out: dict[str, Any] = {}
        for part in PARTS:
            found = [o["arms"][arm]["test"][part] for o in owners.values() if part in o["arms"][arm]["test"]]
            if found:
                keys = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy")
                out[part] = {key: float(np.mean([f[key] for f in found])) for key in keys}
        return out

    def _compare(self, home: Home) -> dict[str, Any]:
        """The federated owner against its other arms: paired bootstrap over its test triples."""
        ours, parts = load_ranks(home.arm_folder("federated") / "ranks.safetensors")
        out: dict[str, Any] = {}
        for arm in self.arms:
            if arm == "federated":
                continue
            theirs, _ = load_ranks(home.arm_folder(arm) / "ranks.safetensors")
            out[arm] = {}
            for part, mask in parts.items():
                if mask.sum() > 1:  # one triple has no interval
                    found = {
                        m: paired_bootstrap(theirs[mask].realistic, ours[mask].realistic, metric=m) for m in COMPARED
                    }
                    out[arm][part] = {
                        m: {"difference": d.difference, "low": d.low, "high": d.high, "p": d.p}
                        for m, d in found.items()
                    }
        return out


class _Drawn:
    """Events of an engine: into the trace, and onto the screen.

    Attributes:
        deaths: by owner, what it died of.
    """

    def __init__(self, trace: Trace, watch: Watch) -> None:
        self.deaths: dict[str, str] = {}
        self._trace = trace
        self._watch = watch
        self._task: Task | None = None
        self._epochs: dict[tuple[str, str], int] = {}
        self._scores: dict[str, float] = {}
        self._said = time.monotonic()
        self._traced: dict[str, float] = {}

    @contextmanager
    def drawing(self, progress: Progress, name: str, epochs: int) -> Iterator[None]:
        """Draw `epochs` of work as one bar."""
        self._scores.clear()
        self._epochs.clear()
        with progress.task(name, epochs, "epochs") as self._task:
            yield
        self._task = None

    def _is_due(self, owner: str) -> bool:
        """Whether the trace is to hear again how far an owner is: each epoch would be too much of it."""
        now = time.monotonic()
        if now - self._traced.get(owner, -SECONDS_BETWEEN_EPOCHS) < SECONDS_BETWEEN_EPOCHS:
            return False
        self._traced[owner] = now
        return True

    def note(self, event: str, **fields: Any) -> None:
        if event != "progress" or self._is_due(fields["owner"]):
            self._trace.write(event, **fields)
        self._watch({"event": event, **fields})
        if event == "died":
            self.deaths[fields["owner"]] = fields["why"]
        owner, arm = fields.get("owner"), fields.get("arm")
        if self._task is None or owner is None or "epoch" not in fields:
            return
        done = fields["epoch"] - self._epochs.get((str(arm), owner), 0)
        self._epochs[str(arm), owner] = fields["epoch"]
        if fields.get("best") is not None:
            self._scores[owner] = fields["best"]
        shown: dict[str, float | str] = {}
        if self._scores:
            shown = {"owners": len(self._scores), "validation mrr": float(np.mean(list(self._scores.values())))}
        if done > 0:
            self._task.advance(done, **shown)
        if shown and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:  # a log gets a line every now and then
            self._said = time.monotonic()
            self._task.advance(0, epochs=sum(self._epochs.values()), **shown)
