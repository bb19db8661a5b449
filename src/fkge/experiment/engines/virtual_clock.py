"""A virtual clock for one arm: one seed gives one run, wherever owners run and whatever their machines do meanwhile.

How long things take is a model (`Pace`). Owners react to inputs at a moment of the clock, and the clock waits for their
reactions; so which inputs they get, and in which order, depends on nothing else.

Owners in other processes work at the same time: the clock waits for a round of training when it reaches the round's
end, not when it begins. And inputs that are due at several owners within one message's latency are sent to all of
them at once, as nothing that one of them sends can reach another within that time (`VirtualClock._look_ahead`).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from fkge.errors import EngineError
from fkge.experiment.engines.stepped import Delivery, Input, Reaction, RoundOver, Start
from fkge.federation.driver import Stop
from fkge.federation.events import Joined, Lost, Wake
from fkge.owner_events import Emit


@dataclass(frozen=True)
class Pace:
    """The model of how long things take, in virtual seconds.

    Attributes:
        triples: trained on per second; latency: of a message; bandwidth: bytes per second.
        slow: factors by owner.
        losses: when an owner stops permanently.
        late: when an owner joins, rather than at the start. It does not start together with the others: it trains alone
            first, and turns into their frame.
    """

    triples: float = 100_000.0
    latency: float = 0.001
    bandwidth: float = 100e6
    slow: Mapping[str, float] = field(default_factory=dict)
    losses: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)


class Stopped(Exception):
    """Somebody asked to stop."""


class OwnerLost(Exception):
    """An owner cannot be reached any more. If it `failed` by an error of its own, a restart would end the same way."""

    def __init__(self, name: str, why: str, failed: bool = False) -> None:
        super().__init__(f"{name}: {why}")
        self.name, self.why, self.failed = name, why, failed


class OwnerHandle(Protocol):
    """One owner as the clock reaches it; it may be `concurrent`, which works while others do.

    Any call may raise `OwnerLost`, or `Stopped` while it waits.
    """

    concurrent: bool

    @property
    def peers(self) -> frozenset[str]: ...
    @property
    def triples(self) -> int: ...

    def send(self, given: Input) -> Callable[[], Reaction]:
        """Send an input; what is returned waits for the reaction."""

    def conclude(self) -> Callable[[], bool]:
        """Begin to end the arm; what is returned waits for that, and is False if it was stopped."""

    def save(self) -> None:
        """Save everything needed to resume."""

    def halt(self) -> None:
        """Leave the training under way. From now on nothing raises `Stopped`."""


class _Due(NamedTuple):
    """An input for an owner, or an action, at a moment of the clock.

    Attributes:
        when, number: order the heap; numbers break ties in the order of creation.
        name, given: the owner and its input; None for an action.
        action: what the clock itself does.
        valid: whether it still stands when its moment has come.
        matters: the arm is not over before this; a timer of an owner at rest does not matter.
    """

    when: float
    number: int
    name: str | None = None
    given: Input | None = None
    action: Callable[[], None] = lambda: None
    valid: Callable[[], bool] = lambda: True
    matters: bool = True


class VirtualClock:
    """Runs one arm.

    Args:
        names: the owners.
        open_owner: opens an owner: ``open_owner(name, emit)``.
        emit: receives every event, with ``arm``, ``owner`` and virtual time ``t``.
        arm: its name.
        pace: how long things take.
        restart: opens a lost owner again, or returns None: ``restart(lost, emit)``. It resumes from its checkpoint; to
            its peers it was away and has come back.
    """

    def __init__(
        self,
        names: Sequence[str],
        open_owner: Callable[[str, Emit], OwnerHandle],
        emit: Emit,
        arm: str,
        pace: Pace,
        *,
        restart: Callable[[OwnerLost, Emit], OwnerHandle | None] = lambda lost, emit: None,
    ) -> None:
        self._arm, self._pace, self._emit, self._restart = arm, pace, emit, restart
        self._late = dict(pace.late)
        self._now = 0.0
        self._count = itertools.count()
        self._heap: list[_Due] = []
        self._timers: dict[str, int] = {}
        self._incarnations = dict.fromkeys(names, 0)
        self._gone: set[str] = set()
        self._rest = dict.fromkeys(names, False)
        self._round_began: dict[str, float] = {}
        self._arrivals: dict[tuple[str, str], float] = {}
        self._ahead: dict[int, Callable[[], Reaction]] = {}
        """Reactions to inputs that were sent ahead of the clock, by the number of their `_Due`."""
        self._owners = {name: open_owner(name, self._emitter(name)) for name in names}
        for name, when in pace.losses.items():
            heapq.heappush(self._heap, _Due(when, next(self._count), action=partial(self._lose, name)))

    def _emitter(self, name: str) -> Emit:
        return lambda event: self._emit(event.stamped(arm=self._arm, owner=name, t=round(self._now, 6)))

    # -- the clock -----------------------------------------------------------------------------------

    def run(self, stop: Stop) -> bool:
        """Run the arm to its end. False if it ended early, by `stop` or a loss."""
        try:
            self._begin()
            while not stop():  # perhaps within the very first training
                if not self._heap or self._quiet():
                    break
                self._advance(heapq.heappop(self._heap))
            else:
                raise Stopped
            stuck = [name for name in self._present() if not self._rest[name]]
            if stuck:
                raise EngineError(f"{', '.join(stuck)} wait for something that will not come; this is a fault in fkge")
        except Stopped:
            self._halt()
            for name in self._present():
                with contextlib.suppress(OwnerLost):  # then its last checkpoint stands
                    self._owners[name].save()
            return False
        return self._conclude() and not self._gone

    def _present(self) -> list[str]:
        return [name for name in self._owners if name not in self._gone]

    def _halt(self) -> None:
        for name in self._present():
            self._owners[name].halt()

    def _begin(self) -> None:
        for name in list(self._owners):
            for other in self._late:
                if other in self._owners[name].peers:
                    self._send(name, Lost(other))
            if name in self._late:
                join = partial(self._join, name)
                heapq.heappush(self._heap, _Due(self._late[name], next(self._count), action=join))
            elif self._incarnations[name] == 0:  # one that was lost meanwhile has begun already
                self._send(name, Start())

    def _quiet(self) -> bool:
        """Return whether all owners are at rest and no event that matters is due."""
        return all(self._rest[name] for name in self._present()) and not any(due.matters for due in self._heap)

    def _advance(self, due: _Due) -> None:
        self._now = due.when
        reaction = self._ahead.pop(due.number, None)
        if reaction is None and not due.valid():
            return
        if due.name is None or due.given is None:
            due.action()
            return
        if reaction is None:
            reaction = self._owners[due.name].send(due.given)
        if self._owners[due.name].concurrent:
            self._look_ahead(due)
        self._take(due.name, reaction)

    def _look_ahead(self, due: _Due) -> None:
        """Send other owners the inputs that nothing that follows from `due` can change.

        Whatever an owner posts at `due.when` arrives a latency later at the earliest. So the first input of every
        other owner before that moment is certain, and may be sent now; an owner's second input is not, as the first may
        set a timer or begin a round that comes before it. An action may concern anybody: nothing beyond it is certain.
        """
        sent = {due.name}
        horizon = due.when + self._pace.latency
        for later in sorted(later for later in self._heap if later.when < horizon):
            if later.name is None or later.given is None:
                return
            if later.name in sent or not later.valid():
                continue
            sent.add(later.name)
            # An input that does not matter may never come: the arm may be over before.
            if later.matters and later.number not in self._ahead:
                self._ahead[later.number] = self._owners[later.name].send(later.given)

    def _schedule(self, when: float, name: str, given: Input, valid: Callable[[], bool], matters: bool = True) -> None:
        due = _Due(when, next(self._count), name, given, valid=valid, matters=matters)
        heapq.heappush(self._heap, due)

    # -- owners --------------------------------------------------------------------------------------

    def _send(self, name: str, given: Input) -> None:
        """Send an owner an input now, and take its reaction."""
        self._take(name, lambda: self._owners[name].send(given)())

    def _take(self, name: str, reaction: Callable[[], Reaction]) -> None:
        """Wait for an owner's reaction and schedule what follows from it."""
        try:
            got = reaction()
        except OwnerLost as lost:
            self._replace(lost)
            return
        emit = self._emitter(name)
        if got.finished is not None:
            emit(got.finished.stamped(since=round(self._round_began[name], 6)))
        for event in got.events:
            emit(event)
        for to, size, data in got.posts:
            self._post(name, to, size, data)
        self._rest[name] = got.at_rest
        if got.timer is not None:
            token = self._timers[name] = next(self._count)
            self._schedule(
                self._now + got.timer, name, Wake(), matters=not got.at_rest,
                valid=lambda: name not in self._gone and self._timers.get(name) == token,
            )  # fmt: skip
        if got.halted:
            raise Stopped
        if got.epochs is not None:
            triples = got.epochs * self._owners[name].triples
            until = self._now + triples / self._pace.triples * self._pace.slow.get(name, 1.0)
            self._round_began[name] = self._now
            if got.computed is not None:
                emit(got.computed.stamped(until=round(until, 6)))
            self._schedule(until, name, RoundOver(), self._unless_restarted(name))

    def _post(self, sender: str, to: str, size: int, data: Any) -> None:
        if sender in self._gone:
            return
        # Messages between two owners keep their order: a small one does not overtake a large one.
        soonest = self._now + self._pace.latency + size / self._pace.bandwidth
        when = self._arrivals[sender, to] = max(soonest, self._arrivals.get((sender, to), 0.0))
        self._schedule(when, to, Delivery(sender, data), self._unless_restarted(sender, to))

    def _unless_restarted(self, *names: str) -> Callable[[], bool]:
        """Return a function that says whether all of these owners are there and have been since now."""
        then = {name: self._incarnations[name] for name in names}
        return lambda: all(name not in self._gone and self._incarnations[name] == n for name, n in then.items())

    def _join(self, name: str) -> None:
        del self._late[name]
        for other in self._present():
            if name in self._owners[other].peers and other not in self._late and other != name:
                self._send(other, Joined(name))
                self._send(name, Joined(other))
        self._send(name, Start())

    def _lose(self, name: str) -> None:
        self._gone.add(name)
        for other in self._present():
            if name in self._owners[other].peers:
                self._send(other, Lost(name))

    def _replace(self, lost: OwnerLost) -> None:
        """Restart a lost owner from its checkpoint, or run on without it."""
        name = lost.name
        if name in self._gone:
            return
        self._gone.add(name)
        # Messages to and from the lost incarnation, its timer and its round are void; so are reactions it still owes.
        self._incarnations[name] += 1
        self._timers.pop(name, None)
        for due in self._heap:
            if due.name == name:
                self._ahead.pop(due.number, None)
        owner = self._restart(lost, self._emitter(name))
        self._lose(name)
        if owner is None:
            return
        # Its peers have dropped every exchange with it (`_lose`). Now it comes back, as a late owner would: it learns
        # who is away, the others learn that it is there, and it begins with the vectors of its checkpoint.
        self._owners[name] = owner
        self._gone.discard(name)
        for other in self._gone | set(self._late):
            if other in owner.peers:
                self._send(name, Lost(other))
        for other in self._present():
            if name in self._owners[other].peers and other not in self._late:
                self._send(other, Joined(name))
        self._send(name, Start())

    # -- the end -------------------------------------------------------------------------------------

    def _conclude(self) -> bool:
        ends = {name: self._owners[name].conclude() for name in self._present()}
        try:
            return all(self._concluded(name, end) for name, end in ends.items())
        except Stopped:
            self._halt()
            for name, end in ends.items():
                if name not in self._gone:
                    with contextlib.suppress(OwnerLost):
                        end()
            return False

    def _concluded(self, name: str, end: Callable[[], bool]) -> bool:
        while True:
            try:
                return end()
            except OwnerLost as lost:
                owner = self._restart(lost, self._emitter(name))
                if owner is None:
                    self._gone.add(name)
                    return True
                self._owners[name] = owner
                end = owner.conclude()
