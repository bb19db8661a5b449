"""A node's log: one JSON line for each thing that happened, with time, level, event and fields, and no secret in it.

What may stand in a line is listed, not what may not: numbers and booleans under known names, and texts that are known
beforehand (events, states, reasons; peers' names and addresses, which `Log.know` is told). Anything else, be it a label
or a key that was handed in by mistake, or the sentence of an error that quotes one, comes out as its type's name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from fkge.errors import NodeError

LEVELS = ("debug", "info", "warning", "error")
FILE_BYTES = 16 << 20
"""How long the log gets before it is put aside."""

KEPT = 5
"""How many that were put aside are kept."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NUMBERS = _words(
    "life epoch epochs step session round attempt attempts count seconds wait bytes bytes_in bytes_out messages nbytes "
    "shared rows entities relations exchanges peers queue code errno port pid number entries lost left_out line mrr "
    "validation_mrr epsilon delta days rate limit size signal"
)
"""Fields that hold a number or a boolean."""

FLAGS = _words("founder durable resumed private accepted ready connected duplicate")
"""Fields that hold a boolean."""

WORDS: dict[str, frozenset[str]] = {
    "event": frozenset(
        {
            "node started", "node stopped", "node paused", "node resumed", "node failed", "state",
            "peer connected", "peer lost", "peer refused", "peer restarted", "peer joined", "peer left",
            "exchange began", "exchange finished", "exchange abandoned", "aligned", "alignment refused",
            "founder missing",
            "epoch", "validated", "checkpoint", "budget spent", "refused", "library", "control",
            "certificate", "peers", "revocation list", "retry", "resent", "duplicate dropped",
        }
    ),
    "state": _words(
        "starting waiting training exchanging aligning resting sleeping paused stopping done failed ready busy sleep "
        "connected connecting away refused lost"
    ),
    "reason": _words(
        "expired early revoked stranger forged name unreadable timeout closed restarted budget policy ratio hours "
        "bandwidth items protocol version size busy stopping unreachable handshake rate settings graph disk memory "
        "signal request permission"
    ),
    "outcome": _words("accepted deferred refused aborted finished backtracked abandoned"),
    "direction": frozenset({"in", "out"}),
    "command": frozenset({"status", "pause", "resume", "stop"}),
    "kind": _words(
        "Signal Request Accept Defer Refuse Abort Offer Structure Thanks Samples Candidate Gradient Received"
    ),
    "library": frozenset({"grpc", "asyncio", "cryptography"}),
}  # fmt: skip
"""Fields that hold one of a few words."""

KNOWN = _words("node peer address fingerprint version privacy head")
"""Fields that hold a text which `Log.know` was told."""

_LARGEST = 1 << 53


