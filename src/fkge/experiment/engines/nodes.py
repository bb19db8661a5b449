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

from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.engines.node_process import NodeSpec, prepare, run_node
from fkge.experiment.engines.workers import Died, Failed, Workers
from fkge.experiment.owners import SimulatedOwner
from fkge.federation.driver import Stop
from fkge.federation.participant import Emit

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_STOP = 60.0


class Nodes:
    """The engine for rehearsals.

    Args:
        stores: the owners' stores; their names must be fit for certificates.
        emit: receives every event, with ``owner`` and seconds ``t`` since the arm began.
        recordings: a folder for every owner's recording, NAME.tape each.
    """

    name = "nodes"

    def __init__(self, stores: Sequence[SimulatedOwner], emit: Emit, recordings: Path | None = None) -> None:
        self._stores = {store.name: store for store in stores}
        self._emit, self._recordings = emit, recordings
        self._folder = next(iter(stores)).simulation / "nodes"
        self._workers: Workers | None = None

    def __enter__(self) -> Nodes:
        if not (self._folder / "authority").exists():
            prepare(self._folder, list(self._stores))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._workers is not None:
            self._end(self._workers)

    def run(self, arm: Arm, stop: Stop | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again resumes it."""
        self._workers = workers = Workers(get_context("spawn"))
        addresses = dict(zip(self._stores, _free_ports(len(self._stores)), strict=True))
        for name, store in self._stores.items():
            recording = None if self._recordings is None else self._recordings / f"{name}.tape"
            state = self._folder / "arms" / arm.name / name
            spec = NodeSpec(store.folder, arm, self._folder / "sites" / name, state, addresses, recording)
            # One thread of arithmetic each, and none that spins while it waits: nodes share this machine's cores.
            quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            workers.start(name, run_node, spec, environment=quiet)
        dead, concluded = set[str](), set[str]()
        while not concluded | dead >= set(self._stores) and not (stop is not None and stop()):
            dead |= self._receive(workers)
            concluded = {name for name, store in self._stores.items() if store.workspace(arm.name).finished}
        self._end(workers)
        return all(store.workspace(arm.name).finished for store in self._stores.values())

    def _receive(self, workers: Workers) -> set[str]:
        """Pass on the events of nodes. Returns those that have died."""
        dead = set()
        for name, message in workers.receive(_SECONDS_BETWEEN_LOOKS):
            match message:
                case Failed(why, trace):
                    self._emit("failed", owner=name, why=why, trace=trace)
                case Died(why):
                    dead.add(name)
                    self._emit("died", owner=name, why=why)
                case event, fields:
                    self._emit(event, **fields)
        return dead

    def _end(self, workers: Workers) -> None:
        """Stop all nodes, and pass on their last events."""
        self._workers = None
        for name in workers.alive:
            workers.send(name, "stop")
        # SIGABRT: one that does not stop prints where it stands.
        late = workers.join(_SECONDS_TO_STOP, signal.SIGABRT)
        for _, message in workers.receive(0.0):
            if isinstance(message, tuple):
                self._emit(message[0], **message[1])
        for name in late:
            self._emit("died", owner=name, why=f"the node of owner {name} did not stop within {_SECONDS_TO_STOP:g} s")

    def central(self, arms: Sequence[str], stop: Stop | None = None) -> None:
        """Run arms that need a server; `stop` is looked at between two of them."""
        for arm in arms:
            if stop is not None and stop():
                return
            run_central(arm, list(self._stores.values()), self._emit)


def _free_ports(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on, outside the range from which the system gives ports out."""
    found: list[str] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(f"127.0.0.1:{port}")
    return found
