"""Record every message and event of one participant to a file.

A `Recorder` writes all inputs in order (messages, lost peers, expired timers, the point of the training at which each
came), with digests of every message sent; they can be fed to an owner again. A recording contains what peers sent: it
is as private as the owner's store, and as large as all the messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Required, TypedDict

from fkge.federation.events import Event


class Recorder:
    """Writes a recording: one JSON object per line, and after the line of a received message its bytes.

    Args:
        path: of the file; None writes nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._file: BinaryIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        self._pauses = 0

    def close(self) -> None:
        if self._file is not None:
            self._write_pauses(self._file)
            self._file.close()

    def note(self, what: str, data: bytes = b"", **fields: Any) -> None:
        """Record what happens to the participant: ``begin``; ``improve``, ``improved`` once a round of training is
        computed, and ``finish`` when it is over on the engine's clock; the others have methods of their own.
        """
        if self._file is not None:
            self._write_pauses(self._file)
            self._file.write(json.dumps({"what": what, **fields}).encode() + b"\n" + data)

    def event(self, event: Event) -> None:
        self.note("event", kind=type(event).__name__, fields=asdict(event))

    def received(self, peer: str, data: bytes) -> None:
        self.note("heard", data, peer=peer, size=len(data))

    def sent(self, peer: str, data: bytes) -> None:
        if self._file is not None:
            self.note("said", peer=peer, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def wrap(self, pause: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """Return `pause` of a round of training, recorded: inputs that arrive in it belong to that point."""
        if pause is None or self._file is None:
            return pause

        def recorded() -> bool:
            self._pauses += 1
            leave = pause()
            if leave:
                self.note("left")
            return leave

        return recorded

    def _write_pauses(self, file: BinaryIO) -> None:
        """Write how many pauses passed without input; they are counted, as there are thousands."""
        if self._pauses:
            file.write(json.dumps({"what": "pauses", "count": self._pauses}).encode() + b"\n")
            self._pauses = 0


class Record(TypedDict, total=False):
    """A line of a recording; `what` is always there, the others where they apply (see `Recorder`)."""

    what: Required[str]
    kind: str
    fields: dict[str, str]
    peer: str
    size: int
    sha256: str
    count: int
    trained: bool


def read_recording(path: Path) -> Iterator[tuple[Record, bytes]]:
    """Yield the records of a recording, each with the bytes of the message it received, if any."""
    with path.open("rb") as file:
        while line := file.readline():
            record: Record = json.loads(line)
            yield record, file.read(record["size"]) if record["what"] == "heard" else b""
