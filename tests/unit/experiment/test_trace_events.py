"""Records of a trace become typed events; unknown kinds and fields are ignored, damaged records refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.experiment.trace_events import EVENTS, Event, OwnerEvent, TrainingValidated, Worked, parse, read_events
from fkge.trace import Trace


def test_a_record_becomes_an_event_of_its_kind() -> None:
    event = parse({"event": "work", "owner": "ant", "t": 1, "epoch": 3, "score": None, "peers": ["bee"], "new": 1})
    assert event == Worked(owner="ant", t=1.0, epoch=3, score=None, peers=("bee",))


def test_unknown_kinds_are_ignored() -> None:
    assert parse({"event": "restarted", "owner": "ant"}) is None


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


def test_every_event_of_an_owner_names_it() -> None:
    owners = [kind for kind in EVENTS.values() if issubclass(kind, OwnerEvent)]
    assert len(owners) == 11
    assert all(kind.model_fields["owner"].is_required() for kind in owners)
    assert all(issubclass(kind, Event) for kind in EVENTS.values())


def test_events_of_a_trace_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").touch()
    trace = Trace(tmp_path / "trace.jsonl")
    for epoch in (2, 4):
        trace.write("validated", epoch=epoch, mrr=0.1 * epoch)
        trace.write("something else")
    assert list(read_events(tmp_path)) == [TrainingValidated(epoch=2, mrr=0.2), TrainingValidated(epoch=4, mrr=0.4)]
