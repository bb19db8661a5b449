"""Events of an owner: what is written of them, and what whoever runs the owner adds."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fkge.owner_events import EVENTS, EpochReached, ExchangeAbandoned, OwnerEvent, StateChanged, TraceEvent, Worked


def test_only_what_was_set_is_written() -> None:
    assert EpochReached(epoch=3).record() == {"event": "progress", "epoch": 3}
    assert Worked(epoch=3, score=None, peers=("bee",)).record() == {
        "event": "work", "epoch": 3, "score": None, "peers": ["bee"]
    }  # fmt: skip


def test_stamps_fill_in_what_an_event_does_not_say() -> None:
    event = EpochReached(epoch=3, owner="ant")
    stamped = event.stamped(owner="bee", arm="federated", t=1.5)
    assert (stamped.owner, stamped.arm, stamped.t) == ("ant", "federated", 1.5)
    assert event.arm is None  # the event itself is frozen
    assert stamped.record() == {"event": "progress", "owner": "ant", "arm": "federated", "t": 1.5, "epoch": 3}


def test_every_kind_has_one_class_and_comes_back_from_its_record() -> None:
    event = ExchangeAbandoned(peer="bee", hosting=True, owner="ant")
    record = event.record()
    assert EVENTS[str(record["event"])].model_validate(record) == event
    assert len(set(EVENTS.values())) == len(EVENTS) > 10
    assert all(issubclass(found, TraceEvent) and found.kind == kind for kind, found in EVENTS.items())
    assert (TraceEvent.kind, OwnerEvent.kind) == ("", "")


def test_unknown_fields_of_newer_traces_are_ignored_and_missing_ones_are_not() -> None:
    assert StateChanged.model_validate({"event": "state", "state": "busy", "mood": "good"}).state == "busy"
    with pytest.raises(ValidationError):
        StateChanged.model_validate({"event": "state"})
