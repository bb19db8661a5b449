"""Eleven owners, each in a network namespace of its own: what they reach, and what a stranger on the wire sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fkge.embed import load_model
from fkge.experiment.engines import InProcess
from fkge.experiment.simulation import Simulation
from fkge.federation.recording import read_recording
from fkge.node.ops.audit_log import verify
from tests.conftest import tiny_federation, tiny_settings
from tests.consortium import Consortium
from tests.network.lab import Lab

OWNERS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kid")
PLAIN = b"a word that anybody on the wire can read"


def essence(result: Path) -> dict[str, Any]:
    """What an owner reached, without how long it took."""
    told: dict[str, Any] = json.loads(result.read_text())
    keys = ("test", "valid", "epochs", "best_score", "best_epoch", "rounds", "handshakes", "sent")
    return {key: told[key] for key in keys}


@pytest.mark.long
def test_eleven_nodes_reach_what_the_simulation_reaches_and_show_nothing_of_it(lab: Lab, tmp_path: Path) -> None:
    hosts = {name: lab.host(name) for name in OWNERS}
    settings = tiny_settings(exchanges=4)
    addresses = {name: f"{host.address}:7443" for name, host in hosts.items()}
    graphs = tiny_federation(OWNERS).graphs
    with Consortium(tmp_path, graphs, settings, addresses, node={"rehearsal": True}) as nodes:
        simulation = Simulation.create(
            tmp_path / "simulation", nodes.federation(), settings, engine="in-process", baselines=()
        )
        with InProcess(simulation.owners, lambda *_, **__: None, recordings=tmp_path / "scores") as engine:
            assert engine.run(simulation.arm("federated")) is True
        capture = lab.capture()
        say_plainly(lab)
        for name, host in hosts.items():
            score, tape = tmp_path / "scores" / f"{name}.tape", tmp_path / "tapes" / f"{name}.tape"
            nodes.start(name, "--score", str(score), "--tape", str(tape), wrap=tuple(host.command([])))
        nodes.await_results(seconds=500)
        nodes.close()
        seen = capture.tcp_payload()
        assert capture.hosts() >= {host.address for host in hosts.values()}
        assert capture.tls_versions() == {"TLSv1.3"}
        for name in OWNERS:
            ours, theirs = (folder / "arms" / "federated" / name for folder in (nodes.state(name), simulation.folder))
            assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
            result, expected = essence(ours / "result.json"), essence(theirs / "result.json")
            # A node does not know which test triples others hold: it scores all of them as one part.
            scored, parts = result.pop("test")["all"], expected.pop("test").values()
            assert scored["triples"] == sum(part["triples"] for part in parts)
            assert scored["mrr"] == pytest.approx(
                sum(part["mrr"] * part["triples"] for part in parts) / scored["triples"]
            )
            for valid in (result["valid"], expected["valid"]):
                del valid["accuracy"]  # its negatives are drawn by the names of all parts
            assert result["epochs"] == settings.total_epochs
            assert result == expected
            assert verify(nodes.state(name) / "audit").entries > 100
        nothing_shows(seen, nodes, tmp_path / "tapes")


def say_plainly(lab: Lab) -> None:
    """What is not hidden is found: so a search that finds nothing means something."""
    one, other = lab.host("loud1"), lab.host("loud2")
    with other.listener() as listening, one.socket() as speaking:
        speaking.connect((other.address, listening.getsockname()[1]))
        heard, _ = listening.accept()
        with heard:
            speaking.sendall(PLAIN)
            assert heard.recv(100) == PLAIN


def nothing_shows(seen: bytes, nodes: Consortium, tapes: Path) -> None:
    """No label, no triple, no message and no vector passes as it is."""
    assert PLAIN in seen
    messages = vectors = 0
    for name, graph in nodes.federation().graphs.items():
        for label in (*graph.entities, *graph.relations):
            if len(label) > 5:  # shorter ones turn up in random bytes, too
                assert label.encode() not in seen
        for record, body in read_recording(tapes / f"{name}.tape"):
            if record["what"] == "heard" and len(body) > 16:
                messages += 1
                assert body not in seen
        tables, _ = load_model(nodes.state(name) / "arms" / "federated" / name / "model.safetensors")
        for row in tables["entity"]:
            vectors += 1
            assert row.numpy().tobytes() not in seen
    assert messages > 500  # offers; the rest is shorter than what turns up by chance
    assert vectors > 400
    assert len(seen) > 1_000_000
