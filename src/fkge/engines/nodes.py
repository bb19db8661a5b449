"""Owners as real nodes on this machine, with certificates, TLS and sockets: for rehearsals.

What a simulation says about a federation should be what nodes will do. This process starts them
(`fkge.node.rehearsal`), hears what is worth a line in the trace, and stops them when all are done.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from fkge.engines.station import Note
from fkge.errors import EngineError
from fkge.federation.home import Arm, Home

_PROGRAM = "fkge.node.rehearsal"
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
        if not (self._folder / "authority").exists():
            command = [sys.executable, "-m", _PROGRAM, "prepare", str(self._folder), *self._homes]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise EngineError(f"nodes cannot be prepared: {done.stderr.strip().splitlines()[-1]}")
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
        return all(home.result(arm.name) is not None for home in self._homes.values())

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
        command = [sys.executable, "-m", _PROGRAM, "node", json.dumps(about)]
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


def _free_ports(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on, and that the system gives to nobody who calls."""
    found: list[str] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(f"127.0.0.1:{port}")
    return found
