"""The parts that the ledger and the audit log share: key, anchor, links."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fkge.errors import LedgerError
from fkge.privacy.tamper_evident import Companions, canonical, digest, from_fields


@dataclass(frozen=True)
class Mark:
    count: int
    tip: str


@pytest.fixture
def files(tmp_path: Path) -> Companions[Mark]:
    return Companions(tmp_path / "log", key=tmp_path / "k", anchor=tmp_path / "a", form=Mark, advice="Restore it")


def test_a_key_is_created_once_and_private(files: Companions[Mark]) -> None:
    files.create_key()
    key = files.read_key()
    files.create_key()
    assert (len(key), files.read_key()) == (32, key)
    files.key.chmod(0o604)
    with pytest.raises(LedgerError, match=r"others may read its key .*\. Run: chmod 600 k"):
        files.read_key()
    files.key.unlink()
    with pytest.raises(LedgerError, match=r"log: its key .* is missing.*\. Restore it"):
        files.read_key()


def test_an_anchor_reads_back_and_only_its_own_form_is_accepted(files: Companions[Mark]) -> None:
    with pytest.raises(LedgerError, match="is lost"):
        files.read_anchor()
    files.create_anchor(Mark(0, "x"))
    files.create_anchor(Mark(9, "y"))
    assert files.read_anchor() == Mark(0, "x")
    files.write_anchor(Mark(1, "z"))
    assert files.read_anchor() == Mark(1, "z")
    for text in ("", "[]", "{}", '{"count": true, "tip": "x"}', '{"count": 1, "tip": "x", "more": 1}'):
        files.anchor.write_text(text)
        with pytest.raises(LedgerError, match="is damaged"):
            files.read_anchor()


def test_a_link_needs_the_number_and_the_hash(files: Companions[Mark]) -> None:
    files.check_link(3, 3, True)
    for number, intact, problem in (
        (4, True, "log: entry 4 stands where 3 is due; entries were removed or moved"),
        (2, True, "log: entry 2 stands where 3 is due; it was moved or inserted"),
        (3, False, "log: entry 3 was altered, moved or inserted"),
    ):
        with pytest.raises(LedgerError, match=problem):
            files.check_link(3, number, intact)
    with pytest.raises(LedgerError, match=r"^here: entry 3"):
        files.check_link(3, 3, False, place="here")


def test_a_log_must_continue_what_its_anchor_has_seen(files: Companions[Mark]) -> None:
    files.check_reached(2, "x", 2, "x")
    files.check_reached(2, "x", 5, "x")
    with pytest.raises(LedgerError, match=r"rolled back or cut off: its anchor .* has seen 2 records, it holds 1"):
        files.check_reached(2, "x", 1, None)
    for found in ("y", None):
        with pytest.raises(LedgerError, match="belongs to another history"):
            files.check_reached(2, "x", 3, found)


def test_hashes_are_plain_or_keyed_sha256() -> None:
    assert digest(b"x") == hashlib.sha256(b"x").hexdigest()
    assert digest(b"x", b"k") == hmac.new(b"k", b"x", hashlib.sha256).hexdigest()


def test_canonical_json_is_one_form_for_one_value() -> None:
    assert canonical({"b": 1, "a": ["ü"]}) == b'{"a":["\\u00fc"],"b":1}'
    assert from_fields(Mark, json.loads(canonical(vars(Mark(2, "ü"))))) == Mark(2, "ü")
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))
