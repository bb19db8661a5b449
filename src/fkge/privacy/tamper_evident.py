"""Parts of every tamper-evident log: linked hashes, a key, and an anchor that remembers the log's last position.

Record n carries its number and a hash over its content and the hash of record n − 1. Next to the log are a key, which
only its owner may read, and an anchor: a small file, replaced in one step after the log has grown, with the number of
records, the latest hash, and a seal made with the key. Two logs are built of these parts:

    fkge.privacy.ledger_store  the privacy ledger: rows of an SQLite database, keyed hashes, anchored at every commit
    fkge.node.ops.audit_log    a node's audit log: JSON lines, hashes anybody can check, anchored every few seconds

A record that was altered, moved, inserted or removed breaks the chain. A log that is shorter than its anchor was rolled
back or cut off; one with another hash at the anchor's position has another history. One that is longer is what a crash
leaves; each log says how much longer it may be. A missing key or anchor is an error: a log never starts over by itself.

Not detected from within: a log and its anchor that were put back to an older state together, which only a hash kept
elsewhere shows; and a log that was rewritten by somebody who has the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import stat
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fkge.errors import LedgerError
from fkge.files import create_once, write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

GENESIS = "0" * 64
"""The hash before the first record."""

_KEY_BYTES = 32

Anchor = TypeVar("Anchor", bound="DataclassInstance")


class Companions(Generic[Anchor]):
    """The key and the anchor of a log, and the errors that name the log.

    Args:
        log: the log's file or folder, for messages.
        key: the file of the key.
        anchor: the file of the anchor.
        form: the dataclass that the anchor file holds as a JSON object.
        advice: what to do about a log that cannot be trusted; error messages end with it.
    """

    def __init__(self, log: Path, *, key: Path, anchor: Path, form: type[Anchor], advice: str) -> None:
        self.log, self.key, self.anchor, self._form, self._advice = log, key, anchor, form, advice

    def error(self, problem: str, advice: str | None = None, *, place: str | Path | None = None) -> LedgerError:
        """Return an error about the log.

        Args:
            problem: what is wrong, without a full stop.
            advice, place: what to do, and where it is; by default the log's own.
        """
        return LedgerError(f"{place or self.log}: {problem}. {advice or self._advice}")

    def create_key(self) -> None:
        """Draw the key, unless there is one."""
        create_once(self.key, secrets.token_bytes(_KEY_BYTES), private=True)

    def read_key(self) -> bytes:
        """Return the key; `LedgerError` if it is missing, damaged, or others may read it."""
        try:
            if self.key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise self.error(f"others may read its key {self.key}", f"Run: chmod 600 {self.key.name}")
            key = self.key.read_bytes()
        except FileNotFoundError:
            raise self.error(f"its key {self.key} is missing, and nothing can be checked without") from None
        except OSError as error:
            raise self.error(f"its key cannot be read: {error}", "Only its owner can open it") from None
        if len(key) != _KEY_BYTES:
            raise self.error(f"its key {self.key} is damaged")
        return key

    def create_anchor(self, anchor: Anchor) -> None:
        """Write the first anchor, unless there is one."""
        create_once(self.anchor, canonical(vars(anchor)))

    def read_anchor(self) -> Anchor:
        """Return how far the log had come; `LedgerError` if the anchor is lost or damaged."""
        try:
            return from_fields(self._form, json.loads(self.anchor.read_bytes()))
        except FileNotFoundError:
            raise self.error(f"its anchor {self.anchor} is lost") from None
        except (OSError, ValueError) as error:
            raise self.error(f"its anchor {self.anchor} is damaged: {error}") from None

    def write_anchor(self, anchor: Anchor) -> None:
        """Replace the anchor in one step; it is on disk when this returns."""
        write_atomically(self.anchor, canonical(vars(anchor)))

    def check_link(self, due: int, number: int, intact: bool, place: str | Path | None = None) -> None:
        """Check that a record follows the one before (`LedgerError`).

        Args:
            due: the number that comes next.
            number: the record's number.
            intact: whether its hash fits its content and the hash before.
            place: where the record is, for the message; by default the log.
        """
        if number != due:
            change = "entries were removed or moved" if number > due else "it was moved or inserted"
            raise self.error(f"entry {number} stands where {due} is due; {change}", place=place)
        if not intact:
            raise self.error(f"entry {number} was altered, moved or inserted", place=place)

    def check_reached(self, anchored: int, seen: str, reached: int, found: str | None) -> None:
        """Check that the log is not shorter than its anchor, nor has another history (`LedgerError`).

        Args:
            anchored, seen: the number of records that the anchor has seen, and the hash of the last.
            reached: the number of records in the log.
            found: the log's hash at record `anchored`; None if that is not known.
        """
        if reached < anchored:
            raise self.error(
                f"rolled back or cut off: its anchor {self.anchor} has seen {anchored} records, it holds {reached}"
            )
        if found != seen:
            raise self.error(
                f"its anchor {self.anchor} belongs to another history (it holds {reached} records, the anchor "
                f"{anchored})"
            )


def digest(data: bytes, key: bytes | None = None) -> str:
    """Return SHA-256 of `data` in hex; HMAC-SHA-256 under `key` if there is one."""
    return (hashlib.sha256(data) if key is None else hmac.new(key, data, hashlib.sha256)).hexdigest()


def canonical(value: Any) -> bytes:
    """Return JSON in the one form that is hashed: sorted keys, no spaces, ASCII, no NaN or infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def from_fields(form: type[Anchor], value: object) -> Anchor:
    """Build a dataclass of plain values from a JSON object with exactly its fields, of exactly their types.

    Raises:
        ValueError: anything else.
    """
    wanted = {field.name: getattr(field.type, "__name__", field.type) for field in fields(form)}
    if not isinstance(value, dict) or {name: type(v).__name__ for name, v in value.items()} != wanted:
        raise ValueError(f"expected the fields {', '.join(wanted)}")
    return form(**value)
