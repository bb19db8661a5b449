"""The audit log: what is in it stays in it, and whoever changes it is found out."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fkge.cli import app
from fkge.errors import LedgerError, NodeError
from fkge.node.ops.audit_log import AuditLog, entries, verify
from fkge.privacy.tamper_evident import GENESIS


def leave(log: AuditLog, count: int, to: str = "genes") -> None:
    for session in range(count):
        log.left(
            to=to, what="Update", body=bytes(100), protection="none", price="epoch 3", session=session
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 3 files that was closed: 1 opened, 20 left, 2 continues."""
    with AuditLog.open(tmp_path / "audit", "clinic", file_bytes=2400) as log:
        leave(log, 20)
    assert len(list((tmp_path / "audit").glob("audit-*.log"))) == 3
    return tmp_path / "audit"


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_an_entry_is_complete_and_written_at_once(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path, "clinic") as log:
        log.left(
            to="genes", what="Update", body=bytes(7), protection="none: rows", price=None, session=4
        )  # fmt: skip
        told = [json.loads(line) for line in lines_of(tmp_path / "audit-000001.log")]
        assert told[0]["event"] == "opened"
        assert told[0]["node"] == "clinic"
        wanted = {
            "seq": 2, "event": "left", "to": "genes", "what": "Update", "bytes": 7, "protection": "none: rows",
            "digest": hashlib.sha256(bytes(7)).hexdigest(), "price": None, "session": 4, "chain": log.head,
        }  # fmt: skip
        assert {key: told[1][key] for key in wanted} == wanted
        assert set(told[1]) == {*wanted, "time"}


@given(
    texts=st.lists(st.text(), min_size=4, max_size=4),
    noted=st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.booleans())),
)
def test_any_text_can_be_written_and_read_again(
    texts: list[str], noted: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    fields = {key: value for key, value in noted.items() if key not in ("seq", "time", "event", "chain", "self")}
    with AuditLog.open(folder, texts[0]) as log:
        log.left(to=texts[1], what=texts[2], body=b"x", protection=texts[3], price=texts[0], session=0)
        log.note("noted", **fields)
    assert verify(folder).entries == 3
    first, left, note = entries(folder)
    assert (first["node"], left["to"], left["what"], left["protection"]) == tuple(texts)
    assert {key: note[key] for key in fields} == fields


def test_reserved_names_are_refused(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path, "clinic") as log:
        with pytest.raises(ValueError, match="its own chain"):
            log.note("life", chain="x")
        with pytest.raises(ValueError, match=r"by left\(\)"):
            log.note("left", to="genes")
        assert log.entries == 0


def test_a_log_continues_over_files_and_restarts(folder: Path) -> None:
    before = verify(folder)
    assert (before.entries, before.first, before.last, before.sealed) == (23, 1, 23, True)
    with AuditLog.open(folder, "clinic", file_bytes=2400) as log:
        assert (log.entries, log.head) == (23, before.head)
        log.note("life", number=2)
        leave(log, 10)
    after = verify(folder, head=before.head)
    assert after.last > 33
    assert [entry["seq"] for entry in entries(folder)] == list(range(1, after.last + 1))


def test_a_file_can_be_checked_by_itself(folder: Path) -> None:
    found = verify(folder / "audit-000002.log")
    assert found.first > 1
    assert found.last == found.first + found.entries - 1
    assert verify(folder / "audit-000001.log").last == found.first - 1
    lines = lines_of(folder / "audit-000002.log")
    (folder / "audit-000002.log").write_bytes(b"".join([*lines[:3], *lines[4:]]))
    with pytest.raises(LedgerError, match=r"audit-000002\.log:4: entry"):
        verify(folder / "audit-000002.log")


def altered(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[3].replace(b'"bytes":100', b'"bytes":10'), *lines[4:]]


def removed(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], *lines[4:]]


def reordered(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[4], lines[3], *lines[5:]]


def repeated(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], lines[2], *lines[3:]]


