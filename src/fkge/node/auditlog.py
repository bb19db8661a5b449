"""Everything that left a node, one JSON line each: to whom, what, under which protection, at what price.

The lines lie in a folder as ``audit-000001.log`` and so on, for people to search and to ship. Each ends with a `chain`,
the SHA-256 of the line before's chain and of the line itself, so nobody needs a key to check them. Beside them stand
``audit.anchor``, which says how far the log had come when it was last made durable, sealed with ``audit.key``; and
``audit.lock``, which the process that writes holds.

A line is with the operating system before `left` returns: call it before the bytes go. A crash of the process loses
none; a power cut may lose those of the last `SECONDS_BETWEEN_SYNCS`, unless ``flush(durable=True)`` was called.

What `verify` finds out: a line that was altered, moved, put in or taken out; a file that is gone; an end that was cut
off behind the anchor. What cannot be found out from within: an end that was cut off, or put in, after the anchor while
a node was running or had crashed; a log and an anchor that were put back to an older state together; and a history that
was written anew by whoever holds the key. A head that somebody else kept shows all three but the latest lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Self

from fkge.errors import LedgerError, NodeError
from fkge.trace import sync_folder, write_atomically

GENESIS = "0" * 64
"""The chain before the first line."""

FILE_BYTES = 64 << 20
"""How long a file gets before the next one begins."""

SECONDS_BETWEEN_SYNCS = 5.0
"""How much of the log a power cut may take."""

_LINE = re.compile(rb'(\{"seq":(\d+),"time":"[^"]*","event":"[^\n]*),"chain":"([0-9a-f]{64})"\}')
_FILE = re.compile(r"audit-(\d{6,})\.log")
_text = json.JSONEncoder(ensure_ascii=False).encode
_RESERVED = frozenset({"seq", "time", "event", "chain"})
_RESTORE = "Put the whole folder back as it was, or move it away and begin a new one; keep the old one to inquire"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """What a sound log, or one sound file of it, holds.

    Attributes:
        entries: how many lines were checked.
        first: the number of the first of them; 0 if there is none.
        last: the number of the last.
        head: its chain, by which any later state of this log is known: keep it elsewhere.
        sealed: whether the key was there to check the anchor's seal.
        torn: bytes at the end that are no whole line: what a crash leaves, or a line that is being written.
    """

    entries: int
    first: int
    last: int
    head: str
    sealed: bool = False
    torn: int = 0


@dataclass(frozen=True)
class Anchor:
    """How far a log had come: `offset` bytes into `file` ends entry number `entries`, whose chain is `head`."""

    node: str
    entries: int = 0
    head: str = GENESIS
    file: int = 1
    offset: int = 0
    closed: bool = True


class AuditLog:
    """The log, open for writing; from any thread. `AuditLog.open` makes one."""

    def __init__(self, folder: Path, node: str, lock: IO[bytes], file_bytes: int) -> None:
        self.folder = folder
        self._node = node
        self._lock = lock
        self._file_bytes = file_bytes
        self._turn = threading.Lock()  # held for microseconds: to number, write and remember a line
        self._syncing = threading.Lock()  # held for as long as a disk takes
        self._over = threading.Event()
        self._key = b""
        self._fd = -1
        self._anchor = Anchor(node)
        self._number, self._offset, self._entries, self._head = 1, 0, 0, GENESIS
        self._second, self._stamp = -1, ""

    @classmethod
    def open(cls, path: Path, node: str, *, file_bytes: int = FILE_BYTES) -> Self:
        """The log of `node` in the folder `path`, which is made if it is not there, to go on with.

        Lines since the anchor are checked; `verify` checks all. A last line that a crash cut short is cut off, and the
        next line says so.

        Raises:
            NodeError: another process writes it, or the folder cannot be used.
            LedgerError: it was altered, cut off, or is another node's.
        """
        try:
            path.mkdir(mode=0o750, parents=True, exist_ok=True)
            lock = (path / "audit.lock").open("ab")
        except OSError as error:
            raise NodeError(f"{path}: no audit log can be kept here: {_said(error)}. Choose another state") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise NodeError(
                f"{path}: another process writes this audit log. Only one node may use a state folder; "
                "stop the other one (fkge stop), or choose another state"
            ) from None
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

    @property
    def entries(self) -> int:
        """How many lines there are."""
        return self._entries

    @property
    def head(self) -> str:
        """The last line's chain; worth keeping elsewhere."""
        return self._head

    def left(
        self, *, to: str, what: str, nbytes: int, digest: str, protection: str, price: str | None, session: int
    ) -> None:
        """Write down that something is about to leave.

        Args:
            to: the peer.
            what: the kind of message.
            nbytes: how long it is.
            digest: SHA-256 of the bytes, in hex.
            protection: what covers it, in words that recur, so that they can be added up; "none" is one.
            price: what paid for it: the key of its entry in the privacy ledger, say; None where nothing did.
            session: the exchange that it belongs to.

        Raises:
            NodeError: it could not be written, so it must not leave.
        """
        self._write(
            "left",
            f',"to":{_text(to)},"what":{_text(what)},"bytes":{nbytes:d},"digest":{_text(digest)}'
            f',"protection":{_text(protection)},"price":{"null" if price is None else _text(price)}'
            f',"session":{session:d}',
        )

    def note(self, event: str, **fields: Any) -> None:
        """Write down something else that matters to whoever audits: a life, a refusal, an alignment."""
        if taken := _RESERVED & set(fields):
            raise ValueError(f"an entry has its own {', '.join(sorted(taken))}")
        if event == "left":
            raise ValueError("what left is written down by left()")
        told = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._write(event, "," + told[1:-1] if fields else "")

    def flush(self, durable: bool = False) -> None:
        """Every line is with the operating system already; with `durable`, wait until it is on disk and anchored."""
        if durable:
            self._sync()

    def close(self) -> None:
        """Make all of it durable and let go."""
        with self._syncing:
            if self._over.is_set():
                return
            self._over.set()
        try:
            self._sync(closed=True)
        finally:
            with self._turn:
                os.close(self._fd)
                self._fd = -1
            self._lock.close()

    # -- writing -------------------------------------------------------------------------------------

    def _write(self, event: str, told: str) -> None:
        with self._turn:
            if self._fd < 0:
                raise NodeError(f"{self.folder}: the audit log is closed, so nothing may leave any more")
            try:
                if self._offset >= self._file_bytes:
                    self._rotate()
                if self._offset == 0:
                    self._head_file()
                self._append(event, told)
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._offset)
                raise NodeError(
                    f"{self._path}: cannot be written: {_said(error)}. What is not written down does not leave; make "
                    "room, and start the node again"
                ) from error

    def _append(self, event: str, told: str) -> None:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        body = (
            f'{{"seq":{self._entries + 1},"time":"{self._stamp}.{int((now - second) * 1000):03d}Z"'
            f',"event":{_text(event)}{told}'
        ).encode("utf-8", "backslashreplace")
        chain = _chained(self._head, body)
        line = body + b',"chain":"' + chain.encode() + b'"}\n'
        written = os.write(self._fd, line)
        while written < len(line):
            written += os.write(self._fd, line[written:])
        self._entries += 1
        self._head = chain
        self._offset += len(line)

    def _rotate(self) -> None:
        os.fsync(self._fd)
        following = _opened(self.folder, self._number + 1)
        os.close(self._fd)
        self._fd, self._number, self._offset = following, self._number + 1, 0

    def _head_file(self) -> None:
        """A file's first line says whose it is and what came before, so that it can be checked by itself."""
        whose = f',"node":{_text(self._node)}'
        if self._entries == 0:
            self._append("opened", whose)
        else:
            before = _path(self.folder, self._number - 1).name
            self._append("continues", f'{whose},"after":{_text(before)},"previous":"{self._head}"')

    def _sync(self, closed: bool = False) -> None:
        with self._syncing:
            with self._turn:
                if self._fd < 0:
                    return
                anchor = Anchor(self._node, self._entries, self._head, self._number, self._offset, closed)
                fd = os.dup(self._fd)
            try:
                if anchor != self._anchor:
                    os.fsync(fd)
                    self._write_anchor(anchor)
            except OSError as error:
                raise NodeError(f"{self.folder}: the audit log cannot be made durable: {_said(error)}") from error
            finally:
                os.close(fd)

    def _keep_durable(self) -> None:
        while not self._over.wait(SECONDS_BETWEEN_SYNCS):
            with suppress(NodeError):  # the next line will not fit either, and says so to whoever writes it
                self._sync()

    def _write_anchor(self, anchor: Anchor) -> None:
        told = vars(anchor) | {"seal": _seal(self._key, anchor)}
        write_atomically(self.folder / "audit.anchor", json.dumps(told).encode())
        self._anchor = anchor

    # -- beginning -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        files = _files(self.folder)
        anchor = _read_anchor(self.folder)
        key = self.folder / "audit.key"
        if anchor is None and files:
            raise LedgerError(f"{self.folder}: the audit log's anchor audit.anchor is lost. {_RESTORE}")
        if anchor is None:
            _make_key(key)
        self._key = _read_key(key)
        told, torn = Anchor(self._node), 0
        if anchor is not None:
            told = anchor[0]
            if told.node != self._node:
                raise LedgerError(
                    f"{self.folder}: is the audit log of node {told.node!r}, not of {self._node!r}. "
                    "Each node has a state folder of its own"
                )
            _check_seal(self.folder, anchor, self._key)
            torn = self._catch_up(told, files)
        self._write_anchor(replace(told, closed=False))
        self._fd = _opened(self.folder, self._number)
        os.ftruncate(self._fd, self._offset)
        if torn:
            self.note("torn line cut off", bytes=torn)

    def _catch_up(self, anchor: Anchor, files: dict[int, Path]) -> int:
        """Go to the end, checking what comes after the anchor. Returns how many bytes there are no line."""
        if anchor.entries and anchor.file not in files:
            raise LedgerError(f"{_path(self.folder, anchor.file)}: is gone, and its anchor knows it. {_RESTORE}")
        if anchor.entries:
            _check_place(files[anchor.file], anchor)
        reading = _Reading(anchor.entries + 1, anchor.head)
        self._number, self._offset = anchor.file, anchor.offset
        for number in sorted(n for n in files if n >= anchor.file):
            if reading.torn:
                raise LedgerError(f"{self._path}: ends within a line, but another file follows. {_RESTORE}")
            self._number = number
            self._offset = anchor.offset if number == anchor.file else 0
            for _, raw in reading.lines(files[number], self._offset):
                self._offset += len(raw) + 1
        if anchor.closed and reading.due > anchor.entries + 1:
            raise LedgerError(
                f"{self._path}: entry {anchor.entries + 1} was put in after the log was closed. {_RESTORE}"
            )
        self._entries, self._head = reading.due - 1, reading.chain
        return reading.torn

    @property
    def _path(self) -> Path:
        return _path(self.folder, self._number)


