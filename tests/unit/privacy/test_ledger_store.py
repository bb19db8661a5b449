"""The chain of a ledger: changes made behind its back are detected, each with its own message."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fkge.errors import LedgerError
from fkge.privacy import Head, Ledger
from tests.unit.privacy.ledgers import TRIPLES, open_ledger, steps, votes


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """opened, budgets, paid a, left a, paid b, paid c; two tallies."""
    folder = tmp_path_factory.mktemp("sound")
    with open_ledger(folder) as ledger:
        ledger.pay("a", steps(10), peer="bee")
        ledger.leave("a", "bee", 100)
        ledger.pay("b", votes(5), peer="cat")
        ledger.note_unprotected("offer", "bee", 10)
        ledger.note_unprotected("offer", "cat", 10)
        ledger.pay("c", steps(20), peer="bee")
    assert not (folder / "ledger-wal").exists()
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "copy")


def on_disk(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / "ledger")
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


SWAP = (
    "UPDATE rows SET number = -3 WHERE number = 3",
    "UPDATE rows SET number = 3 WHERE number = 5",
    "UPDATE rows SET number = 5 WHERE number = -3",
)
FEWER = "UPDATE rows SET body = replace(body, '\"count\":10', '\"count\":11') WHERE number = 3"
LAST_BUT_ONE = "(SELECT hash FROM rows WHERE number = 5)"

CHANGES: dict[str, tuple[tuple[str, ...], str]] = {
    "a count": ((FEWER,), "entry 3 was altered"),
    "a kind": (("UPDATE rows SET kind = 'left' WHERE number = 5",), "entry 5 was altered"),
    "a hash": (("UPDATE rows SET hash = upper(hash) WHERE number = 4",), "entry 4 was altered"),
    "a blob for a text": (("UPDATE rows SET body = CAST(body AS BLOB) WHERE number = 4",), "entry 4 was altered"),
    "the last row": (("UPDATE rows SET body = '{}' WHERE number = 6",), "entry 6 was altered"),
    "the budgets": (("UPDATE rows SET body = replace(body, '4.0', '9.0') WHERE number = 2",), "entry 2 was altered"),
    "two rows swapped": (SWAP, "entry 3 was altered, moved or inserted"),
    "a row taken out": (("DELETE FROM rows WHERE number = 4",), "entry 5 stands where 4 is due; entries were removed"),
    "the first taken out": (("DELETE FROM rows WHERE number = 1",), "entry 2 stands where 1 is due"),
    "the last cut off": (("DELETE FROM rows WHERE number = 6",), "cut off: 5, due 6"),
    "all cut off": (("DELETE FROM rows",), "cut off: 0, due 6"),
    "the last cut off, and the head told": (
        ("DELETE FROM rows WHERE number = 6", f"UPDATE head SET rows = 5, chain = {LAST_BUT_ONE}"),
        "its head, or the tally",
    ),
    "a row put in at the end": (
        ("INSERT INTO rows SELECT 7, kind, body, hash FROM rows WHERE number = 6",),
        "entry 7 was altered, moved or inserted",
    ),
    "a row put in and the head told": (
        ("INSERT INTO rows SELECT 7, kind, body, hash FROM rows WHERE number = 6", "UPDATE head SET rows = 7"),
        "entry 7 was altered, moved or inserted",
    ),
    "a row before the first": (("UPDATE rows SET number = 0 WHERE number = 6",), "cut off"),
    "a tally": (("UPDATE tallies SET nbytes = 1 WHERE peer = 'bee'",), "tally of what left unprotected"),
    "a tally without type": (("UPDATE tallies SET notes = 'many'",), "tally of what left unprotected"),
    "a tally taken out": (("DELETE FROM tallies WHERE peer = 'bee'",), "tally of what left unprotected"),
    "a tally put in": (("INSERT INTO tallies VALUES ('rows', 'dog', 1, 1)",), "tally of what left unprotected"),
    "notes": (("UPDATE head SET notes = 1",), "its head, or the tally"),
    "the seal before": (("UPDATE head SET previous = seal",), "its head, or the tally"),
    "the seal": (("UPDATE head SET seal = chain",), "its head, or the tally"),
    "no head": (("DELETE FROM head",), "its head is missing"),
    "two heads": (("INSERT INTO head SELECT * FROM head",), "there are several"),
    "a head of nonsense": (("UPDATE head SET rows = 'six'",), "its head was altered"),
    "no table": (("DROP TABLE rows",), "no such table"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_detected_on_opening_and_while_open(folder: Path, change: str) -> None:
    statements, said = CHANGES[change]
    with Ledger.open(folder / "ledger") as ledger:
        ledger.verify()  # sound before
        on_disk(folder, *statements)
        with pytest.raises(LedgerError, match=said):
            ledger.verify()
    with pytest.raises(LedgerError, match=said):
        Ledger.open(folder / "ledger")


def test_any_changed_byte_is_detected(folder: Path) -> None:
    path = folder / "ledger"
    data = path.read_bytes()

    def read() -> tuple[object, ...]:
        with Ledger.open(path) as ledger:
            return ledger.entries(), dict(ledger.unprotected), ledger.budgets, ledger.head

    truth = read()
    body = data.index(b'"key":"c"')
    inside = range(body - 8, body + 150, 9)
    anywhere = np.random.default_rng(0).integers(len(data), size=250).tolist()
    found = 0
    for number, place in enumerate([*inside, *anywhere]):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (number % 7)
        for leftover in ("ledger-wal", "ledger-shm"):
            (folder / leftover).unlink(missing_ok=True)
        path.write_bytes(damaged)
        try:
            assert read() == truth  # a byte that holds nothing
            assert number >= len(inside)
        except LedgerError:
            found += 1
    assert found >= len(inside) + 10


def saved(folder: Path, *files: str) -> Callable[[], None]:
    """Copies of these files as they are; call to put them back, and to remove what was not there."""
    kept = {file: (folder / file).read_bytes() if (folder / file).exists() else None for file in files}

    def put_back() -> None:
        for file, data in kept.items():
            if data is None:
                (folder / file).unlink(missing_ok=True)
            else:
                (folder / file).write_bytes(data)

    return put_back


DATABASE = ("ledger", "ledger-wal", "ledger-shm")


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("later", ["pay", "leave", "note"])
def test_an_older_database_is_detected(folder: Path, live: bool, later: str) -> None:
    keeper = Ledger.open(folder / "ledger")
    keeper.pay("d", steps(1), peer=None)
    if not live:
        keeper.close()
    put_back = saved(folder, *DATABASE)
    assert live == bool((folder / "ledger-wal").exists())
    keeper.close()
    with open_ledger(folder) as ledger:
        if later == "pay":
            ledger.pay("e", steps(1), peer=None)
        elif later == "leave":
            ledger.leave("d", "bee", 1)
        else:
            ledger.note_unprotected("offer", "bee", 1)
    put_back()
    with pytest.raises(LedgerError, match=r"rolled back or cut off: its anchor .* has seen 10 records, it holds 9"):
        open_ledger(folder)


def test_an_older_database_under_an_open_ledger_is_detected(folder: Path) -> None:
    put_back = saved(folder, *DATABASE)
    ledger = Ledger.open(folder / "ledger")
    ledger.pay("d", steps(1), peer=None)
    on_disk(folder, "DELETE FROM rows WHERE number = 7", f"UPDATE head SET rows = 6, chain = {LAST_BUT_ONE}")
    with pytest.raises(LedgerError, match="rolled back while open: this process has seen 9 steps, it holds 8"):
        ledger.pay("e", steps(1), peer=None)
    ledger.close()
    put_back()
    with pytest.raises(LedgerError, match="rolled back or cut off: its anchor"):
        Ledger.open(folder / "ledger")


def test_older_database_and_anchor_are_detected_only_by_a_kept_head(folder: Path) -> None:
    put_back = saved(folder, *DATABASE, "ledger.anchor")
    with open_ledger(folder) as ledger:
        ledger.pay("d", steps(1), peer=None)
        head = Head(**json.loads(json.dumps(ledger.head.to_json())))
    with open_ledger(folder, at_least=head) as ledger:
        assert ledger.state("d") == "paid"
    put_back()
    with open_ledger(folder) as ledger:  # ledger and anchor together: nothing here can know
        assert ledger.state("d") == "unknown"
    with pytest.raises(LedgerError, match="rolled back: a checkpoint has seen 7 entries"):
        open_ledger(folder, at_least=head)
    with open_ledger(folder) as ledger:
        ledger.pay("e", steps(1), peer=None)
        ledger.pay("f", steps(1), peer=None)
        with pytest.raises(LedgerError, match="another history than the one that a checkpoint has seen"):
            ledger.verify(at_least=head)
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(LedgerError, match="gone, but a checkpoint has seen 7 entries"):
        open_ledger(folder, at_least=head)


def test_an_older_anchor_is_repaired_one_step_back_and_refused_further(folder: Path) -> None:
    put_back = saved(folder, "ledger.anchor")
    with open_ledger(folder) as ledger:
        ledger.pay("d", steps(1), peer=None)
    put_back()
    with open_ledger(folder) as ledger:  # as after a crash: one behind is mended
        assert ledger.state("d") == "paid"
        ledger.pay("e", steps(1), peer=None)
    put_back()
    with pytest.raises(LedgerError, match="belongs to another history"):
        open_ledger(folder)


def test_an_anchor_of_another_history_is_not_repaired(folder: Path) -> None:
    put_back = saved(folder, *DATABASE, "ledger.anchor")
    with open_ledger(folder) as ledger:
        ledger.pay("d", steps(1), peer=None)
    other = saved(folder, "ledger.anchor")
    put_back()
    with open_ledger(folder) as ledger:
        ledger.pay("e", steps(1), peer=None)
        ledger.pay("f", steps(1), peer=None)
    other()
    with pytest.raises(LedgerError, match="belongs to another history"):
        open_ledger(folder)


def test_a_lost_anchor_is_refused_unless_accepted(folder: Path) -> None:
    (folder / "ledger.anchor").unlink()
    with pytest.raises(LedgerError, match=r"its anchor .* is lost\. Put it back"):
        open_ledger(folder)
    with open_ledger(folder, accept_lost_anchor=True) as ledger:
        assert ledger.entries()[-1].kind == "anchor lost"
        assert ledger.spent(TRIPLES).count == 30
    open_ledger(folder).close()
    (folder / "ledger.anchor").write_bytes(b"{}")
    with pytest.raises(LedgerError, match="is damaged"):
        open_ledger(folder)


def test_wrong_damaged_readable_and_missing_keys_are_refused(folder: Path, tmp_path: Path) -> None:
    key = folder / "ledger.key"
    own = key.read_bytes()
    with open_ledger(tmp_path):
        foreign = (tmp_path / "ledger.key").read_bytes()
    for data, said in (
        (foreign, "is the key of another ledger"),
        (own[:-1], "is damaged"),
        (own + b"\n", "is damaged"),
    ):
        key.write_bytes(data)
        with pytest.raises(LedgerError, match=said):
            open_ledger(folder)
    key.write_bytes(own)
    key.chmod(0o640)
    with pytest.raises(LedgerError, match=r"others may read its key .* chmod 600"):
        open_ledger(folder)
    key.chmod(0o600)
    open_ledger(folder).close()
    key.unlink()
    with pytest.raises(LedgerError, match=r"key .* is missing"):
        open_ledger(folder)
    assert not key.exists()


def test_a_lost_database_is_not_created_anew(folder: Path) -> None:
    (folder / "ledger").unlink()
    with pytest.raises(LedgerError, match="the database is gone, but its anchor has seen 8 steps"):
        open_ledger(folder)
    (folder / "ledger.anchor").unlink()
    with pytest.raises(LedgerError, match=r"its anchor .* is lost"):
        open_ledger(folder)
