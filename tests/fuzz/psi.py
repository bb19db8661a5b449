"""The two roles of an intersection: whatever a peer sends is refused with `PeerError` or answered, in every state.

The first byte of an input chooses the state, the second the message; the rest is its body, or all of it if the state is
the last one: there the frame is made up too. Nobody can prove to know items without the secret that the two roles have
in common, so no input may make them agree.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from random import Random

from fkge.align.psi import FRAME, MAGIC, Message, PsiClient, PsiHost, PsiSettings
from fkge.errors import PeerError
from tests.fuzz.mutations import Leaf

HERE, THERE = ("ant", "bee", "cat"), ("bee", "cat", "dog", "eel")
STATES = ("waiting", "asked", "answered", "claimed", "sizing", "sized", "anything")


def _converse(state: str) -> tuple[PsiClient, PsiHost, bytes]:
    """A client and a host after a real conversation up to where one of them waits, and what it waits for."""
    settings = PsiSettings(min_overlap=2 if state in ("sizing", "sized") else 0)
    client, host = PsiClient(HERE, settings), PsiHost(THERE, settings)
    said = client.start()
    for end in ("waiting", "asked", "answered", "claimed") if not settings.min_overlap else ("", "sizing", "sized"):
        if state in (end, "anything"):
            break
        answer = (client if end in ("asked", "claimed", "sizing") else host).step(said)
        assert answer is not None
        said = answer
    return client, host, said


_ready = cache(_converse)


def check(data: bytes) -> None:
    """Raises if a role fails in a way it must not."""
    state = STATES[data[0] % len(STATES)] if data else "anything"
    client, host, _ = _ready(state)
    role = copy(client if state in ("asked", "claimed", "sizing") else host)
    frame = data[1:]
    if state != "anything" and frame:
        frame = FRAME.pack(MAGIC, frame[0], 0, role.transcript) + frame[1:]
    before = (role.state, role.transcript, role.found, role.refused)
    try:
        role.step(frame)
    except PeerError:
        if role.state != "over" or frame[4] != Message.CLAIM:  # a wrong claim ends the run: it is an answer to a guess
            assert (role.state, role.transcript, role.found, role.refused) == before
    assert role.found is None


def seeds() -> list[bytes]:
    """What would come next in each state, from another run: the same form and other secrets."""
    out = []
    for number, state in enumerate(STATES):
        said = _converse(state)[2]
        out.append(bytes([number]) + (said if state == "anything" else said[4:5] + said[FRAME.size :]))
    out.append(bytes([STATES.index("sized"), Message.STOP]) + bytes(8))
    return out


def mutate(data: bytes, random: Random, leaf: Leaf) -> bytes:
    """Changes the body; the state and the message seldom."""
    if len(data) < 3 or random.random() < 0.1:
        return leaf(data)
    if random.random() < 0.2:
        return bytes([random.randrange(len(STATES)), random.randrange(1, 8)]) + data[2:]
    return data[:2] + leaf(data[2:])
