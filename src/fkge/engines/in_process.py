"""All owners in this process, under a virtual clock: one seed gives one run, whatever the machine does meanwhile.

Work is done when it begins and takes effect when the clock says that it is over; in between the owner is Busy, and
nobody can tell the difference. How long things take is a model (`Pace`), so a test can make an owner slow.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fkge.engines.station import Note, Station
from fkge.engines.tape import Tape
from fkge.errors import EngineError
from fkge.federation.home import Arm, Home
from fkge.federation.owner import Outcome
from fkge.federation.protocol import Joined, Lost, Protocol, Wake

SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True)
class Pace:
    """How long things take, in virtual seconds.

    Attributes:
        triples: trained on in a second.
        latency: of a message.
        bandwidth: bytes in a second.
        slow: factors by owner.
    """

    triples: float = 100_000.0
    latency: float = 0.001
    bandwidth: float = 100e6
    slow: Mapping[str, float] = field(default_factory=dict)


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
        return _Run(self._homes, self._note, self._pace, self._losses, self._late, arm, self._tapes).go(stop)

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could: ``run(arm, homes, note)``. Asked to stop, it does so between two arms."""
        for arm in arms:
            if stop is not None and stop():
                return
            run(arm, list(self._homes.values()), self._note)


class _Run:
    """One arm."""

    def __init__(
        self,
        homes: Mapping[str, Home],
        note: Note,
        pace: Pace,
        losses: Mapping[str, float],
        late: Mapping[str, float],
        arm: Arm,
        tapes: Path | None,
    ) -> None:
        self._homes, self._pace, self._arm = homes, pace, arm
        self._tapes: dict[str, Tape] = {}
        self._tell = note
        self._late = dict(late)
        self._stop: Callable[[], bool] | None = None
        self._now = 0.0
        self._count = itertools.count()
        self._heap: list[tuple[float, int, bool, Callable[[], None]]] = []
        self._timers: dict[str, int] = {}
        self._gone: set[str] = set()
        self._saved = time.monotonic()
        self._stations: dict[str, Station] = {}
        self._trained: dict[str, bool] = {}
        for name, home in homes.items():
            owner, trained = home.owner(arm, late=name in late)
            protocol = Protocol(owner.peers, home.manners(arm))
            owner.gate.keep = partial(self._save_one, name)
            tape = Tape(tapes / f"{name}.tape") if tapes is not None else None
            if tape is not None:
                self._tapes[name] = tape
            self._stations[name] = Station(owner, protocol, self._poster(name), self._noter(name), tape)
            self._trained[name] = trained
        for name, when in losses.items():
            self._at(when, partial(self._lose, name))

    def go(self, stop: Callable[[], bool] | None) -> bool:
        try:
            return self._go(stop)
        finally:
            for tape in self._tapes.values():
                tape.close()

    def _go(self, stop: Callable[[], bool] | None) -> bool:
        self._stop = stop
        for name, station in self._stations.items():
            for other in self._late:
                if other in station.owner.peers:
                    station.handle(Lost(other))
            if name in self._late:
                self._at(self._late[name], partial(self._join, name))
            else:
                station.begin(self._trained[name])
                self._look_after(name)
        while True:
            if stop is not None and stop():  # perhaps within the very first training, which then leaves nothing to do
                self._save(force=True)
                return False
            if not self._heap or self._quiet():
                break
            self._now, _, _, action = heapq.heappop(self._heap)
            action()
        stuck = [n for n, s in self._stations.items() if n not in self._gone and not s.protocol.at_rest]
        if stuck:
            raise EngineError(f"{', '.join(stuck)} wait for something that will not come; this is a fault in fkge")
        for name, station in self._stations.items():
            if name in self._gone:
                continue
            self._save_one(name)
            note, asked = self._noter(name), lambda: stop is not None and stop()
            if not self._homes[name].conclude(self._arm, station.owner, note, asked):
                return False
        return not self._gone

    def _quiet(self) -> bool:
        """Nobody will do anything but sleep and wake again."""
        return all(s.protocol.at_rest for n, s in self._stations.items() if n not in self._gone) and not any(
            entry[2] for entry in self._heap
        )

    # -- time ----------------------------------------------------------------------------------------

    def _at(self, when: float, action: Callable[[], None], matters: bool = True) -> int:
        number = next(self._count)
        heapq.heappush(self._heap, (when, number, matters, action))
        return number

    def _look_after(self, name: str) -> None:
        """Start the work, and set the timer, that the last event brought about."""
        station = self._stations[name]
        if station.timer is not None:
            seconds, station.timer = station.timer, None
            token = next(self._count)
            self._timers[name] = token
            waiting = not station.protocol.at_rest
            self._at(self._now + seconds, lambda: self._wake(name, token), matters=waiting)
        if station.work is not None:
            outcome = station.improve(pause=lambda: self._between(name))
            if outcome.halted:
                return
            triples = station.done["epochs"] * station.owner.work
            duration = triples / self._pace.triples * self._pace.slow.get(name, 1.0)
            self._noter(name)("work", until=round(self._now + duration, 6), **station.done)
            self._at(self._now + duration, lambda: self._finish(name, outcome))

    def _between(self, name: str) -> bool:
        owner = self._stations[name].owner
        self._noter(name)("progress", epoch=owner.trainer.epoch)
        if time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS and owner.can_save:
            self._save_one(name)
            self._saved = time.monotonic()
        return self._stop is not None and self._stop()

    def _join(self, name: str) -> None:
        station = self._stations[name]
        for other, peer in self._stations.items():
            if name in peer.owner.peers and other not in self._gone and other not in self._late:
                peer.handle(Joined(name))
                station.handle(Joined(other))
                self._look_after(other)
        del self._late[name]
        station.begin(self._trained[name])
        self._look_after(name)

    def _finish(self, name: str, outcome: Outcome) -> None:
        if name in self._gone:
            return
        self._stations[name].finish(outcome)
        self._save()
        self._look_after(name)

    def _wake(self, name: str, token: int) -> None:
        if name not in self._gone and self._timers.get(name) == token:
            self._stations[name].handle(Wake())
            self._look_after(name)

    # -- messages ------------------------------------------------------------------------------------

    def _poster(self, sender: str) -> Callable[[str, bytes], None]:
        arrivals: dict[str, float] = {}

        def post(to: str, data: bytes) -> None:
            if sender in self._gone:
                return
            # Messages between two owners keep their order: a small one does not overtake a large one.
            when = max(self._now + self._pace.latency + len(data) / self._pace.bandwidth, arrivals.get(to, 0.0))
            arrivals[to] = when
            self._at(when, lambda: self._deliver(sender, to, data))

        return post

    def _deliver(self, sender: str, to: str, data: bytes) -> None:
        if to in self._gone or sender in self._gone:
            return
        self._stations[to].deliver(sender, data)
        self._look_after(to)

    def _lose(self, name: str) -> None:
        self._gone.add(name)
        for other, station in self._stations.items():
            if other not in self._gone and name in station.owner.peers:
                station.handle(Lost(name))
                self._look_after(other)

    def _noter(self, name: str) -> Note:
        def note(event: str, **fields: Any) -> None:
            self._tell(event, arm=self._arm.name, owner=name, t=round(self._now, 6), **fields)

        return note

    # -- surviving -----------------------------------------------------------------------------------

    def _save(self, force: bool = False) -> None:
        if not force and time.monotonic() - self._saved < SECONDS_BETWEEN_CHECKPOINTS:
            return
        for name in self._stations:
            if name not in self._gone:
                self._save_one(name)
        self._saved = time.monotonic()

    def _save_one(self, name: str) -> None:
        folder = self._homes[name].arm_folder(self._arm.name)
        folder.mkdir(parents=True, exist_ok=True)
        self._stations[name].owner.save(folder / "checkpoint.safetensors")
