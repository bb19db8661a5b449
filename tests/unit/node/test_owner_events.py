"""Notes of the owner's work become events of the node."""

from __future__ import annotations

import pytest

from fkge import owner_events as noted
from fkge.node.events import Event, Misbehaved, Notice
from fkge.node.owner_events import (
    ExchangeAbandoned,
    ExchangeFinished,
    OwnerStateChanged,
    WorkFinished,
    owner_events,
)

WORK = noted.Worked(initial=True, peers=("bee",), epoch=5, epochs=2, score=None, best=0.5, spent=None)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (noted.Refused(peer="bee", why="no"), [Misbehaved("bee", "malformed", "no")]),
        (noted.StrayMessage(peer="bee", why="x"), [ExchangeAbandoned("bee", "aborted", True, "stray")]),
        (noted.ExchangeAbandoned(peer="bee", hosting=True), [ExchangeAbandoned("bee", "aborted", False, "given up")]),
        (noted.ExchangeAbandoned(peer="bee", hosting=False), [ExchangeAbandoned("bee", "aborted", True, "given up")]),
        (noted.OverBudget(peer="bee", why="x"), [ExchangeAbandoned("bee", "refused", False, "over budget")]),
        (noted.HostingFinished(peer="bee", queries=3), [ExchangeFinished("bee")]),
        (WORK, [WorkFinished(5, 2, 1, None, 0.5, None)]),
        (noted.StateChanged(state="busy"), [OwnerStateChanged("busy")]),
        (noted.StateChanged(state="private"), []),
        (noted.Concluded(), [Notice({}, audit="concluded"), OwnerStateChanged("concluded")]),
        (noted.EpochReached(epoch=3), []),
    ],
)
def test_each_note_is_translated(event: noted.OwnerEvent, expected: list[Event]) -> None:
    assert owner_events(event) == expected


@pytest.mark.parametrize(
    ("event", "audit"),
    [
        (noted.CheckpointDamaged(why="a sentence"), "checkpoint damaged"),
        (noted.BudgetExhausted(why="a sentence"), "budget"),
    ],
)
def test_what_only_people_act_on_is_written_down(event: noted.OwnerEvent, audit: str) -> None:
    logged, audited = owner_events(event)
    assert isinstance(logged, Notice)
    assert isinstance(audited, Notice)
    assert "a sentence" not in str(logged.fields)  # which may quote a label
    assert (audited.audit, audited.fields) == (audit, {"sentence": "a sentence"})
