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
from itertools import combinations
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from fkge.errors import EngineError
from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.engines.workers import Outbox, Over, Workers
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.federation.driver import Driver, Stop
from fkge.federation.events import Lost
from fkge.files import FileLock
from fkge.owner_events import OwnerEvent

RUN_BYTES = 4
"""Before each message between owners: the number of the run it belongs to. All owners count runs alike."""

_SECONDS_BETWEEN_LOOKS = 0.2


_HALT, _EXIT = ("halt",), ("exit",)
"""Messages to owners' processes, in addition to ``("arm", arm, recording)`` and ``("central", arm, folders)``."""


# -- in the starting process -----------------------------------------------------------------------------


class Processes(Engine):
    """The engine for simulations on one machine; see `Engine`."""

    def __enter__(self) -> Self:
        context = get_context("spawn")
        ends: dict[str, dict[str, Connection]] = {name: {} for name in self._stores}
        for a, b in combinations(self._stores, 2):
            ends[a][b], ends[b][a] = context.Pipe()
        self._workers = Workers(context)
        for name, store in self._stores.items():
            self._workers.start(name, _run_owner, store.folder, ends[name])
            # Only the two owners may hold the ends of their pipe, or nobody would notice when one of them dies.
            for end in ends[name].values():
                end.close()
        return self

    def __exit__(self, *exc: object) -> None:
        self._send_all(_EXIT)
        self._workers.join(10)

    @property
    def pids(self) -> dict[str, int]:
        """The owners' processes."""
        return self._workers.pids

    def _send_all(self, message: tuple[Any, ...]) -> None:
        for name in self._workers.alive:
            self._workers.send(name, message)

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """See `Engine.run`."""
        self._check_alive()
        over, halting = set[str](), False
        for name in self._workers.alive:
            self._workers.send(name, ("arm", arm, self._recording(name)))
        while not over >= set(self._stores):
            over |= self._receive()
            if not halting and stop():
                halting = True
                self._send_all(_HALT)
        return not halting and not self._workers.lost

    def central(self, arms: Sequence[str], stop: Stop = never) -> None:
        """See `Engine.central`; each arm runs in one of the processes.

        Asked to stop, it ends the processes: these arms have no checkpoints, and start again when resumed.
        """
        self._check_alive()
        folders = [store.folder for store in self._stores.values()]
        pending, free = list(arms), list(self._stores)[: os.cpu_count() or 1]
        lanes = len(free)
        while pending or len(free) < lanes:
            while pending and free:
                self._workers.send(free.pop(), ("central", pending.pop(0), folders))
            free += self._receive()
            if stop():
                self._workers.kill()
                return
            if self._workers.lost:
                self._receive()  # its last messages
                self._check_alive(f" during {', '.join(arms)}; resume the run")

    def _check_alive(
        self, then: str = ". The others' work is kept; resume the run to continue with all of them"
    ) -> None:
        if lost := self._workers.lost:
            raise EngineError(self._workers.why(lost[0]) + then)

    def _receive(self) -> set[str]:
        """Pass on what owners report. Returns those that are over, or have died."""
        return self._workers.relay(self._emit, _SECONDS_BETWEEN_LOOKS)


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
        self._arm: str | None = None
        self._began = 0.0
        self._runs = 0

    def _emit(self, event: OwnerEvent) -> None:
        t = round(time.monotonic() - self._began, 3)
        self._outbox.send(event.stamped(arm=self._arm, owner=self._owner.name, t=t))

    def serve(self) -> None:
        """Run what the starting process asks for, until it sends EXIT or is gone."""
        try:
            while True:
                match self._next_command():
                    case "arm", arm, recording:
                        self._run(arm, recording)
                    case "central", arm, folders:
                        self._began = time.monotonic()
                        run_central(arm, [SimulatedOwner.open(path) for path in folders], self._emit_central)
                    case _:
                        continue  # to halt a run that is over
                self._outbox.send(Over())
        except _Exit:
            if self._driver is not None:
                self._driver.save_if_resumable()

    def _next_command(self) -> Any:
        try:
            command = self._control.recv()
        except (EOFError, OSError):
            raise _Exit from None
        if command == _EXIT:
            raise _Exit
        return command

    def _emit_central(self, event: OwnerEvent) -> None:
        if self._control.poll():
            self._next_command()  # raises if the starting process is gone, or ends this one
        self._emit(event)

    def _run(self, arm: Arm, recording: Path | None) -> None:
        """Run one arm to its conclusion, or until it is halted."""
        self._began, self._arm = time.monotonic(), arm.name
        self._runs += 1
        self._concluding = False
        self._driver = driver = Driver(
            ArmJob(self._owner, arm), self._post, self._emit, attend=self._attend, recording=recording
        )
        driver.begin(absent=self._dead & set(driver.owner.peers))
        due: float | None = None
        while not driver.stopped and not driver.participant.protocol.over:
            if (seconds := driver.take_timer()) is not None:
                due = time.monotonic() + seconds
            if driver.round_due:
                since = round(time.monotonic() - self._began, 3)
                if (report := driver.train()) is not None:
                    self._emit(report.stamped(since=since))
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
