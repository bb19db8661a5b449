"""A real node among peers that do not keep to the rules: each is refused for a reason, and the honest one sees nothing.

One node serves all cases. `ant` is after whom they are, `bee` federates with it honestly all the while.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("grpc", reason="needs the extra node")

from cryptography.hazmat.primitives.serialization import Encoding

from fkge.align.psi import Message as Psi
from fkge.align.psi import PsiClient, PsiSettings
from fkge.federation.exchange import Structure, Update
from fkge.federation.messages import Accept, Request, Signal
from fkge.files import write_atomically
from fkge.node import frames_pb2 as pb
from fkge.node.frames import FEDERATION, FRAME_LIMIT, MEETING, PART, decode_meeting
from fkge.pki import site
from fkge.pki.authority import Authority
from fkge.pki.certificates import read_request
from tests.conftest import tiny_federation, tiny_settings
from tests.consortium import CONSORTIUM, Consortium
from tests.hostile import Villain, part, refusals, resident

HOSTILE = ("eve", "fay", "gus", "hal", "ivy", "joe")
"""Peers may call so often only; so there are several."""

MIB = 1 << 20


class Scene:
    """The consortium, a loop for the hostile ones, and what to look at after each case."""

    def __init__(self, folder: Path) -> None:
        names = ("ant", "bee", *HOSTILE)
        settings = tiny_settings(exchanges=100_000, psi={"runs": 12})
        self.all = Consortium(folder, tiny_federation(names).graphs, settings, node={"grace": 5.0})
        late = {name: {"founder": False} for name in HOSTILE if name != "joe"}
        self.all.write_peers("ant", {"bee": {}, **late})
        self.all.write_peers("bee", {"ant": {}})
        for name in HOSTILE:
            self.all.write_peers(name, {"ant": {}})
        self.address = self.all.addresses["ant"]
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self._villains: dict[str, Villain] = {}
        for name in ("ant", "bee"):
            self.all.start(name)
        self.all.wait_for(lambda: self.up("ant") and self.peer("bee")["exchanges"] > 0, 120)
        self.silent = Villain(self.all.site("gus"), self.address)
        self.run(self.silent.call())  # and says nothing; looked at last
        self.pid = self.all.processes["ant"].pid
        self.memory = resident(self.pid)

    def up(self, name: str) -> bool:
        return (self.all.state(name) / "control.sock").exists() and self.all.status(name)["state"] != "starting"

    def peer(self, name: str) -> dict[str, Any]:
        return next(peer for peer in self.all.status("ant")["peers"] if peer["name"] == name)

    def run(self, work: Awaitable[Any], seconds: float = 60.0) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(seconds):
                return await work

        return asyncio.run_coroutine_threadsafe(bounded(), self.loop).result()

    def villain(self, name: str) -> Villain:
        if name not in self._villains:
            self._villains[name] = Villain(self.all.site(name), self.address)
        return self._villains[name]

    def noted(self, name: str, reason: str, count: int) -> bool:
        found = [e for e in refusals(self.all.state("ant")) if (e["peer"], e["reason"]) == (name, reason)]
        return len([e for e in found if e["ours"]]) >= count

    def close(self) -> None:
        for villain in (*self._villains.values(), self.silent):
            self.run(villain.hang_up())
        self.all.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    here = Scene(tmp_path_factory.mktemp("hostile"))
    try:
        yield here
    finally:
        here.close()


@pytest.fixture(autouse=True)
def nobody_else_notices(scene: Scene) -> Iterator[None]:
    """After each case the node lives, has not grown much, and goes on to exchange with the honest peer."""
    before = scene.peer("bee")
    yield
    scene.all.wait_for(lambda: scene.peer("bee")["exchanges"] > before["exchanges"], 60)
    after = scene.peer("bee")
    assert after["state"] == "joined"
    assert after["since"] == before["since"]  # the stream never broke
    assert resident(scene.pid) < scene.memory + 300 * MIB


def refused(scene: Scene, name: str, work: Callable[[Villain], Awaitable[Any]], reason: str, words: str = "") -> str:
    """Let a hostile peer do something: it hears why it is refused, and the audit log says so too."""
    noted = sum(e["peer"] == name and e["reason"] == reason for e in refusals(scene.all.state("ant")))
    villain = scene.villain(name)

    async def case() -> tuple[str, str]:
        await work(villain)
        return await villain.refused()

    why, sentence = scene.run(case())
    assert why == reason, sentence
    assert words in sentence
    scene.all.wait_for(lambda: scene.noted(name, reason, noted + 1), 20)
    return str(sentence)


# -- certificates ----------------------------------------------------------------------------------


def handshake(address: str, certificate: Path | None, key: Path | None, most: ssl.TLSVersion) -> str:
    """What comes of a TLS handshake: the version if the node then speaks HTTP/2, or how it was refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, most
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), 20) as plain, context.wrap_socket(plain) as secure:
            return str(secure.version()) if secure.recv(9) else "closed"
    except OSError as error:
        return f"refused: {error}"


