"""Nodes in the real world: networks that break, disks that fill up, clocks that differ, files that rot, and people.

After every fault all nodes end with a result and a model, nothing was paid twice, and all logs are whole.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fkge.cli import exit_codes as exits
from fkge.errors import NodeError
from fkge.federation import FederationSettings
from fkge.node.ops import control
from fkge.node.settings import address
from fkge.privacy import Ledger
from tests.conftest import arc, tiny_federation, tiny_settings
from tests.consortium import write_graph
from tests.network.lab import Lab, skewed
from tests.network.lives import PATIENT, Lives, dp_settings
from tests.network.relay import Relay

THREE = ("ant", "bee", "cat")


def plain(**changes: Any) -> FederationSettings:
    """Without a price on anything, and long enough for something to happen on the way."""
    return tiny_settings(**{"initial_epochs": 0, "exchanges": 150, "epochs": 1, "test_every": 50, **PATIENT, **changes})


def reached(circle: Lives, name: str, epochs: int) -> bool:
    return any(line["epoch"] >= epochs for line in circle.log(name, event="epoch"))


def await_epoch(circle: Lives, epochs: int, *names: str) -> None:
    circle.wait_for(lambda: all(reached(circle, name, epochs) for name in names or circle.names))


def tell(circle: Lives, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What an operator types, about a node."""
    command = [sys.executable, "-m", "fkge", *words, "--config", str(circle.config(name))]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


# -- links that break --------------------------------------------------------------------------------


@contextmanager
def behind_a_relay(folder: Path, settings: FederationSettings, name: str, **node: Any) -> Iterator[tuple[Lives, Relay]]:
    """Three nodes, one of which others reach through a relay only. It is the last in order, so that they call it."""
    circle = Lives(folder, tiny_federation(THREE).graphs, settings, **node)
    with circle, Relay(address(circle.addresses[name])) as relay:
        circle.addresses[name] = "{}:{}".format(*relay.address)
        for other in circle.names:
            circle.write_peers(other, {peer: {} for peer in circle.names if peer != other})
        yield circle, relay


def test_a_link_that_breaks_and_heals_is_taken_up_where_it_was(tmp_path: Path) -> None:
    with behind_a_relay(tmp_path, dp_settings(exchanges=40), "cat", grace=60.0) as (circle, relay):
        circle.start_all(tapes=True)
        for epoch in (2, 5, 8):
            await_epoch(circle, epoch)
            relay.cut()
            relay.heal()
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        for name in ("ant", "bee"):
            came = [line["resumed"] for line in circle.log(name, event="peer connected", peer="cat")]
            assert came == [False] + [True] * (len(came) - 1)
            assert len(came) > 1
            assert not circle.log(name, event="exchange abandoned")
            assert circle.log("cat", event="peer connected", peer=name, resumed=True)
        for name in THREE:
            assert circle.check_nothing_twice(name, *(set(THREE) - {name}))
            assert len(circle.audit(name, "alignment")) == 2


@pytest.mark.long
def test_a_peer_that_stays_away_is_not_waited_for_and_finishes_when_it_comes_back(tmp_path: Path) -> None:
    with behind_a_relay(tmp_path, plain(), "cat", grace=0.5) as (circle, relay):
        circle.start_all()
        await_epoch(circle, 3)
        relay.cut()
        assert not circle.result("ant").exists()
        circle.await_results("ant", "bee")
        assert circle.peer("ant", "cat")["state"] != "joined"
        relay.heal()
        circle.wait_for(lambda: circle.peer("ant", "cat").get("state") == "joined")
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        assert circle.log("ant", event="peer connected", peer="cat")[-1]["resumed"] is False
        assert all(len(circle.audit(name, "life")) == 1 for name in THREE)


# -- networks, in a laboratory -----------------------------------------------------------------------


