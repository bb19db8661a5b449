"""The first words of two nodes: what is said, what is refused, and that the called side proves who it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the extra node")

from fkge.node import frames_pb2 as pb
from fkge.node.frames import VERSIONS, Refused
from fkge.node.handshake import CAPABILITIES, check_greeting, check_proof, new_incarnation, signed, terms_of
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings
from fkge.pki.authority import Authority
from fkge.pki.site import Identity
from tests.conftest import COMPLEX, tiny_settings
from tests.consortium import CONSORTIUM, members

NOW = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)


def hello(**changes: Any) -> pb.Hello:
    values: dict[str, Any] = {
        "versions": [*VERSIONS, 7], "program": "fkge 0", "consortium": CONSORTIUM, "owner": "bee", "life": bytes(16),
        "capabilities": [*CAPABILITIES, "more"], "nonce": bytes(16), "clock": int(NOW.timestamp() * 1000),
        "terms": terms_of(tiny_settings(), 0) | {"later": "x"},
    }  # fmt: skip
    return pb.Hello(**(values | changes))


def check(greeting: pb.Hello, run: dict[str, Any] | None = None, **peer: Any) -> None:
    federation = tiny_settings(**(run or {}))
    terms = terms_of(federation, 0)
    config = NodeConfig(Path(), NodeSettings(name="ant", graph="graph", clock=300.0), federation, {})
    check_greeting(greeting, "bee", CONSORTIUM, terms, PeerSettings(**peer), config, NOW)


def test_a_later_version_that_knows_this_one_is_welcome() -> None:
    check(hello())
    check(hello(clock=int((NOW.timestamp() - 299) * 1000)))
    other = hello()
    other.terms["model"], other.terms["width.entity"] = "distmult", "16"  # in these, owners may differ
    check(other)


@pytest.mark.parametrize(
    ("greeting", "peer", "reason"),
    [
        (hello(versions=[2]), {}, "version"), (hello(owner="ant"), {}, "name"), (hello(life=b""), {}, "malformed"),
        (hello(consortium="x"), {}, "consortium"), (hello(your_life=b"x"), {}, "malformed"),
        (hello(clock=int((NOW.timestamp() + 301) * 1000)), {}, "clock"), (hello(), {"hours": "13:00-11:00"}, "hours"),
        (hello(capabilities=["psi1", "frame"]), {}, "terms"), (hello(terms={}), {}, "terms"),
        (hello(), {"privacy": "paper"}, "privacy"), (hello(versions=list(range(70))), {}, "malformed"),
    ],
)  # fmt: skip
def test_what_does_not_do(greeting: pb.Hello, peer: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        check(greeting, **peer)
    assert refused.value.reason == reason
    assert refused.value.ours


@pytest.mark.parametrize("width", ["", "-1", "1.5", "²", "٣", "01", "65537", "9" * 5000, " 8", "8\n"])
def test_widths_that_are_none(width: str) -> None:
    greeting = hello()
    greeting.terms["width.relation"] = width
    with pytest.raises(Refused) as refused:
        check(greeting)
    assert refused.value.reason == "terms"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Identity]]:
    folder = tmp_path_factory.mktemp("members")
    return folder, members(folder, "ant", "bee", "cat")


def answer(identities: dict[str, Identity], who: str, nonce: bytes, life: bytes) -> pb.Hello:
    asked = pb.Hello(owner="ant", nonce=nonce)
    return signed(pb.Hello(life=life), identities[who], identities[who].certificate_pem, asked)


def test_the_called_side_proves_who_it_is(sites: tuple[Path, dict[str, Identity]]) -> None:
    folder, identities = sites
    nonce, life, now, ant = bytes(range(16)), new_incarnation(), datetime.now(UTC), identities["ant"]
    good = answer(identities, "bee", nonce, life)
    check_proof(good, ant, nonce, "bee", now)

    def reason(greeting: pb.Hello, asked: bytes = nonce, at: datetime = now) -> str:
        with pytest.raises(Refused) as refused:
            check_proof(greeting, ant, asked, "bee", at)
        return refused.value.reason

    assert reason(good, asked=bytes(16)) == "forged"  # an answer to another call
    assert reason(pb.Hello(life=life)) == "unproven"
    assert reason(answer(identities, "cat", nonce, life)) == "name"
    borrowed = answer(identities, "cat", nonce, life)
    borrowed.certificate = good.certificate
    assert reason(borrowed) == "forged"
    another_life = answer(identities, "bee", nonce, life)
    another_life.life = new_incarnation()
    assert reason(another_life) == "forged"
    assert reason(pb.Hello(life=life, certificate=b"junk", proof=b"junk")) == "stranger"
    assert reason(good, at=now + timedelta(days=5000)) == "expired"
    authority = Authority.open(folder / "authority")
    authority.revoke("bee", now)
    ant.trust.update((folder / "authority" / "revoked.pem").read_bytes())
    assert reason(good) == "revoked"


def test_the_width_of_relations_counts_their_inverses() -> None:
    """One that keeps inverse rows is greeted by one that does not: the two exchange entities."""
    plain, both = (tiny_settings(train={**COMPLEX, "reciprocal": on}) for on in (False, True))
    found = [terms_of(settings, 0) for settings in (plain, both)]
    assert [(t["width.entity"], t["width.relation"]) for t in found] == [("16", "16"), ("16", "32")]
    assert {key for key in found[0] if found[0][key] != found[1][key]} == {"width.relation"}
