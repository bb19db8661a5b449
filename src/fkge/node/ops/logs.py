"""A node's log: one JSON line per event, with time, level, event and fields, and no secret in it.

What may appear in a line is listed, not what may not: numbers and booleans under known names, and texts that are known
beforehand (events, states, reasons; peers' names and addresses, passed to `Log.know`). Anything else, be it a label
or a key that was passed by mistake, or the message of an error that quotes one, comes out as the name of its type.

`logging` rotates, and carries what libraries log. Writing stays by hand, one write(2) per line: on a full disk a
buffered stream would leave half a line, and complete it after later ones.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partialmethod
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Self

from fkge.errors import NodeError
from fkge.node import frames_pb2 as pb
from fkge.node.state import NodeState

LEVELS = ("debug", "info", "warning", "error")
FILE_BYTES = 16 << 20
"""Size at which the log is rotated."""

KEPT = 5
"""How many rotated files are kept."""


NUMBERS = frozenset({
    "life", "epoch", "epochs", "step", "session", "round", "attempt", "attempts", "count", "seconds", "wait", "bytes",
    "bytes_in", "bytes_out", "messages", "nbytes", "shared", "rows", "entities", "relations", "exchanges", "peers",
    "queue", "code", "errno", "port", "pid", "number", "entries", "lost", "left_out", "line", "mrr", "validation_mrr",
    "epsilon", "delta", "days", "rate", "limit", "size", "signal",
})  # fmt: skip
"""Fields that hold a number or a boolean."""

FLAGS = frozenset({"founder", "durable", "resumed", "private", "accepted", "ready", "connected", "duplicate"})
"""Fields that hold a boolean."""

WORDS = {
    "event": frozenset({
        "node started", "node stopped", "node paused", "node resumed", "node failed", "state", "peer connected",
        "peer lost", "peer refused", "peer joined", "exchange abandoned", "aligned", "alignment refused",
        "founder missing", "epoch", "checkpoint", "budget spent", "refused", "library", "certificate", "peers",
    }),
    "state": frozenset((*NodeState, "here", "away", "refused", "aligning", "connected", "joined", "paused")),
    "reason": frozenset((
        *(name.lower() for name in pb.Reason.keys()),  # noqa: SIM118
        "early", "old", "unreadable", "closed", "budget", "settings", "damaged", "timeout",
    )),
    "outcome": frozenset({"accepted", "deferred", "refused", "aborted", "finished", "backtracked", "abandoned"}),
    "kind": frozenset({
        "Keys", "Intersect", "Pact", "Tokens", "message", "Signal", "Request", "Accept", "Defer", "Refuse", "Abort",
        "Update", "Structure", "Ack", "Samples", "Candidate", "Gradient", "Received",
    }),
    "library": frozenset({"grpc", "asyncio", "cryptography"}),
}  # fmt: skip
"""Fields that hold one of a few words, and labels of metrics."""

KNOWN = frozenset({"node", "peer", "address", "fingerprint", "version", "privacy", "head"})
"""Fields that hold a text which was passed to `Log.know`."""

_LARGEST = 1 << 53

Record = Mapping[str, object]
"""A line of the log, parsed: `time`, `level`, `event`, and the fields of that event."""


class Log(logging.handlers.RotatingFileHandler):
    """The log of one node, as a handler of `logging` that the node writes to directly.

    It may be used from any thread. On a full disk lines are lost, and the next one that is written counts them.

    Args:
        path: of the file; rotated ones are next to it as ``node.log.1`` and so on.
        level: what is less than this is left out.
        file_bytes: size at which it is rotated.
        echo: write lines to standard error, too, for people or for the journal.

    Raises:
        NodeError: the file cannot be written.
    """

    def __init__(self, path: Path, *, level: str = "info", file_bytes: int = FILE_BYTES, echo: bool = False) -> None:
        self._echo, self._lost, self._known = echo, 0, frozenset[str]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            super().__init__(path, maxBytes=file_bytes, backupCount=KEPT, encoding="utf-8")
            assert self.stream is not None  # opened at once, without `delay`
            fd = self.stream.fileno()
            if (size := os.fstat(fd).st_size) and os.pread(fd, 1, size - 1) != b"\n":
                os.write(fd, b"\n")  # end a line that a crash cut short
        except OSError as error:
            raise NodeError(f"{path}: the log cannot be written: {error.strerror}. Choose another state") from error
        self.setLevel(level.upper())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def know(self, *texts: str) -> None:
        """Allow texts in the fields of `KNOWN`, such as the names and addresses of peers."""
        with self.lock or contextlib.nullcontext():
            self._known |= frozenset(texts)

    def write(self, level: str, event: str, /, **fields: object) -> None:
        """Write one line, if `level` is high enough. An exception as `error` is known by its type, not its message."""
        record = logging.LogRecord("fkge.node", logging.getLevelName(level.upper()), "", 0, event, None, None)
        record.fields = fields
        if record.levelno >= self.level:
            self.handle(record)

    debug = partialmethod(write, "debug")
    info = partialmethod(write, "info")
    warning = partialmethod(write, "warning")
    error = partialmethod(write, "error")

    def listen(self, *loggers: str) -> logging.Handler:
        """Take warnings and errors of libraries, too, from the loggers of these names; return the handler."""
        for name in loggers:
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.propagate = False  # `logging`'s last resort would print the messages
        return self

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or (record.levelno < logging.WARNING and not hasattr(record, "fields")):
            return
        values = {**self._cleaned(record), **({"lost": self._lost} if self._lost else {})}
        line = (json.dumps(values) + "\n").encode()
        try:
            size = os.fstat(self.stream.fileno()).st_size
            if size and size + len(line) > self.maxBytes:
                self.doRollover()
                size = 0
            if os.write(self.stream.fileno(), line) < len(line):
                os.ftruncate(self.stream.fileno(), size)  # there was no room for all of it
                self._lost += 1
            else:
                self._lost = 0
        except OSError:
            self._lost += 1
        if self._echo:
            with contextlib.suppress(OSError, ValueError):
                print(render(values), file=sys.stderr, flush=True)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a+", opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o640))

    def _cleaned(self, record: logging.LogRecord) -> Record:
        """Return the fields of a record that may be written; of a library's, its name and place, not its message."""
        fields: Mapping[str, object] | None = getattr(record, "fields", None)
        if fields is None:
            event, place = "library", {"place": record.module, "line": record.lineno}
            error = {"error": record.exc_info[1]} if record.exc_info and record.exc_info[1] is not None else {}
            fields = {"library": record.name.split(".")[0], **error}
        else:
            event, place = str(record.msg), {}
        now, level = record.created, min(record.levelno, logging.ERROR)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        out: dict[str, object] = {"time": moment, "level": LEVELS[level // 10 - 1]}
        out |= {"event": self._clean("event", event), **place}
        allowed = NUMBERS | FLAGS | KNOWN | WORDS.keys() | {"error"}
        out |= {n: self._clean(n, value) for n, value in fields.items() if n in allowed and n not in out}
        if left_out := sum(name not in allowed or name in ("time", "level", "event") for name in fields):
            out["left_out"] = left_out
        return out

    def _clean(self, name: str, value: Any) -> Any:
        """Return `value` if it may stand under `name`, or the name of its type."""
        kind = type(value)
        if value is None:
            return None
        if name in NUMBERS or name in FLAGS:
            if kind is bool or (kind is int and abs(value) <= _LARGEST and name in NUMBERS):
                return value
            if kind is float and name in NUMBERS and math.isfinite(value):
                return float(f"{value:.6g}")
        elif name == "error":
            if isinstance(value, BaseException):
                return kind.__name__
        elif kind is str and (value in WORDS.get(name, ()) or (name in KNOWN and value in self._known)):
            return value
        return f"({kind.__name__})"


# -- reading -----------------------------------------------------------------------------------------


class Tail:
    """Read a log while it is written and rotated.

    Args:
        path: of the log; level: lines below it are left out.
        peer: only lines about this peer; all if None.
    """

    def __init__(self, path: Path, *, level: str = "debug", peer: str | None = None) -> None:
        self.path, self._least, self._peer = path, LEVELS.index(level), peer
        self._inode, self._offset = -1, 0

    def last(self, count: int) -> list[Record]:
        """Return the last `count` records, also of rotated files; `more` continues after them.

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
                found = [*self._records(self._rotated(number).read_bytes()), *found]
        return found[max(0, len(found) - count) :]

    def more(self) -> Iterator[Record]:
        """Yield the records written since the last call."""
        with contextlib.ExitStack() as opened:
            files: dict[int, BinaryIO] = {}  # by inode: the newest, and back to the one that was read last
            for number in range(KEPT + 1 if self._inode >= 0 else 1):
                with contextlib.suppress(FileNotFoundError):
                    f = opened.enter_context(self._rotated(number).open("rb"))
                    files.setdefault(os.fstat(f.fileno()).st_ino, f)
                if self._inode in files:
                    break
            for inode, file in reversed(files.items()):
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read()
                data = data[: data.rfind(b"\n") + 1]
                self._offset += len(data)
                yield from self._records(data)

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def _records(self, data: bytes) -> Iterator[Record]:
        for line in data.split(b"\n"):
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and {"time", "level", "event"} <= set(record):
                    level = record["level"]
                    enough = level not in LEVELS or LEVELS.index(level) >= self._least
                    if enough and self._peer in (None, record.get("peer")):
                        yield record


def render(record: Record) -> str:
    """Format a record as one line for people."""
    head = ("time", "level", "event")
    fields = " ".join(f"{name}={value}" for name, value in record.items() if name not in head)
    text = f"{record['time']} {str(record['level']).upper():7} {record['event']}" + ("  " + fields if fields else "")
    return printable(text)


def printable(text: str) -> str:
    """Return `text` with every control character replaced, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
