"""Every state × trigger of a node's life cycle is allowed or raises."""

from __future__ import annotations

import itertools

import pytest

from fkge.errors import NodeError
from fkge.federation.protocol import State
from fkge.node.state import TABLE, LifeCycle, NodeState, Trigger

S, T = NodeState, Trigger
WORK = {T.BUSY: S.TRAINING, T.READY: S.EXCHANGING, T.SLEEP: S.RESTING, T.CONCLUDED: S.DONE}
EXPECTED: dict[NodeState, dict[Trigger, NodeState]] = {
    S.STARTING: {T.OPENED: S.WAITING, T.STOP: S.STOPPING},
    S.WAITING: {T.AGREE: S.SETTLING, **WORK, T.STOP: S.STOPPING},
    S.SETTLING: {**WORK, T.STOP: S.STOPPING},
    S.TRAINING: {**WORK, T.STOP: S.STOPPING},
    S.EXCHANGING: {**WORK, T.STOP: S.STOPPING},
    S.RESTING: {**WORK, T.STOP: S.STOPPING},
    S.DONE: {T.BUSY: S.TRAINING, T.READY: S.DONE, T.SLEEP: S.DONE, T.CONCLUDED: S.DONE, T.STOP: S.STOPPING},
    S.STOPPING: {
        **dict.fromkeys([T.AGREE, T.BUSY, T.READY, T.SLEEP, T.CONCLUDED, T.STOP], S.STOPPING), T.CLOSED: S.STOPPED,
        T.FAIL: S.FAILED,
    },
    S.STOPPED: {},
    S.FAILED: {},
}  # fmt: skip


@pytest.mark.parametrize(("state", "trigger"), list(itertools.product(NodeState, Trigger)))
def test_every_pair_is_allowed_or_raises(state: NodeState, trigger: Trigger) -> None:
    now = 1.0
    cycle = LifeCycle(lambda: now)
    cycle.state, now = state, 2.0
    expected = EXPECTED[state].get(trigger)
    if expected is None:
        with pytest.raises(NodeError, match=f"a node that is {state} cannot {trigger}"):
            cycle.move(trigger)
        assert (cycle.state, cycle.since) == (state, 1.0)
    else:
        assert cycle.move(trigger) is (expected is not state)
        assert (cycle.state, cycle.started, cycle.since) == (expected, 1.0, 1.0 if expected is state else 2.0)


def test_every_state_is_reached_and_every_node_can_stop() -> None:
    reached, before = {S.STARTING}, set[NodeState]()
    while reached != before:
        before, reached = reached, reached | {to for state in reached for to in TABLE[state].values()}
    assert reached == set(NodeState)
    assert all(T.STOP in TABLE[state] or is_over(state) for state in NodeState)


def is_over(state: NodeState) -> bool:
    cycle = LifeCycle(lambda: 0.0)
    cycle.state = state
    return cycle.over


def test_the_protocol_states_of_an_owner_are_triggers() -> None:
    assert {Trigger(state) for state in State} == {T.READY, T.BUSY, T.SLEEP}
