"""One spawned process per owner, one thread of arithmetic each, pipes between them. Nobody holds another's tables.

The process that starts them has made their homes, as a simulation must, and never sees a vector. It hears what is
worth a line in the trace, asks owners that rest whether everybody does, and tells them to conclude. It carries no
message between owners: each pair has its own pipe.

A process that dies takes nothing with it but its own latest seconds: peers hear that the pipe is closed and go on, and
the run can be taken up again from the owners' checkpoints.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from fkge.embed import MODELS
from fkge.engines.in_process import SECONDS_BETWEEN_CHECKPOINTS
from fkge.engines.station import Note, Station
from fkge.engines.tape import Tape
from fkge.errors import EngineError
from fkge.federation.home import Arm, Home
from fkge.federation.owner import Plan
from fkge.federation.protocol import Lost, Protocol, Wake

_RUN_BYTES = 4
"""Before each message between owners: the number of the run it belongs to. All of them count alike."""


class Processes:
    """The engine for simulations on one machine.

    Args:
        homes: the owners.
        note: told of events, with ``owner`` and seconds ``t`` since the arm began.
        tapes: a folder for what every owner heard and said, NAME.tape each; see `fkge.engines.tape`.
    """

    name = "processes"

    def __init__(self, homes: Sequence[Home], note: Note, tapes: Path | None = None) -> None:
        self._tapes = tapes
        self._folders = {home.name: home.folder for home in homes}
        self._note = note
        self._workers: dict[str, Any] = {}
        self._lines: dict[str, Connection] = {}
        self._failures: dict[str, str] = {}

    # -- processes -----------------------------------------------------------------------------------

    def __enter__(self) -> Processes:
        context = get_context("spawn")
        names = list(self._folders)
        ends: dict[str, dict[str, Connection]] = {name: {} for name in names}
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                ends[a][b], ends[b][a] = context.Pipe()
        for name in names:
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_main, args=(str(self._folders[name]), ends[name], theirs), name=f"fkge {name}", daemon=True
            )
            with _no_script(), _deaf():
                worker.start()
            # Only the two owners may hold the ends of their pipe, or nobody would notice when one of them dies.
            for end in (*ends[name].values(), theirs):
                end.close()
            self._workers[name], self._lines[name] = worker, ours
        return self

    def __exit__(self, *exc: object) -> None:
        for name in self._workers:
            self._tell(name, do="exit")
        for worker in self._workers.values():
            worker.join(timeout=10)
            if worker.is_alive():
                worker.kill()
                worker.join()

    @property
    def pids(self) -> dict[str, int]:
        """The owners' processes."""
        return {name: worker.pid for name, worker in self._workers.items()}

    @property
    def lost(self) -> list[str]:
        """Owners whose process has died."""
        return [name for name, worker in self._workers.items() if not worker.is_alive()]

    # -- work ----------------------------------------------------------------------------------------

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again takes it up."""
        self._check_alive()
        watch = _Watch()
        for name in self._workers:
            self._tell(name, do="arm", arm=_arm_to_json(arm), tapes=None if self._tapes is None else str(self._tapes))
        while True:
            busy = self._listen(watch)
            if stop is not None and stop() and not watch.halting:
                watch.halting = True
                for name in self._workers:
                    self._tell(name, do="halt")
            if not busy:
                break
            if watch.all_at_rest(self._alive()):
                for name in self._alive():
                    self._tell(name, do="conclude")
                watch.concluding = True
            elif watch.wants_probe(self._alive()):
                for name in self._alive():
                    self._tell(name, do="probe")
        return not watch.halting and not self.lost

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could, each in one of the processes; `run` must be importable by its name.

        Asked to stop, it ends the processes: a server's arms keep no checkpoints, and begin anew when resumed.
        """
        self._check_alive()
        where = f"{run.__module__}:{run.__qualname__}"
        folders = [str(folder) for folder in self._folders.values()]
        names = list(self._workers)
        pending = list(arms)
        watch = _Watch()
        lanes = max(1, min(len(names), os.cpu_count() or 1))
        free = names[:lanes]
        while pending or len(free) < lanes:
            while pending and free:
                self._tell(free.pop(), do="central", arm=pending.pop(0), run=where, homes=folders)
            watch.over.clear()
            self._listen(watch, idle=True)
            if stop is not None and stop():
                for worker in self._workers.values():
                    worker.kill()
                return
            free += [name for name in watch.over if name not in free]
            if self.lost:
                self._listen(watch, idle=True)  # its last words
                raise EngineError(f"{self._why(self.lost[0])} during {', '.join(arms)}; resume the run")

    def _check_alive(self) -> None:
        if self.lost:
            raise EngineError(
                f"{self._why(self.lost[0])}. The others' work is kept; resume the run to go on with all of them"
            )

    def _why(self, name: str) -> str:
        if name in self._failures:
            return f"owner {name} failed: {self._failures[name]}"
        code = self._workers[name].exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return f"the process of owner {name} {how}"

    def _alive(self) -> list[str]:
        return [name for name, worker in self._workers.items() if worker.is_alive()]

    def _tell(self, name: str, **command: Any) -> None:
        with contextlib.suppress(OSError):  # it died; the others go on
            self._lines[name].send_bytes(json.dumps(command).encode())

    def _listen(self, watch: _Watch, idle: bool = False) -> bool:
        """Take in what owners have to say. False once none of them is at work any more."""
        lines: dict[Any, str] = {self._lines[name]: name for name in self._workers if name not in watch.deaf}
        ready: list[Any] = wait(list(lines), timeout=0.2)
        for line in ready:
            name = lines[line]
            try:
                while line.poll():
                    self._hear(watch, name, json.loads(line.recv_bytes()))
            except (EOFError, OSError):
                self._workers[name].join(timeout=5)
                watch.deaf.add(name)
                watch.over.add(name)
                self._note("died", owner=name, why=self._why(name))
        return idle or not watch.over >= set(self._workers)

    def _hear(self, watch: _Watch, name: str, said: dict[str, Any]) -> None:
        event = said.pop("event")
        if event == "rest":
            watch.rests[name] = {"sent": said["sent"], "received": said["received"]}
            watch.answered.add(name)
        elif event == "stir":
            watch.rests.pop(name, None)
            watch.answered.discard(name)
        elif event == "over":
            watch.over.add(name)
        elif event == "failed":
            self._failures[name] = said["why"]
            self._note("failed", owner=name, **said)
        else:
            self._note(event, **said)


