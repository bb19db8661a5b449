"""All owners in this process, under a virtual clock: one seed gives one run, whatever the machine does meanwhile.

Work is done when it begins and takes effect when the clock says that it is over; in between the owner is Busy, and
nobody can tell the difference. How long things take is a model (`Pace`), so a test can make an owner slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fkge.engines.schedule import Pace as Pace
from fkge.engines.schedule import Schedule
from fkge.engines.seat import SECONDS_BETWEEN_CHECKPOINTS as SECONDS_BETWEEN_CHECKPOINTS
from fkge.engines.seat import Answer, Seat
from fkge.engines.station import Note
from fkge.engines.tape import Tape
from fkge.federation.home import Arm, Home


class InProcess:
    """The engine for tests, and for reading what happens.

    Args:
        homes: the owners.
        note: told of events, with ``owner`` and virtual time ``t``.
        pace: how long things take.
        losses: virtual times at which an owner falls silent for good.
        late: virtual times at which an owner joins, rather than at the start. It does not start together with the rest:
            it trains alone first, and turns into their frame.
        tapes: a folder for what every owner heard and said, NAME.tape each; see `fkge.engines.tape`.
    """

    name = "in-process"

    def __init__(
        self,
        homes: Sequence[Home],
        note: Note,
        pace: Pace | None = None,
        losses: Mapping[str, float] | None = None,
        late: Mapping[str, float] | None = None,
        tapes: Path | None = None,
    ) -> None:
        self._tapes = tapes
        self._homes = {home.name: home for home in homes}
        self._note = note
        self._pace = pace or Pace()
        self._losses = dict(losses or {})
        self._late = dict(late or {})

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again takes it up."""
        seats: list[Seat] = []

        def here(name: str, note: Note) -> _Here:
            tape = None if self._tapes is None else Tape(self._tapes / f"{name}.tape")
            seats.append(Seat(self._homes[name], arm, note, late=name in self._late, tape=tape))
            return _Here(seats[-1], note, stop or (lambda: False))

        try:
            names = list(self._homes)
            return Schedule(
                names, here, self._note, arm.name, self._pace, losses=self._losses, late=self._late
            ).go(stop)  # fmt: skip
        finally:
            for seat in seats:
                seat.close()

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could: ``run(arm, homes, note)``. Asked to stop, it does so between two arms."""
        for arm in arms:
            if stop is not None and stop():
                return
            run(arm, list(self._homes.values()), self._note)


class _Here:
    """A place in this process: whatever it is told, it does at once."""

    apart = False

    def __init__(self, seat: Seat, note: Note, stop: Callable[[], bool]) -> None:
        self._seat, self._note, self._stop = seat, note, stop

    @property
    def peers(self) -> frozenset[str]:
        return frozenset(self._seat.owner.peers)

    @property
    def triples(self) -> int:
        return self._seat.owner.work

    def tell(self, what: str, *args: Any) -> Callable[[], Answer]:
        answer = self._seat.tell(what, *args)
        if answer.epochs is not None:
            done = self._seat.improve(self._between)
            answer = replace(answer, known=done, halted=done is None)
        return lambda: answer

    def _between(self) -> bool:
        self._note("progress", epoch=self._seat.owner.trainer.epoch)
        self._seat.save_now_and_then()
        return self._stop()

    def conclude(self) -> Callable[[], bool]:
        return lambda: self._seat.conclude(self._stop)

    def halt(self) -> None:
        pass

    def save(self) -> None:
        self._seat.save()