def babbled(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], b"{}\n", *lines[3:]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (altered, "entry 4 was altered"),
        (removed, "entry 5 stands where 4 is due; entries were removed"),
        (reordered, "entry 5 stands where 4 is due"),
        (repeated, "entry 3 stands where 4 is due; it was moved or inserted"),
        (babbled, "is no line of an audit log"),
    ],
)
def test_a_change_is_found_at_its_line(folder: Path, change: Callable[[list[bytes]], list[bytes]], says: str) -> None:
    file = folder / "audit-000001.log"
    file.write_bytes(b"".join(change(lines_of(file))))
    with pytest.raises(LedgerError, match=rf"audit-000001\.log:4: {says}"):
        verify(folder)


@given(data=st.data())
def test_any_changed_byte_is_found(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("log")
    with AuditLog.open(folder, "clinic") as log:
        leave(log, 3)
    file = folder / "audit-000001.log"
    whole = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    file.write_bytes(whole)
    with pytest.raises(LedgerError):
        verify(folder)


def test_a_missing_file_is_detected(folder: Path) -> None:
    (folder / "audit-000002.log").unlink()
    with pytest.raises(LedgerError, match=r"audit-000002\.log: is gone"):
        verify(folder)


def test_a_cut_off_end_is_detected(folder: Path) -> None:
    file = folder / "audit-000003.log"
    file.write_bytes(b"".join(lines_of(file)[:-1]))
    with pytest.raises(LedgerError, match=r"cut off: its anchor .* has seen 23 records, it holds 22"):
        verify(folder)
    with pytest.raises(LedgerError, match="its end was cut off"):
        AuditLog.open(folder, "clinic")
    file.unlink()
    with pytest.raises(LedgerError, match=r"its anchor .* has seen 23"):
        verify(folder)
    with pytest.raises(LedgerError, match=r"audit-000003\.log: is gone"):
        AuditLog.open(folder, "clinic")


def test_an_older_log_with_its_anchor_is_detected_by_a_kept_head(folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    early = verify(old).head
    with AuditLog.open(folder, "clinic") as log:
        leave(log, 5)
        late = log.head
    assert verify(folder, head=early).entries == 28
    assert verify(old, head=early).entries == 23
    assert verify(old, head=GENESIS).entries == 23
    with pytest.raises(LedgerError, match=f"never came by the head {late}"):
        verify(old, head=late)


def test_entries_inserted_after_closing_are_detected(folder: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    shutil.copytree(folder, longer)
    with AuditLog.open(longer, "clinic") as log:
        leave(log, 1)
    shutil.copy(longer / "audit-000003.log", folder)
    with pytest.raises(LedgerError, match="entry 24 was inserted after the log was closed"):
        verify(folder)
    with pytest.raises(LedgerError, match="entry 24 was inserted after the log was closed"):
        AuditLog.open(folder, "clinic")


def test_an_anchor_is_sealed(folder: Path) -> None:
    anchor = folder / "audit.anchor"
    file = folder / "audit-000003.log"
    told = json.loads(anchor.read_bytes())
    lines = lines_of(file)
    file.write_bytes(b"".join(lines[:-1]))  # a whole history, one entry shorter
    told |= {"entries": 22, "head": json.loads(lines[-2])["chain"], "offset": file.stat().st_size}
    anchor.write_text(json.dumps(told))
    with pytest.raises(LedgerError, match=r"audit\.anchor: was altered"):
        verify(folder)
    with pytest.raises(LedgerError, match=r"audit\.anchor: was altered"):
        AuditLog.open(folder, "clinic")
    (folder / "audit.key").unlink()
    assert not verify(folder).sealed  # nobody can tell without the key
    with pytest.raises(LedgerError, match=r"key .* is missing"):
        AuditLog.open(folder, "clinic")


def test_a_lost_or_damaged_anchor_is_refused(folder: Path) -> None:
    anchor = folder / "audit.anchor"
    anchor.write_text("{}")
    for open_it in (verify, lambda place: AuditLog.open(place, "clinic")):
        with pytest.raises(LedgerError, match=r"audit\.anchor is damaged"):
            open_it(folder)
    anchor.unlink()
    for open_it in (verify, lambda place: AuditLog.open(place, "clinic")):
        with pytest.raises(LedgerError, match=r"anchor .*audit\.anchor is lost"):
            open_it(folder)


def test_a_log_belongs_to_one_node_and_to_one_process(folder: Path) -> None:
    with pytest.raises(LedgerError, match="of node 'clinic', not of 'shop'"):
        AuditLog.open(folder, "shop")
    with AuditLog.open(folder, "clinic"), pytest.raises(NodeError, match="another process writes this"):
        AuditLog.open(folder, "clinic")
    AuditLog.open(folder, "clinic").close()


def test_a_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "audit.key").chmod(0o640)
    with pytest.raises(LedgerError, match=r"chmod 600 audit\.key"):
        AuditLog.open(folder, "clinic")


_WRITER = """
import sys
from pathlib import Path
from fkge.node.ops.audit_log import AuditLog
log = AuditLog.open(Path(sys.argv[1]), "clinic", file_bytes=20000)
for session in range(10**9):
    log.left(to="genes", what="Update", body=b"x", protection="none", price=None, session=session)
    if session % 100 == 0:
        print(session, flush=True)
"""


def test_a_killed_process_loses_no_line_it_has_written(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = int(line)
            if told >= 500:
                assert verify(tmp_path).last > 500  # also while it writes
                process.kill()
                break
    assert process.returncode == -signal.SIGKILL
    found = verify(tmp_path)
    assert max(entry["session"] for entry in entries(tmp_path) if entry["event"] == "left") >= told
    with AuditLog.open(tmp_path, "clinic") as log:
        assert log.entries - bool(found.torn) == found.last
        log.note("life", number=2)
    assert verify(tmp_path, head=found.head).last > found.last


def crashed(folder: Path) -> None:
    """Leave `folder` as a process that is killed within a line does."""
    script = _WRITER.replace("10**9", "5") + "import os; os._exit(9)"
    assert subprocess.run([sys.executable, "-c", script, str(folder)], stdout=subprocess.DEVNULL).returncode == 9
    file = folder / "audit-000001.log"
    file.write_bytes(file.read_bytes()[:-40])


def test_a_torn_line_is_removed_and_recorded(tmp_path: Path) -> None:
    crashed(tmp_path)
    found = verify(tmp_path)
    assert found.last == 5
    assert found.torn > 0
    with AuditLog.open(tmp_path, "clinic") as log:
        leave(log, 1)
    told = list(entries(tmp_path))
    assert [entry["event"] for entry in told[5:]] == ["torn line cut off", "left"]
    assert told[5]["bytes"] == found.torn
    assert verify(tmp_path).torn == 0


def test_a_torn_first_line_leaves_a_usable_log(tmp_path: Path) -> None:
    crashed(tmp_path)
    file = tmp_path / "audit-000001.log"
    file.write_bytes(lines_of(file)[0][:20])
    with AuditLog.open(tmp_path, "clinic") as log:
        leave(log, 1)
    assert [entry["event"] for entry in entries(tmp_path)] == ["opened", "torn line cut off", "left"]


def test_a_crash_before_the_first_line_of_a_file_leaves_a_whole_log(folder: Path) -> None:
    (folder / "audit-000004.log").touch()
    with AuditLog.open(folder, "clinic") as log:
        leave(log, 1)
    assert verify(folder).last == 25
    assert verify(folder / "audit-000004.log").first == 24


def test_a_line_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    """A file-size limit stands for a full disk; in a process of its own, as the limit holds for all of it."""
    script = """
import sys, resource, signal
from pathlib import Path
from fkge.errors import NodeError
from fkge.node.ops.audit_log import AuditLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = AuditLog.open(Path(sys.argv[1]), "clinic")
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
try:
    while True:
        log.left(to="genes", what="Update", body=b"x", protection="none", price=None, session=0)
except NodeError as error:
    print(error)
full = log.entries
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.left(to="genes", what="Update", body=b"x", protection="none", price=None, session=0)
assert log.entries == full + 1
log.close()
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "audit-000001.log: cannot be written: File too large. What is not written down does not leave" in done.stdout
    assert verify(tmp_path).torn == 0


def test_threads_share_a_log(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path, "clinic", file_bytes=5000) as log:
        threads = [threading.Thread(target=leave, args=(log, 100, f"peer {n}")) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            log.sync()
        for thread in threads:
            thread.join()
    assert sum(entry["event"] == "left" for entry in entries(tmp_path)) == 400
    assert verify(tmp_path).last == log.entries


def test_sync_writes_the_anchor(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path, "clinic") as log:
        leave(log, 3)
        assert json.loads((tmp_path / "audit.anchor").read_bytes())["entries"] == 0
        log.sync()
        told = json.loads((tmp_path / "audit.anchor").read_bytes())
        assert (told["entries"], told["head"], told["closed"]) == (4, log.head, False)
    assert json.loads((tmp_path / "audit.anchor").read_bytes())["closed"]


def test_a_closed_log_refuses_entries(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path, "clinic")
    log.close()
    log.close()
    with pytest.raises(NodeError, match="nothing may leave"):
        leave(log, 1)


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(LedgerError, match="no audit log is here"):
            verify(place)


# -- as a person meets it ----------------------------------------------------------------------------


def fkge(*words: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    return done.exit_code, done.stdout, done.exception


def test_the_command_line_verifies(folder: Path) -> None:
    head = verify(folder).head
    state = str(folder.parent)
    code, out, _ = fkge("audit-log", "verify", "--state", state, "--head", head.upper(), "--json")
    assert code == 0
    told = json.loads(out.splitlines()[-1])
    assert (told["sound"], told["entries"], told["head"]) == (True, 23, head)
    assert "sound, entries 1 to 23" in fkge("audit-log", "verify", state)[1]
    assert isinstance(fkge("audit-log", "verify", state, "--head", "f" * 64)[2], LedgerError)
    assert "64 hexadecimal digits" in str(fkge("audit-log", "verify", state, "--head", "f")[2])
    (folder / "audit.key").unlink()
    assert "Only the chain was checked" in fkge("audit-log", "verify", state)[1]


def test_the_command_line_shows_and_adds_up(tmp_path: Path) -> None:
    with AuditLog.open(tmp_path / "audit", "clinic") as log:
        leave(log, 3)
        leave(log, 2, to="shop")
        log.left(to="shop", what="Accept", body=bytes(5), protection="public", price=None, session=9)
        log.note("refused", peer="shop", reason="\x1b[31mbudget")
    place = str(tmp_path)
    told = json.loads(fkge("audit-log", "show", place, "--json")[1])
    assert told["count"] == 8
    assert told["totals"] == [
        {"to": "genes", "protection": "none", "messages": 3, "bytes": 300},
        {"to": "shop", "protection": "none", "messages": 2, "bytes": 200},
        {"to": "shop", "protection": "public", "messages": 1, "bytes": 5},
    ]
    told = json.loads(fkge("audit-log", "show", place, "--peer", "shop", "--what", "Update", "-n", "1", "--json")[1])
    assert (told["count"], [entry["session"] for entry in told["entries"]]) == (2, [1])
    assert json.loads(fkge("audit-log", "show", place, "--since", "1h", "--json")[1])["count"] == 8
    assert json.loads(fkge("audit-log", "show", place, "--since", "2999-01-01T00:00", "--json")[1])["count"] == 0
    assert "neither a span" in str(fkge("audit-log", "show", place, "--since", "yesterday")[2])
    shown = fkge("audit-log", "show", place)[1]
    assert "reason=�[31mbudget" in shown
    assert "\x1b" not in shown


def test_files_are_for_the_node_and_its_group(folder: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 & ~0o040 for path in folder.iterdir()}
    assert modes["audit.key"] == 0o600
    assert modes["audit-000001.log"] == 0o600
    assert os.stat(folder).st_mode & 0o007 == 0
