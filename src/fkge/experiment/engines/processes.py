"""Run each owner in a spawned process, one thread of arithmetic each, with a pipe between every two of them.

The process that starts them has made their stores, as a simulation must, and never sees a vector. It tells owners which
arm to run and receives events for the trace; it carries no message between owners. An owner concludes by itself once
its peers have signalled that they are done (`Protocol.over`).

A process that dies loses nothing but its own latest seconds: peers notice that the pipe is closed and continue, and the
run can be resumed from the owners' checkpoints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fkge.errors import EngineError
from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.engines.workers import Died, Failed, Outbox, Workers
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.federation.driver import Driver, Stop
from fkge.federation.events import Lost
from fkge.federation.participant import Emit
from fkge.files import FileLock

RUN_BYTES = 4
"""Before each message between owners: the number of the run it belongs to. All owners count runs alike."""

_SECONDS_BETWEEN_LOOKS = 0.2


class _Command(StrEnum):
    HALT = "halt"
    EXIT = "exit"


@dataclass(frozen=True)
class _RunArm:
    arm: Arm
    recordings: Path | None


@dataclass(frozen=True)
class _RunCentral:
    arm: str
    folders: Sequence[Path]


class _Over:
    """An owner's process is done with an arm, or was halted."""


@dataclass(frozen=True)
class _Event:
    """A line for the trace."""

    event: str
    fields: dict[str, Any]


# -- in the starting process -----------------------------------------------------------------------------


