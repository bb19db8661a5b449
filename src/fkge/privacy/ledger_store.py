"""SQLite storage of a privacy ledger: rows and tallies that only grow, and show when they were changed.

Three files. LEDGER is the database (write-ahead log, synced at every commit): numbered rows, each with a keyed hash
over its content and the hash before it, and tallies, which are counted up instead of growing by a row per message.
LEDGER.key is the key of those hashes. LEDGER.anchor holds the head as of the last commit: the numbers of rows and
notes, the last row's hash, and a seal over everything, tallies and the seal before included. It may be kept elsewhere,
best on another disk. What is checked by these is in `fkge.privacy.tamper_evident`.

Detected, on opening and by `verify`: a row or tally that was altered, moved, inserted or removed; a database older than
its anchor; an anchor that is lost; the key of another ledger. A database one step ahead of its anchor is what a crash
between commit and anchor leaves: the anchor is brought up to date.

Not detected from within: that LEDGER and LEDGER.anchor were both put back to an older state together. Only a head kept
elsewhere shows that: checkpoints carry one, and `at_least` asks for it. Who rolls back the ledger, its anchor and the
checkpoints all together is not detected; nor is who has the key and rewrites all of it. A process that has the database
open trusts what it has read of it already, until `verify`.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fkge.errors import LedgerError
from fkge.files import FileLock, JsonObject
from fkge.privacy.tamper_evident import GENESIS, Companions, canonical, digest, from_fields

_LOCK_SECONDS = 60.0
"""How long to wait for another process's transaction, which takes milliseconds."""

_RESTORE = "Put the newest ledger back, with all its files, from a backup"

_SCHEMA = (
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE tallies (what TEXT, peer TEXT, notes INT, nbytes INT, PRIMARY KEY (what, peer)) WITHOUT ROWID",
    "CREATE TABLE head (rows INTEGER, notes INTEGER, chain TEXT, seal TEXT, previous TEXT)",
)


@dataclass(frozen=True)
class Head:
    """The state of a ledger in short, to compare with a later one.

    Attributes:
        rows: number of rows.
        notes: number of notes in the tallies.
        chain: the last row's hash, by which any later state of the same ledger is known.
        seal: a keyed hash over all of it.
    """

    rows: int = 0
    notes: int = 0
    chain: str = GENESIS
    seal: str = GENESIS

    def __post_init__(self) -> None:
        if min(self.rows, self.notes) < 0 or {len(self.chain), len(self.seal)} != {64}:
            raise ValueError("not the head of a ledger")

    @property
    def step(self) -> int:
        """Commits so far."""
        return self.rows + self.notes

    def to_json(self) -> dict[str, int | str]:
        return asdict(self)


@dataclass(frozen=True)
class Row:
    """One row of a ledger, numbered from 1."""

    number: int
    kind: str
    body: JsonObject


@dataclass(frozen=True)
class Tally:
    """Messages of one kind to one peer: their number, and their bytes."""

    notes: int = 0
    nbytes: int = 0


