"""Notes of the owner's work become events of the node."""

from __future__ import annotations

from typing import Any

import pytest

from fkge.node.events import Event, Misbehaved, Notice
from fkge.node.owner_events import (
    ExchangeAbandoned,
    ExchangeFinished,
    JoinDue,
    OwnerStateChanged,
    WorkFinished,
    owner_events,
)

WORK = {"initial": True, "peers": ["bee"], "epoch": 5, "epochs": 2, "score": None, "best": 0.5, "spent": None}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("refused", {"peer": "bee", "why": "no"}, [Misbehaved("bee", "malformed", "no")]),
        ("stray", {"peer": "bee", "why": "x"}, [ExchangeAbandoned("bee", "aborted", True, "stray")]),
        ("given up", {"peer": "bee", "hosting": True}, [ExchangeAbandoned("bee", "aborted", False, "given up")]),
        ("given up", {"peer": "bee", "hosting": False}, [ExchangeAbandoned("bee", "aborted", True, "given up")]),
        ("over budget", {"peer": "bee", "why": "x"}, [ExchangeAbandoned("bee", "refused", False, "over budget")]),
        ("translated", {"peer": "bee", "epsilon": 1.0}, [ExchangeFinished("bee")]),
        ("work", WORK, [WorkFinished(5, 2, 1, None, 0.5, None)]),
        ("held", {"over": True}, [JoinDue()]),
        ("state", {"state": "busy"}, [OwnerStateChanged("busy")]),
        ("state", {"state": "private"}, []),
        ("concluded", {}, [Notice({}, audit="concluded"), OwnerStateChanged("concluded")]),
        ("progress", {"epoch": 3}, []),
    ],
)
def test_each_note_is_translated(name: str, fields: dict[str, Any], expected: list[Event]) -> None:
    assert owner_events(name, **fields) == expected


@pytest.mark.parametrize(("name", "audit"), [("damaged", "checkpoint damaged"), ("spent", "budget")])
def test_what_only_people_act_on_is_written_down(name: str, audit: str) -> None:
    logged, audited = owner_events(name, why="a sentence")
    assert isinstance(logged, Notice)
    assert isinstance(audited, Notice)
    assert "a sentence" not in str(logged.fields)  # which may quote a label
    assert (audited.audit, audited.fields) == (audit, {"sentence": "a sentence"})
