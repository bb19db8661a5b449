"""A simulation: create it, run its arms (`fkge.experiment.arms`), compare them, write `results.json`; all in one
folder.

RUN/
  simulation.json     what was asked for (`fkge.experiment.results.Specification`)
  settings.toml       every setting, explained
  owners/NAME/        each owner's store: its graph, settings and peers
  arms/ARM/NAME/      what each owner reached in each arm: checkpoint, model, ranks, result
  trace.jsonl         one line for each event
  results.json        metrics by owner and arm, comparisons, costs (`fkge.experiment.results`)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from fkge.errors import EngineError, RunError, SettingsError, did_you_mean
from fkge.evaluation import paired_bootstrap
from fkge.experiment import results
from fkge.experiment.arms import ARMS, CENTRAL, Arm, make_arm
from fkge.experiment.engines import ENGINES, Engine, EngineOptions, check_engine
from fkge.experiment.engines.base import never
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.results import Comparison, OwnerResult, PrivacySummary, SimulationResult, Specification, Versus
from fkge.experiment.setup import check_valid, create_stores, federation_of
from fkge.experiment.trace_events import ArmFinished, ArmStarted, Died, Restarted, read_events
from fkge.federation import Federation, FederationSettings
from fkge.federation.driver import Stop
from fkge.files import FileLock, check_free, is_locked, write_atomically
from fkge.owner_events import EpochReached, TraceEvent, Worked
from fkge.progress import SILENT, Progress, Task
from fkge.trace import Record, Trace

COMPARED = ("mrr", "hits@10")
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_EPOCHS = 2.0  # of one owner, in the trace

Watch = Callable[[Record], None]


class Simulation:
    """A simulation's folder. Make one with `create` or `open`."""

    def __init__(self, folder: Path, spec: Specification) -> None:
        self.folder = folder
        self.spec = spec
        self.trace = Trace(folder / "trace.jsonl")
        self.settings = FederationSettings.load(folder / "settings.toml")

    # -- creating and opening ------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: Path,
        federation: Federation,
        settings: FederationSettings,
        *,
        baselines: Iterable[str] = ("control",),
        engine: str = "processes",
        engine_options: EngineOptions | None = None,
        seed: int = 0,
        progress: Progress = SILENT,
    ) -> Simulation:
        """Create a simulation.

        Args:
            folder: must not hold anything yet.
            federation: the owners.
            settings: how they federate.
            baselines: arms in addition to ``federated``.
            engine: that runs the owners, of `fkge.experiment.engines.ENGINES`.
            engine_options: see there.
            seed: of everything random.
            progress: of the alignment.

        Raises:
            RunError: the folder holds something.
            SettingsError, GraphError: these owners, settings, arms and engine do not go together.
        """
        cls.check_free(folder)
        arms = cls.check_asked(settings, baselines, engine, engine_options)
        two_tracks = settings.privacy.mode == "dp" or any(m.policy for m in federation.members.values())
        _check_central([arm for arm in arms if arm in CENTRAL], federation, settings, two_tracks)
        check_valid(federation)
        create_stores(folder, federation, settings, seed, progress)
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        spec = Specification(
            federation=federation.name, owners=list(federation.members), arms=arms, engine=engine, seed=seed,
            two_tracks=two_tracks, **({"engine_options": dict(engine_options)} if engine_options else {}),
        )  # fmt: skip
        spec.write(folder / results.SPECIFICATION)  # last: a folder with it is a complete simulation
        return cls(folder, spec)

    @staticmethod
    def check_asked(
        settings: FederationSettings, baselines: Iterable[str], engine: str, engine_options: EngineOptions | None = None
    ) -> list[str]:
        """The arms of a simulation, in their order; the arguments are those of `create`.

        Raises:
            SettingsError: an arm, the engine or an option does not exist, or they do not go together.

        Args:
            settings, baselines, engine, engine_options: see `create`.
        """
        check_engine(engine, list(engine_options or ()))
        wanted = ["federated", *baselines]
        for name in wanted:
            if name not in ARMS:
                raise SettingsError(f"there is no arm {name!r} among {', '.join(ARMS)}{did_you_mean(name, ARMS)}")
        if settings.start == "alone":
            wanted.append("independent")  # the others begin where it ends
        if settings.start == "alone" and settings.initial_epochs == 0:
            raise SettingsError("initial_epochs is 0, so there is no first training to begin with")
        return [arm for arm in ARMS if arm in wanted]

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse a folder that holds something."""
        complete = (folder / results.SPECIFICATION).exists()
        check_free(folder, f"Continue it: fkge simulate --resume {folder}" if complete else None)

    @classmethod
    def open(cls, folder: Path) -> Simulation:
        """Open the simulation in `folder`.

        Raises:
            RunError: there is none, or it is damaged.
        """
        if not (folder / results.SPECIFICATION).exists():
            raise RunError(f"{folder}: holds no simulation. `fkge simulate FEDERATION --out {folder}` makes one.")
        return cls(folder, Specification.load(folder))

    @cached_property
    def owners(self) -> list[SimulatedOwner]:
        """The owners."""
        return [SimulatedOwner.open(self.folder / "owners" / name) for name in self.spec.owners]

    @property
    def federation(self) -> Federation:
        """The federation that was simulated."""
        return federation_of(self.folder, self.spec.owners)

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        largest = max(self.owners, key=lambda owner: len(owner.graph.train)).name if name == "poisoned" else None
        return make_arm(name, self.settings, self.spec.two_tracks, largest)

    @property
    def result(self) -> SimulationResult | None:
        """The result of the finished simulation, or None."""
        return SimulationResult.load(self.folder) if (self.folder / results.FILE).exists() else None

    # -- running -------------------------------------------------------------------------------------

    def run(
        self,
        *,
        progress: Progress = SILENT,
        stop: Stop | None = None,
        watch: Watch | None = None,
        engine_options: EngineOptions | None = None,
    ) -> SimulationResult | None:
        """Run every arm that is not finished, then sum up.

        Args:
            progress: one bar per arm.
            stop: asked between chunks of training; True ends the run early, and `run` again continues it.
            watch: receives every record of the trace, and how far owners are in between.
            engine_options: instead of those the simulation was created with, for this time.

        Returns:
            The result; None if `stop` ended it early.

        Raises:
            EngineError: an owner's process died. The other owners have finished the arm without it.
        """
        if (result := self.result) is not None:
            return result
        options = self.spec.engine_options | dict(engine_options or {})
        check_engine(self.spec.engine, list(options))
        busy = RunError(f"{self.folder}: is being run by another process; wait for it, or stop it")
        with FileLock(self.folder / "lock", timeout=0.2, error=busy):  # `is_running` holds it for a moment
            return self._run(_Events(self.trace, self.spec.owners, progress, watch), stop or never, options)

    @staticmethod
    def is_running(folder: Path) -> bool:
        """Whether a process runs the simulation in `folder` now."""
        return is_locked(folder / "lock")

    def _run(self, events: _Events, stop: Stop, options: EngineOptions) -> SimulationResult | None:
        if pending := list(filter(self._unfinished, self.spec.arms)):
            with ENGINES[self.spec.engine](self.owners, events.emit, **options) as engine:
                for name in pending:
                    if name not in CENTRAL and not self._run_arm(engine, name, events, stop):
                        return None
                central = [name for name in pending if name in CENTRAL]
                if central and not stop():
                    with events.arms(central, self.settings.total_epochs):
                        engine.central(central, stop)
                        events.finished = not any(map(self._unfinished, central))
        if any(map(self._unfinished, self.spec.arms)):
            return None
        result = self.summary(compare=True)
        result.write(self.folder / results.FILE)
        return result

    def _unfinished(self, arm: str) -> list[str]:
        """Owners that have no result in `arm`."""
        return [owner.name for owner in self.owners if not owner.workspace(arm).finished]

    def _run_arm(self, engine: Engine, name: str, events: _Events, stop: Stop) -> bool:
        arm = self.arm(name)
        with events.arms([name], arm.epochs):
            finished = engine.run(arm, stop)
            if stop():
                return False
            dead = self._unfinished(name)
            if dead and not finished:  # one that died after its result was written has lost nothing
                why = "; ".join(events.deaths[owner] for owner in dead if owner in events.deaths)
                others = (
                    "the other owners continued without and nothing of theirs is lost"
                    if len(dead) < len(self.owners)
                    else "their checkpoints are kept"
                )
                raise EngineError(
                    f"{', '.join(dead)} died during {name}{f' ({why})' if why else ''}; {others}. "
                    f"Continue: fkge simulate --resume {self.folder}"
                )
            events.finished = True
        return True

    # -- summing up ----------------------------------------------------------------------------------

    def summary(self, compare: bool = False) -> SimulationResult:
        """Return the result so far.

        Args:
            compare: compare the federated arm with the others, which takes a while. All arms must be finished.
        """
        settings, spec = self.settings, self.spec
        owners = {
            owner.name: OwnerResult.of(owner, spec.arms, _compare(owner, spec.arms) if compare else {})
            for owner in self.owners
        }
        finished = [event.seconds for event in read_events(self.folder) if isinstance(event, ArmFinished)]
        return SimulationResult(
            version=SimulationResult.VERSION, federation=spec.federation, engine=spec.engine, seed=spec.seed,
            arms=spec.arms, two_tracks=spec.two_tracks, policies=results.with_policy(self.folder, spec.owners),
            start=settings.start, translate=settings.translate, decide=settings.decide, epochs=settings.total_epochs,
            private_epochs=settings.private.total if spec.two_tracks else 0,
            lone_epochs=0 if spec.two_tracks else settings.lone_epochs,
            privacy=PrivacySummary(**settings.privacy.model_dump()), mean=results.means(owners, spec.arms),
            owners=owners, seconds=round(sum(finished), 1),
        )  # fmt: skip


def _check_central(arms: Sequence[str], federation: Federation, settings: FederationSettings, two_tracks: bool) -> None:
    """Refuse arms with a server where they cannot work: before hours of the other arms."""
    if arms and two_tracks:
        raise SettingsError(f"{', '.join(arms)}: a server there sees all; leave it out where owners do not share all")
    common = settings.train.model_dump()
    other = [name for name, member in federation.members.items() if common | dict(member.train) != common]
    if arms and other:
        raise SettingsError(
            f"{', '.join(arms)}: a server can only average or merge owners with equal training settings, and "
            f"{', '.join(other)} has settings of its own; leave these arms out"
        )


def _compare(owner: SimulatedOwner, arms: Sequence[str]) -> Versus:
    """The federated owner against its other arms: paired bootstrap over its test triples."""
    ours, parts = owner.ranks("federated")
    out: Versus = {arm: {} for arm in arms if arm != "federated"}
    for arm in out:
        theirs, _ = owner.ranks(arm)
        for part, mask in parts.items():
            if mask.sum() > 1:  # one triple has no interval
                found = {m: paired_bootstrap(theirs[mask].realistic, ours[mask].realistic, metric=m) for m in COMPARED}
                out[arm][part] = {m: Comparison.model_validate(d, from_attributes=True) for m, d in found.items()}
    return out


class _Events:
    """Events of an engine: into the trace, to a watcher, and onto a progress bar."""

    def __init__(self, trace: Trace, owners: Sequence[str], progress: Progress, watch: Watch | None) -> None:
        self.deaths: dict[str, str] = {}  # by owner, what its process died of
        self.finished = False  # whether the arm that runs now has come to its end
        self._trace, self._owners, self._progress, self._watch = trace, owners, progress, watch
        self._task: Task | None = None
        self._epochs: dict[tuple[str | None, str], int] = {}
        self._scores: dict[str, float] = {}
        self._drawn = time.monotonic()
        self._traced: dict[str, float] = {}

    @contextmanager
    def arms(self, names: Sequence[str], epochs: int) -> Iterator[None]:
        """Announce arms that start, or continue, with so many epochs of each owner; draw them as one bar."""
        started, self.finished = time.monotonic(), False
        for name in names:
            self.emit(ArmStarted(arm=name, time=round(time.time(), 1), epochs=epochs, owners=tuple(self._owners)))
        title = " and ".join(names)
        self._scores.clear()
        self._epochs.clear()
        with self._progress.task(title, epochs * len(self._owners) * len(names), "epochs") as self._task:
            yield
        self._task = None
        if self.finished:
            self.emit(ArmFinished(arm=title, seconds=round(time.monotonic() - started, 2)))

    def emit(self, event: TraceEvent) -> None:
        """Take in an event."""
        record = event.record()
        if not isinstance(event, EpochReached) or self._is_due(event.owner):
            self._trace.write(**record)
        if self._watch is not None:
            self._watch(record)
        match event:
            case Died():
                self.deaths[event.owner] = event.why
            case Worked() | EpochReached() | Restarted() if self._task is not None:
                self._draw(self._task, event)

    def _is_due(self, owner: str) -> bool:
        """Whether the trace is to have an owner's progress again: every epoch would be too much of it."""
        now = time.monotonic()
        if now - self._traced.get(owner, -SECONDS_BETWEEN_EPOCHS) < SECONDS_BETWEEN_EPOCHS:
            return False
        self._traced[owner] = now
        return True

    def _draw(self, task: Task, event: Worked | EpochReached | Restarted) -> None:
        key = event.arm, event.owner
        done = event.epoch - self._epochs.get(key, 0)
        self._epochs[key] = event.epoch
        if isinstance(event, Worked) and event.best is not None:
            self._scores[event.owner] = event.best
        shown: dict[str, float | str] = {}
        if self._scores:
            shown = {"owners": len(self._scores), "validation mrr": float(np.mean(list(self._scores.values())))}
        if done > 0:
            task.advance(done, **shown)
        if shown and time.monotonic() - self._drawn > SECONDS_BETWEEN_LINES:  # a log file gets a line now and then
            self._drawn = time.monotonic()
            task.advance(0, epochs=sum(self._epochs.values()), **shown)
