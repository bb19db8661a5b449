"""The protocol: every row of its table, the scenes it was made for, and a network that tries to break it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable
from typing import Any, get_args

import pytest

from fkge.errors import PeerError
from fkge.federation.events import (
    EVENTS,
    Begin,
    Drop,
    Event,
    Finished,
    Forget,
    Host,
    Improve,
    Instruction,
    Joined,
    Lost,
    Received,
    Send,
    Serve,
    Served,
    Timer,
    Wake,
)
from fkge.federation.messages import Abort, Accept, Defer, Refuse, Request, Signal
from fkge.federation.protocol import TABLE, Protocol, ProtocolConfig, State
from tests.unit.federation.simulated import Violation, World

ONE_BY_ONE = ProtocolConfig(gather=False)
PAPER = ProtocolConfig(gather=False, train_alone=True)
PATIENCE = Timer(120.0)
"""Set with every first exchange: it is given up on if nothing moves."""
BUSY, READY, SLEEP = State.BUSY, State.READY, State.SLEEP


def owner(events: Iterable[Event] = (), peers: str = "ab", config: ProtocolConfig = ONE_BY_ONE) -> Protocol:
    """An owner that went through `events`."""
    out = Protocol(peers, config)
    for event in events:
        out.handle(event)
    return out


def working(p: Protocol) -> bool:
    """Whether a round of training is running."""
    return p.state is BUSY and p._begun


def state_of(p: Protocol) -> dict[str, Any]:
    return copy.deepcopy(vars(p))


# -- the table -------------------------------------------------------------------------------------

WORKING: list[Event] = [Begin()]
ASLEEP: list[Event] = [Begin(), Finished(news=False)]
TALKING: list[Event] = [*ASLEEP, Signal("a"), Request("b", 9)]
"""Ready: has asked a in session 1, serves b's session 9."""

Row = tuple[list[Event], Event, list[Instruction], State]
GIVEN_UP: list[Instruction] = [
    Send("a", Abort, 1, host=True), Forget("a", 1, hosting=True),
    Send("b", Abort, 9, host=False), Forget("b", 9, hosting=False),
]  # fmt: skip
"""What `TALKING` does about its exchanges if nothing moves in them."""
NO_LONGER: list[Instruction] = [Send("a", Abort, 1, host=True)]
"""What whoever accepts too late is told."""
EXPECTED: dict[tuple[State, type], Row] = {
    (BUSY, Begin): ([], Begin(), [Improve(initial=True)], BUSY),
    (BUSY, Finished): (WORKING, Finished(True), [Send("a", Signal), Send("b", Signal), Timer(60.0)], SLEEP),
    (BUSY, Wake): (WORKING, Wake(), [], BUSY),
    (BUSY, Signal): (WORKING, Signal("a"), [], BUSY),
    (BUSY, Request): (WORKING, Request("a", 5), [Send("a", Defer, 5)], BUSY),
    (BUSY, Accept): (WORKING, Accept("a", 1), NO_LONGER, BUSY),
    (BUSY, Defer): (WORKING, Defer("a", 1), [], BUSY),
    (BUSY, Refuse): (WORKING, Refuse("a", 1), [], BUSY),
    (BUSY, Abort): (WORKING, Abort("a", 1, host=True), [], BUSY),
    (BUSY, Lost): (WORKING, Lost("a"), [Drop("a")], BUSY),
    (BUSY, Joined): (WORKING, Joined("c"), [], BUSY),
    (READY, Wake): (TALKING, Wake(), [*GIVEN_UP, Timer(60.0)], SLEEP),
    (READY, Signal): (TALKING, Signal("b"), [], READY),
    (READY, Request): (TALKING, Request("a", 5), [Send("a", Accept, 5), Serve("a", 5)], READY),
    (READY, Accept): (TALKING, Accept("a", 1), [Host("a", 1)], READY),
    (READY, Defer): (TALKING, Defer("a", 1), [], READY),
    (READY, Refuse): (TALKING, Refuse("a", 1), [], READY),
    (READY, Abort): (TALKING, Abort("b", 9, host=True), [Forget("b", 9, hosting=False)], READY),
    (READY, Received): ([*TALKING, Accept("a", 1)], Received("a", 1), [], READY),
    (READY, Served): (TALKING, Served("b", 9), [], READY),
    (READY, Lost): (TALKING, Lost("a"), [Drop("a")], READY),
    (READY, Joined): (TALKING, Joined("c"), [Send("c", Signal)], READY),
    (SLEEP, Wake): (ASLEEP, Wake(), [Improve()], BUSY),
    (SLEEP, Signal): (ASLEEP, Signal("a"), [Send("a", Request, 1), PATIENCE], READY),
    (SLEEP, Request): (ASLEEP, Request("a", 5), [Send("a", Accept, 5), Serve("a", 5), PATIENCE], READY),
    (SLEEP, Accept): (ASLEEP, Accept("a", 1), NO_LONGER, SLEEP),
    (SLEEP, Defer): (ASLEEP, Defer("a", 1), [], SLEEP),
    (SLEEP, Refuse): (ASLEEP, Refuse("a", 1), [], SLEEP),
    (SLEEP, Abort): (ASLEEP, Abort("a", 1, host=False), [], SLEEP),
    (SLEEP, Lost): (ASLEEP, Lost("a"), [Drop("a")], SLEEP),
    (SLEEP, Joined): (ASLEEP, Joined("c"), [Send("c", Signal)], SLEEP),
}
IN_STATE: dict[State, list[Event]] = {BUSY: WORKING, READY: TALKING, SLEEP: ASLEEP}


