"""The trace of a run: one JSON line per event."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from fkge.files import write_atomically

Record: TypeAlias = dict[str, Any]
"""One event: its name under "event", and its fields."""


class Trace:
    """An append-only file of JSON lines; every line is complete once `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._whole = False

    def write(self, event: str, **fields: Any) -> None:
        """Append a record; NaN and infinity are refused (ValueError)."""
        line = json.dumps({"event": event, **fields}, ensure_ascii=False, allow_nan=False)
        with self.path.open("ab") as f:
            f.write((self._ending() + line + "\n").encode())

    def _ending(self) -> str:
        """Return what ends a line that a crash cut short, so that the next one is not lost with it."""
        if self._whole:
            return ""
        self._whole = True
        with self.path.open("rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - 1))
            return "" if f.read(1) in (b"", b"\n") else "\n"

    def read(self) -> list[Record]:
        """Return all complete records; other lines, such as one cut short by a crash, are left out."""
        return self.since(0)[0]

    def since(self, offset: int) -> tuple[list[Record], int]:
        """Return the complete records from a byte offset on, and the offset after them.

        A file that has become shorter than `offset` was rewritten, and is then read from its beginning.
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

    def keep(self, records: list[Record]) -> None:
        """Replace the file by `records`, in one step."""
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
        write_atomically(self.path, lines.encode())
