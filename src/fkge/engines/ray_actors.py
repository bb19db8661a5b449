"""Owners as Ray actors, where one trust domain outgrows one machine: the in-process engine's results, on many.

This process keeps the virtual clock (`fkge.engines.schedule`) and the owners do the work, each in an actor with CPUs,
and perhaps a share of a GPU, of its own. What is large stays with them: a message lies in Ray's object store and goes
from the one owner's machine to the other's; this process carries its name.

An actor that dies takes its latest seconds with it. Another takes its place, wherever there is room, and goes on from
the checkpoint; to its peers it was away, and has come back.

Ray runs whatever code reaches it and trusts all of its machines alike. It is no way from one organisation to another.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import math
import os
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError

from fkge.embed import MODELS
from fkge.engines.schedule import Pace, Schedule, SeatLost, Stopped
from fkge.engines.seat import Answer, Seat
from fkge.engines.station import Note
from fkge.engines.tape import Tape
from fkge.errors import EngineError, SettingsError
from fkge.federation.home import Arm, Home
from fkge.federation.owner import Plan

SECONDS_BETWEEN_GLANCES = 0.1
SECONDS_FOR_A_PLACE = 120.0
LIVES = 3
"""An owner that dies as many times without coming any further is given up on."""

BY_REFERENCE = 64 * 1024
"""Bytes from which a message stays in the object store until its reader fetches it."""


class RayActors:
    """The engine for simulations on the machines of one trust domain.

    Args:
        homes: the owners. Their folders must be seen by every machine, at the same path.
        note: told of events, with ``owner`` and virtual time ``t``.
        tapes: a folder for what every owner heard and said, NAME.tape each; see `fkge.engines.tape`.
        address: of a Ray cluster: ``"auto"``, or HOST:PORT. None starts Ray on this machine, and ends it at the end.
            Where this process has called ``ray.init`` itself, that is used as it is.
        cpus: for each owner. One; a share, where there are more owners than CPUs.
        gpus: for each owner. None; a share, where it trains on a GPU and there are some.
        pace: of the virtual clock.
    """

    name = "ray"

    def __init__(
        self,
        homes: Sequence[Home],
        note: Note,
        tapes: Path | None = None,
        *,
        address: str | None = None,
        cpus: float | None = None,
        gpus: float | None = None,
        pace: Pace | None = None,
    ) -> None:
        if (cpus is not None and cpus < 0) or (gpus is not None and gpus < 0):
            raise SettingsError("cpus and gpus of an owner are 0 or more")
        self._homes = {home.name: home for home in homes}
        self._note, self._tapes, self._address, self._pace = note, tapes, address, pace or Pace()
        self._asked = cpus, gpus
        self._shares: dict[str, tuple[float, float]] = {}
        self._ours = False
        self._actors: dict[str, Any] = {}
        self._where: dict[str, dict[str, Any]] = {}
        self._stop: Callable[[], bool] | None = None
        self._places: dict[str, _There] = {}
        self._deaths: dict[str, tuple[int, int]] = {}

    # -- actors --------------------------------------------------------------------------------------

    def __enter__(self) -> RayActors:
        if not ray.is_initialized():
            _connect(self._address)
            self._ours = True
        try:
            self._shares = shares(list(self._homes.values()), _resources(), *self._asked)
            self._staff()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for name in list(self._actors):
            self._dismiss(name)
        if self._ours:
            ray.shutdown()  # ends what we started; of another's cluster it only takes leave
            self._ours = False

    @property
    def pids(self) -> dict[str, int]:
        """The owners' processes, each on its machine."""
        return {name: where["pid"] for name, where in self._where.items()}

    @property
    def machines(self) -> dict[str, str]:
        """Ray's names of the machines that owners sit on."""
        return {name: where["node"] for name, where in self._where.items()}

    def _staff(self) -> None:
        """Have an actor for every owner; those that are missing start at the same time."""
        opening = {name: self._hire(name) for name in self._homes if name not in self._actors}
        for name, ref in opening.items():
            try:
                self._moved_in(name, ref)
            except SeatLost as lost:
                raise EngineError(lost.why) from None

    def _hire(self, name: str) -> Any:
        cpus, gpus = self._shares[name]
        remote: Any = ray.remote  # whose types know nothing of groups
        made = remote(concurrency_groups={"mail": 4, "word": 2})(_Owner).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        actor = made.remote()
        self._actors[name] = actor
        home = self._homes[name]
        modules = sorted({model.__module__ for model in MODELS.values()} - {"__main__"})
        return actor.open.remote(name, str(home.folder.resolve()), home.run, modules, max(1, int(cpus)))

    def _moved_in(self, name: str, ref: Any) -> None:
        """Wait until an actor has found its place, and its home."""
        began = time.monotonic()
        while not ray.wait([ref], timeout=SECONDS_BETWEEN_GLANCES)[0]:
            self._look_up()
            if time.monotonic() - began > SECONDS_FOR_A_PLACE:
                self._dismiss(name)
                cpus, gpus = self._shares[name]
                raise SeatLost(
                    name, f"Ray has found no place for owner {name} ({cpus:g} CPUs, {gpus:g} GPUs) in "
                    f"{SECONDS_FOR_A_PLACE:g} s; add machines, or ask for less (--cpus, --gpus)", failed=True,
                )  # fmt: skip
        self._where[name] = self._read(name, ref)

    def _dismiss(self, name: str) -> None:
        actor = self._actors.pop(name, None)
        if actor is not None:
            with contextlib.suppress(RayError):
                ray.kill(actor)

    # -- waiting -------------------------------------------------------------------------------------

    def wait(self, name: str, ref: Any) -> Any:
        """What an actor replies. Meanwhile everybody's news is passed on.

        Raises:
            SeatLost: it is dead, or has failed.
            Stopped: somebody asked to stop.
        """
        while not ray.wait([ref], timeout=SECONDS_BETWEEN_GLANCES)[0]:
            self._look_up()
        return self._read(name, ref)

    def _look_up(self) -> None:
        for place in self._places.values():
            place.relay()
        if self._stop is not None and self._stop():
            raise Stopped

    def _read(self, name: str, ref: Any) -> Any:
        try:
            reply = ray.get(ref)
        except RayActorError:
            self._dismiss(name)  # one that only cannot be reached must not hold its home
            where = self._where.get(name)
            who = f", {where['pid']} on {where['host']}," if where else ""
            raise SeatLost(name, f"the process of owner {name}{who} has died") from None
        if "failed" in reply:
            self._note("failed", owner=name, why=reply["failed"], trace=reply["trace"])
            self._dismiss(name)
            raise SeatLost(name, f"owner {name} failed: {reply['failed']}", failed=True)
        return reply["value"]

    # -- work ----------------------------------------------------------------------------------------

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again takes it up."""
        self._stop = stop
        self._places, self._deaths = {}, {}
        try:
            self._staff()
            taking = {name: self._take(name, arm, anew=False) for name in self._homes}

            def there(name: str, note: Note) -> _There:
                try:
                    about = self.wait(name, taking[name])
                except SeatLost as lost:
                    raise EngineError(f"{lost.why} as {arm.name} began; take it up again") from None
                self._places[name] = _There(self, name, self._actors[name], note, about)
                return self._places[name]

            schedule = Schedule(
                list(self._homes), there, self._note, arm.name, self._pace,
                again=lambda lost, note: self._again(lost, note, arm),
            )  # fmt: skip
        except Stopped:  # before anything was done
            return False
        try:
            return schedule.go(self.asked)
        finally:
            self._stop = None

    def asked(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop is not None and self._stop()

    def halting(self) -> None:
        """From now on waiting is not cut short."""
        self._stop = None

    def _take(self, name: str, arm: Arm, anew: bool) -> Any:
        tapes = None if self._tapes is None else str(self._tapes.resolve())
        return self._actors[name].take.remote(asdict(arm), tapes, anew)

    def _again(self, lost: SeatLost, note: Note, arm: Arm) -> _There | None:
        """Another place for one whose process died. None if it failed by itself, or dies again and again."""
        name, before = lost.name, self._places[lost.name].epoch
        while not lost.failed:
            died, stood = self._deaths.get(name, (0, -1))
            if died >= LIVES:
                break
            try:
                self._moved_in(name, self._hire(name))
                about = self.wait(name, self._take(name, arm, anew=True))
            except SeatLost as again:
                self._deaths[name] = died + 1, stood
                lost = again
                continue
            self._deaths[name] = (died + 1 if about["epoch"] <= stood else 1), about["epoch"]
            place = self._places[name] = _There(self, name, self._actors[name], note, about)
            note("restarted", why=lost.why, epoch=place.epoch, redone=max(0, before - place.epoch))
            return place
        del self._places[name]
        note("died", why=lost.why)
        return None

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could, each in one of the actors; `run` must be importable by its name.

        Asked to stop, it ends those actors: a server's arms keep no checkpoints, and begin anew when resumed.
        """
        self._stop, self._places = stop, {}
        folders = [str(home.folder.resolve()) for home in self._homes.values()]
        try:
            for _ in range(LIVES):
                self._staff()
                pending = [arm for arm in arms if any(home.result(arm) is None for home in self._homes.values())]
                if not pending or not self._serve(pending, f"{run.__module__}:{run.__qualname__}", folders):
                    return
            raise EngineError(f"{', '.join(pending)}: died {LIVES} times; run it where there is more memory")
        except Stopped:
            for name in list(self._actors):
                self._dismiss(name)
        finally:
            self._stop, self._places = None, {}

    def _serve(self, arms: Sequence[str], where: str, folders: list[str]) -> bool:
        """Run these arms side by side. Whether an actor died meanwhile."""
        under_way, died = [], False
        for arm, name in zip(arms, cycle(self._actors), strict=False):
            self._places[name] = _There(self, name, self._actors[name], self._note, {})
            under_way.append((arm, name, self._actors[name].central.remote(arm, where, folders)))
        for arm, name, ref in under_way:
            try:
                self.wait(name, ref)
                self._places[name].relay()
            except SeatLost as lost:
                if lost.failed:
                    raise EngineError(f"{lost.why} during {arm}; resume the run") from None
                died = True
        return died