class Log:
    """The log, open. Safe from any thread; a disk that is full loses lines, which the next one counts, and no more.

    Args:
        path: of the file; older ones lie beside it as ``node.log.1`` and so on.
        level: what is less than this is left out.
        words: more words for fields, by field.
        file_bytes: how long it gets before it is put aside.
        echo: whether lines also go to standard error, for people or for the journal.
    """

    def __init__(
        self,
        path: Path,
        *,
        level: str = "info",
        words: Mapping[str, Collection[str]] | None = None,
        file_bytes: int = FILE_BYTES,
        echo: bool = False,
    ) -> None:
        self.path = path
        self._least = LEVELS.index(level)
        self._words = {name: WORDS.get(name, frozenset()) | set((words or {}).get(name, ())) for name in WORDS}
        self._known: set[str] = set()
        self._file_bytes = file_bytes
        self._echo = echo
        self._lost = 0
        self._turn = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = _opened(path)
            self._size = os.fstat(self._fd).st_size
            self._end_torn_line()
        except OSError as error:
            raise NodeError(f"{path}: the log cannot be written: {error.strerror}. Choose another state") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; what is logged later is lost."""
        with self._turn:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def know(self, *texts: str) -> None:
        """Texts that may stand in lines, such as the names and addresses of peers, from a node's configuration."""
        with self._turn:
            self._known = self._known | set(texts)

    def debug(self, event: str, **fields: Any) -> None:
        self.write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self.write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self.write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self.write("error", event, fields)

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """One line, if `level` is high enough. An exception as `error` is known by its type, never by its words."""
        if LEVELS.index(level) < self._least:
            return
        told: dict[str, Any] = {"time": _now(), "level": level, "event": self._clean("event", event)}
        left_out = 0
        for name, value in fields.items():
            if name in told or not self._is_listed(name):
                left_out += 1
            else:
                told[name] = self._clean(name, value)
        if left_out:
            told["left_out"] = left_out
        with self._turn:
            if self._lost:
                told["lost"] = self._lost
            self._put((json.dumps(told, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
            if self._echo:
                with contextlib.suppress(OSError, ValueError):
                    print(render(told), file=sys.stderr, flush=True)

    def listen(self, *loggers: str, level: int = logging.WARNING) -> logging.Handler:
        """Let what libraries say through Python's logging come here too: who, and where in its code; not what.

        Returns the handler, to be removed again with `logging.getLogger(name).removeHandler`.
        """
        handler = _Bridge(self, level)
        for name in loggers:
            logger = logging.getLogger(name)
            logger.addHandler(handler)
            logger.propagate = False  # Python's own last resort would print the words
        return handler

    def _is_listed(self, name: str) -> bool:
        return name in NUMBERS or name in FLAGS or name in self._words or name in KNOWN or name in ("error", "place")

    def _clean(self, name: str, value: Any) -> Any:
        """`value` if it may stand under `name`, or the name of its type."""
        if value is None:
            return None
        kind = type(value)
        if name in NUMBERS or name in FLAGS:
            if kind is bool or (kind is int and abs(value) <= _LARGEST and name in NUMBERS):
                return value
            if kind is float and name in NUMBERS and math.isfinite(value):
                return float(f"{value:.6g}")
        elif name == "error":
            if isinstance(value, BaseException):
                return kind.__name__
        elif kind is _Place:
            return str(value)
        elif kind is str and (value in self._words.get(name, ()) or (name in KNOWN and value in self._known)):
            return value
        return f"({kind.__name__})"

    # -- the file ------------------------------------------------------------------------------------

    def _put(self, line: bytes) -> None:
        try:
            if self._size and self._size + len(line) > self._file_bytes:
                self._put_aside()
            if (written := os.write(self._fd, line)) < len(line):
                os.ftruncate(self._fd, self._size)  # there was no room for all of it
        except OSError:
            written = 0
        if written == len(line):
            self._size += written
            self._lost = 0
        else:
            self._lost += 1

    def _put_aside(self) -> None:
        for number in range(KEPT, 0, -1):
            older = _aside(self.path, number - 1)
            if older.exists():
                older.replace(_aside(self.path, number))
        following = _opened(self.path)
        os.close(self._fd)
        self._fd, self._size = following, 0

    def _end_torn_line(self) -> None:
        """End a line that a crash cut short, so that the next one is not lost with it."""
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._size += os.write(self._fd, b"\n")


class _Place(str):
    """Where in a program's own code: no data."""


class _Bridge(logging.Handler):
    def __init__(self, log: Log, level: int) -> None:
        super().__init__(level)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = (
            "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else "info"
        )
        fields: dict[str, Any] = {
            "library": record.name.split(".")[0],
            "place": _Place(record.module),
            "line": record.lineno,
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = record.exc_info[1]
        self._log.write(level, "library", fields)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def _aside(path: Path, number: int) -> Path:
    return path if number == 0 else path.with_name(f"{path.name}.{number}")


def _now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


# -- reading -----------------------------------------------------------------------------------------


class Tail:
    """Reads a log that is being written, also while it is put aside and begun anew.

    Args:
        path: of the log.
        level: leave out what is less than this.
        peer: only lines about this one.
    """

    def __init__(self, path: Path, *, level: str = "debug", peer: str | None = None) -> None:
        self.path = path
        self._least = LEVELS.index(level)
        self._peer = peer
        self._inode, self._offset = -1, 0

    def last(self, count: int) -> list[dict[str, Any]]:
        """The last `count` records, also of files that were put aside; `more` goes on after them.

        Raises:
            NodeError: there is no log.
        """
        if not self.path.exists():
            raise NodeError(f"{self.path}: no log is here. A node has one from its first start on")
        found = list(self.more())
        for number in range(1, KEPT + 1):
            if len(found) >= count:
                break
            with contextlib.suppress(FileNotFoundError):
                found = [*self._records(_aside(self.path, number).read_bytes()), *found]
        return found[max(0, len(found) - count) :]

    def more(self) -> Iterator[dict[str, Any]]:
        """The records that have come since."""
        try:
            with self.path.open("rb") as f:
                inode = os.fstat(f.fileno()).st_ino
                if inode != self._inode:
                    yield from self._rest_of_the_old_one()
                    self._inode, self._offset = inode, 0
                yield from self._from(f.fileno())
        except FileNotFoundError:
            return

    def _rest_of_the_old_one(self) -> Iterator[dict[str, Any]]:
        for number in range(1, KEPT + 1):
            with contextlib.suppress(FileNotFoundError), _aside(self.path, number).open("rb") as f:
                if os.fstat(f.fileno()).st_ino == self._inode:
                    yield from self._from(f.fileno())
                    yield from self._between(number)
                    return

    def _between(self, number: int) -> Iterator[dict[str, Any]]:
        for later in range(number - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                yield from self._records(_aside(self.path, later).read_bytes())

    def _from(self, fd: int) -> list[dict[str, Any]]:
        data = os.pread(fd, max(0, os.fstat(fd).st_size - self._offset), self._offset)
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return list(self._records(data))

    def _records(self, data: bytes) -> Iterator[dict[str, Any]]:
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and {"time", "level", "event"} <= set(record) and self._wanted(record):
                    yield record

    def _wanted(self, record: Mapping[str, Any]) -> bool:
        level = record["level"]
        enough = level not in LEVELS or LEVELS.index(level) >= self._least
        return enough and self._peer in (None, record.get("peer"))


def render(record: Mapping[str, Any]) -> str:
    """A record as one line for people."""
    head = ("time", "level", "event")
    fields = " ".join(f"{name}={value}" for name, value in record.items() if name not in head)
    text = f"{record['time']} {str(record['level']).upper():7} {record['event']}" + ("  " + fields if fields else "")
    return printable(text)


def printable(text: str) -> str:
    """`text` without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