class _Watch:
    """What the starting process knows of the owners' rest.

    Owners report, when they come to rest, how many messages they have sent to and received from each peer. If all rest
    and every two agree, they are asked once more: if nothing has changed in between, nothing was under way (Mattern's
    four counters).
    """

    def __init__(self) -> None:
        self.rests: dict[str, dict[str, dict[str, int]]] = {}
        self.answered: set[str] = set()
        self.over: set[str] = set()
        self.deaf: set[str] = set()
        self.halting = False
        self.concluding = False
        self._first: dict[str, dict[str, dict[str, int]]] | None = None

    def _balanced(self, alive: list[str]) -> bool:
        if self.concluding or self.halting or not alive or not set(alive) <= set(self.rests):
            return False
        # What went to or came from a dead owner does not count.
        return all(
            self.rests[a]["sent"].get(b, 0) == self.rests[b]["received"].get(a, 0)
            for a in alive
            for b in alive
            if a != b
        )

    def wants_probe(self, alive: list[str]) -> bool:
        if not self._balanced(alive):
            self._first = None
            return False
        if self._first is not None:
            return False
        self._first = dict(self.rests)
        self.answered.clear()
        return True

    def all_at_rest(self, alive: list[str]) -> bool:
        if self._first is None or not self._balanced(alive):
            return False
        if not set(alive) <= self.answered:
            return False
        if self._first == self.rests:
            return True
        self._first = None
        return False


def _arm_to_json(arm: Arm) -> dict[str, Any]:
    plan = {"initial": arm.plan.initial, "total": arm.plan.total, "alone": arm.plan.alone}
    return {
        "name": arm.name, "plan": plan, "peers": arm.peers, "permuted": arm.permuted, "random": arm.random,
        "begin_with": arm.begin_with,
    }  # fmt: skip