class _There:
    """A place in an actor, seen from here."""

    apart = True

    def __init__(self, engine: RayActors, name: str, actor: Any, note: Note, about: dict[str, Any]) -> None:
        self._engine, self._name, self._actor, self._note = engine, name, actor, note
        self.peers = frozenset(about.get("peers", ()))
        self.triples = int(about.get("triples", 0))
        self.epoch = int(about.get("epoch", 0))
        self._at_rest = False

    def tell(self, what: str, *args: Any) -> Callable[[], Answer]:
        ref = self._actor.tell.remote(what, *args)
        return lambda: self._answer(ref)

    def _answer(self, ref: Any) -> Answer:
        try:
            answer = Answer(**self._engine.wait(self._name, ref))
        except ObjectLostError:  # the message has died with its sender, of which everybody will hear
            return Answer(self._at_rest)
        for _, fields in answer.notes:
            self._see(fields)
        self._see(answer.done or {})
        self._at_rest = answer.at_rest
        return answer

    def _see(self, fields: Any) -> None:
        self.epoch = max(self.epoch, fields.get("epoch", 0))

    def relay(self) -> None:
        """Pass on what the owner has to tell, in the midst of its work."""
        with contextlib.suppress(RayActorError, GetTimeoutError):  # whoever waits for it will notice
            for event, fields in ray.get(self._actor.notes.remote(), timeout=5):
                self._see(fields)
                self._note(event, **fields)

    def conclude(self) -> Callable[[], bool]:
        ref = self._actor.conclude.remote()

        def concluded() -> bool:
            whole = bool(self._engine.wait(self._name, ref))
            self.relay()
            return whole

        return concluded

    def halt(self) -> None:
        self._engine.halting()
        self._actor.halt.remote()

    def save(self) -> None:
        self._engine.wait(self._name, self._actor.save.remote())


