"""The log: what happened is in it, and nothing that anybody must not read."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fkge.cli import app
from fkge.errors import GraphError, NodeError
from fkge.node import frames_pb2 as pb
from fkge.node.ops.logs import FLAGS, KEPT, KNOWN, NUMBERS, WORDS, Log, Tail, render
from fkge.node.state import NodeState


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_line_says_what_happened(tmp_path: Path) -> None:
    with Log(tmp_path / "node.log") as log:
        log.know("genes", "genes.example:7443")
        log.info("peer connected", peer="genes", address="genes.example:7443", attempt=3, resumed=False)
        log.debug("epoch", epoch=1)
        log.warning("peer lost", peer="genes", reason="timeout", seconds=1.23456789, state=None)
    first, second = records(tmp_path / "node.log")
    assert first.pop("time") <= second.pop("time")
    assert first == {
        "level": "info", "event": "peer connected", "peer": "genes", "address": "genes.example:7443", "attempt": 3,
        "resumed": False,
    }  # fmt: skip
    assert second == {
        "level": "warning", "event": "peer lost", "peer": "genes", "reason": "timeout", "seconds": 1.23457,
        "state": None,
    }  # fmt: skip


NAMES = sorted({*NUMBERS, *FLAGS, *KNOWN, *WORDS, "error", "place"} - {"event"})
LISTED = frozenset().union(*WORDS.values())
secrets = st.text(min_size=6).filter(lambda text: text not in LISTED).map(lambda text: f"geheim{text}")


@given(secret=secrets, name=st.sampled_from(NAMES), unlisted=st.text(min_size=1).filter(str.isidentifier))
@example(secret="Acetylsalicylsäure", name="reason", unlisted="drug")
@example(secret="-----BEGIN PRIVATE KEY-----\nMC4CAQ", name="fingerprint", unlisted="key")
def test_a_label_or_a_key_never_comes_out(
    secret: str, name: str, unlisted: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "node.log"
    raw = secret.encode("utf-8", "backslashreplace")
    if unlisted in NAMES:
        unlisted = "unlisted"
    with Log(path) as log:
        log.know("genes")
        for value in (secret, raw, [secret], {secret: secret}, GraphError("x", secret, ""), int.from_bytes(raw) << 64):
            log.write("info", "aligned", **{name: value, unlisted: value})
        log.write("info", secret)
        log.write("info", "aligned", **{secret: 1})
        logger = logging.Logger("grpc._cython", logging.DEBUG)
        logger.addHandler(handler := log.listen())
        logger.warning("refused %s", secret)
        try:
            raise ValueError(secret)
        except ValueError:
            logger.exception(secret)
        logger.removeHandler(handler)
    text = path.read_text("utf-8")
    spelt = json.dumps(secret, ensure_ascii=False)[1:-1]
    assert secret not in text
    assert spelt not in text
    assert raw.hex() not in text
    assert str(int.from_bytes(raw)) not in text
    assert len(text.splitlines()) == 10  # and all of it was said


def test_what_is_left_out_is_counted_and_what_is_replaced_has_its_type(tmp_path: Path) -> None:
    with Log(tmp_path / "node.log") as log:
        log.info("aligned", peer="mallory", label="aspirin", vector=[1.0], rows="aspirin", reason=b"key")
        log.info("aspirin", epoch=float("nan"), accepted=1, rows=True, count=10**40)
        log.error("node failed", error=ValueError("aspirin"), errno=28)
    told = records(tmp_path / "node.log")
    for record in told:
        del record["time"]
    assert told == [
        {"level": "info", "event": "aligned", "peer": "(str)", "rows": "(str)", "reason": "(bytes)", "left_out": 2},
        {"level": "info", "event": "(str)", "epoch": "(float)", "accepted": "(int)", "rows": True, "count": "(int)"},
        {"level": "error", "event": "node failed", "error": "ValueError", "errno": 28},
    ]


def test_every_state_and_every_reason_of_the_protocol_is_listed(tmp_path: Path) -> None:
    with Log(tmp_path / "node.log") as log:
        for state, reason in product(NodeState, pb.Reason.keys()):
            log.info("peer refused", state=str(state), reason=reason.lower())
        log.info("tea time", reason="thirst")
    *listed, other = records(tmp_path / "node.log")
    assert {(r["state"], r["reason"]) for r in listed} == {
        (str(state), reason.lower()) for state, reason in product(NodeState, pb.Reason.keys())
    }
    assert (other["event"], other["reason"]) == ("(str)", "(str)")


def test_libraries_are_heard_by_name_and_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("grpc")
    with Log(tmp_path / "node.log") as log:
        handler = log.listen("grpc")
        try:
            logging.getLogger("grpc.aio").error("could not reach %s", "secret.example")
            logging.getLogger("grpc.aio").info("nothing of interest")
        finally:
            logger.removeHandler(handler)
            logger.propagate = True
    (told,) = records(tmp_path / "node.log")
    assert (told["level"], told["event"], told["library"], told["place"]) == ("error", "library", "grpc", "test_logs")
    assert isinstance(told["line"], int)
    assert "secret" not in capsys.readouterr().err


def test_logs_are_put_aside_and_nothing_is_lost_on_the_way(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    tail = Tail(path)
    with Log(path, file_bytes=1000) as log:
        log.info("epoch", epoch=0)
        seen = tail.last(100)
        for epoch in range(1, 80):
            log.info("epoch", epoch=epoch)
            if epoch in (5, 45, 46, 79):
                seen += tail.more()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["node.log", *(f"node.log.{n}" for n in range(1, KEPT + 1))]
    assert all(p.stat().st_size <= 1000 for p in tmp_path.iterdir())
    assert [record["epoch"] for record in seen] == list(range(80))
    assert [record["epoch"] for record in Tail(path).last(30)] == list(range(50, 80))


def test_a_tail_leaves_out_what_is_not_asked_for_and_what_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    with Log(path, level="debug") as log:
        log.know("genes", "shop")
        log.debug("state", peer="genes")
        log.warning("peer lost", peer="shop")
        log.error("peer refused", peer="genes")
    with path.open("ab") as f:
        f.write(b'[1]\nnonsense\n{"time": "half a li')
    assert [r["event"] for r in Tail(path, level="warning").last(9)] == ["peer lost", "peer refused"]
    assert [r["event"] for r in Tail(path, peer="genes").last(9)] == ["state", "peer refused"]
    assert Tail(path).last(0) == []
    with Log(path) as log:  # a torn line takes no other with it
        log.info("node started")
    assert [r["event"] for r in Tail(path).last(1)] == ["node started"]
    with pytest.raises(NodeError, match="no log is here"):
        Tail(tmp_path / "none.log").last(1)


def test_a_full_disk_loses_lines_and_says_so_later(tmp_path: Path) -> None:
    """A file-size limit stands for it; in a process of its own, as the limit holds for all of it."""
    script = """
