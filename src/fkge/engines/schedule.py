"""A virtual clock for one arm: one seed gives one run, wherever owners sit and whatever their machines do meanwhile.

How long things take is a model (`Pace`). Owners answer what they are told at a moment of the clock, and the clock waits
for their answers; so what they are told, and in which order, depends on nothing else.

Where owners sit elsewhere, they work at the same time: work is awaited when the clock reaches its end, not when it
begins. And what several of them are to be told within one message's latency is told to all at once: nothing that one of
them says can reach another before.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from fkge.engines.seat import Answer
from fkge.engines.station import Note
from fkge.errors import EngineError


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


class Stopped(Exception):
    """Somebody asked to stop."""


class SeatLost(Exception):
    """An owner cannot be asked any more.

    Attributes:
        name: who.
        why: in words.
        failed: it came to an end of its own, by an error: to begin again would end the same way.
    """

    def __init__(self, name: str, why: str, failed: bool = False) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why, self.failed = name, why, failed


class Place(Protocol):
    """Where an owner sits, as the clock sees it. Any call may raise `SeatLost`, or `Stopped` while it waits.

    Attributes:
        peers: whom it deals with.
        triples: in one of its epochs.
        apart: it works by itself, while others do.
    """

    @property
    def peers(self) -> frozenset[str]: ...
    @property
    def triples(self) -> int: ...
    @property
    def apart(self) -> bool: ...

    def tell(self, what: str, *args: Any) -> Callable[[], Answer]:
        """Begin to tell it something, as `Seat.tell`; what is returned waits for the answer."""

    def conclude(self) -> Callable[[], bool]:
        """Begin to end the arm; what is returned waits for that, and is False if it was left."""

    def halt(self) -> None:
        """Leave what is under way. From now on nothing raises `Stopped`."""

    def save(self) -> None:
        """Keep everything that is needed to go on."""


class _Due(NamedTuple):
    """Something to tell an owner, or to do, at a moment of the clock."""

    when: float
    number: int
    matters: bool
    stands: Callable[[], bool]
    name: str | None
    what: str
    args: tuple[Any, ...]


class Schedule:
    """One arm.

    Args:
        names: the owners.
        seat: gives an owner its place: ``seat(name, note)``.
        note: told of events, with ``arm``, ``owner`` and virtual time ``t``.
        arm: its name.
        pace: how long things take.
        losses, late: see `InProcess`.
        again: gives an owner that was lost another place, or None: ``again(lost, note)``. It goes on from its
            checkpoint; to its peers it was away, and has come back.
    """

    def __init__(
        self,
        names: Sequence[str],
        seat: Callable[[str, Note], Place],
        note: Note,
        arm: str,
        pace: Pace,
        *,
        losses: Mapping[str, float] | None = None,
        late: Mapping[str, float] | None = None,
        again: Callable[[SeatLost, Note], Place | None] = lambda lost, note: None,
    ) -> None:
        self._arm, self._pace, self._note, self._again = arm, pace, note, again
        self._late = dict(late or {})
        self._now = 0.0
        self._count = itertools.count()
        self._heap: list[_Due] = []
        self._timers: dict[str, int] = {}
        self._lives = dict.fromkeys(names, 0)
        self._gone: set[str] = set()
        self._rest = dict.fromkeys(names, False)
        self._began: dict[str, float] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._early: dict[int, Callable[[], Answer]] = {}
        """What was told ahead of the clock, by the number of its moment."""
        self._places = {name: seat(name, self.noter(name)) for name in names}
        for name, when in (losses or {}).items():
            self._at(when, "lose", name)

    def noter(self, name: str) -> Note:
        """Tells of an owner, at this moment of the clock."""

        def note(event: str, **fields: Any) -> None:
            self._note(event, arm=self._arm, owner=name, t=round(self._now, 6), **fields)

        return note

    # -- the clock -----------------------------------------------------------------------------------

    def go(self, stop: Callable[[], bool] | None) -> bool:
        """Run the arm to its end. False if it ended early, by `stop` or a loss."""
        try:
            self._begin()
            while not (stop is not None and stop()):  # perhaps within the very first training
                if not self._heap or self._quiet():
                    break
                self._turn(heapq.heappop(self._heap))
            else:
                raise Stopped
            stuck = [name for name in self._present() if not self._rest[name]]
            if stuck:
                raise EngineError(f"{', '.join(stuck)} wait for something that will not come; this is a fault in fkge")
        except Stopped:
            for name in self._present():
                self._places[name].halt()
            for name in self._present():
                self._or_lost(self._places[name].save)
            return False
        return self._conclude() and not self._gone

    def _present(self) -> list[str]:
        return [name for name in self._places if name not in self._gone]

    def _begin(self) -> None:
        for name in list(self._places):
            for other in self._late:
                if other in self._places[name].peers:
                    self._tell(name, "lost", other)
            if name in self._late:
                self._at(self._late[name], "join", name)
            elif self._lives[name] == 0:  # one that was lost meanwhile has begun already
                self._tell(name, "begin")

    def _quiet(self) -> bool:
        """Nobody will do anything but sleep and wake again."""
        return all(self._rest[name] for name in self._present()) and not any(due.matters for due in self._heap)

    def _turn(self, due: _Due) -> None:
        self._now = due.when
        early = self._early.pop(due.number, None)
        if early is None and not due.stands():
            return
        if due.name is None:
            getattr(self, f"_{due.what}")(*due.args)
            return
        if early is None:
            early = self._places[due.name].tell(due.what, *due.args)
        if self._places[due.name].apart:
            self._look_ahead(due)
        self._take_in(due.name, early)

    def _look_ahead(self, due: _Due) -> None:
        """Tell others what they are to be told before anything can reach them that follows from `due`."""
        told = {due.name}
        horizon = due.when + self._pace.latency
        for later in sorted(later for later in self._heap if later.when < horizon):
            if later.name is None:
                return
            if later.name in told or not later.stands():
                continue
            told.add(later.name)
            # What does not matter may never happen: all may be over before.
            if later.matters and later.number not in self._early:
                self._early[later.number] = self._places[later.name].tell(later.what, *later.args)

    def _at(self, when: float, what: str, *args: Any) -> None:
        """Do something, that is not one owner's alone, at that time."""
        heapq.heappush(self._heap, _Due(when, next(self._count), True, lambda: True, None, what, args))

    def _tell_at(
        self, when: float, name: str, what: str, *args: Any, stands: Callable[[], bool], matters: bool = True
    ) -> None:
        heapq.heappush(self._heap, _Due(when, next(self._count), matters, stands, name, what, args))

    # -- owners --------------------------------------------------------------------------------------

    def _tell(self, name: str, what: str, *args: Any) -> None:
        """Tell one something now, whatever comes of it."""
        self._take_in(name, lambda: self._places[name].tell(what, *args)())

    def _take_in(self, name: str, answer: Callable[[], Answer]) -> None:
        try:
            got = answer()
        except SeatLost as lost:
            self._replace(lost)
            return
        note = self.noter(name)
        if got.done is not None:
            note("work", since=round(self._began[name], 6), **got.done)
        for event, fields in got.notes:
            note(event, **fields)
        for to, size, data in got.posts:
            self._post(name, to, size, data)
        self._rest[name] = got.at_rest
        if got.timer is not None:
            token = self._timers[name] = next(self._count)
            self._tell_at(
                self._now + got.timer, name, "wake", stands=partial(self._is_due, name, token), matters=not got.at_rest
            )
        if got.halted:
            raise Stopped
        if got.epochs is not None:
            triples = got.epochs * self._places[name].triples
            until = self._now + triples / self._pace.triples * self._pace.slow.get(name, 1.0)
            self._began[name] = self._now
            if got.known is not None:
                note("work", until=round(until, 6), **got.known)
            self._tell_at(until, name, "finish", stands=partial(self._lives_on, (name, self._lives[name])))

    def _post(self, sender: str, to: str, size: int, data: Any) -> None:
        if sender in self._gone:
            return
        # Messages between two owners keep their order: a small one does not overtake a large one.
        soonest = self._now + self._pace.latency + size / self._pace.bandwidth
        when = self._arrivals[sender, to] = max(soonest, self._arrivals.get((sender, to), 0.0))
        both = (sender, self._lives[sender]), (to, self._lives[to])
        self._tell_at(when, to, "deliver", sender, data, stands=partial(self._lives_on, *both))

    def _is_due(self, name: str, token: int) -> bool:
        return name not in self._gone and self._timers.get(name) == token

    def _lives_on(self, *lives: tuple[str, int]) -> bool:
        """Whether all of them are there, and have been since."""
        return all(name not in self._gone and self._lives[name] == life for name, life in lives)

    def _join(self, name: str) -> None:
        del self._late[name]
        for other in self._present():
            if name in self._places[other].peers and other not in self._late and other != name:
                self._tell(other, "joined", name)
                self._tell(name, "joined", other)
        self._tell(name, "begin")

    def _lose(self, name: str) -> None:
        self._gone.add(name)
        for other in self._present():
            if name in self._places[other].peers:
                self._tell(other, "lost", name)

    def _replace(self, lost: SeatLost) -> None:
        """Give one that was lost another place, and let it go on from its checkpoint; or go on without."""
        name = lost.name
        if name in self._gone:
            return
        self._gone.add(name)
        self._forget(name)
        place = self._again(lost, self.noter(name))
        self._lose(name)
        if place is None:
            return
        self._places[name] = place
        self._gone.discard(name)
        for other in self._gone | set(self._late):
            if other in place.peers:
                self._tell(name, "lost", other)
        for other in self._present():
            if name in self._places[other].peers and other not in self._late:
                self._tell(other, "joined", name)
        self._tell(name, "begin")

    def _forget(self, name: str) -> None:
        """Whatever one that is lost was to hear, or had said, belongs to a life that is over."""
        self._lives[name] += 1
        self._timers.pop(name, None)
        for due in self._heap:
            if due.name == name:
                self._early.pop(due.number, None)

    # -- the end -------------------------------------------------------------------------------------

    def _conclude(self) -> bool:
        ends = {name: self._places[name].conclude() for name in self._present()}
        try:
            return all(self._concluded(name, end) for name, end in ends.items())
        except Stopped:
            for name in self._present():
                self._places[name].halt()
            for name, end in ends.items():
                if name not in self._gone:
                    self._or_lost(end)
            return False

    def _concluded(self, name: str, end: Callable[[], bool]) -> bool:
        while True:
            try:
                return end()
            except SeatLost as lost:
                place = self._again(lost, self.noter(name))
                if place is None:
                    self._gone.add(name)
                    return True
                self._places[name] = place
                end = place.conclude()

    def _or_lost(self, do: Callable[[], Any]) -> None:
        """Do it, unless whoever it concerns is lost: then its last checkpoint stands."""
        with contextlib.suppress(SeatLost):
            do()
