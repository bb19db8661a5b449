"""Run owners as real nodes on this machine, with certificates, TLS and sockets: for rehearsals.

A simulation's numbers should be those that nodes will reach. The starting process makes keys and certificates, passes
on the events of nodes, and stops them when all are done. Alignments are known, so nobody intersects anything, and all
secrets follow from the seed; the rest is as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import hashlib
import random
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Self

from fkge.experiment.arms import Arm
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.engines.workers import Outbox, Workers
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.experiment.trace_events import Died, Failed
from fkge.federation.driver import Stop
from fkge.node.service import Inputs, Prepared, open_node
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.owner_events import Emit, OwnerEvent
from fkge.pki import site
from fkge.pki.authority import Authority
from fkge.pki.certificates import read_request

_CONSORTIUM = "rehearsal"
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_STOP = 60.0


# -- in the starting process -----------------------------------------------------------------------------


class Nodes(Engine):
    """The engine for rehearsals: see `Engine`. Owners' names must be fit for certificates."""

    def __init__(self, stores: Sequence[SimulatedOwner], emit: Emit, recordings: Path | None = None) -> None:
        super().__init__(stores, emit, recordings)
        self._folder = next(iter(stores)).simulation / "nodes"
        self._workers: Workers | None = None

    def __enter__(self) -> Self:
        if not (self._folder / "authority").exists():
            _prepare(self._folder, list(self._stores))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._workers is not None:
            self._end(self._workers)

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """See `Engine.run`."""
        self._workers = workers = Workers(get_context("spawn"))
        addresses = dict(zip(self._stores, _free_ports(len(self._stores)), strict=True))
        for name, store in self._stores.items():
            keys, state = self._folder / "sites" / name, self._folder / "arms" / arm.name / name
            spec = store.folder, arm, keys, state, addresses, self._recording(name)
            # One thread of arithmetic each, and none that spins while it waits: nodes share this machine's cores.
            quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            workers.start(name, _run_node, *spec, environment=quiet)
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
        for event in workers.receive(0.0):
            if not isinstance(event, Died | Failed):
                self._emit(event)
        for name in late:
            self._emit(Died(owner=name, why=f"the node of owner {name} did not stop within {_SECONDS_TO_STOP:g} s"))


def _free_ports(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on, outside the range from which the system gives ports out."""
    found: list[str] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(f"127.0.0.1:{port}")
    return found


def _prepare(folder: Path, names: Sequence[str]) -> None:
    """Make an authority, and for each owner a site with a key and a certificate, under `folder`."""
    now = datetime.now(UTC)
    authority = Authority.create(folder / "authority", _CONSORTIUM, now)
    for name in names:
        at = folder / "sites" / name
        site.request(at, name, _CONSORTIUM)
        kit = authority.approve(read_request((at / "request.csr").read_bytes(), name), now)
        site.check_kit(kit.read_bytes(), str(kit), at, now, lambda _: None).install()


# -- in a node's process ---------------------------------------------------------------------------------


def _run_node(
    folder: Path, arm: Arm, keys: Path, state: Path, addresses: Mapping[str, str], tape: Path | None, outbox: Outbox
) -> None:
    """Run a node until the starting process sends anything, or is gone. Its events go to `outbox`.

    It has its owner's store in `folder`, its key and certificate in `keys`, and its own state in `state`.
    """
    faulthandler.enable()
    owner, began = SimulatedOwner.open(folder), time.monotonic()
    own = {"name": owner.name, "graph": "", "state": str(state), "listen": addresses[owner.name]}
    node = NodeSettings.build({**own, "seed": owner.seed, "rehearsal": True, "metrics": "", "grace": 10.0})
    known = [name for name in owner.peers if arm.peers and name not in owner.refuses]
    peers = {name: PeerSettings.build({"address": addresses[name]}) for name in known}
    ids = {name: _alignment_id(owner.run, owner.name, name) for name in peers}

    def observe(event: OwnerEvent) -> None:
        outbox.send(event.stamped(arm=arm.name, owner=owner.name, t=round(time.monotonic() - began, 3)))

    inputs = Inputs(recording=tape, prepared=Prepared(owner, ArmJob(owner, arm), ids), observe=observe)
    config = NodeConfig(keys, node, owner.settings, peers)
    asyncio.run(_run(config, inputs, outbox.connection.fileno()))


async def _run(config: NodeConfig, inputs: Inputs, control: int) -> None:
    loop = asyncio.get_running_loop()
    with open_node(config, inputs) as node:

        def stop() -> None:
            loop.remove_reader(control)
            node.stop()

        loop.add_reader(control, stop)  # readable at its end, too: nobody is left behind when the starting process dies
        await node.run()


def _alignment_id(run: str, *pair: str) -> str:
    """Return the id that both sides give their alignment."""
    return hashlib.blake2b("\0".join([run, *sorted(pair)]).encode(), digest_size=16).hexdigest()
