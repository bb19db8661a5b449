"""One owner within a Ray actor: the part of the Ray engine that runs on the owner's machine."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import ray

from fkge.errors import EngineError
from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.engines.stepped import Delivery, Input, Reaction, RoundOver, SteppedOwner
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.experiment.trace_events import Failed
from fkge.federation.driver import Driver
from fkge.files import FileLock
from fkge.owner_events import EpochReached, OwnerEvent, Worked

BY_REFERENCE = 64 * 1024
"""Bytes from which a message stays in the object store until its reader fetches it."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """The process of an actor, and its machine by Ray's name and by its own."""

    pid: int
    node: str
    host: str


@dataclass(frozen=True)
class Opened:
    """An owner as an actor has opened it, for the clock."""

    peers: frozenset[str] = frozenset()
    triples: int = 0
    epoch: int = 0


def _work(method: Callable[..., _T], queued: bool = True) -> Callable[..., _T | Failed]:
    """Return a method for Ray that runs in the actor's one thread of work, if it is `queued`.

    Its errors are replies, in plain text: their classes may not be known to the reader.
    """

    @functools.wraps(method)
    def replying(actor: OwnerActor, *args: Any) -> _T | Failed:
        try:
            return actor.enqueue(lambda: method(actor, *args)).result() if queued else method(actor, *args)
        except EngineError as error:
            return Failed(why=str(error), trace="")
        except Exception as error:
            return Failed(why=f"{type(error).__name__}: {error}", trace=traceback.format_exc())

    made: Callable[..., _T | Failed] = ray.method(concurrency_group="work")(replying)
    return made


_beside_work = functools.partial(_work, queued=False)
"""A method that waits for the thread of work, and so must not run in it."""


class OwnerActor:
    """An owner's process. One thread does all the work, and looks for messages between the chunks of training.

    Ray's own threads bring the messages and wait for the reactions: with one thread for all, two actors that wait for
    each other would wait forever, and an owner that trains could not answer that it is busy.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._events: list[OwnerEvent] = []
        self._events_lock = threading.Lock()
        self._store: SimulatedOwner | None = None
        self._owner: SteppedOwner | None = None
        self._round: Future[Worked | None] | None = None
        threading.Thread(target=self._do_jobs, daemon=True).start()

    # -- called by Ray -------------------------------------------------------------------------------

    @_work
    def open(self, folder: Path, run: str, modules: list[str], threads: int) -> Place:
        """Open an owner's store, once its earlier holder is gone; `modules` define models."""
        import torch

        torch.set_num_threads(threads)
        host = socket.gethostname()
        for module in modules:
            importlib.import_module(module)
        if not (folder / "peers.safetensors").exists():
            raise EngineError(
                f"it was placed on {host}, which does not see its folder {folder}. Let the run lie in a folder that "
                "all machines of the cluster share, at the same path"
            )
        self._store = SimulatedOwner.open(folder)
        if self._store.run != run:
            raise EngineError(
                f"it was placed on {host}, where {folder} belongs to another run. Let the run lie in a folder that all "
                "machines of the cluster share"
            )
        self._lock = FileLock(folder / "lock")
        return Place(os.getpid(), ray.get_runtime_context().get_node_id(), host)

    @_work
    def take(self, arm: Arm, recording: Path | None, restarted: bool) -> Opened:
        """Begin an arm, or resume it from its checkpoint."""
        assert self._store is not None
        if self._owner is not None:
            self._driver.close()
        self._round = None
        self._take_events()
        self._owner = SteppedOwner(ArmJob(self._store, arm), self._emit, self._attend, recording=recording)
        owner = self._owner.owner
        if restarted:  # peers have seen an earlier incarnation, whether or not it left a checkpoint
            owner.renew_secret()
        return Opened(frozenset(owner.peers), owner.work, owner.trainer.epoch)

    @_work
    def deliver(self, sender: str, data: bytes) -> Reaction:
        """Process a message."""
        return self._step(Delivery(sender, data))

    @_work
    def step(self, given: Input) -> Reaction:
        """Process an input other than the end of a round; a round that follows from it begins by itself."""
        return self._step(given)

    @_beside_work
    def end_round(self) -> Reaction:
        """Wait until the round under way is trained, and end it."""
        assert self._round is not None
        report = self._round.result()
        if report is None:
            return Reaction(at_rest=False, halted=True, events=self._take_events())
        return replace(self.enqueue(lambda: self._step(RoundOver())).result(), finished=report)

    @_beside_work
    def save(self) -> None:
        """Save everything needed to resume, once the round under way is over or left."""
        if self._round is not None:
            self._round.result()
        self.enqueue(self._driver.save).result()
        self.enqueue(self._driver.close).result()

    @_work
    def conclude(self) -> bool:
        """End the arm. False if it was halted."""
        whole = self._driver.conclude()
        self._driver.close()
        return whole

    @_work
    def central(self, arm: str, folders: list[Path]) -> None:
        """Run an arm that needs a server."""
        began = time.monotonic()

        def emit(event: OwnerEvent) -> None:
            self._emit(event.stamped(t=round(time.monotonic() - began, 3)))

        run_central(arm, [SimulatedOwner.open(folder) for folder in folders], emit)

    @ray.method(concurrency_group="control")
    def events(self) -> list[OwnerEvent]:
        """The events since the last call."""
        return self._take_events()

    @ray.method(concurrency_group="control")
    def halt(self) -> None:
        """Leave the training under way."""
        self._driver.stop()

    # -- the one thread ------------------------------------------------------------------------------

    def _do_jobs(self) -> None:
        while True:
            self._run_job(*self._jobs.get())

    def _run_job(self, job: Callable[[], Any], result: Future[Any]) -> None:
        try:
            result.set_result(job())
        except BaseException as error:
            result.set_exception(error)

    def enqueue(self, job: Callable[[], _T]) -> Future[_T]:
        """Have a job done by the thread of work, after those that are waiting."""
        result: Future[_T] = Future()
        self._jobs.put((job, result))
        return result

    def _attend(self) -> bool:
        """Within training: do the jobs that are waiting."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._run_job(*self._jobs.get_nowait())
        return False

    @property
    def _driver(self) -> Driver:
        assert self._owner is not None
        return self._owner.driver

    def _step(self, given: Input) -> Reaction:
        assert self._owner is not None
        reaction = self._owner.step(given)
        if reaction.epochs is not None:
            self._round = self.enqueue(self._owner.train)
        posts = [(to, size, ray.put(data) if size >= BY_REFERENCE else data) for to, size, data in reaction.posts]
        return replace(reaction, posts=posts, events=self._take_events())

    def _take_events(self) -> list[OwnerEvent]:
        with self._events_lock:
            events, self._events = self._events, []
        return events

    def _emit(self, event: OwnerEvent) -> None:
        with self._events_lock:
            if isinstance(event, EpochReached) and self._events and isinstance(self._events[-1], EpochReached):
                self._events.pop()  # only the latest progress is of interest
            self._events.append(event)
