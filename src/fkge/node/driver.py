"""`NodeDriver` runs `fkge.federation.driver` within a node: it delivers messages on the event loop and trains in a
separate thread.

The two do not interfere because the protocol keeps them apart: while an owner trains, nothing is served from its
vectors, and peers that ask are deferred. Nothing leaves that was not saved before, so the process may be killed at any
time and resumes from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from typing import Protocol as Interface

from fkge.federation import Owner, PeerProfile, ProtocolConfig
from fkge.federation.driver import Driver
from fkge.federation.events import Joined, Lost
from fkge.federation.owner.job import Job
from fkge.federation.participant import Emit, OnEgress, Post
from fkge.federation.protocol import State
from fkge.privacy import Head


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


@dataclass(frozen=True)
class OwnerOpener:
    """Opens the owner of a node, from its checkpoint if it has one, and makes its driver.

    Attributes:
        job: what the owner does, and where it is saved.
        post: sends a message to a peer.
        emit: receives every event of its work.
        on_egress: receives every released message just before it is posted.
        late: it joins a federation that has begun.
        secret: the seed of rotations and of noise; the store's, for rehearsals, if None.
        ledger: how far its ledger has come at least.
        recording: a file to record all messages and events to.
        train_alone: whether it trains alone when its peers have no news (a setting).
    """

    job: Job
    post: Post
    emit: Emit
    on_egress: OnEgress
    late: bool
    secret: int | None
    ledger: Head | None
    recording: Path | None
    train_alone: bool

    def open(self) -> Driver:
        """Open it; may take long."""
        if (damage := self.job.workspace.repair()) is not None:
            self.emit("damaged", why=damage)
        return Driver(
            self.job,
            self.post,
            self.emit,
            late=self.late,
            secret=self.secret,
            ledger=self.ledger,
            recording=self.recording,
            on_egress=self.on_egress,
            serve=True,
        )

    def configs(self) -> tuple[ProtocolConfig, ProtocolConfig]:
        """The protocol's settings without and with peers to exchange with."""
        alone = self.job.protocol_config()
        return alone, replace(alone, patient=True, train_alone=self.train_alone)


