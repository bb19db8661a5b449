"""Run each owner as a Ray actor, where one trust domain outgrows one machine: in-process results, on many machines.

This process keeps the virtual clock (`fkge.experiment.engines.virtual_clock`); each owner is an actor with CPUs, and
perhaps a share of a GPU, of its own. Large messages lie in Ray's object store and go from one owner's machine to the
other's; this process passes references to them.

An actor that dies loses its latest seconds. Another is started, wherever there is room, and resumes from the
checkpoint; to its peers the owner was away and has come back.

Ray runs whatever code reaches it and trusts all of its machines alike: do not connect two organisations with it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Self

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError

from fkge.embed import MODELS
from fkge.errors import EngineError, SettingsError
from fkge.experiment.arms import Arm
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.engines.ray_owner import Opened, OwnerActor, Place
from fkge.experiment.engines.stepped import Delivery, Input, Reaction, RoundOver
from fkge.experiment.engines.virtual_clock import OwnerLost, Pace, Stopped, VirtualClock
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.trace_events import Died, Failed, Restarted
from fkge.federation.driver import Stop
from fkge.owner_events import Emit, EpochReached, OwnerEvent, Worked

SECONDS_BETWEEN_LOOKS = 0.1
SECONDS_FOR_A_PLACE = 120.0
MOST_DEATHS = 3
"""An owner whose actors die as many times in a row without getting any further is not restarted again."""


class RayActors(Engine):
    """The engine for simulations on the machines of one trust domain.

    Args:
        stores, emit, recordings: see `Engine`. Folders must be visible to every machine, at the same path.
        address: of a Ray cluster: ``"auto"``, or HOST:PORT. None starts Ray on this machine, and ends it at the end.
            Where this process has called ``ray.init`` itself, that is used as it is.
        cpus: for each owner. One; a share, where there are more owners than CPUs.
        gpus: for each owner. None; a share, where it trains on a GPU and there are some.
        pace: of the virtual clock.

    Raises:
        SettingsError: `cpus` or `gpus` is negative.
    """

    def __init__(
        self,
        stores: Sequence[SimulatedOwner],
        emit: Emit,
        recordings: Path | None = None,
        *,
        address: str | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
        pace: Pace | None = None,
    ) -> None:
        if (cpus is not None and cpus < 0) or (gpus is not None and gpus < 0):
            raise SettingsError("cpus and gpus of an owner are 0 or more")
        super().__init__(stores, emit, None if recordings is None else recordings.resolve())
        self._address, self._pace = address, pace or Pace()
        self._asked = cpus, gpus
        self._shares: dict[str, tuple[float, float]] = {}
        self._started_ray = False
        self._actors: dict[str, Any] = {}
        self._places: dict[str, Place] = {}
        self._stop = never
        self._owners: dict[str, _Remote] = {}
        self._deaths: dict[str, tuple[int, int]] = {}
        """By owner: deaths in a row, and the epoch at which its latest actor began."""

    # -- actors --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not ray.is_initialized():
            _connect(self._address)
            self._started_ray = True
        try:
            there: dict[str, float] = dict(ray.cluster_resources())  # type: ignore[no-untyped-call]
            self._shares = shares(list(self._stores.values()), there, *self._asked)
            self._start_missing()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._kill_all()
        if self._started_ray:
            ray.shutdown()  # ends what this process started; another's cluster it only leaves
            self._started_ray = False

    @property
    def pids(self) -> dict[str, int]:
        """The owners' processes, each on its machine."""
        return {name: place.pid for name, place in self._places.items()}

    @property
    def machines(self) -> dict[str, str]:
        """Ray's names of the machines that owners run on."""
        return {name: place.node for name, place in self._places.items()}

    def _start_missing(self) -> None:
        """Start an actor for every owner that has none, all at the same time."""
        opening = {name: self._start(name) for name in self._stores if name not in self._actors}
        for name, ref in opening.items():
            try:
                self._wait_for_place(name, ref)
            except OwnerLost as lost:
                raise EngineError(lost.why) from None

    def _start(self, name: str) -> Any:
        cpus, gpus = self._shares[name]
        remote: Any = ray.remote  # whose types do not know concurrency groups
        made = remote(concurrency_groups={"work": 4, "control": 2})(OwnerActor).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        actor = self._actors[name] = made.remote()
        store = self._stores[name]
        modules = sorted({model.__module__ for model in MODELS.values()} - {"__main__"})
        return actor.open.remote(store.folder.resolve(), store.run, modules, max(1, int(cpus)))

    def _wait_for_place(self, name: str, ref: Any) -> None:
        """Wait until Ray has placed an actor, and the actor has opened the owner's store."""
        began = time.monotonic()
        while not ray.wait([ref], timeout=SECONDS_BETWEEN_LOOKS)[0]:
            self._look()
            if time.monotonic() - began > SECONDS_FOR_A_PLACE:
                self._kill(name)
                cpus, gpus = self._shares[name]
                why = (
                    f"Ray has found no place for owner {name} ({cpus:g} CPUs, {gpus:g} GPUs) in "
                    f"{SECONDS_FOR_A_PLACE:g} s; add machines, or ask for less (--cpus, --gpus)"
                )
                raise OwnerLost(name, why, failed=True)
        self._places[name] = self._read(name, ref)

    def _kill(self, name: str) -> None:
        if (actor := self._actors.pop(name, None)) is not None:
            with contextlib.suppress(RayError):
                ray.kill(actor)

    def _kill_all(self) -> None:
        for name in list(self._actors):
            self._kill(name)

    # -- waiting -------------------------------------------------------------------------------------

    def wait(self, name: str, ref: Any) -> Any:
        """Return the reply of an actor. Meanwhile the events of all actors are passed on.

        Raises:
            OwnerLost: the actor is dead, or has failed.
            Stopped: somebody asked to stop.
        """
        while not ray.wait([ref], timeout=SECONDS_BETWEEN_LOOKS)[0]:
            self._look()
        return self._read(name, ref)

    def _look(self) -> None:
        for owner in self._owners.values():
            owner.relay()
        if self._stop():
            raise Stopped

    def _read(self, name: str, ref: Any) -> Any:
        try:
            reply = ray.get(ref)
        except RayActorError:
            self._kill(name)  # one that merely cannot be reached must not hold the owner's store
            place = self._places.get(name)
            where = f", {place.pid} on {place.host}," if place else ""
            raise OwnerLost(name, f"the process of owner {name}{where} has died") from None
        if isinstance(reply, Failed):
            self._emit(reply.stamped(owner=name))
            self._kill(name)
            raise OwnerLost(name, f"owner {name} failed: {reply.why}", failed=True)
        return reply

    # -- work ----------------------------------------------------------------------------------------

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """See `Engine.run`."""
        self._stop = stop
        self._owners, self._deaths = {}, {}
        try:
            self._start_missing()
            taking = {name: self._take(name, arm, restarted=False) for name in self._stores}

            def open_owner(name: str, emit: Emit) -> _Remote:
                try:
                    opened = self.wait(name, taking[name])
                except OwnerLost as lost:
                    raise EngineError(f"{lost.why} as {arm.name} began; resume the run") from None
                self._owners[name] = _Remote(self, name, self._actors[name], emit, opened)
                return self._owners[name]

            clock = VirtualClock(
                list(self._stores), open_owner, self._emit, arm.name, self._pace,
                restart=lambda lost, emit: self._restart(lost, emit, arm),
            )  # fmt: skip
        except Stopped:  # before anything was done
            return False
        try:
            return clock.run(lambda: self._stop())
        finally:
            self._stop = never

    def ignore_stop(self) -> None:
        """Stop interrupting waits when somebody asks to stop."""
        self._stop = never

    def _take(self, name: str, arm: Arm, restarted: bool) -> Any:
        return self._actors[name].take.remote(arm, self._recording(name), restarted)

    def _restart(self, lost: OwnerLost, emit: Emit, arm: Arm) -> _Remote | None:
        """Start another actor for an owner whose process died.

        Returns:
            None if the owner failed by itself, or has died `MOST_DEATHS` times in a row without getting further: a
            death counts again once an actor begins at a later checkpoint than the one before.
        """
        name, before = lost.name, self._owners[lost.name].epoch
        while not lost.failed:
            deaths, began = self._deaths.get(name, (0, -1))
            if deaths >= MOST_DEATHS:
                break
            try:
                self._wait_for_place(name, self._start(name))
                opened = self.wait(name, self._take(name, arm, restarted=True))
            except OwnerLost as again:
                self._deaths[name] = deaths + 1, began
                lost = again
                continue
            self._deaths[name] = (deaths + 1 if opened.epoch <= began else 1), opened.epoch
            owner = self._owners[name] = _Remote(self, name, self._actors[name], emit, opened)
            emit(Restarted(why=lost.why, epoch=owner.epoch, redone=max(0, before - owner.epoch)))
            return owner
        del self._owners[name]
        emit(Died(why=lost.why))
        return None

    def central(self, arms: Sequence[str], stop: Stop = never) -> None:
        """See `Engine.central`; each arm runs in one of the actors, again if that dies, up to `MOST_DEATHS` times.

        Asked to stop, it ends the actors: these arms have no checkpoints, and start again when resumed.
        """
        self._stop, self._owners = stop, {}
        try:
            for _ in range(MOST_DEATHS):
                self._start_missing()
                pending = [arm for arm in arms if self._unfinished(arm)]
                if not pending or not self._serve(pending):
                    return
            raise EngineError(f"{', '.join(pending)}: died {MOST_DEATHS} times; run it where there is more memory")
        except Stopped:
            self._kill_all()
        finally:
            self._stop, self._owners = never, {}

    def _serve(self, arms: Sequence[str]) -> bool:
        """Run these arms side by side. Whether an actor died meanwhile."""
        folders = [store.folder.resolve() for store in self._stores.values()]
        under_way, died = [], False
        for arm, name in zip(arms, cycle(self._actors), strict=False):
            self._owners[name] = _Remote(self, name, self._actors[name], self._emit, Opened())
            under_way.append((arm, name, self._actors[name].central.remote(arm, folders)))
        for arm, name, ref in under_way:
            try:
                self.wait(name, ref)
                self._owners[name].relay()
            except OwnerLost as lost:
                if lost.failed:
                    raise EngineError(f"{lost.why} during {arm}; resume the run") from None
                died = True
        return died