class _Reading:
    """Lines as they come, each against the one before."""

    def __init__(self, due: int, chain: str) -> None:
        self.due = due
        self.chain = chain
        self.torn = 0

    def lines(self, path: Path, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Number and bytes of each whole line of a file from `offset` on; `torn` says how much is left after them."""
        place = 0
        with path.open("rb") as f:
            if offset:
                place = _count_lines(f, offset)
            for raw in f:
                place += 1
                if not raw.endswith(b"\n"):
                    self.torn = len(raw)
                    return
                yield self.due, self._check(path, place, raw[:-1])

    def _check(self, path: Path, place: int, raw: bytes) -> bytes:
        found = _LINE.fullmatch(raw)
        if found is None:
            raise LedgerError(f"{path}:{place}: is no line of an audit log; it was altered or put in. {_RESTORE}")
        number = int(found[2])
        if number > self.due:
            raise LedgerError(
                f"{path}:{place}: entry {number} stands where {self.due} is due; entries were taken out or moved. "
                f"{_RESTORE}"
            )
        if number < self.due:
            raise LedgerError(
                f"{path}:{place}: entry {number} stands where {self.due} is due; it was moved or put in. {_RESTORE}"
            )
        chain = _chained(self.chain, found[1])
        if chain.encode() != found[3]:
            raise LedgerError(f"{path}:{place}: entry {number} was altered. {_RESTORE}")
        self.due, self.chain = number + 1, chain
        return raw


def entries(place: Path) -> Iterator[dict[str, Any]]:
    """Every entry of a log (its folder, or one of its files), each checked against the one before.

    Raises:
        LedgerError: where the chain breaks.
    """
    for number, raw in _walk(place, _Reading(1, GENESIS)):
        try:
            yield json.loads(raw)
        except ValueError:
            raise LedgerError(f"{place}: entry {number} is no JSON; the log was written anew. {_RESTORE}") from None


def verify(place: Path, *, head: str | None = None, key: bytes | None = None) -> Verdict:
    """Check a log (its folder), or one of its files by itself, which has no anchor.

    Args:
        place: the folder, or a file.
        head: a chain that somebody kept: the log must have come by it.
        key: of the anchor's seal; by default the one beside the log, if it is there.

    Raises:
        LedgerError: what was found, in one sentence with the file and the line.
    """
    anchor = _read_anchor(place) if place.is_dir() else None  # before the lines: a node may be writing them
    reading = _Reading(1, GENESIS)
    count, first = 0, 0
    met = {GENESIS} if head is None or head == GENESIS else set()
    at_anchor: str | None = GENESIS if anchor is not None and anchor[0].entries == 0 else None
    for number, _ in _walk(place, reading):
        count, first = count + 1, first or number
        if reading.chain == head:
            met.add(head)
        if anchor is not None and number == anchor[0].entries:
            at_anchor = reading.chain
    if place.is_dir():
        if anchor is None:
            raise LedgerError(f"{place}: the audit log's anchor audit.anchor is lost. {_RESTORE}")
        if anchor[0].closed and reading.due > anchor[0].entries + 1 and _read_anchor(place) != anchor:
            return verify(place, head=head, key=key)  # a node has begun to write meanwhile
        key = _check_anchor(place, anchor, key, reading.due - 1, at_anchor)
    if not met:
        raise LedgerError(
            f"{place}: never came by the head {head}: its end was cut off, or its history was written anew. {_RESTORE}"
        )
    return Verdict(count, first, reading.due - 1 if count else 0, reading.chain, key is not None, reading.torn)


def _check_anchor(
    folder: Path, anchor: tuple[Anchor, str], key: bytes | None, last: int, at_anchor: str | None
) -> bytes | None:
    """Check a log that ends with entry `last` against its anchor. Returns the key, if there is one."""
    told = anchor[0]
    if last < told.entries:
        raise LedgerError(
            f"{folder}: ends with entry {last}, but its anchor has seen {told.entries}: its end was cut off. {_RESTORE}"
        )
    if at_anchor != told.head:
        raise LedgerError(f"{folder}: has another history than its anchor has seen. {_RESTORE}")
    if told.closed and last > told.entries:
        raise LedgerError(
            f"{folder}: entry {told.entries + 1} was put in after the log was closed with {told.entries}. {_RESTORE}"
        )
    path = folder / "audit.key"
    if key is None and os.access(path, os.R_OK):
        key = _read_key(path)
    if key is not None:
        _check_seal(folder, anchor, key)
    return key


def _walk(place: Path, reading: _Reading) -> Iterator[tuple[int, bytes]]:
    files = _files(place) if place.is_dir() else {1: place}
    if not files or not all(path.exists() for path in files.values()):
        raise LedgerError(f"{place}: no audit log is here. A node keeps its own in STATE/audit")
    if not place.is_dir():
        _begin_within(place, reading)
    for due, number in enumerate(sorted(files), start=1):
        if number != due and place.is_dir():
            raise LedgerError(f"{_path(place, due)}: is gone. {_RESTORE}")
        if reading.torn:
            raise LedgerError(f"{_path(place, due - 1)}: ends within a line, but another file follows. {_RESTORE}")
        yield from reading.lines(files[number])


def _begin_within(file: Path, reading: _Reading) -> None:
    """A file by itself: what came before is what its first line says."""
    with file.open("rb") as f:
        found = _LINE.fullmatch(f.readline().rstrip(b"\n"))
    if found is None or int(found[2]) == 1:
        return
    with suppress(ValueError):
        told = json.loads(found[0])
        if told["event"] == "continues" and isinstance(told.get("previous"), str):
            reading.due, reading.chain = int(found[2]), told["previous"]


def _check_place(path: Path, anchor: Anchor) -> None:
    """Whether the line that ends where the anchor says is the one that it has seen."""
    end = f',"chain":"{anchor.head}"}}\n'.encode()
    with path.open("rb") as f:
        size = f.seek(0, os.SEEK_END)
        if size < anchor.offset:
            raise LedgerError(
                f"{path}: has {size} bytes, but its anchor has seen {anchor.offset}: its end was cut off. {_RESTORE}"
            )
        f.seek(max(0, anchor.offset - len(end)))
        if f.read(len(end)) != end:
            raise LedgerError(f"{path}: has another history than its anchor has seen. {_RESTORE}")


def _count_lines(f: IO[bytes], offset: int) -> int:
    """How many lines end before `offset`; the file is there afterwards."""
    count = 0
    while offset:
        block = f.read(min(offset, _BLOCK))
        count, offset = count + block.count(b"\n"), offset - len(block)
    return count


# -- files -------------------------------------------------------------------------------------------


def _files(folder: Path) -> dict[int, Path]:
    found = ((_FILE.fullmatch(path.name), path) for path in folder.iterdir())
    return {int(name[1]): path for name, path in found if name is not None}


def _path(folder: Path, number: int) -> Path:
    return folder / f"audit-{number:06d}.log"


def _opened(folder: Path, number: int) -> int:
    fd = os.open(_path(folder, number), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    sync_folder(folder)
    return fd


def _read_anchor(folder: Path) -> tuple[Anchor, str] | None:
    """The anchor and its seal, or None if there is none."""
    path = folder / "audit.anchor"
    try:
        told = json.loads(path.read_bytes())
        seal = told.pop("seal")
        anchor = Anchor(**told)
        if not isinstance(seal, str) or [type(v) for v in vars(anchor).values()] != [str, int, str, int, int, bool]:
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise LedgerError(f"{path}: is damaged. {_RESTORE}") from None
    return anchor, seal


def _make_key(path: Path) -> None:
    with suppress(FileExistsError):  # a crash came before the first anchor
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(secrets.token_bytes(32))
            f.flush()
            os.fsync(f.fileno())


def _read_key(path: Path) -> bytes:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise LedgerError(f"{path}: others may read the audit log's key. Run: chmod 600 {path.name}")
        key = path.read_bytes()
    except FileNotFoundError:
        raise LedgerError(f"{path}: the audit log's key is gone. {_RESTORE}") from None
    if len(key) != 32:
        raise LedgerError(f"{path}: the audit log's key is damaged. {_RESTORE}")
    return key


def _check_seal(folder: Path, anchor: tuple[Anchor, str], key: bytes) -> None:
    if not hmac.compare_digest(anchor[1], _seal(key, anchor[0])):
        raise LedgerError(f"{folder / 'audit.anchor'}: was altered, or its key is another log's. {_RESTORE}")


def _seal(key: bytes, anchor: Anchor) -> str:
    return hmac.new(key, json.dumps(vars(anchor), sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _chained(previous: str, body: bytes) -> str:
    return hashlib.sha256(previous.encode() + body).hexdigest()


def _said(error: OSError) -> str:
    return error.strerror or str(error)
