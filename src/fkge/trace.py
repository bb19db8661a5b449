"""What a run tells while it works: progress for people, one JSON line per event for machines.

Lower rooms report through `Progress` and never draw; the command line draws.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from fkge.errors import RunError


class Task(Protocol):
    """One thing under way."""

    def advance(self, amount: int, **shown: float | str) -> None:
        """Report `amount` more units done, and figures worth showing beside the bar."""


class Progress(Protocol):
    """Where work reports how far it is."""

    def task(self, name: str, total: int | None, unit: str = "") -> Any:
        """A context manager that yields a `Task` of `total` units (None: unknown)."""


class _Nothing:
    def advance(self, amount: int, **shown: float | str) -> None:
        pass


class Silent:
    """The progress of a library call: none."""

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Task]:
        yield _Nothing()


SILENT = Silent()


class Trace:
    """An append-only file of JSON lines; every line is complete once `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole = False

    def write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, allow_nan=False)
        with self.path.open("ab") as f:
            f.write((self._ending() + line + "\n").encode())

    def _ending(self) -> str:
        """What ends a line that a crash cut short, so that the next one is not lost with it."""
        if self._whole:
            return ""
        self._whole = True
        with self.path.open("rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - 1))
            return "" if f.read(1) in (b"", b"\n") else "\n"

    def read(self) -> list[dict[str, Any]]:
        """All complete records; a line that is none, such as one cut short by a crash, is left out."""
        return self.since(0)[0]

    def since(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """The complete records from a place in the file on, and the place after them, to go on from later.

        A file that has become shorter than `offset` was written anew: the answer is then (all of it, and its end).
        """
        try:
            with self.path.open("rb") as f:
                if f.seek(0, os.SEEK_END) < offset:
                    offset = 0
                f.seek(offset)
                data = f.read()
        except FileNotFoundError:
            return [], 0
        data = data[: data.rfind(b"\n") + 1]
        records = []
        for line in data.split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "event" in record:
                records.append(record)
        return records, offset + len(data)

    def keep(self, records: list[dict[str, Any]]) -> None:
        """Replace the file by `records`, in one step."""
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
        write_atomically(self.path, lines.encode())


def read_json(path: Path, way_out: str, *keys: str) -> dict[str, Any]:
    """The JSON object in a file of a run. If it is none, or lacks `keys`, a `RunError` that ends with the way out."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path}: is damaged. {way_out}")
    if missing := [key for key in keys if key not in found]:
        raise RunError(
            f"{path}: does not say {', '.join(missing)}; it is damaged, or of another version of fkge. {way_out}"
        )
    return found


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that a reader, or a crash, sees the old file or the new one and nothing between."""
    temporary = path.with_name(path.name + ".part")
    try:
        with temporary.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a file that was just put into `folder` survive a power cut there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[None]:
    """Make something in a folder that is new or empty: if that fails or is interrupted, what was written goes again.

    A folder that holds something is never touched, nor is one that turns out to be somebody else's (`RunError`).
    """
    there = folder.exists()
    if there and any(folder.iterdir()):
        yield
        return
    try:
        yield
    except RunError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            folder.mkdir(exist_ok=True)
        raise
