"""The nodes engine: a simulation whose owners are real nodes on this machine, with certificates, TLS and sockets.

For rehearsals: what a simulation says about a federation should be what nodes will do. Owners' homes are made already,
so nobody intersects anything; the rest is as in the field, but that all secrets follow from the seed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fkge.engines import ENGINES, Note
from fkge.federation import Arm, Home, Plan
from fkge.node import site
from fkge.node.authority import Authority
from fkge.node.node import Node
from fkge.node.requests import read_request
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings

_CONSORTIUM = "rehearsal"
_LOOK = 0.1
_PATIENCE = 60.0


class Nodes:
    """The engine.

    Args:
        homes: the owners; their names must be fit for certificates.
        note: told of events, with ``owner`` and seconds ``t`` since the arm began.
        tapes: a folder for what every owner heard and said, NAME.tape each.
    """

    name = "nodes"

    def __init__(self, homes: Sequence[Home], note: Note, tapes: Path | None = None) -> None:
        self._homes = {home.name: home for home in homes}
        self._note, self._tapes = note, tapes
        self._folder = next(iter(homes)).folder.parent.parent / "nodes"
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._lines: queue.Queue[bytes] = queue.Queue()

    def __enter__(self) -> Nodes:
        now = datetime.now(UTC)
        if not (self._folder / "authority").exists():
            authority = Authority.create(self._folder / "authority", _CONSORTIUM, now)
            for name in self._homes:
                folder = self._folder / "sites" / name
                site.request(folder, name, _CONSORTIUM)
                kit = authority.approve(read_request((folder / "request.csr").read_bytes(), name), now)
                site.install(kit.read_bytes(), str(kit), folder, now, lambda _: None)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again takes it up."""
        addresses = dict(zip(self._homes, _free_ports(len(self._homes)), strict=True))
        for name in self._homes:
            self._start(name, arm, addresses)
        concluded, lost = set[str](), set[str]()
        while not concluded | lost >= set(self._homes) and not (stop is not None and stop()):
            if self._hear(_LOOK):
                continue
            concluded = {name for name, home in self._homes.items() if home.result(arm.name) is not None}
            for name, node in self._nodes.items():
                if name not in concluded | lost and node.poll() is not None:
                    lost.add(name)
                    self._note("died", owner=name, why=f"the node of owner {name} ended with {node.returncode}")
        self._end()
        return concluded >= set(self._homes)

    def _start(self, name: str, arm: Arm, addresses: Mapping[str, str]) -> None:
        home = self._homes[name]
        plan = {"initial": arm.plan.initial, "total": arm.plan.total, "alone": arm.plan.alone}
        about = {
            "home": str(home.folder), "site": str(self._folder / "sites" / name), "addresses": addresses,
            "state": str(self._folder / "arms" / arm.name / name),
            "tape": None if self._tapes is None else str(self._tapes / f"{name}.tape"),
            "arm": {"name": arm.name, "plan": plan, "peers": arm.peers, "permuted": arm.permuted,
                    "random": arm.random, "begin_with": arm.begin_with},
        }  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-m", "fkge.node.engine", json.dumps(about)]
        node = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True)
        reader = threading.Thread(target=self._read, args=(node.stdout,), daemon=True)
        reader.start()
        self._nodes[name] = node
        self._readers.append(reader)

    def _read(self, said: IO[bytes]) -> None:
        with said:
            for line in said:
                self._lines.put(line)

    def _hear(self, seconds: float) -> bool:
        """Pass on the next thing that nodes have told; False if there is none, and none comes within this time."""
        try:
            told = json.loads(self._lines.get(timeout=max(seconds, 1e-3)))
        except queue.Empty:
            return False
        self._note(told.pop("event"), **told)
        return True

    def _end(self) -> None:
        """Stop all nodes. What they still say is heard."""
        for node in self._nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        for name, node in self._nodes.items():
            try:
                node.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                node.send_signal(signal.SIGABRT)  # it says where it is, and dies
                node.wait()
                self._note("died", owner=name, why=f"the node of owner {name} did not stop within {_PATIENCE:g} s")
        for reader in self._readers:
            reader.join()
        while self._hear(0.0):
            pass
        self._nodes.clear()
        self._readers.clear()

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could: ``run(arm, homes, note)``. Asked to stop, it does so between two arms."""
        for arm in arms:
            if stop is not None and stop():
                return
            run(arm, list(self._homes.values()), self._note)


class _Rehearsed(Node):
    """A node whose owner has a home already, and one arm to go through."""

    def __init__(self, config: NodeConfig, home: Home, arm: Arm, tape: Path | None) -> None:
        super().__init__(config, tape=tape)
        self._given, self._arm = home, arm
        self._began = time.monotonic()

    @property
    def _founding(self) -> bool:
        return True

    def _open_home(self) -> Home:
        for name in self.config.peers:
            pair = "\0".join([self._given.run, *sorted((self.name, name))])
            self._memory.pacts[name] = hashlib.blake2b(pair.encode(), digest_size=16).hexdigest()
        self._memory.begun = False
        return self._given

    def _settle(self) -> None:
        self._task(self._begin(), "begin")

    def _note(self, event: str, **fields: Any) -> None:
        super()._note(event, **fields)
        if event != "held":
            about = {"arm": self._arm.name, "owner": self.name, "t": round(time.monotonic() - self._began, 3)}
            sys.stdout.write(json.dumps({"event": event, **about, **fields}) + "\n")  # one call: threads tell, too
            sys.stdout.flush()


def _main(about: Mapping[str, Any]) -> None:
    faulthandler.enable()
    home = Home.open(Path(about["home"]))
    arm = Arm(**{**about["arm"], "plan": Plan(**about["arm"]["plan"])})
    addresses = about["addresses"]
    own = {"name": home.name, "graph": "", "state": about["state"], "listen": addresses[home.name], "seed": home.seed}
    node = NodeSettings.build({**own, "rehearsal": True, "metrics": "", "grace": 10.0})
    known = [name for name in home.peers if arm.peers and name not in home.refuses]
    peers = {name: PeerSettings.build({"address": addresses[name]}) for name in known}
    config = NodeConfig(Path(about["site"]), node, home.settings, peers)
    tape = None if about["tape"] is None else Path(about["tape"])
    asyncio.run(_Rehearsed(config, home, arm, tape).run())


def _free_ports(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{s.getsockname()[1]}" for s in held]
    finally:
        for s in held:
            s.close()


ENGINES[Nodes.name] = Nodes

if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