class Chain:
    """The open database. All reading and writing happens in a transaction, one process and one thread at a time.

    The arguments are those of `Ledger.open`; `create` is the first row's content if there is no database yet.

    Attributes:
        head: as of the last transaction, or in one.
        rows: by this process or others; those beyond ``head.rows`` were never committed.
        tallies: by (what, peer).

    Raises:
        LedgerError: it is missing, altered, rolled back, or of another key.
    """

    def __init__(
        self,
        path: Path,
        *,
        anchor: Path | None = None,
        create: JsonObject | None = None,
        at_least: Head | None = None,
        accept_lost_anchor: bool = False,
    ) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self.rows: list[Row] = []
        self.tallies: Mapping[tuple[str, str], Tally] = {}  # replaced, never changed
        self.head = Head()
        existed = has_content(path)
        self._files = Companions(
            path,
            key=path.with_name(path.name + ".key"),
            anchor=anchor or (_anchor_of(path) if existed else None) or path.with_name(path.name + ".anchor"),
            form=Head,
            advice=_RESTORE,
        )
        lost = self._prepare(existed, create is not None, accept_lost_anchor)
        self._key = self._files.read_key()
        self._db = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            with self._locked(), self._errors_named():  # SQLite lets only one change the mode, and no other wait
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
            if create is not None and not lost and self._files.read_anchor().step == 0:
                self._create({**create, "anchor": None if anchor is None else str(anchor.absolute())})
            if lost:
                self._accept_lost_anchor()
            self.verify(at_least)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, existed: bool, create: bool, accept_lost_anchor: bool) -> bool:
        """Create anchor, then key of a new ledger, so that one that is missing was removed.

        Returns:
            Whether a lost anchor was accepted.
        """
        files = self._files
        had_key, lost = files.key.exists(), not files.anchor.exists()
        if existed and not had_key:
            files.read_key()  # raises
        if lost and (existed or had_key):
            if not (existed and accept_lost_anchor):
                raise files.error(
                    f"its anchor {files.anchor} is lost",
                    "Put it back. If you are sure that this ledger is the newest, open it once with accept_lost_anchor",
                )
            return True
        if existed:
            return False
        if not lost and (seen := files.read_anchor().step) and not has_content(self.path):
            raise files.error(
                f"the database is gone, but its anchor has seen {seen} steps",
                "Restore it from a backup; a new one would forget what was spent",
            )
        if not create:
            raise LedgerError(f"{self.path}: no such ledger. It is made when an owner first shares something")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not files.anchor.parent.is_dir():
            raise files.error(f"the folder of its anchor {files.anchor} does not exist", "Is its disk mounted?")
        files.create_anchor(Head())
        files.create_key()
        return False

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the database, up to date; what is appended is durable, and anchored, when the block ends.

        At most one row or note in a transaction: after a crash the anchor may lag one step behind, and no more.
        """
        with self._exclusive():
            self._catch_up()
            self._check_anchor()
            before = self.head
            yield
            if self.head == before:
                return
            assert self.head.step == before.step + 1
            self.crash_point("written")
            self._commit()

    def append(self, kind: str, body: JsonObject) -> None:
        """Add a row, within a transaction."""
        number, text = self.head.rows + 1, canonical(body).decode()
        chain = self._hash("row", self.head.chain, number, kind, text)
        self._db.execute("INSERT INTO rows VALUES (?, ?, ?, ?)", (number, kind, text, chain))
        self.rows[self.head.rows :] = [Row(number, kind, body)]
        self._move_to(replace(self.head, rows=number, chain=chain))

    def note(self, what: str, peer: str, nbytes: int, times: int = 1) -> None:
        """Count up a tally, within a transaction.

        Args:
            what, peer: the thing, and whom it went to; nbytes, times: the size of all messages, and their number.
        """
        before = self.tallies.get((what, peer), Tally())
        after = Tally(before.notes + times, before.nbytes + nbytes)
        self.tallies = {**self.tallies, (what, peer): after}
        self._db.execute("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?)", (what, peer, after.notes, after.nbytes))
        self._move_to(replace(self.head, notes=self.head.notes + 1))

    def verify(self, at_least: Head | None = None) -> None:
        """Read everything again and check it, also that it continues what was known before.

        Raises:
            LedgerError: what was found.
        """
        known = self.head
        with self._exclusive():
            if self._db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise self._files.error("the database is damaged")
            self.tallies, self.head = {}, Head()
            self._catch_up()
            self._check_anchor()
            for head, whose in ((known, "this process"), (at_least or Head(), "a checkpoint")):
                self._check_at_least(head, whose)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the only transaction; if it fails, what is known of the database is what it was at the last commit."""
        with self._mutex, self._locked(), self._errors_named():
            self._db.execute("BEGIN IMMEDIATE")
            self._known = self.tallies, self.head
            try:
                yield
            except BaseException:
                self.tallies, self.head = self._known
                raise
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _locked(self) -> FileLock:
        """Exclude other processes from the anchor too, which SQLite's own transaction does not cover."""
        busy = self._files.error("another process has held it for a minute", "Is one hanging?")
        return FileLock(self._files.key, timeout=_LOCK_SECONDS, error=busy, create=False)

    # -- reading and checking

    def _catch_up(self) -> None:
        """Read what other processes have written since, each row against the hash before it."""
        lines = self._db.execute("SELECT rows, notes, chain, seal, previous FROM head").fetchall()
        if len(lines) != 1:
            raise self._files.error("its head is missing, or there are several")
        *values, previous = lines[0]
        try:
            head = from_fields(Head, dict(zip(("rows", "notes", "chain", "seal"), values, strict=True)))
        except ValueError:
            raise self._files.error("its head was altered") from None
        self._previous = previous
        if head == self.head:
            return
        if head.step < self.head.step:
            raise self._files.error(
                f"rolled back while open: this process has seen {self.head.step} steps, it holds {head.step}"
            )
        found = self._db.execute(
            "SELECT number, kind, body, hash FROM rows WHERE number > ? ORDER BY number", (self.head.rows,)
        )
        new, count, chain = [], self.head.rows, self.head.chain
        for number, kind, text, stored in found:
            if number == 1 and self._is_foreign(text):
                raise self._files.error(f"{self._files.key.name} is the key of another ledger")
            typed = _typed((kind, text, stored), str, str, str)
            intact = typed and stored == self._hash("row", chain, number, kind, text)
            self._files.check_link(count + 1, number, intact)
            new.append(Row(number, kind, json.loads(text)))
            count, chain = number, stored
        if count != head.rows or chain != head.chain:
            change = "cut off" if count < head.rows else "inserted"
            raise self._files.error(f"entries at its end were {change}: {count}, due {head.rows}")
        tallies = self._db.execute("SELECT what, peer, notes, nbytes FROM tallies ORDER BY what, peer").fetchall()
        typed = all(_typed(line, str, str, int, int) for line in tallies)
        self.tallies = {(what, peer): Tally(notes, nbytes) for what, peer, notes, nbytes in tallies}
        if not typed or head.seal != self._seal(head, str(previous)):
            raise self._files.error("its head, or the tally of what left unprotected, was altered")
        self.rows[self.head.rows :] = new
        self.head = head

    def _check_anchor(self) -> None:
        anchor, head = self._files.read_anchor(), self.head
        if anchor == head:
            return
        # One step ahead is what a crash between commit and anchor leaves; of more, no seal is kept to compare.
        at_anchor = self._previous if head.step == anchor.step + 1 else None
        self._files.check_reached(anchor.step, anchor.seal, head.step, at_anchor)
        self._files.write_anchor(head)

    def _check_at_least(self, head: Head, whose: str) -> None:
        mine = self.head
        if mine.rows < head.rows or mine.notes < head.notes:
            raise self._files.error(
                f"rolled back: {whose} has seen {head.rows} entries and {head.notes} notes, it holds {mine.rows} and "
                f"{mine.notes}"
            )
        found = self._db.execute("SELECT hash FROM rows WHERE number = ?", (head.rows,)).fetchone()
        if head.rows and found != (head.chain,):
            raise self._files.error(f"another history than the one that {whose} has seen")

    def _hash(self, *parts: Any) -> str:
        return digest(canonical(parts), self._key)

    def _seal(self, head: Head, previous: str) -> str:
        tallies = sorted((what, peer, tally.notes, tally.nbytes) for (what, peer), tally in self.tallies.items())
        return self._hash("seal", head.rows, head.notes, head.chain, tallies, previous)

    def _is_foreign(self, text: Any) -> bool:
        try:
            return bool(json.loads(text)["key"] != self._hash("key"))
        except (TypeError, ValueError, KeyError):
            return False

    # -- writing

    def _move_to(self, head: Head) -> None:
        previous = self.head.seal
        self.head = replace(head, seal=self._seal(head, previous))
        values = (self.head.rows, self.head.notes, self.head.chain, self.head.seal, previous)
        self._db.execute("UPDATE head SET rows = ?, notes = ?, chain = ?, seal = ?, previous = ?", values)

    def _create(self, first: JsonObject) -> None:
        """Create the tables and the first row, in one commit, unless another process was faster."""
        with self._exclusive():
            if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return
            for statement in _SCHEMA:
                self._db.execute(statement)
            self._db.execute("INSERT INTO head VALUES (0, 0, ?, ?, ?)", (GENESIS, GENESIS, GENESIS))
            self.append("opened", {**first, "key": self._hash("key")})
            self._commit()

    def _commit(self) -> None:
        """Make the transaction durable, then bring the anchor up to date."""
        self._db.execute("COMMIT")
        self._known = self.tallies, self.head
        self.crash_point("committed")
        self._files.write_anchor(self.head)
        self.crash_point("anchored")

    def _accept_lost_anchor(self) -> None:
        with self._exclusive():
            self._catch_up()
            self._files.write_anchor(self.head)
        with self.transaction():
            self.append("anchor lost", {"time": time.time()})

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._files.error(f"it cannot be used: {error}", "If it is damaged, restore a backup") from error

    def crash_point(self, name: str) -> None:
        """Do nothing. Tests replace this to crash at a named place."""


def _typed(values: Sequence[object], *types: type) -> bool:
    """Return whether the values are of these types; SQLite stores any type in any column."""
    return all(type(value) is kind for value, kind in zip(values, types, strict=True))


def _anchor_of(path: Path) -> Path | None:
    """Return where the database says its anchor is. Not checked yet, but a wrong place has no fitting anchor."""
    with suppress(sqlite3.Error, TypeError, ValueError, KeyError):
        with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as db:
            found = db.execute("SELECT body FROM rows WHERE number = 1").fetchone()
        where = json.loads(found[0])["anchor"]
        return None if where is None else Path(where)
    return None


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
