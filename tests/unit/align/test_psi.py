"""Both sides find the intersection and nothing else, and no bytes from a peer make them find anything wrong."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.align import OverlapError, PsiClient, PsiHost, PsiSettings
from fkge.align.psi import FRAME, HELLO, MAGIC, POINT, PROOF, REPLY, Message, Secret
from fkge.errors import PeerError, SettingsError

HERE = ["ant", "bee", "cat", "dog", "élan"]
THERE = ["bee", "dog", "eel", "fox", "gnu", "hen", "élan"]
COMMON = ["bee", "dog", "élan"]


def configured(**given_values: Any) -> PsiSettings:
    return PsiSettings.build(given_values)


def pair(
    here: Iterable[str] = HERE, there: Iterable[str] = THERE, host: PsiSettings | None = None, **values: Any
) -> tuple[PsiClient, PsiHost]:
    return PsiClient(here, configured(**values)), PsiHost(there, host or configured(**values))


def talk(client: PsiClient, host: PsiHost) -> list[bytes]:
    """Every message of a run, to its end."""
    said: list[bytes] = [client.start()]
    while True:
        role = (host, client)[(len(said) - 1) % 2]
        answer = role.step(said[-1])
        if answer is None:
            return said
        said.append(answer)


def kinds(said: list[bytes]) -> list[Message]:
    return [Message(frame[4]) for frame in said]


def points(body: bytes) -> list[bytes]:
    return [body[i : i + POINT] for i in range(0, len(body), POINT)]


texts = st.sets(st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(HERE + THERE), max_size=12)


@settings(deadline=None, max_examples=60)
@given(texts, texts, st.integers(0, 3))
def test_both_find_the_intersection_or_stop_below_the_minimum(here: set[str], there: set[str], minimum: int) -> None:
    client, host = pair(here, there, min_overlap=minimum)
    said = talk(client, host)
    common = sorted(here & there)
    if len(common) >= minimum:
        assert client.found == host.found == common
        assert client.refused is None
        assert host.refused is None
        assert kinds(said)[-4:] == [Message.ASK, Message.ANSWER, Message.CLAIM, Message.AGREED]
    else:
        assert kinds(said) == [Message.SIZE, Message.SIZED, Message.STOP]
        assert client.found is None
        assert host.found is None
        for reason in (client.refused, host.refused):
            assert isinstance(reason, OverlapError)
            assert (reason.size, reason.minimum) == (len(common), minimum)
            assert "Both sides know this number now" in str(reason)


def test_items_count_once_and_a_run_is_four_messages() -> None:
    client, host = pair(HERE * 2, THERE * 3)
    said = talk(client, host)
    assert client.found == host.found == COMMON
    assert [len(frame) - FRAME.size for frame in said] == [
        HELLO.size + 5 * POINT,
        REPLY.size + (7 + 5) * POINT,
        3 * 4 + PROOF,
        PROOF,
    ]
    with pytest.raises(RuntimeError, match="before"):
        client.start()


def test_the_larger_minimum_holds_and_a_host_with_one_wants_the_number_first() -> None:
    for here, there in ((1, 4), (4, 1)):
        client, host = pair(host=configured(min_overlap=there), min_overlap=here)
        assert kinds(talk(client, host))[-1] == Message.STOP
        assert client.refused is not None
        assert client.refused.minimum == 4
    client, host = pair(host=configured(min_overlap=1))
    with pytest.raises(PeerError, match="asking side must set min_overlap"):
        host.step(client.start())
    client, host = pair(host=configured(), min_overlap=3)
    talk(client, host)
    assert host.found == COMMON


def test_the_size_round_hides_which() -> None:
    items = [f"x{i}" for i in range(60)]
    client, host = pair(items, items, min_overlap=60)
    _, sized, _, answer, *_ = talk(client, host)
    raised = [points(frame[FRAME.size + REPLY.size :])[60:] for frame in (sized, answer)]
    assert raised[0] == sorted(raised[0])
    assert raised[1] != sorted(raised[1])  # in the order of the question, or the client could not tell which


def test_points_of_two_runs_have_nothing_in_common() -> None:
    seen: set[bytes] = set()
    for _ in range(2):
        size, sized, ask, answer, *_ = talk(*pair(min_overlap=1))
        new = [p for frame in (size, ask) for p in points(frame[-5 * POINT :])]
        new += [p for frame in (sized, answer) for p in points(frame[-12 * POINT :])]
        assert len(seen | set(new)) == len(seen) + 34  # within a run too: each round has its own secrets
        seen |= set(new)


def test_limits_hold_on_both_sides_before_any_work() -> None:
    with pytest.raises(SettingsError, match="5 entity keys to intersect, but max_items is 4"):
        PsiClient(HERE, configured(max_items=4))
    with pytest.raises(SettingsError, match="UTF-8"):
        PsiClient(["\ud800"], configured())
    client, host = PsiClient(HERE, configured()), PsiHost(["bee"], configured(max_items=4))
    with pytest.raises(PeerError, match="a peer holds 5 entity keys; max_items is 4 here"):
        host.step(client.start())
    client, host = PsiClient(HERE, configured(max_items=6)), PsiHost(THERE, configured())
    answer = host.step(client.start())
    assert answer is not None
    with pytest.raises(PeerError, match="a peer holds 7"):
        client.step(answer)
    for bad in ({"max_items": 0}, {"min_overlap": -1}, {"runs": 0}, {"period": float("inf")}, {"normalisation": "x"}):
        with pytest.raises(SettingsError):
            configured(**bad)


def test_sides_with_different_kinds_or_normalisations_are_refused() -> None:
    client, host = PsiClient(HERE, configured()), PsiHost(THERE, configured(), "relation")
    with pytest.raises(PeerError, match="another kind"):
        host.step(client.start())
    client, host = pair(host=configured(normalisation="nfkc-fold-1"))
    with pytest.raises(PeerError, match="'nfkc-1', this owner by 'nfkc-fold-1'"):
        host.step(client.start())


# -- hostile bytes -------------------------------------------------------------------------------------


def walk(minimum: int = 0) -> Iterable[tuple[PsiClient | PsiHost, list[bytes], bytes]]:
    """A run, paused before each message: who is to take it, what was said, and the message."""
    client, host = pair(min_overlap=minimum)
    said = [client.start()]
    while True:
        role: PsiClient | PsiHost = (host, client)[(len(said) - 1) % 2]
        yield role, said[:-1], said[-1]
        answer = role.step(said[-1])
        if answer is None:
            assert client.found == host.found == COMMON
            return
        said.append(answer)


@pytest.mark.parametrize("minimum", [0, 1, 3])
def test_bad_messages_raise_and_leave_the_role_as_it_was(minimum: int) -> None:
    """At every place: cut short, too long, garbage, another kind, replayed, from another run. Then the run goes on."""
    elsewhere = talk(*pair(min_overlap=minimum))
    assert 4 + 2 * bool(minimum) == len(elsewhere)
    for role, before, good in walk(minimum):
        bad = [b"", good[:10], good[: FRAME.size], good[:-1], good + b"\0", good + bytes(POINT), bytes(1000), *before]
        bad += [b"XXXX" + good[4:], good[:5] + b"\1" + good[6:], good[:5] + b"\7" + good[6:]]
        # Without a minimum either question may come first: one is not the other gone wrong.
        fine = {good[4]} if minimum else {good[4], *role.table[role.state]}
        bad += [good[:4] + bytes([other]) + good[5:] for other in range(256) if other not in fine]
        bad += elsewhere[1:] if not before else elsewhere
        if good[4] in (Message.SIZE, Message.ASK, Message.SIZED, Message.ANSWER):
            head = FRAME.size + (HELLO.size if good[4] in (Message.SIZE, Message.ASK) else REPLY.size)
            first = good[head : head + POINT]
            bad += [
                good[:head] + first + first + good[head + 2 * POINT :],  # a point twice
                good[:-POINT] + b"\5" + good[1 - POINT :],  # no point at all
                good[: FRAME.size] + b"\xff" * 4 + good[FRAME.size + 4 :],  # four milliards of items
            ]
        for data in bad:
            with pytest.raises(PeerError):
                role.step(data)


def test_a_finished_role_refuses_messages() -> None:
    for minimum in (0, 1, 4):
        client, host = pair(min_overlap=minimum)
        said = talk(client, host)
        found = client.found
        for role in (client, host):
            for data in said:
                with pytest.raises(PeerError, match="nothing more"):
                    role.step(data)
            assert role.found == found


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 5), st.data())
def test_no_change_of_bytes_makes_a_side_find_anything_wrong(place: int, data: st.DataObject) -> None:
    client, host = pair(min_overlap=1)
    said, refused = [client.start()], False
    while len(said) <= 6:
        frame = bytearray(said[-1])
        if len(said) - 1 == place:
            where = data.draw(st.integers(0, len(frame) - 1))
            frame[where] ^= data.draw(st.integers(1, 255))
        try:
            answer = (host, client)[(len(said) - 1) % 2].step(bytes(frame))
        except PeerError:
            refused = True
            break
        if answer is None:
            break
        said.append(answer)
    assert refused  # every byte counts: if not at once, then in what follows from it
    assert client.found is None
    assert host.found in (None, COMMON)
    assert (host.found is not None) == (place == 5)


def transcript(*frames: bytes) -> bytes:
    """What binds a frame to those before it, from both sides."""
    digest = bytes(16)
    for frame in frames:
        digest = hashlib.blake2b(frame, digest_size=16, key=digest).digest()
    return digest


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=300), st.sampled_from(list(Message)), st.booleans())
def test_garbage_behind_a_good_head_is_refused(body: bytes, message: Message, begun: bool) -> None:
    client, host = pair()
    first = client.start()
    replies = [first, host.step(first) or b""] if begun else []
    for role, frames in ((client, [first]), (host, replies)):
        with pytest.raises(PeerError):
            role.step(FRAME.pack(MAGIC, message, 0, transcript(*frames)) + body)
        assert role.found is None


# -- peers that do not follow the protocol -------------------------------------------------------------


def test_a_client_cannot_claim_items_it_does_not_hold() -> None:
    client, host = pair()
    answer = host.step(client.start())
    assert answer is not None
    claim = client.step(answer)
    assert claim is not None
    everything = claim[: FRAME.size] + struct.pack("<7I", *range(7)) + claim[-PROOF:]
    with pytest.raises(PeerError, match="does not fit"):  # more than it asked about
        host.step(everything)
    five = claim[: FRAME.size] + struct.pack("<5I", *range(5)) + claim[-PROOF:]
    with pytest.raises(PeerError, match="could not prove"):
        host.step(five)
    with pytest.raises(PeerError, match="nothing more"):  # a guess is a guess: there is no second
        host.step(claim)
    assert host.found is None


@pytest.mark.parametrize("places", [(0, 0), (1, 0), (6, 7), (0, 2**32 - 1)])
def test_places_are_the_hosts_own_and_rise(places: tuple[int, int]) -> None:
    client, host = pair()
    claim = client.step(host.step(client.start()) or b"")
    assert claim is not None
    with pytest.raises(PeerError, match="places"):
        host.step(claim[: FRAME.size] + struct.pack("<2I", *places) + claim[-PROOF:])
    host.step(claim)
    assert host.found == COMMON


def test_a_host_that_makes_everything_seem_common_is_detected() -> None:
    """It knows one thing that the client holds, and where: from that it makes as many false matches as it likes."""
    client, host = pair()
    ask = client.start()
    asked = points(ask[FRAME.size + HELLO.size :])
    known = client._asked.index("ant")  # which the attacker would have to guess
    powers = [Secret() for _ in asked]
    theirs = sorted(power.hide(["ant"])[0] for power in powers)
    raised = [power.again([asked[known]])[0] for power in powers]
    host.step(ask)
    reply = REPLY.pack(len(theirs), 0, host._public()) + b"".join([*theirs, *raised])
    answer = FRAME.pack(MAGIC, Message.ANSWER, 0, transcript(ask)) + reply
    claim = client.step(answer)
    assert claim is not None
    assert len(claim) == FRAME.size + 5 * 4 + PROOF  # the client believes that all five are common
    assert client.found is None
    so_far = transcript(ask, answer, claim)
    guess = client._proof(client._shared, so_far, b"host", ["ant"])
    with pytest.raises(PeerError, match="could not prove that it knows the 5"):
        client.step(FRAME.pack(MAGIC, Message.AGREED, 0, so_far) + guess)
    assert client.found is None


def test_a_peer_cannot_continue_below_the_minimum_or_change_its_set() -> None:
    def after_size() -> tuple[PsiClient, PsiHost, bytes]:
        client, host = pair(min_overlap=3)
        ask = client.step(host.step(client.start()) or b"")
        assert ask is not None
        return client, host, ask

    at = FRAME.size
    _, host, ask = after_size()
    for count, minimum, size, complaint in ((5, 3, 2, "should have stopped"), (5, 3, 6, "cannot be right"),
                                            (4, 3, 3, "after 5 were counted")):  # fmt: skip
        with pytest.raises(PeerError, match=complaint):
            host.step(ask[:at] + struct.pack("<III", count, minimum, size) + ask[at + 12 :])
    client, host, ask = after_size()
    answer = host.step(ask)
    assert answer is not None
    claim = client.step(answer)
    assert claim is not None
    with pytest.raises(PeerError, match="claims 2 entity keys after it had counted 3"):
        host.step(claim[: at + 8] + claim[at + 12 :])
    host.step(claim)
    assert host.found == COMMON
    client, host, ask = after_size()
    answer = host.step(ask)
    assert answer is not None
    client._size = 2  # as if another number had been counted
    with pytest.raises(PeerError, match="3 entity keys in common, 2 a moment ago"):
        client.step(answer)


def test_the_packed_form_of_the_library_overflows_where_points_do_not() -> None:
    """Why whole points are sent: 10⁻⁹ false positives among ten million questions need more than 63 bits."""
    library = pytest.importorskip("private_set_intersection.python")
    items = [f"x{i}" for i in range(1000)]
    packed = library.server.CreateWithNewKey(True).CreateSetupMessage(
        1e-9, 10_000_000, items, library.DataStructure.GCS
    )
    assert packed.gcs.hash_range < 0
