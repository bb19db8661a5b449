"""What stands beside a ledger's database: the key of its hashes, the anchor that remembers how far it had come, a lock.

They are made in this order: anchor at 0, key, database. So none can be missing while a later one exists; what is
missing all the same has been taken away.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from fkge.errors import LedgerError
from fkge.privacy.events import canonical
from fkge.trace import sync_folder, write_atomically

GENESIS = "0" * 64
"""The hash before the first."""

PATIENCE = 60.0
"""Seconds to wait for another process's turn, which takes milliseconds."""


@dataclass(frozen=True)
class Head:
    """How far a record has come.

    Attributes:
        rows: how many.
        notes: how many things were tallied.
        chain: the last row's hash, by which any later state of the same record is known.
        seal: over all of it.
    """

    rows: int = 0
    notes: int = 0
    chain: str = GENESIS
    seal: str = GENESIS

    @property
    def step(self) -> int:
        """Commits so far."""
        return self.rows + self.notes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The head that `to_json` wrote. Raises ValueError for anything else."""
        if not isinstance(value, dict) or set(value) != {f.name for f in fields(cls)}:
            raise ValueError("not the head of a ledger")
        head = cls(**value)
        if not all(type(n) is int and n >= 0 for n in (head.rows, head.notes)):
            raise ValueError("not the head of a ledger")
        if not all(type(h) is str and len(h) == 64 for h in (head.chain, head.seal)):
            raise ValueError("not the head of a ledger")
        return head


class Companions:
    """Key, anchor and lock of the ledger at `path`; the anchor beside it unless it is put elsewhere."""

    def __init__(self, path: Path, anchor: Path | None) -> None:
        self.path = path
        self.key = path.with_name(path.name + ".key")
        self.anchor = anchor or path.with_name(path.name + ".anchor")

    def prepare(self, existed: bool, create: bool, accept_lost_anchor: bool) -> bool:
        """See that key and anchor are there, or make them. Returns whether a lost anchor was accepted."""
        had_key = self.key.exists()
        lost = not self.anchor.exists()
        if existed and not had_key:
            raise self.error(f"its key {self.key} is missing", "Nothing can be checked without; restore a backup")
        if lost and (existed or had_key):
            if not (existed and accept_lost_anchor):
                raise self.error(
                    f"its anchor {self.anchor} is lost",
                    "Put it back. If you are sure that this ledger is the newest, open it once with accept_lost_anchor",
                )
            return True
        if existed:
            return False
        if not lost and self.read_anchor().step > 0 and not has_content(self.path):
            raise self.error(
                f"the database is gone, but its anchor has seen {self.read_anchor().step} steps",
                "Restore it from a backup; a new one would forget what was spent",
            )
        if not create:
            raise LedgerError(f"{self.path}: no such ledger. It is made when an owner first shares something")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.anchor.parent.is_dir():
            raise self.error(f"the folder of its anchor {self.anchor} does not exist", "Is its disk mounted?")
        _create_once(self.anchor, canonical(Head().to_json()))
        _create_once(self.key, secrets.token_bytes(32), private=True)
        return False

    def read_key(self) -> bytes:
        """The 32 bytes; refused if anybody else could have read them."""
        try:
            if self.key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise self.error(f"others may read its key {self.key}", f"chmod 600 {self.key.name}")
            key = self.key.read_bytes()
        except OSError as error:
            raise self.error(f"its key cannot be read: {error}", "Only its owner can open a ledger") from None
        if len(key) != 32:
            raise self.error(f"its key {self.key} is damaged", "Restore it from a backup")
        return key

    def read_anchor(self) -> Head:
        """How far the record had come."""
        try:
            return Head.from_json(json.loads(self.anchor.read_bytes()))
        except FileNotFoundError:
            raise self.error(f"its anchor {self.anchor} is lost", "Put it back") from None
        except (OSError, ValueError, TypeError) as error:
            raise self.error(f"its anchor {self.anchor} is unreadable: {error}", "Restore a backup") from None

    def write_anchor(self, head: Head) -> None:
        """In one step, and on disk when this returns."""
        write_atomically(self.anchor, canonical(head.to_json()))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time, anchor included, which a transaction alone would not hold; freed if we die."""
        import fcntl

        with self.key.open("rb") as f:
            end = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise self.error("another process has held it for a minute", "Is one hanging?") from None
                    time.sleep(0.005)
            yield

    def error(self, problem: str, advice: str) -> LedgerError:
        return LedgerError(f"{self.path}: {problem}. {advice}")


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _create_once(path: Path, data: bytes, private: bool = False) -> None:
    """Make a file, whole and synced; if another process is faster, its file stays."""
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    with suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
    sync_folder(path.parent)
