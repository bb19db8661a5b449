"""Record every message and event of one participant to a file.

A participant is a function of its inputs: messages from peers, lost peers, expired timers, and the point of its own
training at which each of them came. A `Recorder` writes all of these in order, with digests of every message sent;
`fkge.experiment.replay` feeds a recording to an owner again. How long the owner took is not recorded.

A recording contains what peers sent. It is as private as the owner's store, and as large as all the messages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fkge.federation.events import Event


class Recorder:
    """Writes a recording: one JSON object per line, and after the line of a received message its bytes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._pauses = 0

    def close(self) -> None:
        self._write_pauses()
        self._file.close()

    def begin(self, trained: bool) -> None:
        self._write("begin", trained=trained)

    def event(self, event: Event) -> None:
        self._write("event", kind=type(event).__name__, fields=asdict(event))

    def received(self, peer: str, data: bytes) -> None:
        self._write("heard", peer=peer, size=len(data))
        self._file.write(data)

    def sent(self, peer: str, data: bytes) -> None:
        self._write("said", peer=peer, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def improve(self) -> None:
        """A round of training begins."""
        self._write("improve")

    def improved(self) -> None:
        """A round of training is computed; `finish` follows when it is over on the engine's clock."""
        self._write("improved")

    def finish(self) -> None:
        self._write("finish")

    def wrap(self, pause: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """`pause` of a round of training, recorded: inputs that arrive within it belong to that point of the round."""
        if pause is None:
            return None

        def recorded() -> bool:
            self._pauses += 1
            leave = pause()
            if leave:
                self._write("left")
            return leave

        return recorded

    def _write(self, what: str, **fields: Any) -> None:
        self._write_pauses()
        self._file.write(json.dumps({"what": what, **fields}).encode() + b"\n")

    def _write_pauses(self) -> None:
        """Write how many pauses passed without input; they are counted, as there are thousands."""
        if self._pauses:
            self._file.write(json.dumps({"what": "pauses", "count": self._pauses}).encode() + b"\n")
            self._pauses = 0


def read_recording(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The records of a recording, each with the bytes of the message it received, if any."""
    with path.open("rb") as file:
        while line := file.readline():
            record = json.loads(line)
            yield record, file.read(record["size"]) if record["what"] == "heard" else b""