def certificate(folder: Path, authority: Authority, when: datetime, days: int) -> Path:
    """A certificate for the key in a folder, from some authority, of some time."""
    request = read_request((folder / "request.csr").read_bytes(), "request")
    (folder / "made.pem").write_bytes(authority._issue(request, when, days).public_bytes(Encoding.PEM))
    return folder / "made.pem"


def test_tls_is_1_3_and_asks_for_a_certificate_that_holds_now(scene: Scene, tmp_path: Path) -> None:
    now, new = datetime.now(UTC), ssl.TLSVersion.TLSv1_3
    site.request(tmp_path, "gus", CONSORTIUM)
    key, own = tmp_path / "key.pem", scene.all.authority

    def shown(authority: Authority, after: timedelta, days: int = 2, most: ssl.TLSVersion = new) -> str:
        return handshake(scene.address, certificate(tmp_path, authority, now + after, days), key, most)

    at_once = timedelta()
    assert shown(own, at_once) == "TLSv1.3"
    assert not shown(own, at_once, most=ssl.TLSVersion.TLSv1_2).startswith("TLS")
    assert not handshake(scene.address, None, None, new).startswith("TLS")
    assert not shown(own, -timedelta(seconds=30), days=0).startswith("TLS")
    assert not shown(own, timedelta(days=30)).startswith("TLS")
    assert not shown(Authority.create(tmp_path / "other", CONSORTIUM, now), at_once).startswith("TLS")


def test_a_member_that_the_owner_does_not_deal_with(scene: Scene) -> None:
    refused(scene, "joe", lambda v: v.call(), "stranger", "joe is not in this node")


# -- greetings -------------------------------------------------------------------------------------

GREETINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "another name": ({"owner": "bee"}, "name", "says that it is 'bee'"),
    "an old version": ({"versions": [0]}, "version", "speaks version 0 of the protocol, this node"),
    "no version": ({"versions": []}, "version", "update the older"),
    "another consortium": ({"consortium": "square"}, "consortium", "'square'"),
    "a clock that is off": ({"clock": 1}, "clock", "s apart"),
    "a clock of the last day": ({"clock": 2**64 - 1}, "clock", "s apart"),
    "a nonce cut short": ({"nonce": b"x"}, "malformed", "not whole"),
    "too much": ({"capabilities": ["x"] * 65}, "malformed", "too many versions"),
    "less than it needs": ({"capabilities": []}, "terms", "cannot do"),
}


@pytest.mark.parametrize("case", GREETINGS)
def test_a_greeting_that_does_not_do(scene: Scene, case: str) -> None:
    changes, reason, words = GREETINGS[case]

    async def greet(v: Villain) -> None:
        await v.call()
        await v.say(pb.Frame(hello=v.hello(**changes)))

    refused(scene, "gus", greet, reason, words)


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", "7"), ("translate", "\x1b[2J" * 99), ("width.entity", "²"), ("width.entity", "9" * 5000),
     ("width.relation", "1000000"), ("model", ""), ("model", "../../x y")],
)  # fmt: skip
def test_terms_that_differ_or_are_none(scene: Scene, key: str, value: str) -> None:
    async def greet(v: Villain) -> None:
        await v.call()
        hello = v.hello()
        hello.terms[key] = value
        await v.say(pb.Frame(hello=hello))

    assert "\x1b" not in refused(scene, "gus", greet, "terms")


