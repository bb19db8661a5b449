"""Nodes as processes on this machine: the simulation's results, and what an operator is told before and meanwhile."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fkge.cli import exit_codes as exits
from fkge.embed import load_model
from fkge.experiment.engines import InProcess
from fkge.experiment.simulation import Simulation
from fkge.federation import OwnerStore
from fkge.federation.egress import budgets
from fkge.node.ops.audit_log import entries, verify
from fkge.node.ops.preflight import Finding, preflight
from fkge.node.settings import NodeConfig
from fkge.privacy import Ledger
from tests.conftest import COMPLEX, OWNERS, arc, random_graph, tiny_federation, tiny_settings
from tests.consortium import Consortium, write_graph


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({}, id="frame"),
        pytest.param({"train": COMPLEX, "exchanges": 4}, id="reciprocal", marks=pytest.mark.long),
        pytest.param(
            {"translate": "ppat+refine", "exchanges": 2, "ppat": {"lam": 0.0}}, id="game", marks=pytest.mark.long
        ),
    ],
)
def test_nodes_that_follow_a_simulations_score_end_in_its_bits(how: dict[str, Any], tmp_path: Path) -> None:
    settings, graphs = tiny_settings(**how), tiny_federation().graphs
    with Consortium(tmp_path, graphs, settings, node={"rehearsal": True}) as nodes:
        made = Simulation.create(tmp_path / "run", nodes.federation(), settings, engine="in-process", baselines=())
        with InProcess(made.owners, lambda *_, **__: None, recordings=tmp_path / "tapes") as engine:
            assert engine.run(made.arm("federated")) is True
        for name in nodes.names:
            nodes.start(name, "--score", str(tmp_path / "tapes" / f"{name}.tape"))
        nodes.await_results(seconds=240)
        for name in nodes.names:
            model = Path("arms", "federated", name, "model.safetensors")
            assert (nodes.state(name) / model).read_bytes() == (made.folder / model).read_bytes()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Three nodes that have finished and stay; the first shows metrics."""
    with Consortium(tmp_path_factory.mktemp("nodes"), tiny_federation().graphs, tiny_settings()) as nodes:
        for name in nodes.names:
            nodes.start(name)
        nodes.await_results(seconds=240)
        nodes.wait_for(lambda: all(nodes.status(name)["state"] == "done" for name in nodes.names))
        yield nodes


