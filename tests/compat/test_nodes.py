"""Nodes that version 0.1.0 stopped half-way: their logs verify, and the nodes go on from what they had kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs gRPC: pip install 'fkge[node]'")
pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from fkge.federation import FederationSettings
from fkge.graph import read_graph
from tests.compat.conftest import Command, answers, assert_says_again
from tests.consortium import Consortium

OWNERS = ("ant", "bee")


def entries(audit: Path) -> list[dict[str, Any]]:
    """The lines of an audit log."""
    return [json.loads(line) for file in sorted(audit.glob("*.log")) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(("words", "said"), [*answers("ledger", about="nodes"), *answers("audit-log")])
@pytest.mark.usefixtures("old")
def test_audit_logs_and_ledgers_verify_and_say_what_they_said(words: list[str], said: Any, fkge: Command) -> None:
    assert_says_again(fkge(*words, "--json"), said)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.usefixtures("old")
def test_logs_are_shown(owner: str, fkge: Command) -> None:
    assert "Intersect" in fkge("audit-log", "show", f"nodes/{owner}/state/audit", "-n", 1000)
    assert "node stopped" in fkge("log", "--state", f"nodes/{owner}/state", "-n", 1000)


def sites(folder: Path, old: Path) -> Consortium:
    """The two nodes with what they had kept, under certificates of today."""
    kept = {name: old / "nodes" / name for name in OWNERS}
    settings = FederationSettings.load(kept["ant"] / "federation.toml")
    graphs = {name: read_graph(str(kept[name] / "graph")) for name in OWNERS}
    nodes = Consortium(folder, graphs, settings, node={"policy": "policy.toml"})
    for name in OWNERS:
        shutil.rmtree(nodes.site(name) / "graph")
        shutil.copytree(kept[name], nodes.site(name), dirs_exist_ok=True)
    return nodes


@pytest.mark.long
def test_nodes_go_on_from_what_they_had_kept(tmp_path: Path, old: Path, fkge: Command) -> None:
    with sites(tmp_path / "nodes", old) as nodes:
        before = {name: entries(nodes.state(name) / "audit") for name in OWNERS}
        for name in OWNERS:
            nodes.start(name)
        nodes.await_results(seconds=240)
        for name in OWNERS:
            assert nodes.status(name)["life"] == 2
        nodes.close()
        for name in OWNERS:
            state, result = nodes.state(name), json.loads(nodes.result(name).read_text())
            assert fkge("audit-log", "verify", state / "audit", "--json")["entries"] > len(before[name])
            after = entries(state / "audit")
            assert after[: len(before[name])] == before[name]
            since = {entry.get("what") for entry in after[len(before[name]) :]}
            assert not since & {"Keys", "Intersect", "Tokens"}  # it is aligned already, and has begun
            fkge("ledger", "verify", state / "ledger" / f"{name}.sqlite", "--json")
            (budget,) = fkge("ledger", "show", state / "ledger" / f"{name}.sqlite", "--json")["budgets"]
            assert budget["spent"]["count"] == result["epochs"]  # every step is paid for once
            assert budget["spent"]["epsilon"] <= budget["epsilon"]
            assert result["epochs"] == nodes.settings.total_epochs
            fkge("evaluate", nodes.result(name).parent, "--json", "-q")