class Processes:
    """The engine for simulations on one machine.

    Args:
        stores: the owners' stores.
        emit: receives every event, with ``owner`` and seconds ``t`` since the arm began.
        recordings: a folder for every owner's recording, NAME.tape each; see `fkge.federation.recording`.
    """

    name = "processes"

    def __init__(self, stores: Sequence[SimulatedOwner], emit: Emit, recordings: Path | None = None) -> None:
        self._folders = {store.name: store.folder for store in stores}
        self._emit, self._recordings = emit, recordings

    def __enter__(self) -> Processes:
        context = get_context("spawn")
        names = list(self._folders)
        ends: dict[str, dict[str, Connection]] = {name: {} for name in names}
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                ends[a][b], ends[b][a] = context.Pipe()
        self._workers = Workers(context)
        for name in names:
            self._workers.start(name, _run_owner, self._folders[name], ends[name])
            # Only the two owners may hold the ends of their pipe, or nobody would notice when one of them dies.
            for end in ends[name].values():
                end.close()
        return self

    def __exit__(self, *exc: object) -> None:
        self._send_all(_Command.EXIT)
        self._workers.join(10)

    @property
    def pids(self) -> dict[str, int]:
        """The owners' processes."""
        return self._workers.pids

    def _send_all(self, message: Any) -> None:
        for name in self._workers.alive:
            self._workers.send(name, message)

    def run(self, arm: Arm, stop: Stop | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again resumes it."""
        self._check_alive()
        over, halting = set[str](), False
        self._send_all(_RunArm(arm, self._recordings))
        while not over >= set(self._folders):
            over |= self._receive()
            if not halting and stop is not None and stop():
                halting = True
                self._send_all(_Command.HALT)
        return not halting and not self._workers.lost

    def central(self, arms: Sequence[str], stop: Stop | None = None) -> None:
        """Run arms that need a server, each in one of the processes.

        Asked to stop, it ends the processes: these arms have no checkpoints, and start again when resumed.

        Raises:
            EngineError: a process died, or failed.
        """
        self._check_alive()
        pending, free = list(arms), list(self._folders)[: os.cpu_count() or 1]
        lanes = len(free)
        while pending or len(free) < lanes:
            while pending and free:
                self._workers.send(free.pop(), _RunCentral(pending.pop(0), list(self._folders.values())))
            free += self._receive()
            if stop is not None and stop():
                self._workers.kill()
                return
            if lost := self._workers.lost:
                self._receive()  # its last messages
                raise EngineError(f"{self._workers.why(lost[0])} during {', '.join(arms)}; resume the run")

    def _check_alive(self) -> None:
        if lost := self._workers.lost:
            raise EngineError(
                f"{self._workers.why(lost[0])}. The others' work is kept; resume the run to continue with all of them"
            )

    def _receive(self) -> set[str]:
        """Process what owners report. Returns those that are over, or have died."""
        over = set()
        for name, message in self._workers.receive(_SECONDS_BETWEEN_LOOKS):
            match message:
                case _Event(event, fields):
                    self._emit(event, **fields)
                case _Over():
                    over.add(name)
                case Failed(why, trace):
                    self._emit("failed", owner=name, why=why, trace=trace)
                case Died(why):
                    over.add(name)
                    self._emit("died", owner=name, why=why)
        return over


# -- in an owner's process -------------------------------------------------------------------------------


class _Exit(Exception):
    """The starting process is gone, or wants this one to end."""


def _run_owner(folder: Path, pipes: dict[str, Connection], outbox: Outbox) -> None:
    """An owner's process, from start to end."""
    import torch

    torch.set_num_threads(1)
    # A process of an earlier run, whose parent died, may still be ending: wait for it.
    with FileLock(folder / "lock"):
        _OwnerProcess(SimulatedOwner.open(folder), pipes, outbox).serve()


class _OwnerProcess:
    def __init__(self, owner: SimulatedOwner, pipes: dict[str, Connection], outbox: Outbox) -> None:
        self._owner, self._outbox, self._control = owner, outbox, outbox.connection
        self._peers = {name: Outbox(pipe, raw=True) for name, pipe in pipes.items()}
        self._dead: set[str] = set()
        self._driver: Driver | None = None
        self._concluding = False
        self._about: dict[str, str] = {}
        self._began = 0.0
        self._runs = 0

    def _emit(self, event: str, **fields: Any) -> None:
        t = round(time.monotonic() - self._began, 3)
        self._outbox.send(_Event(event, {**self._about, "t": t, **fields}))

    def serve(self) -> None:
        """Run what the starting process asks for, until it sends EXIT or is gone."""
        try:
            while True:
                command = self._next_command()
                self._began = time.monotonic()
                if isinstance(command, _RunCentral):
                    self._about = {}
                    run_central(
                        command.arm, [SimulatedOwner.open(path) for path in command.folders], self._emit_central
                    )
                elif isinstance(command, _RunArm):
                    self._run(command)
                else:
                    continue  # to halt a run that is over
                self._outbox.send(_Over())
        except _Exit:
            if self._driver is not None:
                self._driver.save_if_resumable()

    def _next_command(self) -> Any:
        try:
            command = self._control.recv()
        except (EOFError, OSError):
            raise _Exit from None
        if command is _Command.EXIT:
            raise _Exit
        return command

    def _emit_central(self, event: str, **fields: Any) -> None:
        if self._control.poll():
            self._next_command()  # raises if the starting process is gone, or ends this one
        self._emit(event, **fields)

    def _run(self, command: _RunArm) -> None:
        """Run one arm to its conclusion, or until it is halted."""
        self._about = {"arm": command.arm.name, "owner": self._owner.name}
        self._runs += 1
        self._concluding = False
        self._driver = driver = Driver(
            ArmJob(self._owner, command.arm), self._post, self._emit, attend=self._attend,
            recording=None if command.recordings is None else command.recordings / f"{self._owner.name}.tape",
        )  # fmt: skip
        driver.begin(absent=self._dead & set(driver.owner.peers))
        due: float | None = None
        while not driver.stopped and not driver.participant.protocol.over:
            if (seconds := driver.take_timer()) is not None:
                due = time.monotonic() + seconds
            if driver.round_due:
                since = round(time.monotonic() - self._began, 3)
                if (report := driver.train()) is not None:
                    self._emit("work", since=since, **asdict(report))
                    driver.finish()
            elif due is not None and time.monotonic() >= due:
                due = None
                driver.wake()
            else:
                self._pump(driver, None if due is None else max(0.0, due - time.monotonic()))
        if driver.stopped:
            driver.save()
        else:
            self._concluding = True
            driver.conclude()
        driver.close()
        self._driver = None

    # -- messages ------------------------------------------------------------------------------------

    def _post(self, peer: str, data: bytes) -> None:
        self._peers[peer].send(self._runs.to_bytes(RUN_BYTES, "little") + data)

    def _attend(self) -> bool:
        """Between two chunks of training: process what has come. A concluding owner is done with its peers."""
        assert self._driver is not None
        self._pump(self._driver, 0.0)
        return False

    def _pump(self, driver: Driver, timeout: float | None) -> None:
        """Process what peers and the starting process have sent, waiting up to `timeout` seconds for the first."""
        reachable = {} if self._concluding else {box.connection: name for name, box in self._peers.items()}
        names: dict[Any, str] = {end: name for end, name in reachable.items() if name not in self._dead}
        waiting: list[Any] = wait([*names, self._control], timeout)
        for ready in waiting:
            if ready is self._control:
                self._next_command()
                driver.stop()
                continue
            peer = names[ready]
            try:
                data = ready.recv_bytes()
            except (EOFError, OSError):
                self._dead.add(peer)
                if peer in driver.owner.peers:
                    driver.participant.handle(Lost(peer))
                continue
            # A run that was halted, or has concluded, may have left messages in the pipe.
            if int.from_bytes(data[:RUN_BYTES], "little") == self._runs and peer in driver.owner.peers:
                driver.participant.deliver(peer, data[RUN_BYTES:])