@pytest.mark.parametrize(
    ("first", "reason"),
    [(b"", "malformed"), (b"\x0a\xff\xff\xff\x7f", "malformed"), (b"\xff" * 100, "malformed"),
     (pb.Frame(part=pb.Part(step=1, channel=1)).SerializeToString(), "out_of_order"),
     (bytes(FRAME_LIMIT + 1), "too_large")],
    ids=["nothing", "cut short", "noise", "no greeting", "too long"],
)  # fmt: skip
def test_a_first_frame_that_is_no_greeting(scene: Scene, first: bytes, reason: str) -> None:
    async def speak(v: Villain) -> None:
        await v.call()
        await v.say(first)

    refused(scene, "hal", speak, reason)


# -- frames ----------------------------------------------------------------------------------------


async def _replay(v: Villain) -> None:
    v.tell(pb.Meeting(keys=pb.Keys(entities=1, relations=1, ratio=1)))
    frame = v.session.following()
    assert frame is not None
    await v.say(frame)
    await v.say(frame)


async def _oversized_in_parts(v: Villain) -> None:
    v.pour(part(step, MEETING, bytes(PART), more=True) for step in range(1, 70))


async def _endless(v: Villain) -> None:
    v.pour(part(step, FEDERATION, bytes(PART), more=True) for step in range(1, 1000))