class NodeDriver:
    """The driver of a node's owner.

    Args:
        opener: opens the owner and makes its driver; called in the thread, as that may take long.
        on_failure: receives an unexpected error, by which the node ends.
        order: the order in which messages are delivered; as they arrive, if None.

    Attributes:
        held: messages have to wait, as the owner's vectors are being replaced.
    """

    def __init__(
        self,
        opener: OwnerOpener,
        on_failure: Callable[[BaseException], None],
        order: DeliveryOrder | None = None,
    ) -> None:
        self.held = False
        self._opener, self._emit, self._on_failure, self._order = opener, opener.emit, on_failure, order
        self._alone, self._federated = opener.configs()
        self._driver: Driver | None = None
        self._config, self._caps, self._paused, self._leaving = self._federated, dict[str, float](), False, False
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="work")
        self._training = self._concluding = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- beginning and ending ------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        """The owner, once it is opened."""
        return None if self._driver is None else self._driver.owner

    @property
    def concluded(self) -> bool:
        """Whether the owner's results are written."""
        return self._driver is not None and self._driver.concluded

    @property
    def state(self) -> State:
        """The owner's state in the protocol."""
        return State.BUSY if self._driver is None else self._driver.participant.protocol.state

    async def begin(self, present: Callable[[Mapping[str, PeerProfile]], Collection[str]]) -> None:
        """Open the owner and begin, with those of its peers that are `present` once it is open."""
        self._driver = driver = await self._in_thread(self._opener.open)
        if self._paused:
            driver.pause()
        self._apply_limits(driver)
        here = present(driver.owner.peers)
        absent = [name for name in driver.owner.peers if name not in here]
        if self._order is None:
            driver.begin(absent)
        else:
            for name in absent:
                driver.participant.handle(Lost(name))

    async def leave(self) -> None:
        """Stop the training where it is, and save it."""
        self._leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if self._driver is not None:
            self._driver.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._driver is not None:
                await self._in_thread(self._driver.save_if_resumable)
                await self._in_thread(self._driver.owner.egress.close)
        finally:
            if self._driver is not None:
                self._driver.close()
            self._thread.shutdown()

    def pause(self) -> None:
        """Do not train, until `resume`; peers are still answered."""
        self._paused = True
        if self._driver is not None:
            self._driver.pause()

    def resume(self) -> None:
        """Continue the training."""
        self._paused = False
        if self._driver is not None:
            self._driver.resume()

    # -- peers ---------------------------------------------------------------------------------------

    def limit(self, refuses: Collection[str], caps: Mapping[str, float], federated: bool) -> None:
        """Change what peers may have, from now on.

        Args:
            refuses: peers that may not ask.
            caps: by peer, the ε that votes for it may cost.
            federated: whether there is any peer to exchange with.
        """
        base = self._federated
        self._config = replace(base, refuses=base.refuses | frozenset(refuses)) if federated else self._alone
        self._caps = dict(caps)
        if self._driver is not None:
            self._apply_limits(self._driver)

    def _apply_limits(self, driver: Driver) -> None:
        driver.participant.protocol.config = self._config
        driver.owner.egress.caps = self._caps

    def may_join(self, name: str, known: PeerProfile) -> bool:
        """Whether a peer may join now: not while the owner trains on updates under an older alignment with it."""
        assert self._driver is not None
        return not self._training or self._driver.owner.peers.get(name, known) == known

    def join(self, name: str, known: PeerProfile) -> bool:
        """Exchange with a peer from now on, if it `may_join`; False if there is too little to exchange."""
        assert self._driver is not None
        if not self._driver.owner.exchange.add_peer(name, known):
            return False
        self._driver.participant.handle(Joined(name))
        self.advance()
        return True

    def lose(self, name: str) -> None:
        """A peer is gone."""
        if self._driver is not None and name in self._driver.owner.peers:
            self._driver.participant.handle(Lost(name))
            self.advance()

    def deliver(self, name: str, body: bytes) -> None:
        """Process a message of a peer."""
        assert self._driver is not None
        if self._order is not None:
            self._order.arrived(name, body)
        else:
            self._driver.participant.deliver(name, body)
        self.advance()

    # -- training ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Start the round of training, the timer or the conclusion that the last event brought about."""
        driver, order = self._driver, self._order
        if driver is None or self._leaving:
            return
        if order is not None:
            self._follow(driver, order)
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
            self._start(self._train(driver))
        elif over and not self._concluding and not driver.concluded:
            self._concluding = True
            self._start(self._conclude(driver))

    def _follow(self, driver: Driver, order: DeliveryOrder) -> None:
        """Follow the order, as far as what it names is there."""
        # The thread sets `round_over` before `_train` is back on the loop; only then may the round be finished.
        while not driver.round_due and (
            (item := order.following(finished=driver.round_over and not self._training)) is not None
        ):
            what, name, body = item
            if what == "begin":
                driver.begin()
            elif what == "deliver":
                driver.participant.deliver(name, body)
            elif what == "finish":
                driver.finish()
            else:
                driver.wake()

    def _wake(self) -> None:
        self._timer = None
        if self._driver is not None and not self._leaving:
            try:
                self._driver.wake()
                self.advance()
            except Exception as error:
                self._on_failure(error)

    async def _train(self, driver: Driver) -> None:
        try:
            report = await self._in_thread(driver.train)
        finally:
            self._training = False
        if not driver.round_over:
            return
        if report is not None:
            self._emit("work", **asdict(report))
        if self._order is None:
            driver.finish()
        self.advance()

    async def _conclude(self, driver: Driver) -> None:
        """Leave the results; peers that come later are still served, from the best vectors."""
        self.held = True
        try:
            await self._in_thread(driver.restore_best)
        finally:
            self.held = False
        self._emit("held", over=True)
        await self._in_thread(driver.conclude)
        self._concluding = False

    async def _in_thread(self, do: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._thread, do)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="work")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_failure(error)

        task.add_done_callback(done)