def any_event(kind: type) -> Event:
    """An event of a kind, with nothing wrong in it but, perhaps, the time."""
    values: dict[str, Any] = {"peer": "a", "session": 1, "news": True, "host": True}
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    out: Event = kind(**{name: values[name] for name in fields if name in values})
    return out


def test_the_table_knows_every_event_and_these_tests_every_row() -> None:
    assert set(get_args(Event)) == set(EVENTS)
    assert len(EVENTS) == 13
    assert {event for _, event in TABLE} == set(EVENTS)
    assert set(EXPECTED) == set(TABLE)


@pytest.mark.parametrize(("state", "kind"), list(itertools.product(State, EVENTS)))
def test_every_state_and_event(state: State, kind: type) -> None:
    if (state, kind) in TABLE:
        before, event, instructions, after = EXPECTED[state, kind]
        p = owner(before)
        assert p.state is state
        assert p.handle(event) == instructions
        assert p.state is after
        return
    p = owner(IN_STATE[state])
    assert p.state is state
    was = state_of(p)
    with pytest.raises(PeerError, match=rf"{kind.__name__}.* is not allowed while the owner is {state}"):
        p.handle(any_event(kind))
    assert state_of(p) == was


@pytest.mark.parametrize(
    ("before", "event", "words"),
    [
        (WORKING, Begin(), "begins once"),
        ([], Finished(True), "begins before"),
        (ASLEEP, Signal("x"), "x shares nothing"),
        (ASLEEP, Request("x", 1), "x shares nothing"),
        (WORKING, Request("x", 1), "x shares nothing"),
        (ASLEEP, Lost("x"), "x shares nothing"),
        (TALKING, Accept("x", 1), "x shares nothing"),
        (TALKING, Defer("x", 1), "x shares nothing"),
        (TALKING, Refuse("x", 1), "x shares nothing"),
        (TALKING, Abort("x", 1, host=True), "x shares nothing"),
        (TALKING, Request("b", 9), "asked twice"),
        (TALKING, Received("a", 1), "is under way"),
        (TALKING, Served("a", 9), "not being served"),
        ([*TALKING, Accept("a", 1)], Received("a", 7), "is under way"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(before: list[Event], event: Event, words: str) -> None:
    p = owner(before)
    was = state_of(p)
    with pytest.raises(PeerError, match=words):
        p.handle(event)
    assert state_of(p) == was


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(PeerError, match="is not allowed"):
        owner().handle(Timer(1.0))  # type: ignore[arg-type]


# -- scenes ----------------------------------------------------------------------------------------


def test_the_papers_way_fetches_trains_and_tells_one_at_a_time() -> None:
    p = owner(config=PAPER)
    assert p.handle(Begin()) == [Improve(initial=True)]
    assert working(p)
    p.handle(Signal("b"))
    p.handle(Signal("a"))
    assert p.handle(Finished(True)) == [Send("a", Signal), Send("b", Signal), Send("b", Request, 1), PATIENCE]
    assert p.handle(Accept("b", 1)) == [Host("b", 1)]
    assert p.handle(Received("b", 1)) == [Improve((("b", 1),))]
    assert p.handle(Finished(False)) == [Send("a", Request, 2), PATIENCE]  # nothing new to tell
    p.handle(Accept("a", 2))
    assert p.handle(Received("a", 2)) == [Improve((("a", 2),))]
    assert p.handle(Finished(True))[-1] == Improve()  # nobody has news: alone
    assert p.handle(Finished(False)) == [Improve()]
    assert p.handle(Finished(False, spent=True)) == [
        Send("a", Signal, news=False, last=True), Send("b", Signal, news=False, last=True),
    ]  # fmt: skip
    assert p.state is SLEEP
    assert p.spent
    assert p.at_rest


def test_two_owners_translate_in_both_directions_at_once() -> None:
    a, b = owner(ASLEEP, "b"), owner(ASLEEP, "a")
    assert a.handle(Signal("b")) == [Send("b", Request, 1), PATIENCE]
    assert b.handle(Signal("a")) == [Send("a", Request, 1), PATIENCE]
    assert a.handle(Request("b", 1)) == [Send("b", Accept, 1), Serve("b", 1)]
    assert b.handle(Request("a", 1)) == [Send("a", Accept, 1), Serve("a", 1)]
    assert a.handle(Accept("b", 1)) == [Host("b", 1)]
    assert b.handle(Accept("a", 1)) == [Host("a", 1)]
    assert a.handle(Received("b", 1)) == []  # it still serves
    assert a.handle(Served("b", 1)) == [Improve((("b", 1),))]
    assert b.handle(Served("a", 1)) == []
    assert b.handle(Received("a", 1)) == [Improve((("a", 1),))]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_all_owners_translate_for_all_others_side_by_side(n: int) -> None:
    names = "abcdefg"[:n]
    owners = {x: owner([Begin()], names.replace(x, ""), ProtocolConfig()) for x in names}
    asked = []
    for x in names:
        owners[x].handle(Finished(True))
    for x in names:
        for y in names.replace(x, ""):
            asked += [(x, s) for s in owners[x].handle(Signal(y)) if isinstance(s, Send)]
    assert len(asked) == n * (n - 1)  # the last signal closes each window
    for x, s in asked:
        assert owners[s.to].handle(Request(x, s.session)) == [Send(x, Accept, s.session), Serve(x, s.session)]
    for x, s in asked:
        assert owners[x].handle(Accept(s.to, s.session)) == [Host(s.to, s.session)]
    work: list[Instruction] = []
    for x, s in asked:
        work += owners[x].handle(Received(s.to, s.session))
        work += owners[s.to].handle(Served(x, s.session))
    assert len(work) == n
    assert all(isinstance(w, Improve) and len(w.peers) == n - 1 for w in work)


def test_whoever_is_deferred_is_told_afterwards_news_or_none() -> None:
    busy = owner(WORKING)
    assert busy.handle(Request("b", 4)) == [Send("b", Defer, 4)]
    assert busy.handle(Request("b", 5)) == [Send("b", Defer, 5)]  # asked again: told once
    assert busy.handle(Finished(False)) == [Send("b", Signal, news=True), Timer(60.0)]
    host = owner(ASLEEP)
    host.handle(Signal("a"))
    assert host.handle(Defer("a", 1)) == [Timer(60.0)]
    assert host.handle(Signal("a")) == [Send("a", Request, 2), PATIENCE]


def test_deferred_before_it_has_begun() -> None:
    p = owner()
    assert p.handle(Request("a", 1)) == [Send("a", Defer, 1)]
    assert not working(p)
    p.handle(Begin())
    assert working(p)
    assert p.handle(Finished(False))[0] == Send("a", Signal)


def test_who_asks_after_a_loss_is_told_too() -> None:
    p = owner([*WORKING, Lost("a")])
    assert p.handle(Request("a", 1)) == [Send("a", Defer, 1)]
    assert Send("a", Signal) in p.handle(Finished(False))


def test_an_owner_about_to_work_takes_no_new_guests() -> None:
    p = owner([*TALKING, Accept("a", 1), Received("a", 1)])  # b's translation is all that keeps it
    assert p.handle(Request("a", 3)) == [Send("a", Defer, 3)]
    assert p.handle(Served("b", 9)) == [Improve((("a", 1),))]
    assert p.handle(Finished(False))[0] == Send("a", Signal)


def test_a_refusing_peer_is_not_requested_again() -> None:
    refuser = owner(ASLEEP, config=ProtocolConfig(refuses=frozenset("b")))
    assert refuser.handle(Request("b", 2)) == [Send("b", Refuse, 2)]
    assert refuser.state is SLEEP
    p = owner([*ASLEEP, Signal("a")])
    assert p.handle(Refuse("a", 1)) == [Timer(60.0)]
    assert p.handle(Signal("a")) == [Timer(60.0)]
    assert p.queue == []
    p = owner([*ASLEEP, Signal("a"), Signal("a")])  # it had more news before it refused
    assert p.handle(Refuse("a", 1)) == [Timer(60.0)]
    assert p.handle(Signal("b")) == [Send("b", Request, 2), PATIENCE]


def test_one_that_comes_back_is_requested_again_though_it_refused() -> None:
    p = owner([*ASLEEP, Signal("a"), Refuse("a", 1), Lost("a"), Joined("a")])
    assert p.handle(Signal("a")) == [Send("a", Request, 2), PATIENCE]
    p = owner([*ASLEEP, Lost("b"), Joined("b")], config=ProtocolConfig(gather=False, avoids=frozenset("b")))
    assert p.handle(Signal("b")) == [Timer(60.0)]


def test_whoever_is_avoided_is_neither_requested_nor_waited_for_but_told() -> None:
    p = owner(ASLEEP, config=ProtocolConfig(avoids=frozenset("b")))
    assert p.handle(Signal("b")) == [Timer(60.0)]
    assert p.handle(Signal("a")) == [Send("a", Request, 1), PATIENCE]  # no window: b is not expected
    p = owner([*WORKING, Lost("b"), Signal("b")], config=ProtocolConfig(avoids=frozenset("b")))
    assert Send("b", Signal) in p.handle(Finished(True))  # its signal shows that it is back


def test_a_window_waits_for_a_silent_peer_once() -> None:
    p = owner(ASLEEP, "abc", ProtocolConfig(window=7.0))
    assert p.handle(Signal("a")) == [Timer(7.0)]
    assert p.handle(Signal("b")) == []
    assert p.handle(Wake()) == [Send("a", Request, 1), Send("b", Request, 2), PATIENCE]
    p.handle(Accept("a", 1))
    p.handle(Defer("b", 2))
    assert p.handle(Received("a", 1)) == [Improve((("a", 1),))]
    p.handle(Signal("b"))
    p.handle(Signal("a"))
    assert p.handle(Finished(False)) == [
        Send("b", Request, 3), Send("a", Request, 4), PATIENCE,
    ]  # fmt: skip  # c missed it: not again
    for event in (Accept("a", 4), Accept("b", 3), Received("b", 3), Signal("c"), Received("a", 4)):
        p.handle(event)
    assert p.handle(Finished(False)) == [Timer(7.0)]  # c has some, so it is one to reckon with; a and b may come
    assert p.handle(Wake()) == [Send("c", Request, 5), PATIENCE]


def test_a_window_closes_as_soon_as_all_have_come() -> None:
    p = owner([*ASLEEP, Signal("a")], "abc", ProtocolConfig())
    assert p.handle(Signal("b")) == []
    assert p.handle(Signal("c", news=False, last=True)) == [Send("a", Request, 1), Send("b", Request, 2), PATIENCE]
    p = owner([*ASLEEP, Signal("a")], "ab", ProtocolConfig())
    assert p.handle(Lost("b")) == [Drop("b"), Send("a", Request, 1), PATIENCE]


def test_a_window_whose_peer_is_lost_is_forgotten() -> None:
    p = owner([*ASLEEP, Signal("a")], "abc", ProtocolConfig(window=7.0))
    assert p.handle(Lost("a")) == [Drop("a"), Timer(60.0)]
    assert p.handle(Signal("b")) == [Timer(7.0)]
    # The worst case: lost in the window, trained alone meanwhile, and the timer fired unheard.
    p = owner([Begin(), Signal("a")], "abc", ProtocolConfig(window=7.0, train_alone=True))
    assert p.handle(Finished(False)) == [Timer(7.0)]
    assert p.handle(Lost("a")) == [Drop("a"), Improve()]
    assert p.handle(Wake()) == []
    p.handle(Signal("b"))
    assert p.handle(Finished(False)) == [Timer(7.0)]


def test_a_late_joiner_is_told_and_waited_for() -> None:
    p = owner(ASLEEP, "a", ProtocolConfig(window=7.0))
    assert p.handle(Joined("z")) == [Send("z", Signal)]
    assert p.handle(Signal("a")) == [Timer(7.0)]
    assert p.handle(Signal("z")) == [Send("a", Request, 1), Send("z", Request, 2), PATIENCE]
    busy = owner(WORKING, "a")
    assert busy.handle(Joined("z")) == []
    assert busy.handle(Finished(False)) == [Send("z", Signal), Timer(60.0)]


@pytest.mark.parametrize(
    ("before", "instructions", "state"),
    [
        ([Begin(), Request("a", 1)], [Drop("a")], BUSY),
        ([*ASLEEP, Signal("a")], [Drop("a"), Timer(60.0)], SLEEP),
        ([*ASLEEP, Signal("a"), Accept("a", 1)], [Drop("a"), Timer(60.0)], SLEEP),
        ([*ASLEEP, Signal("a"), Accept("a", 1), Signal("b")], [Drop("a"), Send("b", Request, 2), PATIENCE], READY),
        ([*ASLEEP, Request("a", 1)], [Drop("a"), Timer(60.0)], SLEEP),
        ([*ASLEEP, Signal("b"), Accept("b", 1), Request("a", 4), Received("b", 1)],
         [Drop("a"), Improve((("b", 1),))], BUSY),
        ([*ASLEEP, Signal("a"), Accept("a", 1), Request("b", 4), Received("a", 1)], [Drop("a")], READY),
    ],
    ids=["put off", "asked", "hosting", "hosting, another waits", "served last", "in the way of work", "already in"],
)  # fmt: skip
def test_a_peer_lost_in_any_phase(before: list[Event], instructions: list[Instruction], state: State) -> None:
    p = owner(before)
    assert p.handle(Lost("a")) == instructions
    assert p.state is state
    assert "a" not in p.queue
    assert not any(vars(i).get("peer", vars(i).get("to")) == "a" for i in copy.deepcopy(p).handle(Wake()))
    if state is BUSY:
        assert all(i == Timer(60.0) or (isinstance(i, Send) and i.to == "b") for i in p.handle(Finished(True)))


def test_a_spent_owner_serves_and_asks_nobody() -> None:
    p = owner([Begin(), Signal("a")])
    assert p.handle(Finished(True, spent=True)) == [Send("a", Signal, last=True), Send("b", Signal, last=True)]
    assert p.state is SLEEP
    assert p.queue == []
    assert p.handle(Signal("a")) == []
    assert p.at_rest
    assert p.handle(Wake()) == []
    assert p.at_rest
    assert p.handle(Request("b", 3)) == [Send("b", Accept, 3), Serve("b", 3), PATIENCE]
    assert not p.at_rest
    assert p.handle(Served("b", 3)) == []
    assert p.at_rest
    assert p.handle(Joined("z")) == [Send("z", Signal, last=True)]


def test_whoever_hears_the_last_news_fetches_it_and_waits_no_more() -> None:
    p = owner([*ASLEEP, Signal("a", last=True)], "ab", ProtocolConfig(window=7.0))
    assert p.queue == ["a"]
    assert p.handle(Signal("b")) == [Send("a", Request, 1), Send("b", Request, 2), PATIENCE]
    for event in (Defer("a", 1), Accept("b", 2), Received("b", 2), Signal("b")):
        p.handle(event)
    assert p.handle(Finished(False)) == [Send("b", Request, 3), PATIENCE]


def test_back_from_an_earlier_life() -> None:
    p = owner()
    assert p.handle(Begin(trained=True)) == [Send("a", Signal), Send("b", Signal), Timer(60.0)]
    p = owner()
    assert p.handle(Begin(trained=True, spent=True)) == [Send("a", Signal, last=True), Send("b", Signal, last=True)]
    assert p.spent
    assert p.at_rest


# -- nobody waits for ever -------------------------------------------------------------------------

SOON = ProtocolConfig(gather=False, answer=9.0, period=5.0)


def test_a_peer_that_does_not_answer_is_given_up_on() -> None:
    p = owner([*ASLEEP, Signal("a")], config=SOON)
    assert p.handle(Wake()) == [Send("a", Abort, 1, host=True), Forget("a", 1, hosting=True), Timer(5.0)]
    assert p.state is SLEEP
    assert p.handle(Signal("a")) == [Send("a", Request, 2), Timer(9.0)]  # with news it is welcome again


def test_the_next_in_the_queue_is_requested_when_one_was_given_up_on() -> None:
    p = owner([*ASLEEP, Signal("a"), Signal("b")], config=SOON)
    assert p.handle(Wake())[2:] == [Send("b", Request, 2), Timer(9.0)]


def test_all_that_did_not_answer_are_given_up_on_and_what_came_is_used() -> None:
    p = owner([*ASLEEP, Signal("a"), Signal("b"), Signal("c")], "abc", ProtocolConfig())
    for event in (Accept("a", 1), Accept("b", 2), Received("a", 1)):
        p.handle(event)
    assert p.handle(Wake()) == [
        Send("c", Abort, 3, host=True), Forget("c", 3, hosting=True),
        Send("b", Abort, 2, host=True), Forget("b", 2, hosting=True),
        Improve((("a", 1),)),
    ]  # fmt: skip
    p.handle(Signal("a"))
    assert p.handle(Finished(False)) == [Send("a", Request, 4), PATIENCE]  # no window for those


def test_a_client_that_falls_silent_is_given_up_on() -> None:
    p = owner([*ASLEEP, Signal("a"), Accept("a", 1)], config=SOON)
    assert p.handle(Wake()) == [Send("a", Abort, 1, host=True), Forget("a", 1, hosting=True), Timer(5.0)]


def test_a_host_that_falls_silent_is_given_up_on() -> None:
    p = owner([*ASLEEP, Request("a", 4)], config=SOON)
    assert p.handle(Wake()) == [Send("a", Abort, 4, host=False), Forget("a", 4, hosting=False), Timer(5.0)]
    p = owner([*ASLEEP, Signal("b"), Request("a", 4), Accept("b", 1), Received("b", 1)], config=SOON)
    assert p.handle(Wake())[2:] == [Improve((("b", 1),))]  # it stood in the way of work
    p = owner([Begin(), Finished(False, spent=True), Request("a", 4)], config=SOON)
    assert p.handle(Wake()) == [Send("a", Abort, 4, host=False), Forget("a", 4, hosting=False)]
    assert p.at_rest


def test_as_long_as_something_moves_nothing_is_given_up_on() -> None:
    p = owner([*ASLEEP, Signal("a"), Accept("a", 1)], config=SOON)
    for _ in range(3):
        p.touch()
        assert p.handle(Wake()) == [Timer(9.0)]
        assert p.state is READY
    assert Forget("a", 1, hosting=True) in p.handle(Wake())
    # What moved before the question was asked does not count for the answer.
    p = owner(ASLEEP, config=SOON)
    p.touch()
    p.handle(Signal("a"))
    assert Forget("a", 1, hosting=True) in p.handle(Wake())


def test_the_end_of_a_window_ends_no_exchange() -> None:
    p = owner([*ASLEEP, Request("b", 4)], "abc", ProtocolConfig(window=7.0))
    assert p.handle(Signal("a")) == [Timer(7.0)]
    assert p.handle(Wake()) == [Send("a", Request, 1), PATIENCE]
    assert p.handle(Served("b", 4)) == []
    assert p.handle(Accept("a", 1)) == [Host("a", 1)]


@pytest.mark.parametrize(
    ("before", "event", "instructions", "state"),
    [
        ([Signal("a")], Abort("a", 1, host=False), [Forget("a", 1, hosting=True), Timer(60.0)], SLEEP),
        ([Signal("a"), Accept("a", 1)], Abort("a", 1, host=False), [Forget("a", 1, hosting=True), Timer(60.0)], SLEEP),
        ([Signal("a"), Signal("b"), Accept("a", 1)], Abort("a", 1, host=False),
         [Forget("a", 1, hosting=True), Send("b", Request, 2), PATIENCE], READY),
        ([Request("a", 1)], Abort("a", 1, host=True), [Forget("a", 1, hosting=False), Timer(60.0)], SLEEP),
        ([Signal("b"), Request("a", 1), Accept("b", 1), Received("b", 1)], Abort("a", 1, host=True),
         [Forget("a", 1, hosting=False), Improve((("b", 1),))], BUSY),
        ([Signal("a"), Accept("a", 1), Request("a", 1)], Abort("a", 1, host=True),
         [Forget("a", 1, hosting=False)], READY),
        ([Signal("a"), Accept("a", 1)], Abort("a", 1, host=True), [], READY),
        ([Signal("a"), Accept("a", 1)], Abort("a", 2, host=False), [], READY),
        ([Request("a", 1)], Abort("a", 1, host=False), [], READY),
        ([Signal("a"), Request("b", 4), Accept("a", 1), Received("a", 1)], Abort("a", 1, host=False), [], READY),
    ],
    ids=["asked", "hosting", "hosting, another waits", "serving", "in the way of work", "one number, both sides",
         "not on that side", "not that session", "not on that side either", "already in"],
)  # fmt: skip
def test_the_other_side_gives_up(
    before: list[Event], event: Abort, instructions: list[Instruction], state: State
) -> None:
    p = owner([*ASLEEP, *before])
    assert p.handle(event) == instructions
    assert p.state is state


def test_both_sides_abandon_at_once_and_answers_that_come_late_do_no_harm() -> None:
    host, client = owner([*ASLEEP, Signal("b")], "b"), owner(ASLEEP, "a")
    client.handle(Request("a", 1))
    assert Send("b", Abort, 1, host=True) in host.handle(Wake())  # the Accept dawdles
    assert host.handle(Accept("b", 1)) == [Send("b", Abort, 1, host=True)]
    assert Forget("a", 1, hosting=False) in client.handle(Abort("a", 1, host=True))
    assert client.handle(Abort("a", 1, host=True)) == []  # the answer to the late Accept
    assert host.handle(Abort("b", 1, host=False)) == []
    assert (host.state, client.state) == (SLEEP, SLEEP)
    assert client.handle(Request("a", 2)) == [Send("a", Accept, 2), Serve("a", 2), PATIENCE]
    assert host.handle(Signal("b")) == [Send("b", Request, 2), PATIENCE]


@pytest.mark.parametrize("late", [Defer("a", 1), Refuse("a", 1)])
def test_late_answers_to_what_was_given_up_on_are_ignored(late: Event) -> None:
    p = owner([*ASLEEP, Signal("a"), Wake()])
    was = state_of(p)
    assert p.handle(late) == []
    assert state_of(p) == was
    assert p.handle(Signal("a")) == [Send("a", Request, 2), PATIENCE]
    assert p.handle(late) == []  # nor do they answer the next question
    assert p.handle(Accept("a", 1)) == [Send("a", Abort, 1, host=True)]
    assert p.handle(Accept("a", 2)) == [Host("a", 2)]


def test_a_late_answer_does_not_disturb_work() -> None:
    p = owner([*ASLEEP, Signal("a"), Wake(), Wake()])
    assert working(p)
    assert p.handle(Accept("a", 1)) == NO_LONGER
    assert p.handle(Abort("a", 1, host=False)) == []
    assert working(p)


# -- every owner spends what it meant to spend -----------------------------------------------------


def test_after_a_period_of_sleep_an_owner_trains_alone_once() -> None:
    p = owner(ASLEEP, config=SOON)
    for _ in range(3):
        assert p.handle(Wake()) == [Improve()]
        assert not p.at_rest
        assert p.handle(Finished(False)) == [Timer(5.0)]
        assert not p.at_rest
    p.handle(Wake())
    p.handle(Finished(False, spent=True))
    assert p.at_rest
    assert p.handle(Wake()) == []


def test_an_owner_that_prefers_to_train_alone_does_not_sleep() -> None:
    p = owner([Begin()], config=ProtocolConfig(train_alone=True))
    assert p.handle(Finished(False)) == [Improve()]
    assert p.handle(Wake()) == []


LAST_A, LAST_B = (Signal(x, news=False, last=True) for x in "ab")


@pytest.mark.parametrize("gone", [[LAST_A, LAST_B], [LAST_A, Lost("b")], [Lost("a"), LAST_B], [Lost("a"), Lost("b")]])
def test_whoever_has_nobody_to_hope_for_trains_alone_to_its_end(gone: list[Event]) -> None:
    asleep = owner(ASLEEP)
    assert Improve() not in asleep.handle(gone[0])
    assert asleep.handle(gone[1])[-1] == Improve()  # at once
    busy = owner([*WORKING, *gone])
    for p in (asleep, busy):
        for _ in range(3):
            assert p.handle(Finished(False)) == [Improve()]
        p.handle(Finished(False, spent=True))
        assert p.at_rest


def test_refusal_and_avoidance_leave_nobody_to_hope_for_either() -> None:
    p = owner([*ASLEEP, Signal("a")], "a")
    assert p.handle(Refuse("a", 1)) == [Improve()]
    assert owner(WORKING, "a", ProtocolConfig(avoids=frozenset("a"))).handle(Finished(False)) == [Improve()]
    assert owner(WORKING, "").handle(Finished(False)) == [Improve()]


def test_the_last_news_is_fetched_before_an_owner_trains_alone() -> None:
    p = owner(ASLEEP, "a")
    assert p.handle(Signal("a", last=True)) == [Send("a", Request, 1), PATIENCE]
    p.handle(Accept("a", 1))
    assert p.handle(Received("a", 1)) == [Improve((("a", 1),))]
    assert p.handle(Finished(True)) == [Send("a", Signal), Improve()]
    p = owner([*ASLEEP, Signal("a", last=True)], "a")
    assert p.handle(Wake())[2:] == [Improve()]  # it does not answer any more: alone, then


def test_a_newcomer_gives_hope_again() -> None:
    p = owner([*WORKING, LAST_A, Joined("z")], "a")
    assert p.handle(Finished(False)) == [Send("z", Signal), Timer(60.0)]
    p = owner([*WORKING, Lost("a"), Joined("a")], "a")
    assert p.handle(Finished(False)) == [Send("a", Signal), Timer(60.0)]


def test_a_spent_owner_that_loses_everybody_rests() -> None:
    p = owner([Begin(), Finished(False, spent=True)], "a")
    assert p.handle(Lost("a")) == [Drop("a")]
    assert p.at_rest


# -- a network that tries to break it --------------------------------------------------------------


@pytest.mark.parametrize("block", range(8))
def test_nothing_hangs_nothing_is_lost_nobody_works_twice(block: int) -> None:
    steps = together = given_up = 0
    for seed in range(100 * block, 100 * block + 100):
        world = World(seed)
        world.run(600)
        steps += world.steps
        together = max(together, world.side_by_side)
        given_up += world.given_up
    assert steps > 8000
    assert together >= 6
    assert given_up > 200


def test_without_trouble_every_owner_hears_all_and_nobody_gives_up() -> None:
    for seed in range(60):
        world = World(seed, trouble=False)
        world.run(10_000)
        assert world.given_up == 0


class ForgetsThePutOff(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Finished):
            self._deferred.clear()
        return super().handle(event)


class ServesWhileBusy(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        if working(self) and isinstance(event, Request) and event.peer not in self.config.refuses:
            self._serving.add((event.peer, event.session))
            return [Send(event.peer, Accept, event.session), Serve(event.peer, event.session)]
        return super().handle(event)


class DeafWhileBusy(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        return [] if working(self) and isinstance(event, Signal) else super().handle(event)


class WorksWhileServing(Protocol):
    def _next(self) -> list[Instruction]:
        serving, self._serving = self._serving, set()
        out = super()._next()
        self._serving = serving
        return out


class ForgetsNewcomers(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        out = super().handle(event)
        return [] if isinstance(event, Joined) else out


class AsksWhoRefused(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        self._unwilling -= self._peers - self.config.avoids
        return super().handle(event)


class NeverGivesUp(Protocol):
    def _abandon(self) -> list[Instruction]:
        return [Timer(self.config.answer)]


class GivesUpOnGuestsOnly(Protocol):
    def _abandon(self) -> list[Instruction]:
        asked, hosting = dict(self._requested), dict(self._hosting)
        self._requested.clear()
        self._hosting.clear()
        out = super()._abandon()
        self._requested, self._hosting = asked, hosting
        return [*out, Timer(self.config.answer)]


class GivesUpSilently(Protocol):
    def _abandon(self) -> list[Instruction]:
        return [i for i in super()._abandon() if not isinstance(i, Send)]


class TakesAnyAccept(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Accept) and self.state is READY:
            self._requested[event.peer] = event.session
        return super().handle(event)


class SleepsOn(Protocol):
    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, Wake) and self.state is SLEEP:
            return [] if self.spent else [Timer(self.config.period)]
        return super().handle(event)


class AsksForNothingAfterGivingUp(Protocol):
    def _abandon(self) -> list[Instruction]:
        self.queue.clear()
        return super()._abandon()


@pytest.mark.parametrize(
    ("broken", "finding"),
    [
        (ForgetsThePutOff, "put .* off and never told|never told"),
        (ServesWhileBusy, "opens a handshake .* while Busy|serves while Busy"),
        (DeafWhileBusy, "over news of"),
        (WorksWhileServing, "improves while it"),
        (ForgetsNewcomers, "never told"),
        (AsksWhoRefused, "asks .* and must not"),
        (NeverGivesUp, "is stuck"),
        (GivesUpOnGuestsOnly, "is stuck"),
        (GivesUpSilently, "gives up on .* and does not say so"),
        (TakesAnyAccept, "hosts what it has not asked for"),
        (SleepsOn, "is stuck"),
        (AsksForNothingAfterGivingUp, "over news of"),
    ],
)
def test_the_network_finds_what_is_broken(broken: type[Protocol], finding: str) -> None:
    def search() -> None:
        for seed in range(400):
            World(seed, broken).run(600)

    with pytest.raises(Violation, match=finding):
        search()
