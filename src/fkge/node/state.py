"""The life cycle of a node as a table: states, triggers, and the state that each pair leads to. No I/O, no clock.

`paused` is no state of its own: a node pauses in any of them, and resumes where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from fkge.errors import NodeError


class NodeState(StrEnum):
    """The states of a node's life cycle; `fkge status`, metrics and the log show these values."""

    STARTING = "starting"  # opens its state folder, graph and control socket
    WAITING = "waiting"  # listens and dials; the other bootstrap members are not all here yet
    SETTLING = "settling"  # agrees with the other bootstrap members on the first rows (`fkge.node.bootstrap`)
    TRAINING = "training"  # works on its own vectors
    EXCHANGING = "exchanging"  # asks peers, and serves those that ask
    RESTING = "resting"  # has nothing to do until a peer has news
    DONE = "done"  # has spent its epochs and written its results; still serves peers
    STOPPING = "stopping"  # closes connections and saves
    STOPPED = "stopped"  # the process ends
    FAILED = "failed"  # the process ends


class Trigger(StrEnum):
    """The triggers that move a node to another state. BUSY, READY and SLEEP are the protocol's states of its owner."""

    OPENED = "opened"
    AGREE = "agree"
    BUSY = "busy"
    READY = "ready"
    SLEEP = "sleep"
    CONCLUDED = "concluded"
    STOP = "stop"
    CLOSED = "closed"
    FAIL = "fail"


_S, _T = NodeState, Trigger
_OWNER = {_T.BUSY: _S.TRAINING, _T.READY: _S.EXCHANGING, _T.SLEEP: _S.RESTING, _T.CONCLUDED: _S.DONE}
_WORKING = {**_OWNER, _T.STOP: _S.STOPPING}
TABLE: dict[NodeState, dict[Trigger, NodeState]] = {
    _S.STARTING: {_T.OPENED: _S.WAITING, _T.STOP: _S.STOPPING},
    _S.WAITING: {**_WORKING, _T.AGREE: _S.SETTLING},
    _S.SETTLING: _WORKING,
    _S.TRAINING: _WORKING,
    _S.EXCHANGING: _WORKING,
    _S.RESTING: _WORKING,
    # A node that is done serves peers and stays done; only new training, with a peer that joins late, ends that.
    _S.DONE: {**_WORKING, _T.READY: _S.DONE, _T.SLEEP: _S.DONE},
    # The training thread may report until it has ended.
    _S.STOPPING: {
        **dict.fromkeys((_T.AGREE, *_WORKING), _S.STOPPING), _T.CLOSED: _S.STOPPED, _T.FAIL: _S.FAILED,
    },
    _S.STOPPED: {},
    _S.FAILED: {},
}  # fmt: skip
"""By state, every trigger that is allowed, with the state it leads to. Any other is a fault in fkge."""


class LifeCycle:
    """The state of one node, when its life cycle began (`started`), and `since` when it is in this state.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.state = NodeState.STARTING
        self.started = self.since = clock()

    @property
    def over(self) -> bool:
        """Whether the node is stopped or failed."""
        return self.state in (NodeState.STOPPED, NodeState.FAILED)

    def move(self, trigger: Trigger) -> bool:
        """Go to the state that `trigger` leads to; return whether it is another.

        Raises:
            NodeError: the pair is not in `TABLE`; the state stays as it is.
        """
        following = TABLE[self.state].get(trigger)
        if following is None:
            raise NodeError(f"a node that is {self.state} cannot {trigger}; this is a fault in fkge")
        if following is self.state:
            return False
        self.state, self.since = following, self._clock()
        return True