def in_laboratory(lab: Lab, folder: Path, settings: FederationSettings, **node: Any) -> Lives:
    hosts = {name: lab.host(name) for name in THREE}
    places = {name: f"{host.address}:7443" for name, host in hosts.items()}
    circle = Lives(folder, tiny_federation(THREE).graphs, settings, places, **node)
    circle.hosts = hosts
    return circle


@pytest.mark.long
@pytest.mark.parametrize("fault", ["loss", "delay"])
def test_a_bad_network_makes_it_slower_and_nothing_else(fault: str, lab: Lab, tmp_path: Path) -> None:
    slow = {"window": 10.0, "period": 10.0, "answer": 30.0}
    with in_laboratory(lab, tmp_path, dp_settings(exchanges=12, **slow), grace=60.0) as circle:
        if fault == "loss":
            for host in circle.hosts.values():
                lab.loss(host, 0.05)
        else:
            lab.delay(circle.hosts["bee"], 0.2)
        circle.start_all(tapes=True)
        circle.await_results(seconds=180)
        circle.stop_all()
        circle.check_ended()
        for name in THREE:
            assert circle.check_nothing_twice(name, *(set(THREE) - {name}))
            assert len(circle.audit(name, "life")) == 1
            assert not circle.audit(name, "refused")


@pytest.mark.long
@pytest.mark.parametrize("fault", ["cut", "silence"])
def test_who_falls_silent_is_noticed_and_the_others_go_on(fault: str, lab: Lab, tmp_path: Path) -> None:
    """Nobody is told that a cable was pulled: only the streams' own pings find out."""
    with in_laboratory(lab, tmp_path, plain(), grace=1.0) as circle:
        circle.start_all()
        await_epoch(circle, 3)
        host = circle.hosts["cat"]
        lab.cut(host) if fault == "cut" else lab.silence(host)
        assert not circle.result("ant").exists()
        circle.await_results("ant", "bee", seconds=120)
        assert circle.log("ant", event="peer lost", peer="cat")
        lab.clear(host)
        circle.await_results(seconds=120)
        circle.stop_all()
        circle.check_ended()
        assert all(len(circle.audit(name, "life")) == 1 for name in THREE)


# -- disks -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_full_disk_stops_a_node_with_a_word_and_costs_nothing(lab: Lab, tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE).graphs, dp_settings(exchanges=40)) as circle:
        disk = lab.small_disk(circle.state("cat"), 4 << 20)
        disk.chmod(0o700)
        circle.start_all(tapes=True)
        await_epoch(circle, 3)
        fill(disk / "ballast")
        assert circle.ended("cat") == exits.DISK, circle.output("cat")
        said = circle.output("cat").strip().splitlines()[-1]
        assert said.startswith("error: "), said
        circle.await_results("ant", "bee")
        (disk / "ballast").unlink()
        circle.check_whole("cat")
        circle.start("cat", "--tape", str(circle.tape("cat")))
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        assert circle.check_nothing_twice("cat", "ant", "bee")


