"""Owners' processes on this machine: start them, exchange messages with them, notice when one dies, end them.

A worker is a spawned process with a pipe to this one. Its target is an ordinary function that sends events; whatever it
raises is sent here as the event `Failed` before the process ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

from fkge.embed import MODELS
from fkge.experiment.trace_events import Died, Failed
from fkge.owner_events import Emit, OwnerEvent


class Over(OwnerEvent):
    """A worker has done what it was asked for; not for the trace."""


class Outbox:
    """Sends through a pipe from a thread of its own, so that a slow reader holds up nobody but its own messages.

    `raw` messages are bytes, sent as they are; others are any objects, pickled.
    """

    def __init__(self, connection: Connection, raw: bool = False) -> None:
        self.connection = connection
        self._write = connection.send_bytes if raw else connection.send
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, message: Any) -> None:
        self._queue.put(message)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._write(message)
            except OSError:
                return  # the reader is gone, which is noticed where its messages are read

    def flush(self) -> None:
        """Wait until everything is written. Nothing can be sent afterwards."""
        self._queue.put(None)
        self._thread.join()


class Workers:
    """The processes of an engine's owners; `context` makes processes and pipes."""

    def __init__(self, context: SpawnContext) -> None:
        self._context = context
        self._failures: dict[str, str] = {}  # by owner, the error its worker ended by
        self._processes: dict[str, SpawnProcess] = {}
        self._pipes: dict[str, Connection] = {}

    def start(
        self, name: str, target: Callable[..., None], *args: Any, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a worker that runs ``target(*args, outbox)``.

        Args:
            name: of its owner; target, args: a function and its arguments.
            environment: variables in addition to this process's.
        """
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_run_worker, args=(target, args, theirs), name=f"fkge {name}", daemon=True
        )  # fmt: skip
        with _without_script(), sigint_blocked(), _environment(environment or {}):
            process.start()
        theirs.close()
        self._processes[name], self._pipes[name] = process, ours

    def send(self, name: str, message: Any) -> None:
        """Send a message to a worker; one that has died does not get it."""
        with contextlib.suppress(OSError):
            self._pipes[name].send(message)

    def receive(self, timeout: float) -> Iterator[OwnerEvent]:
        """Events of workers, waiting up to `timeout` seconds for the first; the last one of each is `Died`."""
        names: dict[Any, str] = {pipe: name for name, pipe in self._pipes.items() if not pipe.closed}
        ready: list[Any] = wait(list(names), timeout)
        for pipe in ready:
            name = names[pipe]
            try:
                while pipe.poll():
                    event: OwnerEvent = pipe.recv()
                    if isinstance(event, Failed):
                        self._failures[name] = event.why
                    yield event.stamped(owner=name)
            except (EOFError, OSError):
                self._processes[name].join(timeout=5)
                pipe.close()
                yield Died(owner=name, why=self.why(name))

    def relay(self, emit: Emit, timeout: float) -> set[str]:
        """Pass on the events of workers; see `receive`. Returns the owners whose worker is `Over`, or has died."""
        over = set()
        for event in self.receive(timeout):
            if not isinstance(event, Over):
                emit(event)
            if isinstance(event, Over | Died):
                over.add(event.owner)
        return over

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items() if process.pid is not None}

    @property
    def alive(self) -> list[str]:
        return [name for name, process in self._processes.items() if process.is_alive()]

    @property
    def lost(self) -> list[str]:
        """Owners whose worker has died."""
        return [name for name in self._processes if name not in self.alive]

    def why(self, name: str) -> str:
        """Return why a worker has died, in a sentence."""
        if name in self._failures:
            return f"owner {name} failed: {self._failures[name]}"
        code = self._processes[name].exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return f"the process of owner {name} {how}"

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    def join(self, seconds: float, number: signal.Signals = signal.SIGKILL) -> list[str]:
        """Wait for all workers to end. Those that take longer are sent a signal that ends them, and returned."""
        late = []
        for name, process in self._processes.items():
            process.join(seconds)
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, number)
                process.join()
                late.append(name)
        return late


def _run_worker(target: Callable[..., None], args: tuple[Any, ...], connection: Connection) -> None:
    outbox = Outbox(connection)
    try:
        target(*args, outbox)
    except Exception as error:
        outbox.send(Failed(why=f"{type(error).__name__}: {error}", trace=traceback.format_exc()))
        raise SystemExit(1) from None
    finally:
        outbox.flush()


@contextlib.contextmanager
def _without_script() -> Iterator[None]:
    """Hide the program that is running from a process about to start, which would run it again from the top.

    Python does that for the sake of what the program defines; an owner needs it only if its model is defined there.
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
def sigint_blocked() -> Iterator[None]:
    """Start processes that never get a Ctrl-C, not even before they can block it; this one gets it afterwards."""
    resource_tracker.ensure_running()  # its first start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)
