"""A station that is told things and answers: what it says, when to wake it, how much work it begins.

An engine with a virtual clock needs no more of an owner than that, so the owner may sit in another process. How long
work takes on that clock follows from how many epochs it is, which is known when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fkge.engines.station import Note, Station
from fkge.engines.tape import Tape
from fkge.errors import EngineError
from fkge.federation.home import Arm, Home
from fkge.federation.owner import Outcome, Owner
from fkge.federation.protocol import Joined, Lost, Protocol, Wake

SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True)
class Answer:
    """What came of telling an owner something.

    Attributes:
        at_rest: nothing will happen there any more, unless a peer wants something.
        posts: what it has to say, as (peer, bytes, message): a message, or something that stands for one.
        timer: seconds after which to wake it.
        epochs: of the work that begins now; None if none does.
        known: what that work comes to, where it is done already.
        done: what the work that ends now came to, where nobody knew before.
        halted: the work was left, as somebody asked to stop.
        notes: what is worth a line in the trace.
    """

    at_rest: bool
    posts: Sequence[tuple[str, int, Any]] = ()
    timer: float | None = None
    epochs: int | None = None
    known: Mapping[str, Any] | None = None
    done: Mapping[str, Any] | None = None
    halted: bool = False
    notes: Sequence[tuple[str, Mapping[str, Any]]] = ()


class Seat:
    """One owner in one arm, from its beginning or its checkpoint.

    Args:
        home: whose.
        arm: which.
        note: told of everything worth a line in a trace.
        late: it joins a federation that has begun.
        anew: an earlier life of it was seen by peers, whether or not it left a checkpoint.
        tape: records all that is heard and said.
    """

    def __init__(
        self, home: Home, arm: Arm, note: Note, *, late: bool = False, anew: bool = False, tape: Tape | None = None
    ) -> None:
        self._home, self._arm, self._note, self._tape = home, arm, note, tape
        owner, self._trained = home.owner(arm, late=late)
        if anew:
            owner.renew_secret()
        owner.gate.keep = self.save
        self.station = Station(owner, Protocol(owner.peers, home.manners(arm)), self._post, note, tape)
        self._posts: list[tuple[str, int, Any]] = []
        self._outcome: Outcome | None = None
        self._saved = time.monotonic()

    @property
    def owner(self) -> Owner:
        """Who sits here."""
        return self.station.owner

    def _post(self, peer: str, data: bytes) -> None:
        self._posts.append((peer, len(data), data))

    def tell(self, what: str, *args: Any) -> Answer:
        """Tell it to ``begin``, ``wake`` or ``finish``, of a peer ``lost`` or ``joined``; or ``deliver`` a message."""
        station = self.station
        match what, args:
            case "begin", ():
                station.begin(self._trained)
            case "wake", ():
                station.handle(Wake())
            case "lost", (peer,):
                station.handle(Lost(peer))
            case "joined", (peer,):
                station.handle(Joined(peer))
            case "deliver", (peer, data):
                station.deliver(peer, data)
            case "finish", ():
                assert self._outcome is not None
                outcome, self._outcome = self._outcome, None
                station.finish(outcome)
                self.save_now_and_then()
            case _:
                raise EngineError(f"nobody can tell an owner {what!r}; this is a fault in fkge")
        posts, self._posts = self._posts, []
        timer, station.timer = station.timer, None
        epochs = None if station.work is None else epochs_ahead(self.owner, station.work.initial)
        return Answer(station.protocol.at_rest, posts, timer, epochs)

    def improve(self, pause: Callable[[], bool]) -> dict[str, Any] | None:
        """Do the work that has begun. What it came to; None if `pause` said to leave it."""
        station = self.station
        assert station.work is not None
        ahead, sent = epochs_ahead(self.owner, station.work.initial), sum(self.owner.activity.sent.values())
        outcome = station.improve(pause=pause)
        if outcome.halted:
            return None
        if station.done["epochs"] != ahead:
            raise EngineError(
                f"{self.owner.name}: foresaw {ahead} epochs and did {station.done['epochs']}; this is a fault in fkge"
            )
        self._outcome = outcome
        return station.done | {"sent": sent}  # on the clock, the work was over before whatever was said meanwhile

    def save(self) -> None:
        """Keep everything that is needed to go on from here."""
        folder = self._home.arm_folder(self._arm.name)
        folder.mkdir(parents=True, exist_ok=True)
        self.owner.save(folder / "checkpoint.safetensors")
        self._saved = time.monotonic()

    def save_now_and_then(self) -> None:
        """Keep it, if that was a while ago and may be done now."""
        if time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS and self.owner.can_save:
            self.save()

    def conclude(self, stop: Callable[[], bool]) -> bool:
        """End the arm and leave its results. False if `stop` said to leave."""
        self.save()
        return self._home.conclude(self._arm, self.owner, self._note, stop)

    def close(self) -> None:
        """Write the tape's end."""
        if self._tape is not None:
            self._tape.close()


def epochs_ahead(owner: Owner, initial: bool) -> int:
    """How many epochs the next `Owner.improve` trains, the rest of one that broke off included."""
    trainer, plan = owner.trainer, owner.plan
    broken = bool(trainer.chunk) and not initial
    epoch = trainer.epoch + broken
    begun = max(0, epoch - plan.initial) % owner.settings.epochs
    until = min(plan.initial if initial else epoch - begun + owner.settings.epochs, plan.total)
    return max(0, until - epoch) + broken