def fill(ballast: Path) -> None:
    """Take all the room that there is."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


# -- clocks ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_clock_that_is_hours_off_is_refused_in_words(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start("ant")
        circle.start("bee", wrap=tuple(skewed([], 7200)))
        circle.wait_for(lambda: circle.peer("ant", "bee").get("state") == "refused")
        told = circle.peer("ant", "bee")["reason"]
        assert "clocks" in told
        assert "set them right" in told
        assert any(entry["reason"] == "clock" for entry in circle.audit("ant", "refused", peer="bee"))


@pytest.mark.long
def test_a_certificate_that_is_not_valid_yet_by_ones_own_clock(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start("bee", wrap=tuple(skewed([], -7200)))
        circle.await_state("bee", "waiting")
        assert circle.log("bee", event="certificate", reason="early", level="error")
        (entry,) = circle.audit("bee", "certificate")
        assert "Set the clock right" in entry["sentence"]


@pytest.mark.long
def test_a_minute_between_clocks_is_nothing(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, dp_settings()) as circle:
        circle.start("ant")
        circle.start("bee", wrap=tuple(skewed([], 60)))
        circle.await_results()
        circle.stop_all()
        circle.check_ended()


# -- files that rot ----------------------------------------------------------------------------------


def rot(path: Path) -> None:
    """Change some bytes in the middle of a file, and nothing else."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 16] = bytes(b ^ 0x55 for b in data[middle : middle + 16])
    path.unlink()  # the one before may be the same file by another name
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, dp_settings(exchanges=40)) as circle:
        circle.start_all("ant", tapes=True)
        circle.start("ant")
        circle.wait_for(lambda: circle.checkpoint("ant").with_name("checkpoint.before.safetensors").exists())
        await_epoch(circle, 5, "ant")
        circle.kill("ant")
        assert not circle.result("ant").exists()
        rot(circle.checkpoint("ant"))
        circle.start("ant")
        circle.await_results()
        circle.stop_all()
        assert circle.log("ant", event="checkpoint", reason="damaged")
        (entry,) = circle.audit("ant", "checkpoint damaged")
        assert "digest" in entry["sentence"]
        circle.check_ended("bee")
        # What had left was made again, so it was paid for again; and the plan has no room for that.
        circle.check_whole("ant")
        result = json.loads(circle.result("ant").read_text())
        assert 0 < result["epochs"] <= circle.settings.total_epochs
        with Ledger.open(circle.ledger("ant")) as ledger:
            paid = [e for e in ledger.entries() if e.kind == "paid"]
            assert ledger.charged(ledger.budgets[0]) <= 8.0
        assert len(paid) == len({e.key for e in paid}) <= circle.settings.total_epochs
        assert circle.check_nothing_twice("ant", "bee")


@pytest.mark.long
def test_both_checkpoints_damaged(tmp_path: Path) -> None:
    """There is nothing to go on from: it says so, each time, and does not begin from the beginning on the quiet."""
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start_all()
        circle.wait_for(lambda: reached(circle, "ant", 5))
        assert circle.kill("ant", signal.SIGTERM) == 0
        now = circle.checkpoint("ant")
        before = now.with_name("checkpoint.before.safetensors")
        before.write_bytes(now.read_bytes())
        rot(now)
        rot(before)
        for _ in range(2):
            circle.start("ant")
            assert circle.ended("ant") == exits.RUN, circle.output("ant")
        assert "both checkpoints are damaged" in circle.output("ant").splitlines()[-1]
        assert not circle.result("ant").exists()
        # The owner's word is needed to begin from the beginning.
        circle.start("ant", "--anew")
        circle.await_results()
        circle.stop_all()
        circle.check_ended()


# -- people ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_other_data_need_a_word_and_others_align_anew(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE).graphs, plain()) as circle:
        circle.start_all()
        await_epoch(circle, 3)
        assert circle.kill("bee", signal.SIGTERM) == 0
        write_graph(arc("bee", 10), circle.site("bee") / "graph")
        circle.start("bee")
        assert circle.ended("bee") == exits.RUN
        assert "its graph" in circle.output("bee")
        assert "--anew" in circle.output("bee")
        circle.start("bee", "--anew")
        circle.await_results()
        circle.stop_all()
        circle.check_ended()
        for name, rows in {"ant": [24, 34], "cat": [24, 24]}.items():
            assert len(circle.audit(name, "life")) == 1
            assert [entry["rows"] for entry in circle.audit(name, "aligned", peer="bee")] == rows


