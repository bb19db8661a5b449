"""An owner's ledger is looked at in a copy, while the owner writes it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fkge.dashboard import owners
from fkge.dashboard.owners import Ledgers
from fkge.privacy import Ledger


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "SECONDS_BETWEEN_PRICES", 0.0)


def messages(told: dict[str, object] | None) -> int:
    assert told is not None
    assert "error" not in told, told
    return sum(line["messages"] for line in told["unprotected"])  # type: ignore[attr-defined]


def test_a_ledger_that_is_being_written_is_sound_at_every_look(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with Ledger.open(path, graph="ant") as ledger:
                for _ in range(300):
                    ledger.note_unprotected("rows", "bee", 10)
        except BaseException as error:
            failed.append(error)

    Ledger.open(path, graph="ant").close()
    writer = threading.Thread(target=write)
    writer.start()
    ledgers, seen = Ledgers(), [0]
    while writer.is_alive():
        seen.append(messages(ledgers.describe(path)))
    writer.join()
    assert not failed
    assert seen == sorted(seen)
    assert len(set(seen)) > 3  # it was looked at on the way
    assert messages(ledgers.describe(path)) == 300
    with Ledger.open(path) as ledger:  # and nothing of it was touched
        assert ledger.head.notes == 300


def test_an_anchor_that_lags_after_a_crash_is_left_to_the_owner(tmp_path: Path) -> None:
    path, anchor = tmp_path / "ledger.sqlite", tmp_path / "ledger.sqlite.anchor"
    with Ledger.open(path, graph="ant") as ledger:
        ledger.note_unprotected("rows", "bee", 10)
        before = anchor.read_bytes()
        ledger.note_unprotected("rows", "bee", 10)
    anchor.write_bytes(before)  # as if the second note had been cut short between commit and anchor
    assert messages(Ledgers().describe(path)) == 2
    assert anchor.read_bytes() == before


def test_a_ledger_that_was_altered_says_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, graph="ant") as ledger:
        ledger.note_unprotected("rows", "bee", 10)
    (tmp_path / "ledger.sqlite.key").write_bytes(b"x" * 32)
    told = Ledgers().describe(path)
    assert told is not None
    assert "key of another ledger" in told["error"]


def test_no_ledger_is_no_error(tmp_path: Path) -> None:
    assert Ledgers().describe(tmp_path / "ledger.sqlite") is None


def test_what_has_not_changed_is_not_priced_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, graph="ant") as ledger:
        ledger.note_unprotected("rows", "bee", 10)
        ledgers = Ledgers()
        first = ledgers.describe(path)
        assert ledgers.describe(path) is first
        ledger.note_unprotected("rows", "bee", 10)
        assert messages(ledgers.describe(path)) == 2