# -- in an owner's process ---------------------------------------------------------------------------


class _Line:
    """A pipe that is written by a thread of its own: a slow reader holds up nobody but its own messages."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def send(self, data: bytes) -> None:
        self._queue.put(data)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                self.connection.send_bytes(data)
            except OSError:
                return  # the reader is gone; whoever reads from it will notice

    def flush(self) -> None:
        """Wait until everything is written."""
        self._queue.put(None)
        self._thread.join()


class _Leave(Exception):
    """The starting process is gone."""


class _Worker:
    """An owner's process."""

    def __init__(self, folder: Path, pipes: dict[str, Connection], control: Connection) -> None:
        self.home = Home.open(folder)
        self._lines = {name: _Line(pipe) for name, pipe in pipes.items()}
        self._control = control
        self._out = _Line(control)
        self._station: Station | None = None
        self._arm: Arm | None = None
        self._due: float | None = None
        self._began = self._saved = self._said = time.monotonic()
        self._runs = 0
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()
        self._resting = False
        self._command: str | None = None
        self._dead: set[str] = set()

    def say(self, event: str, **fields: Any) -> None:
        self._out.send(json.dumps({"event": event, **fields}, allow_nan=False).encode())

    def note(self, event: str, **fields: Any) -> None:
        t = round(time.monotonic() - self._began, 3)
        self.say(event, arm=self._arm.name if self._arm else None, owner=self.home.name, t=t, **fields)

    # -- the loop ------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Do what the starting process says until it says exit, or is gone."""
        while True:
            try:
                command = json.loads(self._control.recv_bytes())
            except (EOFError, OSError):
                return
            if command["do"] == "exit":
                self.hang_up()
                return
            if command["do"] == "central":
                self._central(command)
            elif command["do"] == "arm":
                raw = command["arm"]
                tape = None if command["tapes"] is None else Tape(Path(command["tapes"]) / f"{self.home.name}.tape")
                self._run(Arm(**{**raw, "plan": Plan(**raw["plan"])}), tape)
                if tape is not None:
                    tape.close()

    def _central(self, command: dict[str, Any]) -> None:
        module, _, name = command["run"].partition(":")
        run = getattr(__import__(module, fromlist=[name]), name)
        self._began = time.monotonic()
        run(command["arm"], [Home.open(Path(p)) for p in command["homes"]], self._tell_central)
        self.say("over")

    def _tell_central(self, event: str, **fields: Any) -> None:
        if self._control.poll():
            self._obey()  # the starting process is gone, or wants to be: nobody waits for this any more
        self.say(event, **{"t": round(time.monotonic() - self._began, 3)} | fields)

    def _run(self, arm: Arm, tape: Tape | None) -> None:
        owner, trained = self.home.owner(arm)
        self._arm = arm
        self._runs += 1
        self._began = self._saved = time.monotonic()
        self._sent.clear()
        self._received.clear()
        self._resting, self._command, self._due = False, None, None
        owner.gate.keep = self._save
        station = Station(owner, Protocol(owner.peers, self.home.manners(arm)), self._post, self.note, tape)
        self._station = station
        for name in self._dead & set(owner.peers):
            station.handle(Lost(name))
        station.begin(trained)
        while self._command is None:
            if station.timer is not None:
                self._due, station.timer = time.monotonic() + station.timer, None
            if station.work is not None:
                self._stir()
                self._improve(station)
                continue
            if self._due is not None and time.monotonic() >= self._due:
                self._due = None
                station.handle(Wake())
                continue
            if station.protocol.at_rest and not self._resting:
                self._resting = True
                self._report()
            self._pump(None if self._due is None else max(0.0, self._due - time.monotonic()))
        self._save()
        if self._command == "conclude":
            self.home.conclude(arm, owner, self.note, self._halted)
        self._station = None
        self.say("over")

    def _halted(self) -> bool:
        """Within the private track, when peers are done: whether the starting process wants to stop."""
        if self._control.poll():
            self._obey()
        return self._command != "conclude"

    def _improve(self, station: Station) -> None:
        since = round(time.monotonic() - self._began, 3)
        outcome = station.improve(pause=self._between)
        if outcome.halted:
            return
        self.note("work", since=since, **station.done)
        station.finish(outcome)
        if time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS:
            self._save()

    def _between(self) -> bool:
        """Within training: look after peers; say how far it is, and keep it, every now and then. True: leave it."""
        assert self._station is not None
        if time.monotonic() - self._said > 1:
            self._said = time.monotonic()
            self.note("progress", epoch=self._station.owner.trainer.epoch)
        if time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS and self._station.owner.can_save:
            self._save()
        self._pump(0.0)
        return self._command is not None

    def leave(self) -> None:
        """The starting process is gone: keep what there is, if it is fit to go on from."""
        owner = self._station.owner if self._station is not None else None
        # An epoch with virtual triples that broke off cannot be finished without them: an older checkpoint must do.
        broken = owner is not None and owner.trainer.chunk > 0 and owner.settings.neighbours
        if owner is not None and owner.can_save and not broken:
            self._save()

    def hang_up(self) -> None:
        """Wait until the starting process has heard everything."""
        self._out.flush()

    def _save(self) -> None:
        assert self._station is not None
        assert self._arm is not None
        folder = self.home.arm_folder(self._arm.name)
        folder.mkdir(parents=True, exist_ok=True)
        self._station.owner.save(folder / "checkpoint.safetensors")
        self._saved = time.monotonic()

    # -- messages ------------------------------------------------------------------------------------

    def _post(self, peer: str, data: bytes) -> None:
        self._sent[peer] += 1
        self._lines[peer].send(self._runs.to_bytes(_RUN_BYTES, "little") + data)

    def _report(self) -> None:
        self.say("rest", sent=self._sent, received=self._received)

    def _stir(self) -> None:
        if self._resting:
            self._resting = False
            self.say("stir")

    def _pump(self, timeout: float | None) -> None:
        """Take in what has come, from peers and from above. Called within training too, so that nobody waits for it."""
        station = self._station
        assert station is not None
        lines: dict[Any, str] = {line.connection: name for name, line in self._lines.items() if name not in self._dead}
        waiting: list[Any] = wait([*lines, self._control], timeout)
        for ready in waiting:
            if ready is self._control:
                self._obey()
                continue
            peer = lines[ready]
            try:
                data = ready.recv_bytes()
            except (EOFError, OSError):
                self._dead.add(peer)
                if peer in station.owner.peers:
                    station.handle(Lost(peer))
                continue
            if int.from_bytes(data[:_RUN_BYTES], "little") != self._runs:
                continue  # left in the pipe by a run that was halted
            self._stir()
            self._received[peer] += 1
            if peer in station.owner.peers:
                station.deliver(peer, data[_RUN_BYTES:])

    def _obey(self) -> None:
        try:
            command = json.loads(self._control.recv_bytes())["do"]
        except (EOFError, OSError):
            raise _Leave from None
        if command == "probe":
            if self._resting:
                self._report()
        elif command in ("conclude", "halt", "exit"):
            self._command = command
            if command == "exit":
                raise _Leave


@contextlib.contextmanager
def _no_script() -> Iterator[None]:
    """Hide the program that is running from a process about to start, which would run it again from the top.

    Python does that for the sake of what the program defines; an owner needs that only if its model is among it.
    """
    if not all(model.__module__.startswith("fkge.") for model in MODELS.values()):
        yield
        return
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """What is started meanwhile never hears a Ctrl-C, not even before it can say so itself; we hear it afterwards."""
    resource_tracker.ensure_running()  # on its first start it would end the deafness
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _lock(path: Path) -> IO[str]:
    """Hold an owner's home for this process; one that is leaving, after its starting process died, is waited for."""
    held = path.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def _main(folder: str, pipes: dict[str, Connection], control: Connection) -> None:
    """The life of an owner's process."""
    import torch

    torch.set_num_threads(1)
    lock = _lock(Path(folder) / "lock")
    worker = _Worker(Path(folder), pipes, control)
    try:
        worker.serve()
    except _Leave:
        worker.leave()
    except Exception as error:
        import traceback

        worker.say("failed", why=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        worker.hang_up()
        raise SystemExit(1) from None
    finally:
        lock.close()
