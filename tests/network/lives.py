"""Lives of nodes: many processes that begin and end, some of them badly, and what must be true of each node afterwards.

A life is forked from a server that has imported the program already, so that it begins in a moment; apart from that it
is ``python -m fkge node``.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import torch

from fkge.cli import main
from fkge.embed import load_tensors
from fkge.errors import NodeError
from fkge.federation import FederationSettings
from fkge.federation.codec import decode
from fkge.federation.owner.training import OWNER_FILE
from fkge.federation.recording import read_recording
from fkge.graph import Graph
from fkge.node.ops import audit_log as auditlog
from fkge.privacy import Head, Ledger, describe, price
from tests.conftest import tiny_settings
from tests.consortium import Consortium
from tests.network.lab import CLONE_NEWNET, NAMESPACES, Host

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["tests.network.crashing", "fkge.embed.kernels.steps", "fkge.embed.kernels.private", "fkge.evaluation.kernels",
     "dp_accounting", "private_set_intersection"]
)  # fmt: skip
PATIENT = {"window": 2.0, "period": 2.0, "answer": 5.0}
"""Seconds after which nodes that wait for each other go on; with the defaults, tests would take minutes."""


def dp_settings(**changes: Any) -> FederationSettings:
    """A federation of some seconds under differential privacy: 24 epochs, each a step that is paid for."""
    return tiny_settings(
        **{
            "privacy": {"mode": "dp", "epsilon": 8.0}, "dp": {"negatives": 2, "optimizer": "adam"},
            "initial_epochs": 0, "exchanges": 24, "epochs": 1, "private": {"epochs": 2}, "psi": {"runs": 100},
            **PATIENT, **changes,
        }
    )  # fmt: skip


def game_settings(**changes: Any) -> FederationSettings:
    """The paper's game, with a price on votes."""
    return tiny_settings(
        **{
            "translate": "ppat", "privacy": {"mode": "paper"}, "initial_epochs": 0, "exchanges": 16, "epochs": 1,
            "psi": {"runs": 100}, **PATIENT, **changes,
        }
    )  # fmt: skip


def live(arguments: list[str], output: Path, crash: str | None, namespace: str | None) -> None:
    """In a process of its own."""
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if namespace is not None:
        with open(NAMESPACES / namespace) as there:
            if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    from tests.network.crashing import die, doom

    def end_with_the_test() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            die()

    threading.Thread(target=end_with_the_test, daemon=True).start()
    if crash is not None:
        doom(crash)
    sys.argv = ["fkge", *arguments]
    main()


def payment(entry: dict[str, Any]) -> str:
    """The entry of the ledger under which something left; what it is called where nothing was paid."""
    return str(entry["price"]).partition("; ε")[0] if entry["price"] else str(entry["protection"])