class _Remote:
    """An owner in an actor, as the clock reaches it."""

    concurrent = True

    def __init__(self, engine: RayActors, name: str, actor: Any, emit: Emit, opened: Opened) -> None:
        self._engine, self._name, self._actor, self._emit = engine, name, actor, emit
        self.peers, self.triples, self.epoch = opened.peers, opened.triples, opened.epoch
        self._at_rest = False

    def send(self, given: Input) -> Callable[[], Reaction]:
        if isinstance(given, Delivery):  # Ray resolves a reference only where it is an argument itself
            ref = self._actor.deliver.remote(given.sender, given.data)
        elif isinstance(given, RoundOver):
            ref = self._actor.end_round.remote()
        else:
            ref = self._actor.step.remote(given)
        return lambda: self._reaction(ref)

    def _reaction(self, ref: Any) -> Reaction:
        try:
            reaction: Reaction = self._engine.wait(self._name, ref)
        except ObjectLostError:  # the message has died with its sender, whose loss everybody will notice
            return Reaction(self._at_rest)
        for event in (*reaction.events, reaction.finished):
            self._follow(event)
        self._at_rest = reaction.at_rest
        return reaction

    def relay(self) -> None:
        """Pass on the owner's events, while it works."""
        with contextlib.suppress(RayActorError, GetTimeoutError):  # the call that waits for the actor notices
            for event in ray.get(self._actor.events.remote(), timeout=5):
                self._follow(event)
                self._emit(event)

    def _follow(self, event: OwnerEvent | None) -> None:
        if isinstance(event, EpochReached | Worked):
            self.epoch = max(self.epoch, event.epoch)

    def conclude(self) -> Callable[[], bool]:
        ref = self._actor.conclude.remote()

        def concluded() -> bool:
            whole = bool(self._engine.wait(self._name, ref))
            self.relay()
            return whole

        return concluded

    def halt(self) -> None:
        self._engine.ignore_stop()
        self._actor.halt.remote()

    def save(self) -> None:
        self._engine.wait(self._name, self._actor.save.remote())


