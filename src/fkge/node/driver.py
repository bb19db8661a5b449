"""`NodeDriver` runs an owner within a node: delivers received messages to its `Participant` on the event loop and
trains in a thread; outgoing messages go to the node's queue directly.

The two do not interfere because the protocol keeps them apart: while an owner trains, nothing is served from its
vectors, and peers that ask are deferred. Nothing leaves that was not saved before, so the process may be killed at any
time and resumes from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal
from typing import Protocol as Interface

from fkge.federation import Owner, PeerProfile
from fkge.federation.driver import Driver
from fkge.federation.events import Joined, Lost
from fkge.federation.owner.job import Job
from fkge.federation.participant import Post
from fkge.node.events import Event, Failed, JoinDue, supervised
from fkge.owner_events import CheckpointDamaged, Emit


class DeliveryOrder(Interface):
    """An order in which an owner's work proceeds, whatever order messages arrive in."""

    @property
    def over(self) -> bool:
        """Whether nothing more is to be done."""

    def arrived(self, peer: str, body: bytes) -> None:
        """Take in a message; it is delivered when its time has come."""

    def following(self, finished: bool) -> tuple[Literal["begin", "deliver", "wake", "finish"], str, bytes] | None:
        """Take the next step: what to do, and for a delivery the peer and the message; None if it cannot be done yet.

        Args:
            finished: the owner's round of training is over, and can be reported.
        """


async def open_in_thread(job: Job, post: Post, emit: Emit, **options: Any) -> tuple[Driver, ThreadPoolExecutor]:
    """Open the owner of a node, from its checkpoint if it has one, in the thread in which it will train.

    Args:
        job: what the owner does, and where it is saved.
        post, emit, options: of `Driver`.
    """

    def make() -> Driver:
        if (damage := job.workspace.repair()) is not None:
            emit(CheckpointDamaged(why=damage))
        return Driver(job, post, emit, serve=True, **options)

    thread = ThreadPoolExecutor(1, thread_name_prefix="work")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, make), thread
    except BaseException:
        thread.shutdown()
        raise


class NodeDriver:
    """The driver of a node's owner; `held` while messages have to wait, as its vectors are being replaced.

    Args:
        driver, thread: see `open_in_thread`.
        emit: receives the events of its work.
        put: called with `Failed` after an unexpected error, by which the node ends, and with `JoinDue`.
        train_alone: whether the owner trains alone when its peers have no news (a setting).
        order: the order in which messages are delivered; as they arrive, if None.
    """

    def __init__(
        self,
        driver: Driver,
        thread: ThreadPoolExecutor,
        emit: Emit,
        put: Callable[[Event], None],
        train_alone: bool,
        order: DeliveryOrder | None = None,
    ) -> None:
        self.held = self._leaving = self._training = self._concluding = False
        self._driver, self._thread = driver, thread
        self._emit, self._put, self._order = emit, put, order
        self._alone = driver.participant.protocol.config
        self._federated = replace(self._alone, patient=True, train_alone=train_alone)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def owner(self) -> Owner:
        return self._driver.owner

    def begin(self, present: Collection[str]) -> None:
        """Begin, with those of the owner's peers that are `present`."""
        absent = [name for name in self.owner.peers if name not in present]
        if self._order is None:
            self._driver.begin(absent)
        else:
            for name in absent:
                self._driver.participant.handle(Lost(name))

    async def leave(self) -> None:
        """Stop the training where it is, and save it."""
        self._leaving = True
        if self._timer is not None:
            self._timer.cancel()
        self._driver.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._in_thread(self._driver.save_if_resumable)
            await self._in_thread(self.owner.egress.close)
        finally:
            self._driver.close()
            self._thread.shutdown()

    def pause(self, paused: bool) -> None:
        """Do not train while `paused`; peers are still answered."""
        if paused:
            self._driver.pause()
        else:
            self._driver.resume()

    def limit(self, refuses: Collection[str], caps: Mapping[str, float], federated: bool) -> None:
        """Change what peers may have, from now on.

        Args:
            refuses: peers that may not ask.
            caps: by peer, the ε that votes for it may cost.
            federated: whether there is any peer to exchange with.
        """
        base = self._federated
        config = replace(base, refuses=base.refuses | frozenset(refuses)) if federated else self._alone
        self._driver.participant.protocol.config = config
        self.owner.egress.caps = dict(caps)

    def may_join(self, name: str, known: PeerProfile) -> bool:
        """Return whether a peer may join now: not while the owner trains on updates under an older alignment."""
        return not self._training or self.owner.peers.get(name, known) == known

    def join(self, name: str, known: PeerProfile) -> bool:
        """Exchange with a peer from now on, if it `may_join`; False if there is too little to exchange."""
        if not self.owner.exchange.add_peer(name, known):
            return False
        self._driver.participant.handle(Joined(name))
        self.advance()
        return True

    def lose(self, name: str) -> None:
        """Remove a peer that is gone."""
        if name in self.owner.peers:
            self._driver.participant.handle(Lost(name))
            self.advance()

    def deliver(self, name: str, body: bytes) -> None:
        """Process a message of a peer."""
        if self._order is not None:
            self._order.arrived(name, body)
        else:
            self._driver.participant.deliver(name, body)
        self.advance()

    def advance(self) -> None:
        """Start the round of training, the timer or the conclusion that the last event brought about."""
        driver, order = self._driver, self._order
        if self._leaving:
            return
        if order is not None:
            self._follow(order)
        if (seconds := driver.take_timer()) is not None:
            if self._timer is not None:
                self._timer.cancel()
            if order is None:
                self._timer = self._loop.call_later(seconds, self._wake)
        if self._training:
            return
        over = driver.participant.protocol.over if order is None else order.over
        if driver.round_due:
            self._training = True
            self._start(self._train())
        elif over and not self._concluding and not driver.concluded:
            self._concluding = True
            self._start(self._conclude())

    def _follow(self, order: DeliveryOrder) -> None:
        """Follow the order, as far as what it names is there."""
        driver = self._driver
        # The thread sets `round_over` before `_train` is back on the loop; only then may the round be finished.
        while not driver.round_due and (
            (item := order.following(finished=driver.round_over and not self._training)) is not None
        ):
            what, name, body = item
            if what == "deliver":
                driver.participant.deliver(name, body)
            else:
                {"begin": driver.begin, "finish": driver.finish, "wake": driver.wake}[what]()

    def _wake(self) -> None:
        self._timer = None
        if not self._leaving:
            try:
                self._driver.wake()
                self.advance()
            except Exception as error:
                self._put(Failed(error))

    async def _train(self) -> None:
        driver = self._driver
        try:
            report = await self._in_thread(driver.train)
        finally:
            self._training = False
        if not driver.round_over:
            return
        if report is not None:
            self._emit(report)
        if self._order is None:
            driver.finish()
        self.advance()

    async def _conclude(self) -> None:
        """Leave the results; peers that come later are still served, from the best vectors."""
        self.held = True
        try:
            await self._in_thread(self._driver.restore_best)
        finally:
            self.held = False
        self._put(JoinDue())
        await self._in_thread(self._driver.conclude)
        self._concluding = False

    async def _in_thread(self, do: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._thread, do)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(task := supervised(work, "work", self._put))
        task.add_done_callback(self._tasks.discard)
