"""A process killed anywhere between check, write, anchor, leave and send: no spend is lost, none is doubled.

SIGKILL shows what a dying process leaves. That a commit survives a power cut is SQLite's word (synchronous=FULL).
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fkge.errors import AlreadyLeft, LedgerError
from fkge.privacy import Head
from fkge.privacy.tamper_evident import Companions, canonical
from tests.unit.privacy.ledgers import TRIPLES, open_ledger, steps

# Pays, leaves, notes and sends, as an owner does; dies at the n-th time it comes by a point.
OWNER = """
import os, signal, sys
from pathlib import Path
from fkge.privacy.ledger_store import Chain
from tests.unit.privacy.ledgers import open_ledger, steps
folder, point = Path(sys.argv[1]), sys.argv[2]
passed = []
def at(self, name):
    passed.append(name)
    if "/".join(passed) == point:
        os.kill(os.getpid(), signal.SIGKILL)
ledger = open_ledger(folder)
Chain.crash_point = at
ledger.pay("a", steps(10), peer="bee"); passed.clear(); passed.append("paid"); at(ledger, "now")
passed[:] = ["l"]
ledger.leave("a", "bee", 5); passed.clear(); passed.append("left"); at(ledger, "now")
(folder / "sent").write_bytes(b"noisy"); passed.clear(); passed.append("sent"); at(ledger, "now")
passed[:] = ["n"]
ledger.note_unprotected("offer", "bee", 7)
print("lived")
"""

PAY = ("pay", "checked", "written", "committed", "anchored")
LEAVE = ("l", "leave", "written", "committed", "anchored")
NOTE = ("n", "note", "written", "committed", "anchored")


def path_to(points: tuple[str, ...], last: str) -> str:
    return "/".join(points[: points.index(last) + 1])


def die(folder: Path, point: str) -> None:
    command = [sys.executable, "-W", "error", "-c", OWNER, str(folder), point]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def anchored(folder: Path) -> int:
    return Head(**json.loads((folder / "ledger.anchor").read_bytes())).step


@pytest.mark.parametrize(
    ("point", "state", "lag"),
    [
        (path_to(PAY, "pay"), "unknown", 0),
        (path_to(PAY, "checked"), "unknown", 0),
        (path_to(PAY, "written"), "unknown", 0),
        (path_to(PAY, "committed"), "paid", 1),
        (path_to(PAY, "anchored"), "paid", 0),
        ("paid/now", "paid", 0),
        (path_to(LEAVE, "leave"), "paid", 0),
        (path_to(LEAVE, "written"), "paid", 0),
        (path_to(LEAVE, "committed"), "left", 1),
        (path_to(LEAVE, "anchored"), "left", 0),
        ("left/now", "left", 0),
        ("sent/now", "left", 0),
    ],
)
def test_opens_after_a_kill_at_any_point_of_a_payment(tmp_path: Path, point: str, state: str, lag: int) -> None:
    die(tmp_path, point)
    sent = (tmp_path / "sent").exists()
    behind = anchored(tmp_path)
    with open_ledger(tmp_path) as ledger:
        assert ledger.state("a") == state
        assert ledger.head.step == behind + lag
        assert anchored(tmp_path) == ledger.head.step
        assert not sent or state == "left"  # what was sent is in the books
        assert ledger.charged(TRIPLES) > 0 or not sent
        if state == "left":
            with pytest.raises(AlreadyLeft):
                ledger.pay("a", steps(10), peer="bee")
        else:
            ledger.pay("a", steps(10), peer="bee")
            ledger.leave("a", "bee", 5)
        assert ledger.spent(TRIPLES).count == 10  # none lost, none doubled
        ledger.verify()


@pytest.mark.parametrize(("last", "notes"), [("note", 0), ("written", 0), ("committed", 1), ("anchored", 1)])
def test_opens_after_a_kill_while_counting_unprotected_messages(tmp_path: Path, last: str, notes: int) -> None:
    die(tmp_path, path_to(NOTE, last))
    with open_ledger(tmp_path) as ledger:
        assert ledger.head.notes == sum(tally.notes for tally in ledger.unprotected.values()) == notes
        assert anchored(tmp_path) == ledger.head.step
        ledger.note_unprotected("offer", "bee", 7)
        assert ledger.head.notes == notes + 1


CREATOR = """
import os, signal, sys
from pathlib import Path
from fkge.privacy.ledger_store import Chain
from tests.unit.privacy.ledgers import open_ledger
Chain.crash_point = lambda self, name: os.kill(os.getpid(), signal.SIGKILL)
open_ledger(Path(sys.argv[1]))
"""


def test_opens_after_a_kill_while_creating_the_ledger(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", CREATOR, str(tmp_path)]
    assert subprocess.run(command, cwd=Path(__file__).parents[3]).returncode == -signal.SIGKILL
    assert anchored(tmp_path) == 0
    with open_ledger(tmp_path) as ledger:
        assert [e.kind for e in ledger.entries()] == ["opened", "budgets"]


@pytest.mark.parametrize("made", ["anchor", "key", "empty database"])
def test_opens_after_a_kill_before_the_database_exists(tmp_path: Path, made: str) -> None:
    (tmp_path / "ledger.anchor").write_bytes(canonical(Head().to_json()))
    if made != "anchor":
        (tmp_path / "ledger.key").write_bytes(bytes(32))
        (tmp_path / "ledger.key").chmod(0o600)
    if made == "empty database":
        db = sqlite3.connect(tmp_path / "ledger")
        db.execute("PRAGMA journal_mode=WAL")
        db.close()
        assert (tmp_path / "ledger").stat().st_size > 0
    with open_ledger(tmp_path) as ledger:
        ledger.pay("a", steps(), peer=None)
    with open_ledger(tmp_path) as ledger:
        assert ledger.state("a") == "paid"


def test_an_error_between_commit_and_anchor_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(tmp_path) as ledger:

        def full(self: Companions[Head], head: Head) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Companions, "write_anchor", full)
            for _ in range(2):  # the second finds the anchor behind and may not go on before it is mended
                with pytest.raises(LedgerError, match="No space left"):
                    ledger.pay("a", steps(), peer=None)
            with pytest.raises(LedgerError, match="No space left"):
                ledger.pay("b", steps(), peer=None)
        assert ledger.state("a") == "paid"
        assert ledger.state("b") == "unknown"
        ledger.pay("a", steps(), peer=None)
        assert ledger.spent(TRIPLES).count == 10
