"""A durable record that only grows, and that shows when somebody made it shrink or changed it.

Three files. LEDGER is an SQLite database (write-ahead log, synced at every commit): numbered rows, each with a keyed
hash over its content and the hash before it, and tallies, which are counted up instead of growing by a row per message.
LEDGER.key is the key of those hashes; only the owner may read it. LEDGER.anchor holds how far the record had come; it
is replaced after every commit, and may be kept elsewhere, best on another disk. What is called the head is all of that
in one line: rows, notes, the last row's hash, and a seal over everything, tallies and the seal before included.

What is found out, on opening and by `verify`: a row or tally that was changed, moved, put in or taken away; a database
older than its anchor; an anchor that is lost; the key of another ledger. A database one step ahead of its anchor is
what a crash between commit and anchor leaves: the anchor is brought up to date.

What cannot be found out from within: that LEDGER and LEDGER.anchor were both put back to an older state together. Only
a head kept elsewhere shows that: checkpoints carry one, and `at_least` asks for it. Whoever rolls back the ledger, its
anchor and the checkpoints all together is not caught; nor is whoever has the key and rewrites all of it. A process that
has the record open trusts what it has read of it already, until `verify`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fkge.privacy.beside import GENESIS, PATIENCE, Companions, Head, has_content
from fkge.privacy.events import canonical

_SCHEMA = (
    "CREATE TABLE rows (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE tallies (what TEXT, peer TEXT, notes INT, nbytes INT, PRIMARY KEY (what, peer)) WITHOUT ROWID",
    "CREATE TABLE head (rows INTEGER, notes INTEGER, chain TEXT, seal TEXT, previous TEXT)",
)


@dataclass(frozen=True)
class Row:
    """One row: its number from 1 up, its kind, and what it says."""

    number: int
    kind: str
    body: dict[str, Any]
    hash: str


@dataclass(frozen=True)
class Tally:
    """How often, and how much of, one thing went to one peer."""

    notes: int = 0
    nbytes: int = 0


class Chain:
    """The record, open. All reading and writing happens in a `turn`, one process and one thread at a time.

    Args:
        path: of the database.
        anchor: where the anchor is; by default where it was made to be, beside the database.
        create: what the first row is to say if there is no record yet; None: there must be one.
        at_least: a head that the record must have come by.
        accept_lost_anchor: go on from the record as it is if its anchor is gone. Its rows then say so.
    """

    def __init__(
        self,
        path: Path,
        *,
        anchor: Path | None = None,
        create: dict[str, Any] | None = None,
        at_least: Head | None = None,
        accept_lost_anchor: bool = False,
    ) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._rows: list[Row] = []  # grows in place
        self._tallies: dict[tuple[str, str], Tally] = {}  # replaced, never changed
        self._head = Head()
        self._remember()
        existed = has_content(path)
        self._files = Companions(path, anchor or (_anchor_of(path) if existed else None))
        lost = self._files.prepare(existed, create is not None, accept_lost_anchor)
        self._key = self._files.read_key()
        self._db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            with self._files.locked(), self._trouble_named():  # SQLite lets only one change the mode, and no other wait
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

    def close(self) -> None:
        self._db.close()

    @property
    def rows(self) -> Sequence[Row]:
        """All rows, as of the last turn."""
        return self._rows

    @property
    def tallies(self) -> Mapping[tuple[str, str], Tally]:
        """By (what, peer), as of the last turn."""
        return self._tallies

    @property
    def head(self) -> Head:
        """As of the last turn."""
        return self._head

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have the record to oneself and up to date; what is appended is durable, and anchored, when this ends.

        At most one row or note in a turn: the anchor may lag one step behind, and no more, after a crash. If anything
        is raised before the commit, nothing was written.
        """
        with self._alone():
            self._catch_up()
            self._check_anchor()
            before = self._head
            yield
            if self._head == before:
                return
            assert self._head.step == before.step + 1
            self.at("written")
            self._db.execute("COMMIT")
            self._remember()
            self.at("committed")
            self._files.write_anchor(self._head)
            self.at("anchored")

    def append(self, kind: str, body: dict[str, Any]) -> None:
        """Add a row; within a turn."""
        number = len(self._rows) + 1
        text = canonical(body).decode()
        row = Row(number, kind, body, self._hash("row", self._head.chain, number, kind, text))
        self._db.execute("INSERT INTO rows VALUES (?, ?, ?, ?)", (number, kind, text, row.hash))
        self._rows.append(row)
        self._move_to(replace(self._head, rows=number, chain=row.hash))

    def note(self, what: str, peer: str, nbytes: int, times: int = 1) -> None:
        """Count up a tally; within a turn."""
        before = self._tallies.get((what, peer), Tally())
        after = Tally(before.notes + times, before.nbytes + nbytes)
        self._tallies = {**self._tallies, (what, peer): after}
        self._db.execute("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?)", (what, peer, after.notes, after.nbytes))
        self._move_to(replace(self._head, notes=self._head.notes + 1))

    def verify(self, at_least: Head | None = None) -> None:
        """Read everything again and check it, also that it goes on from what was known before.

        Raises:
            LedgerError: what was found, in one sentence.
        """
        known = self._head
        with self._alone():
            if self._db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise self._files.error(
                    "the database is damaged", "Restore it, and all that goes with it, from a backup"
                )
            self._rows, self._tallies, self._head = [], {}, Head()
            self._catch_up()
            self._check_anchor()
            for head, whose in ((known, "this process"), (at_least or Head(), "a checkpoint")):
                self._check_at_least(head, whose)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A transaction that nobody else can be in. What it read is kept, what it did not commit is undone."""
        with self._mutex, self._files.locked(), self._trouble_named():
            self._db.execute("BEGIN IMMEDIATE")
            self._remember()
            try:
                yield
            except BaseException:
                self._rows, count, self._tallies, self._head = self._known
                del self._rows[count:]
                raise
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    # -- reading and checking

    def _remember(self) -> None:
        """What to go back to if the rest of a turn fails."""
        self._known = self._rows, len(self._rows), self._tallies, self._head

    def _catch_up(self) -> None:
        """Read what others have written since, each row against the hash before it."""
        lines = self._db.execute("SELECT rows, notes, chain, seal, previous FROM head").fetchall()
        if len(lines) != 1:
            raise self._files.error("its head is missing, or there are several", "It was altered; restore a backup")
        *values, previous = lines[0]
        try:
            head = Head.from_json(dict(zip(("rows", "notes", "chain", "seal"), values, strict=True)))
        except ValueError:
            raise self._files.error("its head was altered", "Restore a backup") from None
        self._previous = previous
        if head == self._head:
            return
        if head.step < self._head.step:
            raise self._files.error(
                f"rolled back while open: this process has seen {self._head.step} steps, it holds {head.step}",
                "Put the newer database back",
            )
        new = self._db.execute(
            "SELECT number, kind, body, hash FROM rows WHERE number > ? ORDER BY number", (len(self._rows),)
        ).fetchall()
        chain = self._head.chain
        for due, (number, kind, text, digest) in enumerate(new, start=len(self._rows) + 1):
            if number != due:
                raise self._files.error(f"entry {due} is missing", "It was taken out; restore a backup")
            if not _typed((kind, text, digest), str, str, str) or digest != self._hash(
                "row", chain, number, kind, text
            ):
                if number == 1 and self._is_foreign(text):
                    raise self._files.error(
                        f"{self._files.key.name} is the key of another ledger", "Put the right one back from a backup"
                    )
                raise self._files.error(f"entry {number} was altered, moved or put in", "Restore a backup")
            self._rows.append(Row(number, kind, json.loads(text), digest))
            chain = digest
        if len(self._rows) != head.rows or chain != head.chain:
            change = "cut off" if len(self._rows) < head.rows else "put in"
            raise self._files.error(
                f"entries at its end were {change}: {len(self._rows)}, due {head.rows}", "Restore a backup"
            )
        tallies = self._db.execute("SELECT what, peer, notes, nbytes FROM tallies ORDER BY what, peer").fetchall()
        typed = all(_typed(line, str, str, int, int) for line in tallies)
        self._tallies = {(what, peer): Tally(notes, nbytes) for what, peer, notes, nbytes in tallies}
        if not typed or head.seal != self._seal(head, str(previous)):
            raise self._files.error("its head, or the tally of what left unprotected, was altered", "Restore a backup")
        self._head = head

    def _check_anchor(self) -> None:
        anchor, head = self._files.read_anchor(), self._head
        if anchor == head:
            return
        if head.step == anchor.step + 1 and anchor.seal == self._previous:
            self._files.write_anchor(self._head)  # a crash came between commit and anchor
        elif head.step < anchor.step:
            raise self._files.error(
                f"rolled back: its anchor {self._files.anchor} has seen {anchor.step} steps, it holds {head.step}",
                "What was spent since would be forgotten. Put the newer database back",
            )
        else:
            raise self._files.error(
                f"its anchor {self._files.anchor} belongs to another history (it holds {head.step} steps, the anchor "
                f"{anchor.step})",
                "One of both was put back; restore the newer one",
            )

    def _check_at_least(self, head: Head, whose: str) -> None:
        mine = self._head
        if mine.rows < head.rows or mine.notes < head.notes:
            raise self._files.error(
                f"rolled back: {whose} has seen {head.rows} entries and {head.notes} notes, it holds {mine.rows} and "
                f"{mine.notes}",
                "Put the newer ledger back",
            )
        if head.rows and self._rows[head.rows - 1].hash != head.chain:
            raise self._files.error(f"another history than the one that {whose} has seen", "Put the right ledger back")

    def _hash(self, *parts: Any) -> str:
        return hmac.new(self._key, canonical(parts), hashlib.sha256).hexdigest()

    def _seal(self, head: Head, previous: str) -> str:
        tallies = sorted((what, peer, tally.notes, tally.nbytes) for (what, peer), tally in self._tallies.items())
        return self._hash("seal", head.rows, head.notes, head.chain, tallies, previous)

    def _is_foreign(self, text: Any) -> bool:
        try:
            return bool(json.loads(text)["key"] != self._hash("key"))
        except (TypeError, ValueError, KeyError):
            return False

    # -- writing

    def _move_to(self, head: Head) -> None:
        previous = self._head.seal
        self._head = replace(head, seal=self._seal(head, previous))
        values = (self._head.rows, self._head.notes, self._head.chain, self._head.seal, previous)
        self._db.execute("UPDATE head SET rows = ?, notes = ?, chain = ?, seal = ?, previous = ?", values)

    def _create(self, first: dict[str, Any]) -> None:
        """Make the tables and the first row, in one commit; unless another process was faster."""
        with self._alone():
            if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                return
            for statement in _SCHEMA:
                self._db.execute(statement)
            self._db.execute("INSERT INTO head VALUES (0, 0, ?, ?, ?)", (GENESIS, GENESIS, GENESIS))
            self.append("opened", {**first, "key": self._hash("key")})
            self._db.execute("COMMIT")
            self._remember()
            self.at("committed")
            self._files.write_anchor(self._head)

    def _accept_lost_anchor(self) -> None:
        with self._alone():
            self._catch_up()
            self._files.write_anchor(self._head)
        with self.turn():
            self.append("anchor lost", {"time": time.time()})

    @contextmanager
    def _trouble_named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._files.error(f"it cannot be used: {error}", "If it is damaged, restore a backup") from error

    def at(self, point: str) -> None:
        """Nothing. A name for each place where a crash matters, so that tests can have one there."""


def _typed(values: Sequence[object], *types: type) -> bool:
    """Whether they are of these types: SQLite would keep anything anywhere."""
    return all(type(value) is kind for value, kind in zip(values, types, strict=True))


def _anchor_of(path: Path) -> Path | None:
    """Where the record says its anchor is; not checked yet, but a wrong place has no fitting anchor."""
    with suppress(sqlite3.Error, TypeError, ValueError, KeyError):
        db = sqlite3.connect(path, timeout=PATIENCE)
        try:
            found = db.execute("SELECT body FROM rows WHERE number = 1").fetchone()
        finally:
            db.close()
        where = json.loads(found[0])["anchor"]
        return None if where is None else Path(where)
    return None
