"""One owner's node in a rehearsal: a process that runs a node over a store that a simulation has made, for one arm.

Alignments are known, so nobody intersects anything, and all secrets follow from the seed; the rest is as in production.
`fkge.experiment.engines.nodes` prepares keys and certificates and starts the processes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fkge.experiment.arms import Arm
from fkge.experiment.engines.workers import Outbox
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.node.inputs import Inputs, Prepared
from fkge.node.service import open_node
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.pki import site
from fkge.pki.authority import Authority
from fkge.pki.certificates import read_request

_CONSORTIUM = "rehearsal"


def prepare(folder: Path, names: Sequence[str]) -> None:
    """Make an authority, and for each owner a site with a key and a certificate, under `folder`."""
    now = datetime.now(UTC)
    authority = Authority.create(folder / "authority", _CONSORTIUM, now)
    for name in names:
        at = folder / "sites" / name
        site.request(at, name, _CONSORTIUM)
        kit = authority.approve(read_request((at / "request.csr").read_bytes(), name), now)
        site.check_kit(kit.read_bytes(), str(kit), at, now, lambda _: None).install()


def run_node(
    folder: Path, arm: Arm, site: Path, state: Path, addresses: Mapping[str, str], tape: Path | None, outbox: Outbox
) -> None:
    """Run a node until the starting process sends anything, or is gone. Its events go to `outbox`.

    Args:
        folder: of its owner's store.
        arm: the arm to run.
        site: the folder with its key and certificate.
        state: its folder of state.
        addresses: of all nodes, by owner.
        tape: a file to record all messages to.
        outbox: sends to the starting process.
    """
    faulthandler.enable()
    owner = SimulatedOwner.open(folder)
    store, began = owner.store, time.monotonic()
    own = {"name": store.name, "graph": "", "state": str(state), "listen": addresses[store.name]}
    node = NodeSettings.build({**own, "seed": store.seed, "rehearsal": True, "metrics": "", "grace": 10.0})
    known = [name for name in store.peers if arm.peers and name not in store.refuses]
    peers = {name: PeerSettings.build({"address": addresses[name]}) for name in known}
    ids = {name: _alignment_id(store.run, store.name, name) for name in peers}

    def observe(event: str, **fields: Any) -> None:
        if event != "held":
            t = round(time.monotonic() - began, 3)
            outbox.send((event, {"arm": arm.name, "owner": store.name, "t": t, **fields}))

    inputs = Inputs(recording=tape, prepared=Prepared(store, ArmJob(owner, arm), ids), observe=observe)
    config = NodeConfig(site, node, store.settings, peers)
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
    """The id that both sides give their alignment."""
    return hashlib.blake2b("\0".join([run, *sorted(pair)]).encode(), digest_size=16).hexdigest()
