"""Participants that exchange messages: training, an exchange, and malformed bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from fkge.federation.participant import Participant
from fkge.federation.protocol import Protocol
from tests.conftest import EventLog
from tests.unit.federation.pairs import TWO, federation_settings, make_owners


class Pair:
    """Two participants and the messages between them."""

    def __init__(self) -> None:
        settings = federation_settings(exchanges=2)
        self.messages: deque[tuple[str, str, bytes]] = deque()
        self.logs = {"a": EventLog(), "b": EventLog()}
        self.participants = {}
        for name, owner in make_owners(TWO, settings).items():
            self.participants[name] = Participant(
                owner, Protocol(owner.peers, settings.protocol_config(())), self.post(name), self.logs[name]
            )

    def post(self, sender: str) -> Callable[[str, bytes], None]:
        return lambda peer, data: self.messages.append((sender, peer, data))

    def run(self) -> None:
        """Train and deliver until nothing is left to do."""
        while self.messages or any(p.work for p in self.participants.values()):
            for participant in self.participants.values():
                if participant.work:
                    participant.finish(participant.improve())
            for _ in range(len(self.messages)):
                sender, to, data = self.messages.popleft()
                self.participants[to].deliver(sender, data)


def test_two_participants_train_and_exchange_until_their_epochs_are_spent() -> None:
    pair = Pair()
    for participant in pair.participants.values():
        participant.begin(trained=False)
    pair.run()
    for name, participant in pair.participants.items():
        assert participant.owner.spent
        assert sum(participant.owner.activity.handshakes.values()) >= 1
        assert sum(participant.owner.activity.sent.values()) > 0
        assert not pair.logs[name].of("refused")


def test_a_malformed_message_is_refused_and_its_sender_counts_as_lost() -> None:
    pair = Pair()
    host = pair.participants["a"]
    host.begin(trained=True)
    host.deliver("b", b"\xff\xff")
    (refused,) = pair.logs["a"].of("refused")
    assert refused["peer"] == "b"
    assert host.work is not None  # nobody is left, so it trains alone