FRAMES: dict[str, tuple[Callable[[Villain], Awaitable[Any]], str]] = {
    "a step again": (_replay, "replayed"),
    "a step left out": (lambda v: v.say(part(3, MEETING, b"x")), "out_of_order"),
    "step zero": (lambda v: v.say(part(0, MEETING, b"x")), "replayed"),
    "an unknown channel": (lambda v: v.say(part(1, 9, b"x")), "out_of_order"),
    "confirms what nobody sent": (lambda v: v.say(pb.Frame(heard=pb.Heard(step=2**64 - 1))), "out_of_order"),
    "empty parts": (lambda v: v.say(part(1, MEETING, b"", more=True)), "malformed"),
    "tiny parts": (lambda v: v.say(part(1, MEETING, b"xx", more=True)), "malformed"),
    "no meeting": (lambda v: v.say(part(1, MEETING, b"\xff\xff")), "malformed"),
    "two greetings": (lambda v: v.say(pb.Frame(hello=v.hello())), "malformed"),
    "cut short": (lambda v: v.say(pb.Frame(bye=pb.Bye(sentence="x" * 90)).SerializeToString()[:-9]), "malformed"),
    "a frame too long": (lambda v: v.say(bytes(2 * FRAME_LIMIT)), "too_large"),
    "a long message in parts": (_oversized_in_parts, "too_large"),
    "an exchange before the meeting is over": (lambda v: v.say(part(1, FEDERATION, bytes(5000))), "too_large"),
    "parts without end": (_endless, "too_large"),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_that_break_the_rules(scene: Scene, case: str) -> None:
    work, reason = FRAMES[case]

    async def speak(v: Villain) -> None:
        await v.greet(pact=bytes(16))  # an alignment that the node does not have: so it does not get past the turnstile
        await work(v)

    refused(scene, "hal" if len(case) % 2 else "ivy", speak, reason)


# -- exchanges -------------------------------------------------------------------------------------


def _offer(v: Villain, number: float | None = None, dtype: torch.dtype = torch.float32, **changes: Any) -> Update:
    assert v.common is not None
    rows = torch.zeros(len(v.common.entities), 8, dtype=dtype)
    relations = torch.zeros(len(v.common.relations), 8, dtype=dtype)
    if number is not None:
        rows[0, 0] = number
    return Update(**({"step": 0, "frame": "f", "entity": rows, "relation": relations} | changes))


OFFERS: dict[str, Callable[[Villain], Any]] = {
    "not a number": lambda v: _offer(v, float("nan")),
    "infinite": lambda v: _offer(v, float("inf")),
    "huge": lambda v: _offer(v, 1e9),
    "double": lambda v: _offer(v, dtype=torch.float64),
    "a row too few": lambda v: _offer(v, entity=torch.zeros(3, 8)),
    "too wide": lambda v: _offer(v, entity=torch.zeros(len(v.common.entities), 9)),  # type: ignore[union-attr]
    "numbers for triples": lambda v: _offer(v, triples=torch.zeros(2, 3)),
    "something else": lambda _: Structure(0, 1, torch.zeros(1, 3, dtype=torch.int64)),
}


@pytest.mark.parametrize("case", OFFERS)
def test_vectors_that_cannot_be_used(scene: Scene, case: str) -> None:
    """The node asks for a translation, and gets this instead."""

    async def serve(v: Villain) -> None:
        await v.meet()
        v.send(Signal(v.name))
        message, _ = (await v.until(lambda: v.said(Request)))[0]
        v.send(Accept(v.name, message.session))
        v.send(OFFERS[case](v), message.session)
        v.pour(v.waiting())

    refused(scene, "eve", serve, "malformed")


def test_bytes_that_are_no_message_of_the_federation(scene: Scene) -> None:
    async def speak(v: Villain) -> None:
        await v.meet()
        v.send(Signal(v.name))
        await v.until(lambda: v.said(Request))
        v.session.send(FEDERATION, b"\xff" * 200)
        v.pour(v.waiting())

    refused(scene, "eve", speak, "malformed")


def test_a_flood_of_requests(scene: Scene) -> None:
    async def flood(v: Villain) -> None:
        await v.meet()
        for number in range(20_000):
            v.send(Request(v.name, 2**64 - 1 - number))
        v.pour(v.waiting())

    refused(scene, "eve", flood, "too_many", "come to nothing (given up)")


def test_a_flood_of_answers_to_what_nobody_asked(scene: Scene) -> None:
    """Each has to be told that it is too late, which is written down: a log is filled as quickly as a disk."""

    async def flood(v: Villain) -> None:
        await v.meet()
        v.send(Signal(v.name))
        await v.until(lambda: v.said(Request))
        for number in range(5000):
            v.send(Accept(v.name, 2**63 + number))
        v.pour(v.waiting())

    refused(scene, "eve", flood, "too_many", "that want an answer")


def test_offers_that_nobody_asked_for(scene: Scene) -> None:
    async def flood(v: Villain) -> None:
        await v.meet()
        v.send(Signal(v.name))
        await v.until(lambda: v.said(Request))  # from here on it is dealt with
        for _ in range(1000):
            v.send(_offer(v), 999)
        v.pour(v.waiting())

    refused(scene, "eve", flood, "too_many", "come to nothing (stray)")


def test_resuming_with_what_was_never_sent(scene: Scene) -> None:
    async def resume(v: Villain) -> None:
        answer = await v.greet(pact=bytes(16))
        life = v.life
        await v.call()
        await v.say(pb.Frame(hello=v.hello(life=life, your_life=answer.life, heard=10**6)))

    refused(scene, "ivy", resume, "out_of_order", "was confirmed")


# -- intersections ---------------------------------------------------------------------------------


def _intersect(kind: Psi, body: bytes) -> pb.Meeting:
    return pb.Meeting(intersect=pb.Intersect(frame=struct.pack("<4sBB16s", b"PSI1", kind, 0, bytes(16)) + body))


def _ask(count: int, points: bytes) -> bytes:
    return struct.pack("<III33s16s", count, 0, 2**32 - 1, b"\x02" + bytes(32), b"nfkc-1") + points


async def _psi(v: Villain, entities: int, *said: pb.Meeting) -> None:
    v.pact = b""
    await v.greet()
    v.tell(pb.Meeting(keys=pb.Keys(entities=entities, relations=4, ratio=1)))
    for message in said:
        v.tell(message)
    v.pour(v.waiting())


PSI: dict[str, tuple[Callable[[Villain], Awaitable[None]], str, str]] = {
    "a dictionary": (lambda v: _psi(v, 2**31), "too_large", "2,147,483,648 entity keys"),
    "few announced, many put in": (
        lambda v: _psi(v, 3, _intersect(Psi.ASK, _ask(30, bytes(33 * 30)))), "malformed", "after it had announced 3"
    ),
    "bytes that are no points": (
        lambda v: _psi(v, 1, _intersect(Psi.ASK, _ask(1, b"\x05" * 33))), "malformed", "not a point"
    ),
    "nothing": (lambda v: _psi(v, 1, pb.Meeting(intersect=pb.Intersect())), "malformed", "not a message"),
    "nothing, after many keys": (
        lambda v: _psi(v, 5000, pb.Meeting(intersect=pb.Intersect())), "malformed", "not a message"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PSI)
def test_intersections_that_break_the_rules(scene: Scene, case: str) -> None:
    work, reason, words = PSI[case]
    refused(scene, "fay", work, reason, words)


def test_a_claim_that_cannot_be_proved(scene: Scene) -> None:
    async def claim(v: Villain) -> None:
        v.pact = b""
        await v.greet()
        role = PsiClient(["made up", "by", "fay"], PsiSettings())
        v.tell(pb.Meeting(keys=pb.Keys(entities=3, relations=4, ratio=1)))
        v.tell(pb.Meeting(intersect=pb.Intersect(frame=role.start())))
        answers: list[bytes] = []

        def answered() -> list[bytes]:
            while not v.inbox.empty():
                message = decode_meeting(v.inbox.get_nowait())
                answers.extend([message.intersect.frame] if message.WhichOneof("is") == "intersect" else [])
            return answers

        said = role.step((await v.until(answered))[0])
        assert said is not None
        v.tell(pb.Meeting(intersect=pb.Intersect(frame=said[:-1] + bytes([said[-1] ^ 1]))))
        v.pour(v.waiting())

    refused(scene, "fay", claim, "malformed", "could not prove")


def test_who_intersects_again_and_again_is_let_in_so_often_only(scene: Scene) -> None:
    """The cases above have used up the better part of it."""

    async def again(v: Villain) -> None:
        for _ in range(14):
            await _psi(v, 2**31)
            frame = await v.next()
            while frame is not None and frame.WhichOneof("is") != "bye":
                frame = await v.next()
            if frame is not None and frame.bye.reason == pb.TOO_MANY:
                v.bye = frame.bye
                return

    refused(scene, "fay", again, "too_many", "it may come back in")


# -- floods, and what comes while a stream is open -------------------------------------------------


def test_connections_that_say_nothing(scene: Scene) -> None:
    host, port = scene.address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port)), 20) for _ in range(300)]
    try:
        assert scene.run(scene.villain("ivy").greet(pact=bytes(16))).owner == "ant"  # who knows the way still comes in
        scene.run(scene.villain("ivy").hang_up())
    finally:
        for one in silent:
            one.close()


