"""A small consortium on this machine: every owner with its own folder, key, certificate and files."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fkge.federation import Federation, FederationSettings, read_federation
from fkge.graph import Graph
from fkge.node.ops import control
from fkge.pki import site
from fkge.pki.authority import Authority
from fkge.pki.certificates import read_request
from fkge.pki.site import Identity

CONSORTIUM = "circle"


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free and outside the range of ephemeral ports."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


def write_graph(graph: Graph, folder: Path) -> None:
    """Write a graph as three files of triples."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid", "test"):
        lines = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}\n" for h, r, t in graph.splits[split]]
        (folder / f"{split}.tsv").write_text("".join(lines))


def _plain() -> dict[str, str]:
    """Return the environment without what the tests' own gRPC needs: a node must set that itself."""
    return {key: value for key, value in os.environ.items() if key != "GRPC_SSL_CIPHER_SUITES"}


def toml(values: Mapping[str, Any]) -> str:
    """Flat TOML."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def members(folder: Path, *names: str) -> dict[str, Identity]:
    """Make members of one authority, each with a key and a certificate and nothing else."""
    now, authority = datetime.now(UTC), Authority.create(folder / "authority", CONSORTIUM, datetime.now(UTC))
    for name in names:
        site.request(folder / name, name, CONSORTIUM)
        kit = authority.approve(read_request((folder / name / "request.csr").read_bytes(), "request"), now)
        site.check_kit(kit.read_bytes(), "kit", folder / name, now, lambda _: None).install()
    return {name: Identity.load(folder / name) for name in names}


class Consortium:
    """All sites, under one folder.

    Args:
        folder: where they are.
        graphs: by owner.
        settings: how all of them federate.
        addresses: by owner, where it listens; free ports of this machine if None.
        node, peer: more for every node.toml, and for every table of every peers.toml.
    """

    def __init__(
        self, folder: Path, graphs: Mapping[str, Graph], settings: FederationSettings,
        addresses: Mapping[str, str] | None = None, node: Mapping[str, Any] | None = None,
        peer: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.names, self.settings = folder, list(graphs), settings
        ports = dict(zip(self.names, free_ports(len(self.names)), strict=True))
        self.addresses = dict(addresses or {name: f"127.0.0.1:{ports[name]}" for name in self.names})
        self.authority = Authority.create(folder / "authority", CONSORTIUM, datetime.now(UTC))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, graph in graphs.items():
            write_graph(graph, self.site(name) / "graph")
            self.enrol(name)
            self.write(name, **(node or {}))
            self.write_peers(name, {other: dict(peer or {}) for other in self.names if other != name})
            (self.site(name) / "federation.toml").write_text(settings.to_toml())
        for name in graphs:  # the kit that lists all members
            kit = self.authority.kit(name)
            site.check_kit(kit.read_bytes(), "kit", self.site(name), datetime.now(UTC), lambda _: None).install()

    def add(self, name: str, graph: Graph, **node: Any) -> None:
        """Add an owner to everybody's peers; it takes no part in agreeing on initial rows."""
        self.addresses[name] = f"127.0.0.1:{free_ports(1)[0]}"
        write_graph(graph, self.site(name) / "graph")
        self.enrol(name)
        self.write(name, founder=False, **node)
        (self.site(name) / "federation.toml").write_text(self.settings.to_toml())
        self.write_peers(name, {other: {} for other in self.names})
        for other in self.names:
            self.write_peers(other, {n: {} for n in self.names if n != other} | {name: {"founder": False}})
        self.names.append(name)

    def site(self, name: str) -> Path:
        return self.folder / "sites" / name

    def state(self, name: str) -> Path:
        return self.site(name) / "state"

    def config(self, name: str) -> Path:
        return self.site(name) / "node.toml"

    def enrol(self, name: str) -> None:
        """Make a key and a certificate, as a site does."""
        folder = self.site(name)
        site.request(folder, name, CONSORTIUM)
        now = datetime.now(UTC)
        kit = self.authority.approve(
            read_request((folder / "request.csr").read_bytes(), "request"), now, address=self.addresses.get(name)
        )
        site.check_kit(kit.read_bytes(), "kit", folder, now, lambda _: None).install()

    def write(self, owner: str, **values: Any) -> None:
        """Write node.toml."""
        plain = {
            "name": owner, "graph": "graph", "state": "state", "listen": self.addresses.get(owner, ""),
            "settings": "federation.toml", "peers": "peers.toml", "metrics": "",
        }  # fmt: skip
        self.config(owner).write_text(toml({**plain, **values}))

    def write_peers(self, name: str, peers: Mapping[str, Mapping[str, Any]]) -> None:
        """Write peers.toml; equal labels are the same thing, unless a table has `same = false`."""
        text = ""
        for other, table in peers.items():
            text += f"[peers.{other}]\n" + toml({"address": self.addresses[other], "same": True, **table})
        (self.site(name) / "peers.toml").write_text(text)

    def federation(self) -> Federation:
        """Return the same federation for a simulation, from the same files."""
        text = "".join(f'[owners.{name}]\ngraph = "sites/{name}/graph"\n' for name in self.names)
        for i, a in enumerate(self.names):
            for b in self.names[i + 1 :]:
                text += f'[[links]]\nbetween = ["{a}", "{b}"]\nsame = true\n'
        (self.folder / "federation.toml").write_text(text)
        return read_federation(self.folder / "federation.toml")

    # -- processes -----------------------------------------------------------------------------------

    def start(
        self, name: str, *options: str, wrap: tuple[str, ...] = (), program: Path | None = None, **env: str
    ) -> None:
        """Start a node in its own process."""
        run = [sys.executable, "-m", "fkge"] if program is None else [sys.executable, str(program)]
        command = [*wrap, *run, "node", "--config", str(self.config(name)), *options]
        with (self.site(name) / "output").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                command, stdout=output, stderr=output, env={**_plain(), "OMP_NUM_THREADS": "1", **env}
            )

    def status(self, name: str) -> dict[str, Any]:
        """Return a node's status."""
        return control.call(self.state(name) / control.SOCKET, "status")

    def output(self, name: str) -> str:
        return (self.site(name) / "output").read_text()

    def result(self, name: str) -> Path:
        return self.state(name) / "arms" / "federated" / name / "result.json"

    def await_results(self, *names: str, seconds: float = 120.0) -> None:
        """Wait until these nodes have results; fail if a node dies or takes too long."""
        self.wait_for(lambda: all(self.result(name).exists() for name in names or self.names), seconds)

    def wait_for(self, holds: Any, seconds: float = 60.0) -> None:
        """Poll until `holds()` is true; fail if a node dies or `seconds` pass."""
        end = time.monotonic() + seconds
        while not holds():
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended with {process.returncode}:\n{self.output(name)}")
            if time.monotonic() > end:
                raise AssertionError("\n".join(f"{name}: {self.output(name)[-2000:]}" for name in self.names))
            time.sleep(0.05)

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signal a node's process and wait until it has ended."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(60)

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> Consortium:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