class Life:
    """One process, with the face of a `Popen`."""

    def __init__(self, arguments: list[str], output: Path, crash: str | None, namespace: str | None) -> None:
        self._process = FORKS.Process(target=live, args=(arguments, output, crash, namespace), daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("fkge node", timeout or 0)
        return code


class Lives(Consortium):
    """A consortium whose nodes are born quickly, and die, and are not missed for long."""

    hosts: Mapping[str, Host] = {}

    def __init__(
        self, folder: Path, graphs: Mapping[str, Graph], settings: FederationSettings,
        addresses: Mapping[str, str] | None = None, **node: Any,
    ) -> None:  # fmt: skip
        super().__init__(folder, graphs, settings, addresses, {"grace": 2.0, **node})

    def start(self, name: str, *options: str, crash: str | None = None, **more: Any) -> None:
        """Start a node; it dies at `crash`, a point of `tests.network.crashing`."""
        if more:
            return super().start(name, *options, **more)
        host = self.hosts.get(name)
        arguments = ["node", "--quiet", "--config", str(self.config(name)), *options]
        life = Life(arguments, self.site(name) / "output", crash, None if host is None else host.namespace)
        self.processes[name] = life  # type: ignore[assignment]
        return None

    def __enter__(self) -> Self:
        return self

    def start_all(self, *but: str, tapes: bool = False) -> None:
        """Start all others; with `tapes` they keep what they hear."""
        for name in self.names:
            if name not in but:
                self.start(name, *(("--tape", str(self.tape(name))) if tapes else ()))

    def tape(self, name: str) -> Path:
        return self.site(name) / "tape"

    def ended(self, name: str, seconds: float = 60.0) -> int:
        """Wait until a node's process has ended, by itself; its exit code. Others must live meanwhile."""
        life = self.processes.pop(name)
        try:
            self.wait_for(lambda: life.poll() is not None, seconds)
        finally:
            if life.poll() is None:
                self.processes[name] = life
        return life.wait()

    def await_state(self, name: str, *states: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until a node says that it is in one of these states; what it says."""
        told: dict[str, Any] = {}

        def holds() -> bool:
            told.clear()
            told.update(self.asked(name))
            return told.get("state") in states

        self.wait_for(holds, seconds)
        return told

    def asked(self, name: str) -> dict[str, Any]:
        """What a node says of itself; nothing while it cannot."""
        try:
            return self.status(name)
        except NodeError:
            return {}

    def peer(self, name: str, other: str) -> dict[str, Any]:
        """How a node says that it stands with another."""
        return next((p for p in self.asked(name).get("peers", ()) if p["name"] == other), {})

    def log(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """Lines of a node's log with these fields."""
        path = self.state(name) / "node.log"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if all(line.get(key) == value for key, value in fields.items())]

    def audit(self, name: str, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Entries of a node's audit log, checked, with these fields."""
        found = auditlog.entries(self.state(name) / "audit")
        return [e for e in found if e["event"] == event and all(e.get(key) == value for key, value in fields.items())]

    def checkpoint(self, name: str) -> Path:
        return self.result(name).with_name("checkpoint.safetensors")

    def ledger(self, name: str) -> Path:
        return self.state(name) / "ledger" / f"{name}.sqlite"

    # -- what must hold ----------------------------------------------------------------------------

    def check_whole(self, name: str) -> None:
        """What must hold at any time, right after any death: all that is kept is whole, and nothing lies behind."""
        audit = self.state(name) / "audit"
        if (audit / "audit.anchor").exists() and list(audit.glob("audit-*.log")):
            auditlog.verify(audit)
        head = None
        if self.checkpoint(name).exists():
            _, state = load_tensors(self.checkpoint(name), OWNER_FILE)
            head = Head(**state["ledger"])
        if self.ledger(name).exists():
            with Ledger.open(self.ledger(name), graph=name, at_least=head):
                pass
        else:
            assert head is None

    def check_ended(self, *names: str, epochs: int | None = None) -> None:
        """What must hold at the end: nobody has lost anything, and nothing was paid for or drawn twice."""
        for name in names or self.names:
            self.check_whole(name)
            result = json.loads(self.result(name).read_text())
            assert result["epochs"] == (self.settings.total_epochs if epochs is None else epochs), name
            tensors, _ = load_tensors(self.result(name).with_name("model.safetensors"), "fkge.model.1")
            assert all(torch.isfinite(t).all() for t in tensors.values())
            self._check_spent(name, result)

    def _check_spent(self, name: str, result: Mapping[str, Any]) -> None:
        """The ledger has each epoch once, and its ε is that of the payments in it, as the result says."""
        if self.settings.privacy.mode == "none":
            return
        with Ledger.open(self.ledger(name)) as ledger:
            paid = {e.key: e.release for e in ledger.entries() if e.kind == "paid"}
            payments = [e for e in ledger.entries() if e.kind == "paid"]
            (told,) = describe(ledger).budgets
            delta = ledger.budgets[0].delta
        assert len(paid) == len(payments)
        releases = [release for release in paid.values() if release is not None]
        together = releases[0].times(sum(r.count for r in releases))
        assert told.spent.epsilon == pytest.approx(price([together], delta, "tight"))
        if self.settings.privacy.mode == "dp":
            numbers = sorted(int(str(key).rpartition("epoch ")[2]) for key in paid)  # an "again" is no number
            assert numbers == list(range(self.settings.total_epochs))
            assert told.spent.epsilon <= self.settings.privacy.epsilon
            assert result["privacy"]["budgets"][0]["spent"]["epsilon"] == told.spent.epsilon
        for entry in self.audit(name, "left"):
            if entry["price"] is not None:
                assert payment(entry) in paid

    def check_nothing_twice(self, speaker: str, *listeners: str) -> int:
        """Nobody has heard two things that were made under one payment. How many things were compared.

        What was heard is on the listeners' tapes; under which payment it left is in the speaker's audit log. Under one
        payment for an epoch each peer sees one state of its rows (of the last epoch also the mean that ends a track,
        which costs nothing more); under one for a game, one answer to each step.
        """
        under = {e["digest"]: payment(e) for e in self.audit(speaker, "left")}
        seen: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for listener in listeners:
            for record, data in read_recording(self.tape(listener)):
                if record["what"] != "heard" or record["peer"] != speaker:
                    continue
                digest = hashlib.sha256(data).hexdigest()
                assert digest in under, "something was heard that is not in the audit log"
                message, _ = decode(data)
                kind = type(message).__name__
                if kind in ("Update", "Gradient"):
                    seen[listener, under[digest], str(message.step)].add(_content(message))
        last = f"epoch {self.settings.total_epochs - 1}"
        for (listener, key, step), contents in seen.items():
            most = 2 if key.endswith(last) else 1
            assert len(contents) <= most, f"{listener} has heard {len(contents)} contents under {key!r}, step {step}"
        if self.settings.privacy.mode == "paper":
            self._check_votes(speaker)
        return len(seen)

    def _check_votes(self, name: str) -> None:
        """Under each payment for votes no more answers have left than the game has steps, and all are different."""
        given: dict[str, list[str]] = defaultdict(list)
        for entry in self.audit(name, "left", what="Gradient"):
            given[payment(entry)].append(entry["digest"])
        for key, digests in given.items():
            assert len(digests) == len(set(digests)) <= self.settings.ppat.steps, key

    def stop_all(self) -> None:
        """Let all nodes end in order, and see that they do."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in list(self.processes.items()):
            assert process.wait(60) == 0, self.output(name)
        self.processes.clear()
        for name in self.names:
            auditlog.verify(self.state(name) / "audit")


def _content(message: Any) -> str:
    """All that a message says, but for its place in an exchange."""
    digest = hashlib.sha256()
    for name, value in vars(message).items():
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().tobytes() if isinstance(value, torch.Tensor) else str(value).encode())
    return digest.hexdigest()
