"""The records of a ``trace.jsonl`` as typed events: those of a run here, those of an owner in `fkge.owner_events`.

Fields that a kind does not declare are ignored, and so are unknown kinds: a later version of fkge may write more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from fkge.errors import RunError
from fkge.owner_events import EVENTS, OwnerEvent, TraceEvent
from fkge.trace import Record, Trace


class ArmStarted(TraceEvent, kind="arm"):
    """An arm starts or is resumed. `time` is in seconds since 1970; `epochs` are those of each owner."""

    arm: str
    time: float
    epochs: int = 0
    owners: tuple[str, ...] = ()


class ArmFinished(TraceEvent, kind="arm over"):
    """An arm is finished, or several that run together (``fede and unified``); `seconds` of wall time."""

    arm: str
    seconds: float


class Died(OwnerEvent, kind="died"):
    """The process of the owner ended early."""

    why: str


class Failed(OwnerEvent, kind="failed"):
    """The process of the owner ends by an error; `trace` says where."""

    why: str
    trace: str = ""


class Restarted(OwnerEvent, kind="restarted"):
    """The process of the owner died, and another continues at `epoch`, of a checkpoint `redone` epochs ago."""

    why: str
    epoch: int
    redone: int = 0


class TrainingEpoch(TraceEvent, kind="epoch"):
    """An epoch of `fkge train`."""

    epoch: int
    loss: float
    lr: float


class TrainingValidated(TraceEvent, kind="validated"):
    """A validation of `fkge train`; `best`: the highest MRR so far."""

    epoch: int
    mrr: float
    best: bool = False


def parse(record: Record) -> TraceEvent | None:
    """Turn a record of a trace into an event; None if it is of a kind that no reader uses.

    Raises:
        RunError: a field is missing, or of the wrong type.
    """
    kind = EVENTS.get(record["event"])
    try:
        return None if kind is None else kind.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise RunError(f"trace: {record['event']!r} record: {field}: {first['msg']}; the trace is damaged") from None


def read_events(run: Path) -> Iterator[TraceEvent]:
    """Read the events in the trace of the run in the folder `run`, oldest first."""
    return filter(None, map(parse, Trace(run / "trace.jsonl").read()))