import sys, resource, signal
from pathlib import Path
from fkge.node.ops.logs import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for epoch in range(100):
    log.info("epoch", epoch=epoch)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.info("epoch", epoch=100)
log.info("epoch", epoch=101)
"""
    path = tmp_path / "node.log"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    told = Tail(path).last(1000)
    assert told[-2]["epoch"] == 100
    assert told[-2]["lost"] == 100 - (len(told) - 2)
    assert "lost" not in told[-1]


def test_threads_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    with Log(path, file_bytes=5000) as log:

        def work() -> None:
            for epoch in range(50):
                log.info("epoch", epoch=epoch)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(Tail(path).last(1000)) == 200


def test_people_read_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(tmp_path / "node.log", echo=True) as log:
        log.know("genes")
        log.warning("peer lost", peer="genes", reason="timeout")
    assert capsys.readouterr().err.endswith("Z WARNING peer lost  peer=genes reason=timeout\n")
    assert "\x1b" not in render({"time": "t", "level": "info", "event": "\x1b[2J"})


def test_a_log_that_cannot_be_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NodeError, match="the log cannot be written"):
        Log(tmp_path / "file" / "node.log")


def test_the_command_line_shows_it(tmp_path: Path) -> None:
    with Log(tmp_path / "state" / "node.log") as log:
        log.know("genes", "shop")
        for epoch in range(30):
            log.info("epoch", epoch=epoch)
        log.warning("peer lost", peer="genes", reason="timeout")
        log.warning("peer lost", peer="shop", reason="timeout")
    config = tmp_path / "node.toml"
    config.write_text('name = "clinic"\n')

    def fkge(*words: str) -> list[str]:
        done = CliRunner().invoke(app, ["log", *words], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    assert len(fkge("--config", str(config))) == 20
    (line,) = fkge("--config", str(config), "--level", "warning", "--peer", "genes")
    assert line.endswith("WARNING peer lost  peer=genes reason=timeout")
    (line,) = fkge("--state", str(tmp_path / "state"), "-n", "1", "--json")
    assert json.loads(line)["peer"] == "shop"
    done = CliRunner().invoke(app, ["log", "--state", str(tmp_path / "state"), "--level", "loud"])
    assert "a level is debug, info" in str(done.exception)
    done = CliRunner().invoke(app, ["log", "--config", str(tmp_path / "other.toml")])
    assert "Name a node's file with --config" in str(done.exception)


def test_the_command_line_follows(tmp_path: Path) -> None:
    with Log(tmp_path / "node.log") as log:
        log.info("node started")
        words = [sys.executable, "-m", "fkge", "log", "--state", str(tmp_path), "--follow", "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "node started"
            log.info("epoch", epoch=1)
            assert json.loads(process.stdout.readline())["epoch"] == 1
            process.terminate()
