"""The audit log of a node: everything that left it, one JSON line each, in a chain that shows changes.

The lines lie in a folder as ``audit-000001.log`` and so on, for people to search and to ship. Each ends with a `chain`,
the SHA-256 of the line before's chain and of the line itself, so nobody needs a key to check them. Beside them stand
``audit.anchor``, which says how far the log had come when it was last made durable, sealed with ``audit.key`` (see
`fkge.privacy.tamper_evident`); and ``audit.lock``, which the process that writes holds.

A line is with the operating system before `left` returns: call it before the bytes go. A crash of the process loses
none; a power cut may lose those of the last `SECONDS_BETWEEN_SYNCS`, unless `sync` was called.

Detected by `verify`: a line that was altered, moved, inserted or removed; a file that is gone; an end that was cut off
behind the anchor. Not detected from within: an end that was cut off, or inserted, after the anchor while a node was
running or had crashed; a log and an anchor that were put back to an older state together; and a history rewritten by
somebody who has the key. A head kept elsewhere shows all three but the latest lines.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeAlias

from fkge.errors import LedgerError, NodeError
from fkge.files import FileLock, sync_folder
from fkge.privacy.tamper_evident import GENESIS, Companions, digest

Entry: TypeAlias = dict[str, Any]
"""A line of the log: "seq", "time", "event", "chain", and the fields of the event."""

FILE_BYTES = 64 << 20
"""How long a file gets before the next one begins."""

SECONDS_BETWEEN_SYNCS = 5.0
"""How much of the log a power cut may take."""

_LINE = re.compile(rb'(\{"seq":(\d+),"time":"[^"]*","event":"[^\n]*),"chain":"([0-9a-f]{64})"\}\n')
_FILE = re.compile(r"audit-(\d{6,})\.log")
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_RESERVED = frozenset({"seq", "time", "event", "chain"})
_RESTORE = "Put the whole folder back as it was, or move it away and begin a new one; keep the old one to investigate"


@dataclass(frozen=True)
class Verdict:
    """The state of a sound log, or of one sound file of it."""

    entries: int  # how many lines were checked
    first: int  # the number of the first of them; 0 if there is none
    last: int
    head: str  # the last one's chain, by which any later state of this log is known: keep it elsewhere
    sealed: bool = False  # the key was there to check the anchor's seal
    torn: int = 0  # bytes at the end that are no whole line: what a crash leaves, or a line that is being written


@dataclass(frozen=True)
class Anchor:
    """The position of a log: `offset` bytes into `file` ends entry number `entries`, whose chain is `head`."""

    node: str
    entries: int = 0
    head: str = GENESIS
    file: int = 1
    offset: int = 0
    closed: bool = True
    seal: str = ""

    def sealed(self, key: bytes) -> Anchor:
        """Return the same anchor with the seal that `key` gives it."""
        content = {name: value for name, value in vars(self).items() if name != "seal"}
        return replace(self, seal=digest(json.dumps(content, sort_keys=True).encode(), key))


class AuditLog:
    """The log, open for writing from any thread. It has so many `entries`; `head` is the last one's chain.

    Args:
        folder, node: where it is, and whose.
        lock, file_bytes: held while it is open; how long a file gets. `AuditLog.open` gives both.
    """

    def __init__(self, folder: Path, node: str, lock: FileLock, file_bytes: int) -> None:
        self.folder = folder
        self._node, self._lock, self._file_bytes = node, lock, file_bytes
        self._writing = threading.Lock()  # held for microseconds: to number, write and remember a line
        self._syncing = threading.Lock()  # held for as long as a disk takes
        self._closed = threading.Event()
        self._key = b""
        self._fd = -1
        self._anchor = Anchor(node)
        self._number, self._offset, self.entries, self.head = 1, 0, 0, GENESIS

    @classmethod
    def open(cls, path: Path, node: str, *, file_bytes: int = FILE_BYTES) -> Self:
        """Open the log of a node, to append to it.

        Lines since the anchor are checked; `verify` checks all. A last line that a crash cut short is removed, and the
        next line says so.

        Args:
            path: its folder, created if needed; node: whose log it is.
            file_bytes: how long a file gets before the next one begins.

        Raises:
            NodeError: another process writes it, or the folder cannot be used.
            LedgerError: it was altered, cut off, or is another node's.
        """
        busy = NodeError(
            f"{path}: another process writes this audit log. Only one node may use a state folder; "
            "stop the other one (fkge stop), or choose another state"
        )
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            lock = FileLock(path / "audit.lock", timeout=0, error=busy)
        except OSError as error:
            raise NodeError(f"{path}: no audit log can be kept here: {error.strerror}. Choose another state") from error
        log = cls(path, node, lock, file_bytes)
        try:
            log._begin()
        except BaseException:
            if log._fd >= 0:
                os.close(log._fd)
            lock.close()
            raise
        threading.Thread(target=log._keep_durable, name="audit log", daemon=True).start()
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def left(self, to: str, what: str, body: bytes, *, protection: str, price: str | None, session: int) -> None:
        """Record that something is about to leave.

        Args:
            to: the peer.
            what: the kind of message.
            body: its bytes, of which length and SHA-256 are recorded.
            protection: what covers it, in words that recur, so that they can be added up; "none" is one.
            price: what paid for it, such as the key of its entry in the privacy ledger; None where nothing did.
            session: the exchange that it belongs to.

        Raises:
            NodeError: it could not be written, so it must not leave.
        """
        known = {"to": to, "what": what, "bytes": len(body), "digest": digest(body)}
        self._write("left", **known, protection=protection, price=price, session=session)

    def note(self, event: str, /, **fields: Any) -> None:
        """Record another event that matters to an auditor, such as a start, a refusal or an alignment.

        Raises:
            ValueError: a field has a reserved name, or the event is "left".
            NodeError: it could not be written.
        """
        if taken := _RESERVED & set(fields):
            raise ValueError(f"an entry has its own {', '.join(sorted(taken))}")
        if event == "left":
            raise ValueError("what left is written down by left()")
        self._write(event, **fields)

    def close(self) -> None:
        """Make all of it durable and release the files; a second call does nothing."""
        with self._syncing:
            if self._closed.is_set():
                return
            self._closed.set()
        try:
            self.sync(closed=True)
        finally:
            with self._writing:
                os.close(self._fd)
                self._fd = -1
            self._lock.close()

    # -- writing -------------------------------------------------------------------------------------

    def _write(self, event: str, /, **fields: Any) -> None:
        with self._writing:
            if self._fd < 0:
                raise NodeError(f"{self.folder}: the audit log is closed, so nothing may leave any more")
            try:
                if self._offset >= self._file_bytes:
                    self._rotate()
                if self._offset == 0:  # each file says whose it is and what came before: it can be checked by itself
                    if self.entries == 0:
                        self._append("opened", {"node": self._node})
                    else:
                        before = _path(self.folder, self._number - 1).name
                        self._append("continues", {"node": self._node, "after": before, "previous": self.head})
                self._append(event, fields)
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._offset)
                raise NodeError(
                    f"{_path(self.folder, self._number)}: cannot be written: {error.strerror}. What is not written "
                    "down does not leave; make room, and start the node again"
                ) from error

    def _append(self, event: str, fields: Entry) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        entry = {"seq": self.entries + 1, "time": f"{now}Z", "event": event, **fields}
        body = _json(entry)[:-1].encode("utf-8", "backslashreplace")
        chain = digest(self.head.encode() + body)
        line = body + b',"chain":"' + chain.encode() + b'"}\n'
        written = 0
        while written < len(line):
            written += os.write(self._fd, line[written:])
        self.entries += 1
        self.head = chain
        self._offset += len(line)

    def _rotate(self) -> None:
        os.fsync(self._fd)
        following = _opened(self.folder, self._number + 1)
        os.close(self._fd)
        self._fd, self._number, self._offset = following, self._number + 1, 0

    def sync(self, closed: bool = False) -> None:
        """Wait until every line is on disk and anchored; `closed`: and no more is to come.

        Raises:
            NodeError: the disk refuses.
        """
        with self._syncing:
            with self._writing:
                if self._fd < 0:
                    return
                anchor = Anchor(self._node, self.entries, self.head, self._number, self._offset, closed)
                fd = os.dup(self._fd)  # synced without the lock, so that writers need not wait for the disk
            try:
                if anchor.sealed(self._key) != self._anchor:
                    os.fsync(fd)
                    self._write_anchor(anchor)
            except OSError as error:
                raise NodeError(f"{self.folder}: the audit log cannot be made durable: {error.strerror}") from error
            finally:
                os.close(fd)

    def _keep_durable(self) -> None:
        while not self._closed.wait(SECONDS_BETWEEN_SYNCS):
            with suppress(NodeError):  # the next line will not fit either, and raises in the thread that writes it
                self.sync()

    def _write_anchor(self, anchor: Anchor) -> None:
        self._anchor = anchor.sealed(self._key)
        self._companions.write_anchor(self._anchor)

    # -- opening -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        reader, anchor = _Reader(self.folder), Anchor(self._node)
        companions = self._companions = reader.companions
        if reader.files or companions.anchor.exists():
            anchor = companions.read_anchor()
            if anchor.node != self._node:
                raise companions.error(
                    f"is the audit log of node {anchor.node!r}, not of {self._node!r}",
                    "Each node has a state folder of its own",
                )
            self._key = companions.read_key()
            _check_seal(companions, anchor, self._key)
            reader.catch_up(anchor)
            self._number, self._offset = reader.number, reader.offset
            self.entries, self.head = reader.count, reader.head
        else:
            companions.create_key()  # it exists already if a crash came before the first anchor
            self._key = companions.read_key()
        self._write_anchor(replace(anchor, closed=False))
        self._fd = _opened(self.folder, self._number)
        os.ftruncate(self._fd, self._offset)
        if reader.torn:
            self.note("torn line cut off", bytes=reader.torn)


# -- reading -----------------------------------------------------------------------------------------


class _Reader:
    """Read the lines of a log (its folder, or one of its files), and check each against the one before.

    `count` and `head` are the number and the chain of the last line read, `number` and `offset` the file it is in and
    where it ends; `torn` bytes after it are no whole line.
    """

    def __init__(self, place: Path) -> None:
        key, anchor = place / "audit.key", place / "audit.anchor"
        self.companions = Companions(place, key=key, anchor=anchor, form=Anchor, advice=_RESTORE)
        found = ((_FILE.fullmatch(path.name), path) for path in (place.iterdir() if place.is_dir() else ()))
        self.files = {int(name[1]): path for name, path in found if name is not None}
        self.count, self.head = 0, GENESIS
        self.number, self.offset = 1, 0
        self.torn = 0

    @classmethod
    def at(cls, place: Path) -> Self:
        """Return a reader at the beginning; of a file by itself, what came before is what its first line says."""
        reader = cls(place)
        if place.is_file():
            reader.files = {1: place}
            with place.open("rb") as f:
                found = _LINE.fullmatch(f.readline())
            with suppress(ValueError):
                first = {} if found is None or int(found[2]) == 1 else json.loads(found[0])
                if first.get("event") == "continues" and isinstance(first.get("previous"), str):
                    reader.count, reader.head = first["seq"] - 1, first["previous"]
        if not reader.files:
            raise LedgerError(f"{place}: no audit log is here. A node keeps its own in STATE/audit")
        return reader

    def catch_up(self, anchor: Anchor) -> None:
        """Go to the end of the log, checking what comes after the anchor."""
        if anchor.entries:
            if anchor.file not in self.files:
                raise self.companions.error("is gone", place=_path(self.companions.log, anchor.file))
            file, end = self.files[anchor.file], f',"chain":"{anchor.head}"}}\n'.encode()
            with file.open("rb") as f:
                if f.seek(0, os.SEEK_END) < anchor.offset:
                    raise self.companions.error("is shorter than its anchor has seen: its end was cut off", place=file)
                f.seek(max(0, anchor.offset - len(end)))
                found = anchor.head if f.read(len(end)) == end else None
            self.companions.check_reached(anchor.entries, anchor.head, anchor.entries, found)
        self.count, self.head, self.number, self.offset = anchor.entries, anchor.head, anchor.file, anchor.offset
        for _ in self.lines():
            pass
        _check_closed(self.companions, anchor, self.count)

    def lines(self) -> Iterator[bytes]:
        """Yield every whole line from (`number`, `offset`) on, over all files that follow."""
        files = self.files
        for due, number in enumerate(sorted(n for n in files if n >= self.number), start=self.number):
            if self.torn:
                raise self.companions.error("ends within a line, but another file follows", place=files[self.number])
            if number != due:
                raise self.companions.error("is gone", place=_path(self.companions.log, due))
            if number != self.number:
                self.number, self.offset = number, 0
            with files[number].open("rb") as f:
                f.seek(self.offset)
                for raw in f:
                    if not raw.endswith(b"\n"):
                        self.torn = len(raw)
                        break
                    self._check(files[number], raw)
                    self.offset += len(raw)
                    yield raw

    def _check(self, path: Path, raw: bytes) -> None:
        found = _LINE.fullmatch(raw)
        chain = "" if found is None else digest(self.head.encode() + found[1])
        number = 0 if found is None else int(found[2])
        if found is None or number != self.count + 1 or chain.encode() != found[3]:
            with path.open("rb") as f:  # lines are counted only where an error names one
                place = f"{path}:{f.read(self.offset).count(10) + 1}"
            if found is None:
                raise self.companions.error("is no line of an audit log; it was altered or inserted", place=place)
            self.companions.check_link(self.count + 1, number, False, place)
        self.count, self.head = number, chain


def entries(place: Path) -> Iterator[Entry]:
    """Yield every entry of a log (its folder, or one of its files), each checked against the one before.

    Raises:
        LedgerError: where the chain breaks.
    """
    reader = _Reader.at(place)
    for raw in reader.lines():
        try:
            yield json.loads(raw)
        except ValueError:
            raise reader.companions.error(f"entry {reader.count} is no JSON; the log was rewritten") from None


def verify(place: Path, *, head: str | None = None, key: bytes | None = None) -> Verdict:
    """Check a log (its folder), or one of its files by itself, which has no anchor.

    Args:
        place: the folder, or a file.
        head: a chain that was kept elsewhere: the log must have come by it.
        key: the key of the anchor's seal; by default the one next to the log, if it is there.

    Raises:
        LedgerError: what was found, in one sentence with the file and the line.
    """
    reader = _Reader.at(place)
    companions = reader.companions
    # Read before the lines: a node may be writing them.
    anchor = companions.read_anchor() if place.is_dir() else None
    before = reader.count
    met = head in (None, GENESIS)
    at_anchor = GENESIS if anchor is not None and anchor.entries == 0 else None
    for _ in reader.lines():
        met = met or reader.head == head
        if anchor is not None and reader.count == anchor.entries:
            at_anchor = reader.head
    if anchor is not None:
        if anchor.closed and reader.count > anchor.entries and companions.read_anchor() != anchor:
            return verify(place, head=head, key=key)  # a node has begun to write meanwhile
        companions.check_reached(anchor.entries, anchor.head, reader.count, at_anchor)
        _check_closed(companions, anchor, reader.count)
        if key is None and os.access(companions.key, os.R_OK):
            key = companions.read_key()
        if key is not None:
            _check_seal(companions, anchor, key)
    if not met:
        raise companions.error(f"never came by the head {head}: its end was cut off, or its history was rewritten")
    count = reader.count - before
    sealed = anchor is not None and key is not None
    return Verdict(count, before + 1 if count else 0, reader.count if count else 0, reader.head, sealed, reader.torn)


def _check_closed(companions: Companions[Anchor], anchor: Anchor, last: int) -> None:
    if anchor.closed and last > anchor.entries:
        raise companions.error(
            f"entry {anchor.entries + 1} was inserted after the log was closed with {anchor.entries}"
        )


def _check_seal(companions: Companions[Anchor], anchor: Anchor, key: bytes) -> None:
    if anchor.sealed(key) != anchor:
        raise companions.error("was altered, or its key is another log's", place=companions.anchor)


# -- files -------------------------------------------------------------------------------------------


def _path(folder: Path, number: int) -> Path:
    return folder / f"audit-{number:06d}.log"


def _opened(folder: Path, number: int) -> int:
    fd = os.open(_path(folder, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    sync_folder(folder)
    return fd