# -- a cluster ---------------------------------------------------------------------------------------


def _connect(address: str | None) -> None:
    """Start Ray here, or join a cluster. The handler of SIGTERM, which Ray replaces, stays as it was."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics are sent
    try:
        # "local", or Ray would join whatever was last started here, or is named in the environment.
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR,
                 include_dashboard=None if address else False)  # fmt: skip
    except (RayError, RuntimeError, ValueError, OSError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngineError(
            f"no Ray at {address or 'this machine'}: {why} Start one (ray start --head), or leave --address out"
        ) from None
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


def shares(
    stores: Sequence[SimulatedOwner], there: Mapping[str, float], cpus: float | None = None, gpus: float | None = None
) -> dict[str, tuple[float, float]]:
    """Return (CPUs, GPUs) for each owner: as asked for, or so that all fit on the cluster.

    A share of a CPU, or of a GPU, lies on one of them: with 5 owners on 2, it is a third.

    Args:
        stores: the owners'.
        there: the cluster's resources, as Ray counts them.
        cpus, gpus: for each owner; None shares what is there.

    Raises:
        EngineError: the cluster has less than is asked for.
    """
    on_gpu = (
        [store.name for store in stores if store.settings.train.device != "cpu"] if there.get("GPU", 0) >= 1 else []
    )
    if cpus is None:
        cpus = 1 / math.ceil(len(stores) / max(1, int(there.get("CPU", 1))))
    if gpus is None:
        each = 1 / math.ceil(len(on_gpu) / int(there["GPU"])) if on_gpu else 0.0
        found = {store.name: each if store.name in on_gpu else 0.0 for store in stores}
    else:
        found = dict.fromkeys((store.name for store in stores), gpus)
    for what, wanted in (("CPU", cpus * len(stores)), ("GPU", sum(found.values()))):
        if wanted > there.get(what, 0) + 1e-6:
            raise EngineError(
                f"{len(stores)} owners want {wanted:g} {what}s and Ray has {there.get(what, 0):g}; "
                f"ask for less (--{what.lower()}s {there.get(what, 0) / len(stores):.2g}), or add machines"
            )
    return {name: (_down(cpus), _down(share)) for name, share in found.items()}


def _down(share: float) -> float:
    """Ray counts in ten-thousandths: thirds must not add up to more than one."""
    return math.floor(share * 10_000) / 10_000