# -- a cluster ---------------------------------------------------------------------------------------


def _connect(address: str | None) -> None:
    """Start Ray here, or join a cluster. Who hears a polite kill remains as it was."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        # "local", or Ray would join whatever was last started here, or is named in the environment.
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
    except (RayError, RuntimeError, ValueError, OSError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngineError(
            f"no Ray at {address or 'this machine'}: {why} Start one (ray start --head), or leave --address out"
        ) from None
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


def _resources() -> dict[str, float]:
    """What the cluster has, as Ray counts it."""
    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


def shares(
    homes: Sequence[Home], there: dict[str, float], cpus: float | None = None, gpus: float | None = None
) -> dict[str, tuple[float, float]]:
    """(CPUs, GPUs) for each owner: as asked for, or so that all find a place on what is there.

    A share of a CPU, or of a GPU, lies on one of them: with 5 owners on 2, it is a third.

    Args:
        there: what the cluster has, as Ray counts it.
    """
    on_gpu = [home.name for home in homes if home.settings.train.device != "cpu"] if there.get("GPU", 0) >= 1 else []
    if cpus is None:
        cpus = 1 / math.ceil(len(homes) / max(1, int(there.get("CPU", 1))))
    if gpus is None:
        each = 1 / math.ceil(len(on_gpu) / int(there["GPU"])) if on_gpu else 0.0
        found = {home.name: each if home.name in on_gpu else 0.0 for home in homes}
    else:
        found = dict.fromkeys((home.name for home in homes), gpus)
    for what, wanted in (("CPU", cpus * len(homes)), ("GPU", sum(found.values()))):
        if wanted > there.get(what, 0) + 1e-6:
            raise EngineError(
                f"{len(homes)} owners want {wanted:g} {what}s and Ray has {there.get(what, 0):g}; "
                f"ask for less (--{what.lower()}s {there.get(what, 0) / len(homes):.2g}), or add machines"
            )
    return {name: (_down(cpus), _down(share)) for name, share in found.items()}


def _down(share: float) -> float:
    """Ray counts in ten-thousandths: thirds must not add up to more than one."""
    return math.floor(share * 10_000) / 10_000


# -- in an actor -------------------------------------------------------------------------------------


class _Failed(Exception):
    """A sentence for whoever asked."""


class _Owner:
    """An owner's process. All it does, it does in one thread, which looks for mail between the chunks of its work.

    Ray's own threads bring the mail and wait for the answers: with one thread for all, two actors that wait for each
    other would wait forever, and an owner at work could not say that it is busy.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._notes: list[tuple[str, dict[str, Any]]] = []
        self._noting = threading.Lock()
        self._home: Home | None = None
        self._seat: Seat | None = None
        self._work: Future[Any] | None = None
        self._halted = False
        threading.Thread(target=self._live, daemon=True).start()

    # -- what Ray calls ------------------------------------------------------------------------------

    @ray.method(concurrency_group="mail")
    def open(self, name: str, folder: str, run: str, modules: list[str], threads: int) -> dict[str, Any]:
        """Move into a home, once whoever was there before has left it."""
        return self._reply(lambda: self._do(lambda: self._open(name, Path(folder), run, modules, threads)))

    @ray.method(concurrency_group="mail")
    def take(self, arm: dict[str, Any], tapes: str | None, anew: bool) -> dict[str, Any]:
        """Take up an arm, from its beginning or a checkpoint."""
        made = Arm(**{**arm, "plan": Plan(**arm["plan"])})
        return self._reply(lambda: self._do(lambda: self._take(made, tapes, anew)))

    @ray.method(concurrency_group="mail")
    def tell(self, what: str, *args: Any) -> dict[str, Any]:
        """As `Seat.tell`. Work that follows from it begins by itself."""

        def told() -> Any:
            if what != "finish":
                return self._do(lambda: self._told(self._sitting.tell(what, *args)))
            assert self._work is not None
            done = self._work.result()
            if done is None:
                return self._told(Answer(at_rest=False, halted=True))
            return self._do(lambda: self._told(replace(self._sitting.tell(what), done=done)))

        return self._reply(told)

    @ray.method(concurrency_group="mail")
    def save(self) -> dict[str, Any]:
        """Keep all that is needed to go on, once the work under way is over or left."""

        def saved() -> None:
            if self._work is not None:
                self._work.result()
            self._do(self._sitting.save)
            self._do(self._sitting.close)

        return self._reply(saved)

    @ray.method(concurrency_group="mail")
    def conclude(self) -> dict[str, Any]:
        """End the arm. False if it was halted."""
        return self._reply(lambda: self._do(self._conclude))

    @ray.method(concurrency_group="mail")
    def central(self, arm: str, where: str, folders: list[str]) -> dict[str, Any]:
        """Be the server of an arm that has one."""

        def served() -> None:
            module, _, function = where.partition(":")
            began = time.monotonic()

            def note(event: str, **fields: Any) -> None:
                self._note(event, **{"t": round(time.monotonic() - began, 3)} | fields)

            getattr(importlib.import_module(module), function)(arm, [Home.open(Path(f)) for f in folders], note)

        return self._reply(lambda: self._do(served))

    @ray.method(concurrency_group="word")
    def notes(self) -> list[tuple[str, dict[str, Any]]]:
        """What is worth a line in the trace, since the last time."""
        return self._fetch()

    @ray.method(concurrency_group="word")
    def halt(self) -> None:
        """Leave the work under way."""
        self._halted = True

    def _reply(self, do: Callable[[], Any]) -> dict[str, Any]:
        """What came of it, in plain values: an error in words, which can be read anywhere."""
        try:
            return {"value": do()}
        except _Failed as error:
            return {"failed": str(error), "trace": ""}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}

    # -- the one thread ------------------------------------------------------------------------------

    def _live(self) -> None:
        while True:
            self._carry_out(*self._jobs.get())

    def _carry_out(self, job: Callable[[], Any], result: Future[Any]) -> None:
        try:
            result.set_result(job())
        except BaseException as error:
            result.set_exception(error)

    def _begin(self, job: Callable[[], Any]) -> Future[Any]:
        result: Future[Any] = Future()
        self._jobs.put((job, result))
        return result

    def _do(self, job: Callable[[], Any]) -> Any:
        return self._begin(job).result()

    def _between(self) -> bool:
        """Within training: say how far it is, keep it now and then, and see to the mail. True: leave it."""
        self._note("progress", epoch=self._sitting.owner.trainer.epoch)
        self._sitting.save_now_and_then()
        with contextlib.suppress(queue.Empty):
            while True:
                self._carry_out(*self._jobs.get_nowait())
        return self._halted

    @property
    def _sitting(self) -> Seat:
        assert self._seat is not None
        return self._seat

    def _open(self, name: str, folder: Path, run: str, modules: list[str], threads: int) -> dict[str, Any]:
        import torch

        torch.set_num_threads(threads)
        host = socket.gethostname()
        for module in modules:
            importlib.import_module(module)
        if not (folder / "peers.safetensors").exists():
            raise _Failed(
                f"it was placed on {host}, which does not see its home {folder}. Let the run lie in a folder that all "
                "machines of the cluster share, at the same path"
            )
        self._home = Home.open(folder)
        if self._home.run != run:
            raise _Failed(
                f"it was placed on {host}, where {folder} is the home of another run. Let the run lie in a folder that "
                "all machines of the cluster share"
            )
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return {"pid": os.getpid(), "node": ray.get_runtime_context().get_node_id(), "host": host}

    def _take(self, arm: Arm, tapes: str | None, anew: bool) -> dict[str, Any]:
        assert self._home is not None
        if self._seat is not None:
            self._seat.close()
        self._halted, self._work = False, None
        self._fetch()
        tape = None if tapes is None else Tape(Path(tapes) / f"{self._home.name}.tape")
        self._seat = Seat(self._home, arm, self._note, anew=anew, tape=tape)
        owner = self._seat.owner
        return {"peers": list(owner.peers), "triples": owner.work, "epoch": owner.trainer.epoch}

    def _told(self, answer: Answer) -> dict[str, Any]:
        if answer.epochs is not None:
            self._work = self._begin(lambda: self._sitting.improve(self._between))
        posts = [(to, size, ray.put(data) if size >= BY_REFERENCE else data) for to, size, data in answer.posts]
        return {
            "at_rest": answer.at_rest, "posts": posts, "timer": answer.timer, "epochs": answer.epochs,
            "done": answer.done, "halted": answer.halted, "notes": self._fetch(),
        }  # fmt: skip

    def _conclude(self) -> bool:
        whole = self._sitting.conclude(lambda: self._halted)
        self._sitting.close()
        return whole

    def _fetch(self) -> list[tuple[str, dict[str, Any]]]:
        with self._noting:
            notes, self._notes = self._notes, []
        return notes

    def _note(self, event: str, **fields: Any) -> None:
        with self._noting:
            if event == "progress" and self._notes and self._notes[-1][0] == "progress" and "owner" not in fields:
                self._notes.pop()  # only how far it is now is of interest
            self._notes.append((event, fields))
