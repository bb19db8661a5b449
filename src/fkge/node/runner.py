"""An owner at work within a node: the station on the loop, training in a thread of its own.

The two do not get into each other's way because the protocol does not let them: while an owner works on its vectors
nothing is served from them, and whoever asks is put off. What was not kept on disk does not leave; so the process may
be killed at any time, and goes on from there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from fkge.engines.station import Left, Note, Station
from fkge.engines.tape import Tape
from fkge.errors import BudgetError
from fkge.federation import Acquaintance, Arm, Home, Manners, Owner, Protocol
from fkge.federation.owner import Outcome
from fkge.federation.protocol import Joined, Lost, Wake
from fkge.node.score import Score
from fkge.privacy import Head

_BETWEEN_CHECKPOINTS = 10.0
_BETWEEN_WORDS = 1.0


class Runner:
    """Carries out what the protocol says for the owner of a node.

    Args:
        home: the owner's.
        arm: what it does.
        post: says something to a peer; left: is told just before.
        note: is told of everything that happens, from the loop or from the thread.
        failed: is told of what nobody thought of; the node ends by it.
        late: it comes to a federation that has begun.
        secret: of rotations and of a game's noise; from the seed, for rehearsals, if None.
        ledger: how far the owner's ledger has come at least.
        tape: a file to record all that is heard and said.
        score: an order to follow.
    """

    def __init__(
        self,
        home: Home,
        arm: Arm,
        post: Callable[[str, bytes], None],
        left: Left,
        note: Note,
        failed: Callable[[BaseException], None],
        *,
        late: bool = False,
        secret: int | None = None,
        ledger: Head | None = None,
        tape: Path | None = None,
        score: Score | None = None,
    ) -> None:
        self.home, self.arm = home, arm
        self.station: Station | None = None
        self.held = False
        """What comes has to wait: the owner's vectors are being moved."""
        self.concluded = False
        self._post, self._left, self._note, self._failed = post, left, note, failed
        self._refuses, self._caps, self._company = frozenset[str](), dict[str, float](), True
        self._late, self._secret, self._ledger = late, secret, ledger
        self._tape = tape
        self._taping: Tape | None = None
        self._score = score
        self._loop = asyncio.get_running_loop()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="work")
        self._leaving, self._going_on = threading.Event(), threading.Event()
        self._going_on.set()
        self._working = self._concluding = self._at_best = False
        self._outcome: Outcome | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._saved = self._said = time.monotonic()

    # -- beginning and ending ------------------------------------------------------------------------

    async def begin(self, present: Callable[[Mapping[str, Acquaintance]], Collection[str]]) -> None:
        """Take up the owner's work, with those of its peers that are `present` once it can."""
        owner, trained = await self._in_thread(self._make_owner)
        self.concluded = owner.spent and self.home.result(self.arm.name) is not None
        self._taping = None if self._tape is None else Tape(self._tape)
        station = Station(
            owner, Protocol(owner.peers, self._manners()), self._post, self._note, self._taping, self._left
        )
        self.station = station
        owner.gate.keep = self.save
        self.limit(self._refuses, self._caps, self._company)
        here = present(owner.peers)
        for name in owner.peers:
            if name not in here:
                station.handle(Lost(name))
        if self._score is None:
            station.begin(trained)

    def _make_owner(self) -> tuple[Owner, bool]:
        if (wrong := self.home.mend(self.arm)) is not None:
            self._note("damaged", why=wrong)
        return self.home.owner(self.arm, late=self._late, secret=self._secret, ledger=self._ledger)

    async def leave(self) -> None:
        """End the work where it is, and keep it."""
        self._leaving.set()
        self._going_on.set()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self.station is not None:
                if self._fit_to_keep(self.station.owner) and not self._at_best:
                    await self._in_thread(self.save)
                await self._in_thread(self.station.owner.gate.close)
        finally:
            if self._taping is not None:
                self._taping.close()
            self._worker.shutdown()

    def pause(self) -> None:
        """Do not train, until `resume`; what is asked is answered."""
        self._going_on.clear()

    def resume(self) -> None:
        """Train again."""
        self._going_on.set()

    @property
    def paused(self) -> bool:
        return not self._going_on.is_set()

    # -- peers ---------------------------------------------------------------------------------------

    def limit(self, refuses: Collection[str], caps: Mapping[str, float], company: bool) -> None:
        """From now on: peers that may not ask, by peer the ε that votes for it may cost, whether there is anybody."""
        self._refuses, self._caps, self._company = frozenset(refuses), dict(caps), company
        if self.station is not None:
            self.station.protocol.manners = self._manners()
            self.station.owner.gate.caps = self._caps

    def _manners(self) -> Manners:
        if not self._company or not self.arm.peers:
            return self.home.manners(self.arm)
        manners = self.home.settings.manners(self.home.refuses)
        return replace(manners, refuses=manners.refuses | self._refuses, patient=True)

    def may_join(self, name: str, known: Acquaintance) -> bool:
        """Not while the owner works with what it got under an older alignment with that peer."""
        assert self.station is not None
        return not self._working or self.station.owner.peers.get(name, known) == known

    def join(self, name: str, known: Acquaintance) -> bool:
        """Deal with a peer from now on, if it `may_join`; False if there is too little to exchange."""
        assert self.station is not None
        if not self.station.owner.meet(name, known):
            return False
        self.station.handle(Joined(name))
        self.look_after()
        return True

    def lose(self, name: str) -> None:
        """A peer is gone."""
        if self.station is not None and name in self.station.owner.peers:
            self.station.handle(Lost(name))
            self.look_after()

    def deliver(self, name: str, body: bytes) -> None:
        """A peer has said something."""
        assert self.station is not None
        if self._score is not None:
            self._score.came(name, body)
        else:
            self.station.deliver(name, body)
        self.look_after()

    # -- working -------------------------------------------------------------------------------------

    def look_after(self) -> None:
        """Start the work, and set the timer, that the last event brought about."""
        station = self.station
        if station is None or self._leaving.is_set():
            return
        if self._score is not None:
            self._play(station, self._score)
        if station.timer is not None:
            seconds, station.timer = station.timer, None
            if self._timer is not None:
                self._timer.cancel()
            if self._score is None:
                self._timer = self._loop.call_later(seconds, self._wake)
        if station.work is not None and not self._working:
            self._working = True
            self._task(self._work(station))
            return
        over = station.protocol.over if self._score is None else self._score.over
        if over and not self._working and not self.concluded and not self._concluding:
            self._concluding = True
            self._task(self._conclude(station))

    def _play(self, station: Station, score: Score) -> None:
        """Do what the score says next, as far as it is there to be done."""
        while station.work is None:
            item = score.following(finished=self._outcome is not None)
            if item is None:
                return
            what, name, body = item
            if what == "begin":
                station.begin(False)
            elif what == "heard":
                station.deliver(name, body)
            elif what == "finish":
                outcome, self._outcome = self._outcome, None
                assert outcome is not None
                station.finish(outcome)
            else:
                station.handle(Wake())

    def _wake(self) -> None:
        self._timer = None
        if self.station is not None and not self._leaving.is_set():
            try:
                self.station.handle(Wake())
                self.look_after()
            except Exception as error:
                self._failed(error)

    async def _work(self, station: Station) -> None:
        try:
            outcome = await self._in_thread(self._improve, station)
        finally:
            self._working = False
        if outcome.halted:
            return
        if station.done:
            self._note("work", **station.done)
        if self._score is not None:
            self._outcome = outcome
        else:
            station.finish(outcome)
        self.look_after()

    def _improve(self, station: Station) -> Outcome:
        try:
            outcome = station.improve(pause=self._between)
        except BudgetError as error:
            # What it meant to spend does not fit any more, after an older checkpoint say: it ends where it is.
            self._note("spent", why=str(error))
            best = station.owner.activity.best_score
            return Outcome(False, True, None, best, improved=False, backtracked=False)
        if not outcome.halted and time.monotonic() - self._saved > _BETWEEN_CHECKPOINTS:
            self.save()
        return outcome

    def _between(self) -> bool:
        """Within training: say how far it is, keep it every now and then, wait while paused. True: leave it."""
        assert self.station is not None
        owner, now = self.station.owner, time.monotonic()
        if now - self._said > _BETWEEN_WORDS:
            self._said = now
            self._note("progress", epoch=owner.trainer.epoch)
        if now - self._saved > _BETWEEN_CHECKPOINTS and owner.can_save:
            self.save()
        if self.paused:
            if self._fit_to_keep(owner):
                self.save()
            self._going_on.wait()
        return self._leaving.is_set()

    async def _conclude(self, station: Station) -> None:
        """The federation is over, for now: leave the model. Whoever comes later is still served."""
        self.held = True
        try:
            await self._in_thread(self._keep_best, station.owner)
        finally:
            self.held = False
        self._note("held", over=True)
        whole = await self._in_thread(
            self.home.conclude, self.arm, station.owner, self._note, self._told_to_leave, stays=True
        )
        self._concluding = False
        self.concluded = whole

    def _told_to_leave(self) -> bool:
        self._going_on.wait()
        return self._leaving.is_set()

    def _keep_best(self, owner: Owner) -> None:
        self.save()
        self._at_best = True  # from here on its vectors are not those to go on from
        owner.best()

    def save(self) -> None:
        """Keep the owner's state on disk; at its best it is kept already, as it was before."""
        assert self.station is not None
        if self._at_best:
            return
        self.home.save(self.arm, self.station.owner)
        self._saved = time.monotonic()

    @staticmethod
    def _fit_to_keep(owner: Owner) -> bool:
        # An epoch with virtual triples that broke off cannot be finished without them: an older checkpoint must do.
        return owner.can_save and not (owner.trainer.chunk > 0 and owner.settings.neighbours)

    async def _in_thread(self, do: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return await self._loop.run_in_executor(self._worker, lambda: do(*args, **more))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="work")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed(error)

        task.add_done_callback(done)
