"""Control messages name their sender, and there is one class for each of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from fkge.federation import messages
from fkge.federation.messages import HANDSHAKE, Abort, Accept, Defer, OfPeer, OfSession, Refuse, Request, Signal

ALL = (
    Signal("bee"), Signal("bee", news=False, last=True), Request("bee", 3), Accept("bee", 3), Defer("bee", 3),
    Refuse("bee", 3), Abort("bee", 3, host=True), Abort("bee", 3, host=False),
)  # fmt: skip


def test_every_message_is_known_by_name() -> None:
    of_module = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, OfPeer)}
    assert set(HANDSHAKE) == of_module - {OfPeer, OfSession}
    assert {type(message) for message in ALL} == set(HANDSHAKE)


def test_messages_of_two_kinds_are_never_equal() -> None:
    """They have the same fields, so a dataclass that compared by these alone would mix them up."""
    assert len(set(ALL)) == len(ALL)
    assert Request("bee", 3) != Accept("bee", 3)
    assert Request("bee", 3) == Request("bee", 3) != Request("bee", 4) != Request("cat", 4)


@pytest.mark.parametrize("message", ALL)
def test_nobody_changes_a_message(message: OfPeer) -> None:
    with pytest.raises(FrozenInstanceError):
        message.peer = "cat"  # type: ignore[misc]


def test_a_signal_is_news_and_not_the_last_one() -> None:
    assert (Signal("bee").news, Signal("bee").last) == (True, False)
