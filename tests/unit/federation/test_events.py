"""Events and instructions of the protocol."""

from __future__ import annotations

from typing import get_args

from fkge.federation.events import EVENTS, Instruction


def test_events_and_instructions_are_frozen() -> None:
    """Events and instructions are frozen, and say what they are when printed."""
    for kind in (*EVENTS, *get_args(Instruction)):
        assert kind.__dataclass_params__.frozen, kind
