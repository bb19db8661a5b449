"""The driver of one owner: runs the rounds of training that the protocol asks for, saves, pauses, stops and concludes.

Every engine and the node use it. They differ only in where time comes from, how bytes travel, and what else has to be
done between two chunks of training (`attend`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fkge.errors import BudgetError
from fkge.federation.events import Lost, Wake
from fkge.federation.owner import Outcome, Owner
from fkge.federation.owner.job import Job
from fkge.federation.participant import OnEgress, Participant, Post
from fkge.federation.protocol import Protocol
from fkge.federation.recording import Recorder
from fkge.owner_events import BudgetExhausted, Emit, EpochReached, Worked
from fkge.privacy import Head

SECONDS_BETWEEN_CHECKPOINTS = 10.0

Stop = Callable[[], bool]


class Driver:
    """The driver of one owner.

    An engine calls `begin`, hands over messages and events (`participant`), and after each of them looks at
    `round_due` and `take_timer`. A round is `train`, then `finish` when the engine's clock says that it is over.
    `pause`, `resume` and `stop` may be called from any thread.

    Args:
        job: how the owner is opened, saved and concluded.
        post, emit, on_egress: see `Participant`.
        late, secret, ledger: see `OwnerStore.open_owner`.
        recording: a file to record all messages and events to.
        attend: called between two chunks of training for whatever the engine has to do; True leaves the training.
        progress_seconds: the least time between two `EpochReached` events.
        serve: peers are served after the conclusion, and a used-up privacy budget ends the training rather than raise
            `BudgetError`.

    Attributes:
        participant: carries out the protocol for the owner.
        concluded: the results are written.
    """

    def __init__(
        self,
        job: Job,
        post: Post,
        emit: Emit,
        *,
        late: bool = False,
        secret: int | None = None,
        ledger: Head | None = None,
        recording: Path | None = None,
        on_egress: OnEgress | None = None,
        attend: Stop = lambda: False,
        progress_seconds: float = 1.0,
        serve: bool = False,
    ) -> None:
        owner, self._trained = job.open(late=late, secret=secret, ledger=ledger)
        protocol = Protocol(owner.peers, job.protocol_config())
        self.participant = Participant(owner, protocol, post, emit, Recorder(recording), on_egress)
        self.concluded = owner.spent and job.workspace.finished
        self._job, self._emit, self._attend = job, emit, attend
        self._progress_seconds, self._serve = progress_seconds, serve
        self._outcome: Outcome | None = None
        self._at_best = False
        self._stopped, self._resumed = threading.Event(), threading.Event()
        self._resumed.set()
        self._saved = self._reported = time.monotonic()
        owner.egress.save = self.save

    @property
    def owner(self) -> Owner:
        return self.participant.owner

    def begin(self, absent: Iterable[str] = ()) -> None:
        """Join the federation; these peers cannot be reached yet."""
        for peer in absent:
            self.participant.handle(Lost(peer))
        self.participant.begin(self._trained)

    # -- timers and rounds ---------------------------------------------------------------------------

    def take_timer(self) -> float | None:
        """Seconds after which the engine must call `wake`, if a timer was set since; it replaces any other."""
        seconds, self.participant.timer = self.participant.timer, None
        return seconds

    def wake(self) -> None:
        """Report to the protocol that its timer has run out."""
        self.participant.handle(Wake())

    @property
    def round_due(self) -> bool:
        """Whether the protocol asks for a round of training: call `train`."""
        return self.participant.work is not None

    @property
    def round_over(self) -> bool:
        """Whether a round has been trained that `finish` was not called for."""
        return self._outcome is not None

    def train(self) -> Worked | None:
        """Train the round that is due. None if it was stopped, or if the budget ended it (then it is over)."""
        try:
            outcome = self.participant.improve(pause=self._between_chunks)
        except BudgetError as error:
            if not self._serve:
                raise
            # Its plan does not fit the budget any more, for instance after an older checkpoint: it ends where it is.
            self._emit(BudgetExhausted(why=str(error)))
            self._outcome = Outcome(spent=True, best=self.owner.activity.best_score)
            return None
        if outcome.halted:
            return None
        self._outcome = outcome
        self.save_if_due()
        return self.participant.report

    def finish(self) -> None:
        """Tell the protocol that the round is over."""
        assert self._outcome is not None
        outcome, self._outcome = self._outcome, None
        self.participant.finish(outcome)

    def _between_chunks(self) -> bool:
        """Report progress, save if it is time, wait while paused, attend to the engine. True: leave the training."""
        now = time.monotonic()
        if now - self._reported >= self._progress_seconds:
            self._reported = now
            self._emit(EpochReached(epoch=self.owner.trainer.epoch))
        self.save_if_due()
        if self.paused:
            self.save_if_resumable()
        return self._leave()

    def _leave(self) -> bool:
        self._resumed.wait()
        return self._attend() or self._stopped.is_set()

    # -- pausing and stopping ------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        return not self._resumed.is_set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def pause(self) -> None:
        """Hold the training, until `resume`; peers are still answered."""
        self._resumed.clear()

    def resume(self) -> None:
        """Continue the training."""
        self._resumed.set()

    def stop(self) -> None:
        """Leave the training, or the conclusion, at the next chunk."""
        self._stopped.set()
        self._resumed.set()

    # -- saving and concluding -----------------------------------------------------------------------

    def save(self) -> None:
        """Save the owner's state. Once its best vectors are restored this does nothing: its last state is saved."""
        if not self._at_best:
            self._job.workspace.save(self.owner)
            self._saved = time.monotonic()

    def save_if_due(self) -> None:
        """Save if the last time is a while ago and the owner can be saved now."""
        if time.monotonic() - self._saved > SECONDS_BETWEEN_CHECKPOINTS and self.owner.can_save:
            self.save()

    def save_if_resumable(self) -> None:
        """Save a state that training can resume from; a broken epoch with a peer's virtual triples is none."""
        owner = self.owner
        if owner.can_save and not (owner.trainer.chunk > 0 and owner.settings.neighbours):
            self.save()

    def restore_best(self) -> None:
        """Save the last state, then put the best vectors in its place. Peers must not be served meanwhile."""
        if not self._at_best:
            self.save()
            self._at_best = True
            self.owner.best()

    def conclude(self) -> bool:
        """End the owner's part and leave its results. False if it was stopped."""
        self.restore_best()
        self.concluded = self._job.conclude(self.owner, self._emit, self._leave, self._serve)
        return self.concluded

    def close(self) -> None:
        """Complete the recording."""
        self.participant.recorder.close()
