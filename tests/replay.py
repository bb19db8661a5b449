"""Feed a recording to an owner again and compare what it sends, byte by byte.

That is what non-interference means where owners react to each other: whatever its confidential triples, an owner that
receives the same sends the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fkge.errors import RunError
from fkge.experiment.arms import Arm
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.federation.events import Joined, Lost, Wake
from fkge.federation.owner import Outcome
from fkge.federation.participant import Participant
from fkge.federation.protocol import Protocol
from fkge.federation.recording import read_recording

_EVENTS: dict[str, type[Wake] | type[Lost] | type[Joined]] = {"Wake": Wake, "Lost": Lost, "Joined": Joined}


class Sent(NamedTuple):
    """A message that an owner sent, by its digest."""

    peer: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Difference:
    """The first message that differs in a replay.

    Attributes:
        message: its number among all that the owner sent, from 0.
        expected, got: the message in the recording and in the replay; None where one has no more.
    """

    message: int
    expected: Sent | None
    got: Sent | None


@dataclass(frozen=True)
class Replay:
    """The result of a replay: how much the owner sent, and where it first differs from the recording."""

    messages: int
    nbytes: int
    difference: Difference | None

    @property
    def same(self) -> bool:
        return self.difference is None


def replay(store: SimulatedOwner, arm: Arm, recording: Path) -> Replay:
    """Feed a recording to the owner of `store` from the beginning of `arm`, and compare what it sends.

    Raises:
        RunError: the store holds a checkpoint of the arm, while a recording begins at the beginning.
    """
    job = ArmJob(store, arm)
    if job.workspace.checkpoint.exists():
        raise RunError(f"{job.workspace.folder}: holds a checkpoint; replay in a copy of the owner's store alone")
    owner, _ = job.open()
    sent: list[Sent] = []

    def post(peer: str, data: bytes) -> None:
        sent.append(Sent(peer, len(data), hashlib.sha256(data).hexdigest()))

    participant = Participant(owner, Protocol(owner.peers, job.protocol_config()), post, lambda *_, **__: None)
    difference = _Player(recording, participant, sent).play()
    return Replay(len(sent), sum(message.size for message in sent), difference)


class _Player:
    def __init__(self, recording: Path, participant: Participant, sent: list[Sent]) -> None:
        self._records = list(read_recording(recording))
        self._at = self._compared = 0
        self._participant, self._sent = participant, sent
        self._pauses = 0
        self._expected = [Sent(r["peer"], r["size"], r["sha256"]) for r, _ in self._records if r["what"] == "said"]

    def play(self) -> Difference | None:
        outcome: Outcome | None = None
        while self._at < len(self._records):
            self._at += 1
            match self._what(self._at - 1):
                case "improve":
                    outcome = self._participant.improve(pause=self._pause)
                case "finish":
                    if outcome is None:
                        raise RunError("the recording finishes a round that never began; it is damaged")
                    self._participant.finish(outcome)
                case _:
                    self._feed(self._at - 1)
            if (found := self._compare()) is not None:
                return found
        done = len(self._sent)
        return Difference(done, self._expected[done], None) if done < len(self._expected) else None

    def _what(self, at: int) -> str:
        return str(self._records[at][0]["what"])

    def _feed(self, at: int) -> None:
        """Feed what the owner received; other records are the end of a round, and what was sent, which is compared."""
        record, data = self._records[at]
        match record["what"]:
            case "begin":
                self._participant.begin(record["trained"])
            case "event":
                self._participant.handle(_EVENTS[record["kind"]](**record["fields"]))
            case "heard":
                self._participant.deliver(record["peer"], data)

    def _pause(self) -> bool:
        """Within a round of training: feed whatever arrived at this pause of the recorded round. True: leave it."""
        if self._pauses == 0:
            while self._what(self._at) == "said":
                self._at += 1
            if self._what(self._at) != "pauses":
                return True  # the replayed round is longer than the recorded one
            self._pauses = int(self._records[self._at][0]["count"])
            self._at += 1
        self._pauses -= 1
        if self._pauses:
            return False
        while self._at < len(self._records):
            if (what := self._what(self._at)) in ("pauses", "improved", "improve", "finish"):
                return False
            self._at += 1
            if what == "left":
                return True
            self._feed(self._at - 1)
        return True

    def _compare(self) -> Difference | None:
        for number in range(self._compared, len(self._sent)):
            expected = self._expected[number] if number < len(self._expected) else None
            if self._sent[number] != expected:
                return Difference(number, expected, self._sent[number])
        self._compared = len(self._sent)
        return None
