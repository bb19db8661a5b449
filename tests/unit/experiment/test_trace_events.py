"""Records of a trace become typed events; unknown kinds and fields are ignored, damaged records refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.experiment.trace_events import TrainingValidated, parse, read_events
from fkge.owner_events import EVENTS, TraceEvent, Worked
from fkge.trace import Trace


def test_a_record_becomes_an_event_of_its_kind() -> None:
    event = parse({"event": "work", "owner": "ant", "t": 1, "epoch": 3, "score": None, "peers": ["bee"], "new": 1})
    assert event == Worked(owner="ant", t=1.0, epoch=3, score=None, peers=("bee",))


def test_unknown_kinds_are_ignored() -> None:
    assert parse({"event": "promoted", "owner": "ant"}) is None


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"event": "progress", "owner": "ant"}, "epoch"),
        ({"event": "arm", "arm": "control", "time": "noon"}, "time"),
        ({"event": "hosting", "owner": "ant", "peer": 3}, "peer"),
    ],
)
def test_damaged_records_are_refused(record: dict[str, object], field: str) -> None:
    with pytest.raises(RunError, match=f"{record['event']}.*{field}.*damaged"):
        parse(record)


def test_an_event_is_read_as_it_was_written(tmp_path: Path) -> None:
    event: TraceEvent = Worked(epoch=3, score=None, peers=("bee",), spent=None)
    stamped = event.stamped(arm="control", owner="ant", t=1.5, epoch=9)
    record = {"arm": "control", "owner": "ant", "t": 1.5, "peers": ["bee"], "epoch": 3, "score": None, "spent": None}
    assert stamped.record() == {"event": "work", **record}  # what an event says itself stays
    trace = Trace(tmp_path / "trace.jsonl")
    (tmp_path / "trace.jsonl").touch()
    trace.write(**stamped.record())
    assert list(read_events(tmp_path)) == [stamped]
    assert all(kind.kind == name for name, kind in EVENTS.items())


def test_events_of_a_trace_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").touch()
    trace = Trace(tmp_path / "trace.jsonl")
    for epoch in (2, 4):
        trace.write("validated", epoch=epoch, mrr=0.1 * epoch)
        trace.write("something else")
    assert list(read_events(tmp_path)) == [TrainingValidated(epoch=2, mrr=0.2), TrainingValidated(epoch=4, mrr=0.4)]