def fkge(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fkge", *words], capture_output=True, text=True)


def test_nodes_train_together_and_stay(running: Consortium) -> None:
    for name in OWNERS:
        status, result = running.status(name), json.loads(running.result(name).read_text())
        assert (status["epoch"], status["epochs"], status["life"]) == (20, 20, 1)
        assert {peer["name"]: peer["state"] for peer in status["peers"]} == dict.fromkeys(
            set(OWNERS) - {name}, "joined"
        )
        assert all(peer["shared"] == 24 and peer["exchanges"] > 0 for peer in status["peers"])
        assert set(result["handshakes"]) == set(OWNERS) - {name}
        tables, _ = load_model(running.result(name).parent / "model.safetensors")
        assert tables.entities == 40
        assert not [path for path in running.state(name).rglob("*") if path.stat().st_mode & 0o077]


def test_everything_that_left_is_written_down_and_nothing_else(running: Consortium) -> None:
    """What one node says to have sent is what the other's stream brought, kind by kind."""
    for name in OWNERS:
        assert verify(running.state(name) / "audit").entries == running.status(name)["audit"]["entries"]
        left = [entry for entry in entries(running.state(name) / "audit") if entry["event"] == "left"]
        kinds = {entry["what"]: entry["protection"] for entry in left}
        assert kinds["Update"] == "none: rows of the shared track"
        assert kinds["Intersect"] == "private set intersection"
        assert kinds["Request"] == kinds["Ack"] == "public"
        result = json.loads(running.result(name).read_text())
        for peer, nbytes in result["sent"].items():
            told = sum(
                e["bytes"] for e in left if e["to"] == peer and e["what"] not in ("Keys", "Intersect", "Pact", "Tokens")
            )
            assert told >= nbytes  # what it served after it had concluded is not in the result
        text = (running.state(name) / "node.log").read_text() + json.dumps(left)
        assert "place" not in text  # labels are place00, place01 …


def test_a_node_can_be_asked_and_stopped_and_goes_on(running: Consortium) -> None:
    config = str(running.config("ant"))
    shown = fkge("status", "--config", config)
    assert (shown.returncode, "joined" in shown.stdout, "20" in shown.stdout) == (0, True, True)
    second = fkge("node", "--config", config)
    assert (second.returncode, "another process is this node" in second.stderr) == (exits.NODE, True)
    assert fkge("stop", "--config", config).returncode == 0
    assert running.processes.pop("ant").wait(30) == 0
    assert fkge("status", "--config", config).returncode == exits.NODE
    running.wait_for(lambda: peer(running, "bee", "ant")["state"] == "away")
    running.start("ant")
    running.wait_for(lambda: peer(running, "bee", "ant")["state"] == "joined")
    assert running.status("ant")["life"] == 2
    log = fkge("log", "--config", config, "-n", "500")
    assert "node stopped" in log.stdout


def peer(nodes: Consortium, of: str, name: str) -> dict[str, Any]:
    return next(p for p in nodes.status(of)["peers"] if p["name"] == name)


def test_an_owner_nobody_knew_joins_and_leaves_while_the_others_run(running: Consortium) -> None:
    lives = {name: running.status(name)["life"] for name in OWNERS}
    running.add("dog", tiny_federation((*OWNERS, "dog")).graphs["dog"])
    running.start("dog")
    running.await_results("dog", seconds=240)
    result = json.loads(running.result("dog").read_text())
    assert (set(result["handshakes"]) <= set(OWNERS), result["rounds"] > 0, result["epochs"]) == (True, True, 20)
    running.wait_for(lambda: {p["state"] for p in running.status("dog")["peers"]} == {"joined"})
    for name in OWNERS:
        assert peer(running, name, "dog")["shared"] > 20
        running.write_peers(name, {other: {} for other in OWNERS if other != name})
    running.wait_for(lambda: {p["state"] for p in running.status("dog")["peers"]} <= {"refused", "away"})
    assert {name: running.status(name)["life"] for name in OWNERS} == lives  # nobody was started again
    running.names.remove("dog")


def test_an_alignment_holds_for_as_long_as_what_it_rests_on(running: Consortium) -> None:
    """An owner that narrows what it shares has narrowed it: both sides align anew, and nobody starts again."""
    running.write_peers("ant", {"bee": {"ratio": 0.5}, "cat": {}})
    running.wait_for(lambda: peer(running, "ant", "bee")["shared"] == peer(running, "bee", "ant")["shared"] == 12)
    running.wait_for(lambda: peer(running, "ant", "bee")["state"] == "joined")
    assert peer(running, "ant", "cat")["shared"] == 24
    text = (running.site("ant") / "peers.toml").read_text()
    (running.site("ant") / "peers.toml").write_text(text.replace("ratio", "ration"))
    running.wait_for(
        lambda: any(not e["changed"] for e in entries(running.state("ant") / "audit") if e["event"] == "peers")
    )
    assert peer(running, "ant", "bee")["state"] == "joined"  # a mistake changes nothing
    (running.site("ant") / "peers.toml").write_text(text)


@pytest.mark.long
def test_those_that_share_nothing_train_alone_and_do_not_wait_for_each_other(tmp_path: Path) -> None:
    graphs, settings = {"ant": arc("ant", 0), "bee": random_graph()}, tiny_settings(period=3600.0)
    with Consortium(tmp_path, graphs, settings) as nodes:

        def log(name: str) -> str:
            return (nodes.state(name) / "node.log").read_text()

        for name in nodes.names:
            nodes.start(name)
        nodes.await_results(seconds=240)
        for name in nodes.names:
            assert json.loads(nodes.result(name).read_text())["epochs"] == 20
            assert log(name).count('"alignment refused"') == 1
        assert nodes.kill("bee", signal.SIGTERM) == 0
        write_graph(arc("bee", 10), nodes.site("bee") / "graph")
        nodes.start("bee", "--anew")
        nodes.wait_for(lambda: '"peer joined"' in log("ant"))


@pytest.mark.long
def test_nodes_find_what_they_share_through_third_ones_and_keep_it(tmp_path: Path) -> None:
    """ant and cat have one link of their own; whatever else both have is linked to bee by either."""
    graphs = {name: arc(name, 10 * place) for place, name in enumerate(OWNERS)}
    everywhere = sorted(set.intersection(*(set(graph.entities) for graph in graphs.values())))
    with Consortium(tmp_path, graphs, tiny_settings()) as nodes:
        for name, peer_name in (("ant", "cat"), ("cat", "ant")):
            (nodes.site(name) / "links.tsv").write_text(f"{everywhere[0]}\t{everywhere[0]}\n")
            nodes.write_peers(name, {"bee": {}, peer_name: {"same": False, "entities": "links.tsv"}})
        for name in nodes.names:
            nodes.start(name)
        nodes.await_results(seconds=240)

        def shared(name: str, peer_name: str) -> list[str]:
            store = OwnerStore.open(nodes.state(name) / "owners" / name)
            return [store.shared.entities[int(i)] for i in store.peers[peer_name].common.entities]

        assert shared("ant", "cat") == shared("cat", "ant")
        assert shared("ant", "cat")[0] == everywhere[0]
        assert sorted(shared("ant", "cat")) == everywhere
        assert len(everywhere) > 5
        exchanged = json.loads(nodes.result("ant").read_text())["handshakes"]
        assert exchanged["cat"] > 0

        def alignments(name: str) -> int:
            return sum(entry["event"] == "alignment" for entry in entries(nodes.state(name) / "audit"))

        before = alignments("cat")
        assert nodes.kill("ant", signal.SIGTERM) == 0
        nodes.start("ant")
        nodes.wait_for(
            lambda: peer(nodes, "cat", "ant")["state"] == "joined" and nodes.status("ant")["state"] == "done"
        )
        assert (alignments("cat"), sorted(shared("cat", "ant"))) == (before, everywhere)


@pytest.mark.long
def test_founders_begin_without_one_that_does_not_come_and_it_joins_them(tmp_path: Path) -> None:
    with Consortium(tmp_path, tiny_federation().graphs, tiny_settings(), node={"wait": 1.0}) as nodes:
        for name in ("ant", "bee"):
            nodes.start(name)
        nodes.await_results("ant", "bee")
        for name in ("ant", "bee"):
            missing = [e for e in entries(nodes.state(name) / "audit") if e["event"] == "founder missing"]
            assert [entry["peer"] for entry in missing] == ["cat"]
        nodes.write("cat")  # which waits for an hour, if it must
        nodes.start("cat")
        nodes.await_results("cat")
        result = json.loads(nodes.result("cat").read_text())
        assert (set(result["handshakes"]) <= {"ant", "bee"}, result["rounds"] > 0, result["epochs"]) == (True, True, 20)


@pytest.mark.long
def test_founders_do_not_wait_for_one_that_is_taken_off_the_list(tmp_path: Path) -> None:
    with Consortium(tmp_path, tiny_federation().graphs, tiny_settings()) as nodes:
        for name in ("ant", "bee"):
            nodes.start(name)
        nodes.wait_for(lambda: (nodes.state("ant") / "control.sock").exists())
        nodes.wait_for(lambda: peer(nodes, "ant", "bee")["state"] == "connected")
        assert nodes.status("ant")["state"] == "waiting"
        nodes.write_peers("ant", {"bee": {}})
        nodes.write_peers("bee", {"ant": {}})
        nodes.await_results("ant", "bee")


# -- before it starts --------------------------------------------------------------------------------


def looked(path: Path) -> dict[str, Finding]:
    return {found.what: found for found in preflight(path)}


def test_preflight_finds_all_well_and_greets_peers_that_run(running: Consortium) -> None:
    found = looked(running.config("bee"))
    assert {what for what, look in found.items() if look.verdict == "bad"} == set()
    assert "by this node itself" in found["port"].sentence
    assert str(running.processes["bee"].pid) in found["state"].sentence
    assert found["peer cat"].verdict == "good"
    assert "fkge 0" in found["peer cat"].sentence
    assert found["certificate"].verdict == "good"
    before = running.status("cat")
    assert peer(running, "cat", "bee")["state"] == "joined"  # it was greeted, and nothing else
    assert before["life"] == running.status("cat")["life"]


def test_preflight_as_a_command(running: Consortium, tmp_path: Path) -> None:
    told = fkge("preflight", "--config", str(running.config("cat")), "--json")
    assert (told.returncode, json.loads(told.stdout)["good"]) == (0, True)
    assert "✓ audit log" in fkge("preflight", "--config", str(running.config("cat"))).stdout
    missing = fkge("preflight", "--config", str(tmp_path / "none.toml"))
    assert (missing.returncode, "no such file" in missing.stdout) == (exits.NODE, True)


@pytest.fixture
def site(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path, tiny_federation(OWNERS[:2]).graphs, tiny_settings())


def test_preflight_of_a_sound_site_whose_peers_are_not_there_yet(site: Consortium) -> None:
    found = looked(site.config("ant"))
    verdicts = {what: look.verdict for what, look in found.items()}
    assert verdicts == {
        "configuration": "good", "certificate": "good", "clock": "good", "graph": "good", "state": "good",
        "audit log": "good", "disk": "good", "device": "good", "privacy": "mind", "port": "good", "peer bee": "mind",
    }  # fmt: skip


def test_preflight_changes_nothing_in_the_ledger(site: Consortium) -> None:
    """It is how people try a change; one of the budget counts from the next start on."""
    (site.site("ant") / "federation.toml").write_text(toml_of(8))
    config = NodeConfig.load(site.config("ant"))
    path = Path(str(config.federation.privacy.ledger)) / "ant.sqlite"
    path.parent.mkdir(parents=True)
    with Ledger.open(path, graph="ant", budgets=budgets(config.federation)) as ledger:
        assert looked(site.config("ant"))["privacy"].verdict == "good"
        (site.site("ant") / "federation.toml").write_text(toml_of(80))
        found = looked(site.config("ant"))["privacy"]
        assert (found.verdict, "from the next start on; so far ε 8" in found.sentence) == ("mind", True)
        assert [budget.epsilon for budget in ledger.budgets] == [8.0]


def toml_of(epsilon: float) -> str:
    return f'[privacy]\nmode = "dp"\nepsilon = {epsilon}\n[train]\noptimizer = "sgd"\n'


def test_preflight_says_what_is_wrong(site: Consortium) -> None:
    folder = site.site("ant")
    site.write("ant", name="eel")
    assert "it is ant's" in looked(site.config("ant"))["certificate"].sentence
    site.write("ant", graph="elsewhere")
    assert looked(site.config("ant"))["graph"].verdict == "bad"
    site.write("ant", listne="x")
    assert "did you mean listen" in looked(site.config("ant"))["configuration"].sentence
    site.write("ant", rehearsal=True)
    assert looked(site.config("ant"))["rehearsal"].verdict == "mind"
    (folder / "federation.toml").write_text('[train]\ndevice = "cuda"\n')
    assert "no GPU" in looked(site.config("ant"))["device"].sentence
    (folder / "federation.toml").write_text('decide = "strict"\n')
    assert "as a simulation does" in looked(site.config("ant"))["configuration"].sentence
    (folder / "federation.toml").write_text("")
    later = time.time() + 7200
    os.utime(folder / "consortium.json", (later, later))
    assert looked(site.config("ant"))["clock"].verdict == "bad"


def test_preflight_tells_a_port_that_is_no_nodes(site: Consortium) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        site.addresses["bee"] = f"127.0.0.1:{other.getsockname()[1]}"
        site.write_peers("ant", {"bee": {}})
        look = looked(site.config("ant"))["peer bee"]
    assert look.verdict == "bad"
    assert "not as a node does" in look.sentence


def test_preflight_tells_what_a_running_peer_would_refuse(running: Consortium) -> None:
    text = (running.site("bee") / "federation.toml").read_text()
    (running.site("bee") / "federation.toml").write_text(text.replace('share = "both"', 'share = "entities"'))
    try:
        look = looked(running.config("bee"))["peer cat"]
    finally:
        (running.site("bee") / "federation.toml").write_text(text)
    assert look.verdict == "bad"
    assert "it refuses (terms): share is both here and entities at bee" in look.sentence