@pytest.mark.long
def test_who_begins_anew_has_spent_what_was_spent(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, dp_settings(exchanges=40)) as circle:
        circle.start_all()
        await_epoch(circle, 5)
        assert circle.kill("ant", signal.SIGTERM) == 0
        with Ledger.open(circle.ledger("ant")) as ledger:
            before = {e.key for e in ledger.entries() if e.kind == "paid"}
        circle.start("ant", "--anew")
        circle.await_results()
        circle.stop_all()
        circle.check_ended("bee")
        circle.check_whole("ant")
        with Ledger.open(circle.ledger("ant")) as ledger:
            paid = [e.key for e in ledger.entries() if e.kind == "paid"]
            assert ledger.charged(ledger.budgets[0]) <= 8.0
        assert before < set(paid)
        assert len(paid) == len(set(paid)) <= circle.settings.total_epochs
        result = json.loads(circle.result("ant").read_text())
        assert result["epochs"] == len(paid) - len(before)
        assert circle.audit("ant", "budget")


@pytest.mark.long
def test_a_ledger_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """Nor if everything else is: what was spent would be spent again, unseen."""
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, dp_settings()) as circle:
        circle.start_all()
        circle.await_results()
        circle.stop_all()
        shutil.rmtree(circle.ledger("ant").parent)
        for options in ((), ("--anew",), ("--anew",)):
            circle.start("ant", *options)
            assert circle.ended("ant") == exits.LEDGER
            assert "gone" in circle.output("ant")
            assert not circle.ledger("ant").exists()


@pytest.mark.long
def test_who_comes_late_joins_and_who_leaves_is_not_missed(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation((*THREE, "dog")).graphs, plain()) as circle:
        circle.write("dog", founder=False, listen="")  # it calls the others, and so meets them at once
        for name in THREE:
            peers = [other for other in circle.names if other != name]
            circle.write_peers(name, {other: {"founder": other != "dog"} for other in peers})
        circle.start_all("dog")
        await_epoch(circle, 3, *THREE)
        assert circle.kill("cat", signal.SIGTERM) == 0
        circle.start("dog")
        circle.wait_for(lambda: circle.log("ant", event="peer joined", peer="dog"))
        circle.await_results("ant", "bee", "dog")
        for name in ("ant", "bee"):
            assert len(circle.audit(name, "life")) == 1
            assert circle.audit(name, "aligned", peer="dog")
        circle.start("cat")
        circle.await_results()
        circle.stop_all()
        circle.check_ended()


@pytest.mark.long
def test_pause_resume_and_stop(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start_all()
        await_epoch(circle, 3)
        assert tell(circle, "ant", "pause").returncode == 0
        assert circle.status("ant")["state"] == "paused"
        epoch = circle.status("ant")["epoch"]
        others = len(circle.log("bee", event="epoch"))
        circle.wait_for(lambda: len(circle.log("bee", event="epoch")) > others + 1)
        assert circle.status("ant")["epoch"] <= epoch + 1
        assert not circle.result("ant").exists()
        assert tell(circle, "ant", "resume").returncode == 0
        circle.await_results()
        assert tell(circle, "ant", "stop").returncode == 0
        assert circle.ended("ant") == 0
        with pytest.raises(NodeError, match="no node runs"):
            control.call(circle.state("ant") / control.SOCKET, "status")
        circle.stop_all()
        circle.check_ended()


@pytest.mark.long
def test_a_node_that_is_stopped_while_it_pauses_goes_on_later(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start_all()
        await_epoch(circle, 3)
        control.call(circle.state("ant") / control.SOCKET, "pause")
        circle.wait_for(lambda: circle.asked("ant").get("state") == "paused")
        assert circle.kill("ant", signal.SIGTERM) == 0
        circle.start("ant")
        circle.await_results()
        circle.stop_all()
        circle.check_ended()


def test_two_processes_cannot_be_one_node(tmp_path: Path) -> None:
    with Lives(tmp_path, tiny_federation(THREE[:2]).graphs, plain()) as circle:
        circle.start("ant")
        circle.await_state("ant", "waiting")
        first = circle.processes.pop("ant")
        circle.start("ant")
        assert circle.ended("ant") == exits.NODE
        assert "another process is this node" in circle.output("ant")
        circle.processes["ant"] = first
        assert circle.status("ant")["life"] == 1
