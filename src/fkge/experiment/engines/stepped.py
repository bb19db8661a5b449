"""An owner that a virtual clock steps: it takes one input at a time and returns what came of it.

The clock needs no more of an owner than that, so the owner may be in another process. How long a round of training
takes on that clock follows from its number of epochs, which is known when it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fkge.experiment.owners import ArmJob
from fkge.federation.driver import Driver, Stop
from fkge.federation.events import Joined, Lost, Wake
from fkge.owner_events import Emit, OwnerEvent, Worked


@dataclass(frozen=True)
class Start:
    """The owner joins the federation."""


@dataclass(frozen=True)
class RoundOver:
    """The round of training under way is over on the clock."""


@dataclass(frozen=True)
class Delivery:
    """A message arrives; `data` is bytes, or an engine's reference to them."""

    sender: str
    data: Any


Input: TypeAlias = Start | RoundOver | Delivery | Wake | Lost | Joined


@dataclass(frozen=True)
class Reaction:
    """The reaction of an owner to an input.

    Attributes:
        at_rest: nothing more will happen at this owner, unless a peer asks for something.
        posts: messages to send, as (peer, number of bytes, the bytes or a reference to them).
        timer: seconds after which to send `Wake`.
        epochs: of the round of training that begins now; None if none does.
        computed: that round, where the engine has computed it already.
        finished: the round that is over now, where it was computed meanwhile.
        halted: the round was left, as somebody asked to stop.
        events: of the owner meanwhile.
    """

    at_rest: bool
    posts: Sequence[tuple[str, int, Any]] = ()
    timer: float | None = None
    epochs: int | None = None
    computed: Worked | None = None
    finished: Worked | None = None
    halted: bool = False
    events: Sequence[OwnerEvent] = ()


class SteppedOwner:
    """One owner in one arm, stepped by a virtual clock; see `Driver` for the arguments."""

    def __init__(
        self, job: ArmJob, emit: Emit, attend: Stop, *, late: bool = False, recording: Path | None = None
    ) -> None:
        self._posts: list[tuple[str, int, Any]] = []
        self.driver = Driver(job, self._post, emit, late=late, attend=attend, progress_seconds=0.0, recording=recording)
        self.owner = self.driver.owner

    def _post(self, peer: str, data: bytes) -> None:
        self._posts.append((peer, len(data), data))

    def step(self, given: Input) -> Reaction:
        """Process one input. If the reaction has `epochs`, `train` must follow."""
        driver, participant = self.driver, self.driver.participant
        match given:
            case Start():
                driver.begin()
            case RoundOver():
                driver.finish()
            case Delivery(sender, data):
                participant.deliver(sender, data)
            case _:
                participant.handle(given)
        posts, self._posts = self._posts, []
        work = participant.work
        epochs = None if work is None else self.owner.epochs_in_next_round(work.initial)
        return Reaction(participant.protocol.at_rest, posts, driver.take_timer(), epochs)

    def train(self) -> Worked | None:
        """Train the round that has begun; None if it was left."""
        # On the clock the round ended before whatever the owner sent while it was computed.
        sent = sum(self.owner.activity.sent.values())
        report = self.driver.train()
        return None if report is None else report.model_copy(update={"sent": sent})