def test_confirmations_without_end(scene: Scene) -> None:
    async def speak(v: Villain) -> None:
        await v.greet(pact=bytes(16))
        v.pour(pb.Frame(heard=pb.Heard(step=0)) for _ in range(100_000))

    refused(scene, "ivy", speak, "too_many", "acknowledgements")


def test_a_flood_of_greetings(scene: Scene) -> None:
    async def flood(v: Villain) -> None:
        for _ in range(40):
            await v.call()
            await v.say(pb.Frame(hello=v.hello(versions=[0])))
            frame = await v.next()
            if frame is not None and frame.bye.reason == pb.TOO_MANY:
                v.bye = frame.bye
                return

    refused(scene, "ivy", flood, "too_many", "connects too often")


def test_a_greeting_that_never_comes(scene: Scene) -> None:
    why, sentence = scene.run(scene.silent.refused())
    assert (why, sentence) == ("stalled", "no greeting within 15 seconds")
    assert scene.noted("gus", "stalled", 1)


def test_revoked_while_connected(scene: Scene, tmp_path: Path) -> None:
    eve = scene.villain("eve")
    scene.run(eve.greet(pact=bytes(16)))
    scene.all.authority.revoke("eve", datetime.now(UTC))
    write_atomically(scene.all.site("ant") / "revoked.pem", (scene.all.authority.folder / "revoked.pem").read_bytes())
    why, sentence = scene.run(eve.refused())
    assert why == "revoked", sentence
    refused(scene, "eve", lambda v: v.call(), "revoked", "was revoked on")
