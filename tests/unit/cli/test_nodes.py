"""A node from its operator's side: what is shown of it, its log and its audit log, running or not."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fkge.cli.exit_codes import NODE, Misuse
from fkge.cli.nodes import Node, audit_log, commands, status_tables
from fkge.errors import LedgerError, NodeError, SettingsError
from fkge.node.ops.audit_log import AuditLog
from fkge.node.ops.logs import Log
from tests.unit.cli.commands import answer, typed


def status(**changes: Any) -> Any:
    """Of a node that has just begun; see the tests of its socket for one that is long at work."""
    return {
        "name": "clinic", "life": 1, "pid": 4711, "version": "0.9", "time": 1000.0, "started": 990.0,
        "state": "training", "since": 995.0, "epoch": None, "epochs": None, "validation_mrr": None,
        "privacy": "none", "spent": [], "peers": [], "audit": {"entries": 1, "head": "ab" * 32}, **changes,
    }  # fmt: skip


def peer(**changes: Any) -> dict[str, Any]:
    return {
        "name": "genes", "state": "joined", "since": 900.0, "shared": 1200, "exchanges": 7, "bytes_in": 1_500_000,
        "bytes_out": 0, "heard": 999.0, "reason": None, **changes,
    }  # fmt: skip


def shown(found: Any) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    for table in status_tables(found):
        console.print(table)
    return console.export_text()


def test_a_node_that_knows_nothing_yet_is_shown() -> None:
    text = shown(status())
    assert "training, for 5 s" in text
    assert "start 1, 10 s ago; process 4711, fkge 0.9" in text
    assert "none is counted: what is sent has no guarantee" in text
    assert "None" not in text
    assert "peers" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3.0, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60.0, "1 min"), (3599.0, "59 min"), (3600.0, "1 h 0 min"),
     (86_399.0, "23 h 59 min"), (90_000.0, "1 d 1 h"), (40 * 86_400.0, "40 d 0 h")],
)  # fmt: skip
def test_times_are_spans_in_two_units(seconds: float, text: str) -> None:
    (line,) = (line for line in shown(status(since=1000.0 - seconds)).splitlines() if "state" in line)
    assert line.strip(" │").endswith(f"training, for {text}")


def test_what_was_spent_is_shown_with_and_without_a_limit() -> None:
    spent = {"unit": "triple", "relation": "add or remove", "epsilon": 8.0, "spent": 1.25, "delta": 1e-5}
    text = shown(status(spent=[spent, {**spent, "epsilon": None, "spent": None}]))
    assert "1.25 of 8, at δ 1e-05, for one triple, add or remove" in text
    assert "∞ of no limit" in text
    assert "none is counted" not in text


def test_peers_of_every_state_and_why_some_are_away() -> None:
    away = peer(name="shop", state="refused", since=None, shared=None, heard=None, reason="budget\x1b[31m spent")
    text = shown(status(peers=[peer(), away, peer(name="odd", state="a state of a later version")]))
    assert "1,200" in text
    assert "1.5 MB" in text
    assert "1 s ago" in text
    assert "never" in text
    assert "a state of a later version" in text
    assert "shop: budget" in text
    assert "\x1b[31m" not in text.split("shop: ")[-1]  # a peer's words do not colour the screen


def test_where_a_node_is(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    with pytest.raises(NodeError, match=r"no such file\. Name a node's file with --config, or its folder with --state"):
        _ = Node(config).folder
    config.write_text('name = "clinic"\n')
    assert Node(config).folder == tmp_path / "state"
    config.write_text('state = "elsewhere"\n')
    assert Node(config).folder == tmp_path / "elsewhere"
    assert Node(config, Path("given")).folder == Path("given")
    config.write_text("state = 3\n")
    with pytest.raises(NodeError, match="state is not the path of a folder"):
        _ = Node(config).folder


@pytest.mark.parametrize("command", ["status", "pause", "resume", "stop"])
def test_a_node_that_does_not_run_is_told(command: str, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match=str(tmp_path)):
        typed(commands, command, "--state", tmp_path)


# -- its log -----------------------------------------------------------------------------------------


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    with Log(tmp_path / "node.log") as log:
        log.know("genes", "shop")
        log.info("peer connected", peer="genes")
        log.warning("refused", peer="shop", reason="clock")
        log.info("node stopped")
    return tmp_path


def test_the_last_lines_of_a_log_by_level_and_peer(logged: Path) -> None:
    def lines(*words: object) -> list[str]:
        return typed(commands, "log", "--state", logged, *words).stdout.splitlines()

    assert [line.split()[-1] for line in lines("-n", 1)] == ["stopped"]
    assert len(lines()) == 3
    assert lines("-n", 0) == []
    assert ["shop" in line for line in lines("--level", "warning")] == [True]
    assert ["genes" in line for line in lines("--peer", "genes")] == [True]
    told = [json.loads(line) for line in lines("--json")]
    assert [record["event"] for record in told] == ["peer connected", "refused", "node stopped"]


def test_an_unknown_level_is_misuse(logged: Path) -> None:
    with pytest.raises(Misuse, match="a level is debug, info, warning, error"):
        typed(commands, "log", "--state", logged, "--level", "loud")


# -- its audit log -----------------------------------------------------------------------------------


@pytest.fixture
def audited(tmp_path: Path) -> Path:
    """The state folder of a node whose audit log has five entries."""
    with AuditLog.open(tmp_path / "audit", "clinic") as log:
        for to, what, protection, size in (
            ("genes", "Update", "DP-SGD", 100), ("genes", "Update", "DP-SGD", 50), ("shop", "Keys", "none", 7),
        ):  # fmt: skip
            log.left(to, what, bytes(size), protection=protection, price=None, session=1)
        log.note("refused", peer="shop", reason="clock")
    return tmp_path


def test_totals_are_of_all_and_entries_the_last_ones(audited: Path) -> None:
    found = answer(audit_log, "show", audited / "audit", "-n", 2)
    assert (found["count"], [entry["event"] for entry in found["entries"]]) == (5, ["left", "refused"])
    assert found["totals"] == [
        {"to": "genes", "protection": "DP-SGD", "messages": 2, "bytes": 150},
        {"to": "shop", "protection": "none", "messages": 1, "bytes": 7},
    ]
    text = typed(audit_log, "show", audited / "audit", "-n", 2).stdout
    assert "the last 2 of 5" in text


@pytest.mark.parametrize(
    ("words", "count"),
    [(("--peer", "shop"), 2), (("--peer", "nobody"), 0), (("--what", "Update"), 2), (("--what", "refused"), 1),
     (("--since", "1h"), 5), (("--since", "0s"), 0)],
)  # fmt: skip
def test_entries_are_chosen_by_peer_kind_and_time(audited: Path, words: tuple[str, ...], count: int) -> None:
    assert answer(audit_log, "show", audited, *words)["count"] == count  # the state folder does, too


@pytest.mark.parametrize("hours", [-12, 0, 12])
def test_a_time_may_be_of_any_zone(audited: Path, hours: int) -> None:
    zone = datetime.now(UTC) + timedelta(hours=hours)
    offset = f"{'+' if hours >= 0 else '-'}{abs(hours):02}:00"
    for minutes, count in ((-5, 5), (5, 0)):
        text = f"{zone + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S}{offset}"
        assert answer(audit_log, "show", audited, "--since", text)["count"] == count


def test_what_is_no_time_or_no_head_is_misuse(audited: Path) -> None:
    for text in ("yesterday", "2 h", "-1h", "2026-13-01"):
        with pytest.raises(Misuse, match="neither a span"):
            typed(audit_log, "show", audited, "--since", text)
    for head in ("", "ab", "zz" * 32):
        with pytest.raises(Misuse, match="64 hexadecimal digits"):
            typed(audit_log, "verify", audited, "--head", head)


def test_a_sound_log_is_told_with_its_head_and_must_contain_an_earlier_one(audited: Path) -> None:
    found = answer(audit_log, "verify", "--state", audited)
    assert (found["sound"], found["first"], found["last"]) == (True, 1, 5)
    assert f"head {found['head']}" in typed(audit_log, "verify", audited, "--head", found["head"].upper()).stdout
    with pytest.raises(LedgerError):
        typed(audit_log, "verify", audited, "--head", "11" * 32)


def test_half_a_line_is_told_and_an_altered_one_refused(audited: Path) -> None:
    (path,) = (audited / "audit").glob("audit-*.log")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq": 6')
    assert "Its last line is incomplete (9 bytes)" in typed(audit_log, "verify", audited).stdout
    path.write_bytes(whole.replace(b'"bytes": 100', b'"bytes": 101').replace(b'"bytes":100', b'"bytes":101'))
    assert path.read_bytes() != whole
    with pytest.raises(LedgerError):
        typed(audit_log, "show", audited)


# -- a node that starts ------------------------------------------------------------------------------


def test_a_rehearsal_and_a_score_need_each_other(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs the extra node")
    (tmp_path / "federation.toml").write_text("")
    (tmp_path / "peers.toml").write_text("")
    for rehearsal, words in (("true", ()), ("false", ("--score", tmp_path / "tape"))):
        (tmp_path / "node.toml").write_text(f'name = "ant"\ngraph = "graph"\nrehearsal = {rehearsal}\n')
        with pytest.raises(SettingsError, match="rehearsal = true and --score need each other"):
            typed(commands, "node", "--config", tmp_path / "node.toml", *words)
    assert not (tmp_path / "state").exists()


def test_a_preflight_that_finds_something_bad_has_a_code(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs the extra node")
    done = typed(commands, "preflight", "--config", tmp_path / "node.toml", "--json")
    assert done.exit_code == NODE
    told = json.loads(done.stdout)
    assert (told["good"], told["found"][0]["what"]) == (False, "configuration")
    assert "✗ configuration" in typed(commands, "preflight", "--config", tmp_path / "node.toml").stdout
