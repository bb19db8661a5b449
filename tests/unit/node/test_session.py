"""Everything said in a session is heard once, in order, the same bytes, however often streams break."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fkge.node import frames_pb2 as pb
from fkge.node.frames import FEDERATION, MEETING, Refused, decode_frame
from fkge.node.session import CONFIRM_EVERY, Session

LIMITS = {MEETING: 1000, FEDERATION: 1000}


class Conversation(RuleBasedStateMachine):
    """Two sessions, and a stream between them that may break after any frame, with others on their way."""

    @initialize()
    def begin(self) -> None:
        self.ends = (Session(LIMITS, part=5), Session(LIMITS, part=5))
        self.way: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
        self.said: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])
        self.got: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])
        self.open = False
        self.breaks = self.number = 0

    def teardown(self) -> None:
        if hasattr(self, "ends"):
            self.finish()

    @rule(side=st.integers(0, 1), channel=st.sampled_from((MEETING, FEDERATION)), size=st.integers(0, 23))
    def say(self, side: int, channel: int, size: int) -> None:
        self.number += 1
        body = bytes((self.number + i) % 251 for i in range(size))
        self.ends[side].send(channel, body)
        self.said[side].append((channel, body))

    @precondition(lambda self: self.open)
    @rule(side=st.integers(0, 1), frames=st.integers(1, 6))
    def write(self, side: int, frames: int) -> None:
        for _ in range(frames):
            if (frame := self.ends[side].following()) is not None:
                self.way[side].append(frame)

    @precondition(lambda self: self.open)
    @rule(side=st.integers(0, 1))
    def confirm(self, side: int) -> None:
        if (frame := self.ends[side].confirm()) is not None:
            self.way[side].append(frame)

    @precondition(lambda self: self.open)
    @rule(side=st.integers(0, 1), frames=st.integers(1, 6))
    def arrive(self, side: int, frames: int) -> None:
        """What `side` wrote comes to the other."""
        for _ in range(min(frames, len(self.way[side]))):
            frame = decode_frame(self.way[side].popleft())
            if frame.WhichOneof("is") == "heard":
                self.ends[1 - side].confirmed(frame.heard.step)
            elif (whole := self.ends[1 - side].receive(frame.part)) is not None:
                self.got[1 - side].append(whole)
        assert self.got[1 - side] == self.said[side][: len(self.got[1 - side])]

    @precondition(lambda self: self.open)
    @rule()
    def snap(self) -> None:
        for way in self.way:
            way.clear()
        self.open = False
        self.breaks += 1

    @precondition(lambda self: not self.open)
    @rule()
    def reconnect(self) -> None:
        one, other = self.ends
        heard = one.received, other.received
        one.resume(heard[1])
        other.resume(heard[0])
        self.open = True

    def finish(self) -> None:
        target(float(self.breaks), label="breaks")
        if not self.open:
            self.reconnect()
        for side in (0, 1, 0, 1):
            self.write(side, 10_000)
            self.confirm(side)
            self.arrive(side, 10_000)
        assert self.got == (self.said[1], self.said[0])
        assert [end.waiting for end in self.ends] == [0, 0]  # and nobody keeps anything


Conversation.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestConversation = Conversation.TestCase


def part(step: int, channel: int = MEETING, body: bytes = b"x", more: bool = False, heard: int = 0) -> pb.Part:
    return pb.Part(step=step, channel=channel, body=body, more=more, heard=heard)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (part(2), "replayed"), (part(0), "replayed"), (part(4), "out_of_order"), (part(2**64 - 1), "out_of_order"),
        (part(3, channel=7), "out_of_order"), (part(3, channel=FEDERATION), "malformed"),
        (part(3, body=bytes(999)), "too_large"), (part(3, body=b"", more=True), "malformed"),
        (part(3, body=b"ab", more=True), "malformed"), (part(3, body=b"abcd", more=True), "malformed"),
        (part(3, heard=2), "out_of_order"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(wrong: pb.Part, reason: str) -> None:
    session = Session(LIMITS, part=3)
    session.send(MEETING, b"my")
    assert session.following() is not None
    assert session.receive(part(1)) == (MEETING, b"x")
    assert session.receive(part(2, body=b"beg", more=True)) is None
    with pytest.raises(Refused) as refused:
        session.receive(wrong)
    assert refused.value.reason == reason
    assert (session.received, session.waiting) == (2, 2 + 512)
    assert session.receive(part(3, body=b"un", heard=1)) == (MEETING, b"begun")
    assert session.waiting == 0


@pytest.mark.parametrize("heard", [0, 3, 2**64 - 1])
def test_who_resumes_with_what_cannot_be_is_refused(heard: int) -> None:
    session = Session(LIMITS, part=3)
    for _ in range(3):
        session.send(MEETING, b"abc")
    for _ in range(2):
        session.following()
    session.confirmed(1)
    with pytest.raises(Refused, match="confirmed") as refused:
        session.resume(heard)
    assert refused.value.reason == "out_of_order"
    assert session.waiting == 2 * (3 + 512)


def test_a_limit_that_is_raised_half_way_holds_for_the_rest() -> None:
    session = Session({MEETING: 4}, part=3)
    assert session.receive(part(1, body=b"abc", more=True)) is None
    with pytest.raises(Refused, match="more than 4 bytes"):
        session.receive(part(2, body=b"def"))
    session.limits[MEETING] = 6
    assert session.receive(part(2, body=b"def")) == (MEETING, b"abcdef")


def test_a_peer_that_hears_nothing_is_given_up_on() -> None:
    session = Session(LIMITS, backlog=10)
    session.send(MEETING, bytes(50))  # whatever is next may be longer than the backlog
    with pytest.raises(Refused) as refused:
        session.send(MEETING, b"x")
    assert refused.value.reason == "stalled"


def test_who_only_listens_confirms_every_so_often() -> None:
    session = Session(LIMITS, part=3)
    for step in range(1, CONFIRM_EVERY):
        session.receive(part(step))
    assert session.following() is None
    session.receive(part(CONFIRM_EVERY))
    frame = session.following()
    assert frame is not None
    assert decode_frame(frame).heard.step == CONFIRM_EVERY
    assert session.confirm() is None
