"""What an owner heard and said in one arm, and the same heard again by another.

An owner's station is a function of what it hears: what peers send, that one is lost, that a timer ran out, and at which
point of its own work each of these came. A `Tape` keeps all of that in order, and digests of all it said. `replay` lets
an owner with the same home, or a changed one, hear the same tape, and compares what it says byte by byte. That is what
non-interference means where owners react to each other: whatever its confidential triples, given the same to hear, an
owner says the same. How long it takes to say it is not on the tape.

A tape holds what peers sent, so it is as private as the owner's home, and it is as long as all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from fkge.errors import RunError
from fkge.federation.home import Arm, Home
from fkge.federation.owner import Outcome, Owner
from fkge.federation.protocol import Event, Joined, Lost, Wake
from fkge.federation.protocol import Protocol as Handshakes

_EVENTS: dict[str, type[Wake] | type[Lost] | type[Joined]] = {"Wake": Wake, "Lost": Lost, "Joined": Joined}


class Working(Protocol):
    """What a tape is played to; `fkge.engines.Station` is one."""

    owner: Owner

    def begin(self, trained: bool) -> None: ...
    def handle(self, event: Event) -> None: ...
    def deliver(self, peer: str, data: bytes) -> None: ...
    def improve(self, pause: Callable[[], bool] | None = None) -> Outcome: ...
    def finish(self, outcome: Outcome) -> None: ...


class Tape:
    """Records, to a file: one JSON object a line, and after a delivery's line its bytes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("wb")
        self._pauses = 0

    def close(self) -> None:
        self._write_pauses()
        self._file.close()

    def begin(self, trained: bool) -> None:
        self._write("begin", trained=trained)

    def event(self, event: Event) -> None:
        self._write("event", kind=type(event).__name__, fields=asdict(event))

    def heard(self, peer: str, data: bytes) -> None:
        self._write("heard", peer=peer, size=len(data))
        self._file.write(data)

    def said(self, peer: str, data: bytes) -> None:
        self._write("said", peer=peer, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def improve(self) -> None:
        self._write("improve")

    def paused(self) -> None:
        """The owner's work has come to a point where it listens."""
        self._pauses += 1

    def improved(self) -> None:
        self._write("improved")

    def left(self) -> None:
        """The work was told to stop at the last pause."""
        self._write("left")

    def finish(self) -> None:
        self._write("finish")

    def _write(self, what: str, **fields: Any) -> None:
        self._write_pauses()
        self._file.write(json.dumps({"what": what, **fields}).encode() + b"\n")

    def _write_pauses(self) -> None:
        if self._pauses:
            self._file.write(json.dumps({"what": "pauses", "count": self._pauses}).encode() + b"\n")
            self._pauses = 0


@dataclass(frozen=True)
class Difference:
    """The first place where a replay says something else.

    Attributes:
        message: its number among all that the owner said, from 0.
        expected, got: (peer, size, digest) on the tape and in the replay; None where one has fallen silent.
    """

    message: int
    expected: tuple[str, int, str] | None
    got: tuple[str, int, str] | None


@dataclass(frozen=True)
class Replay:
    """What came of a replay: how much the owner said, and where it first said something else."""

    messages: int
    nbytes: int
    difference: Difference | None

    @property
    def same(self) -> bool:
        return self.difference is None


def replay(home: Home, arm: Arm, tape: Path, make: Callable[..., Working]) -> Replay:
    """Let the owner of `home` hear a tape from the beginning of `arm`, and compare what it says.

    The home must not hold a checkpoint of the arm: a tape begins at the beginning.

    Args:
        make: makes the station: ``make(owner, protocol, post, note)``.
    """
    if (home.arm_folder(arm.name) / "checkpoint.safetensors").exists():
        raise RunError(f"{home.arm_folder(arm.name)}: holds a checkpoint; replay a tape in a copy of the home alone")
    owner, _ = home.owner(arm)
    said: list[tuple[str, int, str]] = []

    def post(peer: str, data: bytes) -> None:
        said.append((peer, len(data), hashlib.sha256(data).hexdigest()))

    station = make(owner, Handshakes(owner.peers, home.manners(arm)), post, lambda *_, **__: None)
    player = _Player(read_tape(tape), station)
    difference = player.play(said)
    return Replay(len(said), sum(size for _, size, _ in said), difference)


class _Player:
    def __init__(self, records: Iterator[tuple[dict[str, Any], bytes]], station: Working) -> None:
        self._records = list(records)
        self._at = 0
        self._station = station
        self._pauses = 0
        self._expected = [
            (r["peer"], int(r["size"]), str(r["sha256"])) for r, _ in self._records if r["what"] == "said"
        ]  # fmt: skip

    def play(self, said: list[tuple[str, int, str]]) -> Difference | None:
        outcome: Outcome | None = None
        while self._at < len(self._records):
            record, data = self._next()
            match record["what"]:
                case "improve":
                    outcome = self._station.improve(pause=self._pause)
                case "finish":
                    if outcome is None:
                        raise RunError("the tape finishes work that never began; it is damaged")
                    self._station.finish(outcome)
                case "improved" | "left" | "said" | "pauses":
                    pass  # the end of work that has ended; what was said is compared below
                case _:
                    self._do(record, data)
            if (found := self._compare(said, whole=False)) is not None:
                return found
        return self._compare(said, whole=True)

    def _next(self) -> tuple[dict[str, Any], bytes]:
        self._at += 1
        return self._records[self._at - 1]

    def _do(self, record: dict[str, Any], data: bytes) -> None:
        match record["what"]:
            case "begin":
                self._station.begin(record["trained"])
            case "event":
                self._station.handle(_EVENTS[record["kind"]](**record["fields"]))
            case "heard":
                self._station.deliver(record["peer"], data)

    def _pause(self) -> bool:
        """As on the tape: some pauses with nothing to hear, then what came, then the next pause."""
        if self._pauses == 0:
            while self._records[self._at][0]["what"] == "said":
                self._at += 1
            if self._records[self._at][0]["what"] != "pauses":
                return True  # the replayed owner works longer than the taped one did
            self._pauses = int(self._next()[0]["count"])
        self._pauses -= 1
        if self._pauses:
            return False
        while self._at < len(self._records):
            record, data = self._records[self._at]
            if record["what"] in ("pauses", "improved", "improve", "finish"):
                return False
            self._at += 1
            if record["what"] == "left":
                return True
            self._do(record, data)
        return True

    def _compare(self, said: list[tuple[str, int, str]], whole: bool) -> Difference | None:
        for number in range(len(said)):
            expected = self._expected[number] if number < len(self._expected) else None
            if said[number] != expected:
                return Difference(number, expected, said[number])
        if whole and len(said) < len(self._expected):
            return Difference(len(said), self._expected[len(said)], None)
        return None


def read_tape(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The records of a tape, each with the bytes that were heard, if any were."""
    with path.open("rb") as file:
        while line := file.readline():
            record = json.loads(line)
            yield record, file.read(record["size"]) if record["what"] == "heard" else b""
