"""Run owners as real nodes on this machine, with certificates, TLS and sockets: for rehearsals.

A simulation's numbers should be those that nodes will reach. This process starts the nodes
(`fkge.experiment.engines.node_process`), passes on their events, and stops them when all are done.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from fkge.experiment.arms import Arm
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.engines.node_process import prepare, run_node
from fkge.experiment.engines.workers import Workers
from fkge.experiment.owners import SimulatedOwner
from fkge.federation.driver import Stop
from fkge.federation.participant import Emit

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_STOP = 60.0


class Nodes(Engine):
    """The engine for rehearsals: see `Engine`. Owners' names must be fit for certificates."""

    def __init__(self, stores: Sequence[SimulatedOwner], emit: Emit, recordings: Path | None = None) -> None:
        super().__init__(stores, emit, recordings)
        self._folder = next(iter(stores)).simulation / "nodes"
        self._workers: Workers | None = None

    def __enter__(self) -> Self:
        if not (self._folder / "authority").exists():
            prepare(self._folder, list(self._stores))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._workers is not None:
            self._end(self._workers)

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """See `Engine.run`."""
        self._workers = workers = Workers(get_context("spawn"))
        addresses = dict(zip(self._stores, _free_ports(len(self._stores)), strict=True))
        for name, store in self._stores.items():
            site, state = self._folder / "sites" / name, self._folder / "arms" / arm.name / name
            spec = store.store.folder, arm, site, state, addresses, self._recording(name)
            # One thread of arithmetic each, and none that spins while it waits: nodes share this machine's cores.
            quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            workers.start(name, run_node, *spec, environment=quiet)
        dead = set[str]()
        while self._unfinished(arm.name) - dead and not stop():
            dead |= workers.relay(self._emit, _SECONDS_BETWEEN_LOOKS)
        self._end(workers)
        return not self._unfinished(arm.name)

    def _end(self, workers: Workers) -> None:
        """Stop all nodes, and pass on their last events."""
        self._workers = None
        for name in workers.alive:
            workers.send(name, "stop")
        # SIGABRT: one that does not stop prints where it stands.
        late = workers.join(_SECONDS_TO_STOP, signal.SIGABRT)
        for _, event, fields in workers.receive(0.0):
            if event not in ("failed", "died"):
                self._emit(event, **fields)
        for name in late:
            self._emit("died", owner=name, why=f"the node of owner {name} did not stop within {_SECONDS_TO_STOP:g} s")


def _free_ports(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on, outside the range from which the system gives ports out."""
    found: list[str] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(f"127.0.0.1:{port}")
    return found
