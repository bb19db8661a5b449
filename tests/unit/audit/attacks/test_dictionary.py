"""Dictionaries: hashed labels are labels; a private set intersection is not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import pytest

from fkge.align import PsiClient, PsiHost, PsiSettings, Tokens
from fkge.audit.attacks.dictionary import Hash, keyed_blake2b, look_up, usual_hashes, windows
from fkge.errors import SettingsError
from fkge.graph import Graph

LABELS = [f"http://example.org/resource/Thing_{i}" for i in range(300)]
SECRET = LABELS[:40]


@pytest.mark.parametrize("cut", [32, 16, 8])
def test_a_hash_of_a_label_is_the_label(cut: int) -> None:
    tokens = [hashlib.sha256(label.encode()).digest()[:cut] for label in SECRET]
    found = look_up(tokens, LABELS, usual_hashes())
    assert found.labels == tuple(sorted(SECRET))
    assert found.hash == "sha256"
    assert found.rate == 1
    assert found.by_chance < 1e-10
    assert json.loads(json.dumps(found.summary(300)))["looked_at"] == 40


def test_a_salt_that_is_no_secret_changes_nothing() -> None:
    salt = b"federation-7"
    tokens = [hashlib.blake2b(label.encode(), key=salt, digest_size=16).digest() for label in SECRET]
    assert look_up(tokens, LABELS, usual_hashes()).labels == ()
    assert look_up(tokens, LABELS, usual_hashes([salt])).labels == tuple(sorted(SECRET))
    tokens = [hashlib.sha256(salt + label.encode()).digest() for label in SECRET]
    assert look_up(tokens, LABELS, usual_hashes([salt])).rate == 1


def test_tokens_of_a_keyed_hash_fall_to_whoever_knows_the_key() -> None:
    key = hashlib.sha256(b"federation/owner").digest()
    hashed = keyed_blake2b(key, b"entity", 8)
    tokens = [hashed(label) for label in SECRET]
    assert tokens[0] == hashlib.blake2b(SECRET[0].encode(), digest_size=8, key=key, person=b"entity").digest()
    assert look_up(tokens, LABELS, {"token": hashed}).labels == tuple(sorted(SECRET))
    assert look_up(tokens, LABELS, {"token": keyed_blake2b(key, b"relation", 8)}).labels == ()


def test_the_tokens_of_starting_together_are_drawn_and_tell_no_label(graph: Graph) -> None:
    tokens = [token.tobytes() for token in Tokens.draw(graph, seed=7)["entity"].astype("<u8")]
    salts = [b"7", b"entity", b"fkge", (7).to_bytes(8, "little")]
    assert look_up(tokens, graph.entities, usual_hashes(salts)).labels == ()


def test_what_is_not_in_the_dictionary_is_not_found_and_random_bytes_are_nothing() -> None:
    tokens = [hashlib.sha256(label.encode()).digest() for label in ("a secret project", *SECRET[:3])]
    found = look_up(tokens, LABELS, usual_hashes())
    assert found.labels == tuple(sorted(SECRET[:3]))
    assert found.rate == 0.75
    noise = np.random.default_rng(0).bytes(32 * 500)
    nothing = look_up([noise[i : i + 32] for i in range(0, len(noise), 32)], LABELS, usual_hashes([b"salt"]))
    assert (nothing.labels, nothing.hash, nothing.rate) == ((), "", 0)


def test_a_token_inside_a_message_is_seen_without_knowing_the_format() -> None:
    message = b"\x0a\x20" + hashlib.sha256(SECRET[0].encode()).digest() + b"\x12\x00"
    assert look_up(windows([message], 32), LABELS, usual_hashes()).labels == (SECRET[0],)
    assert list(windows([b"abcd", b"x"], 3)) == [b"abc", b"bcd"]


def intersect(client_items: Iterable[str], host_items: Iterable[str], settings: PsiSettings) -> list[bytes]:
    """All that passes in one intersection."""
    client, host = PsiClient(client_items, settings), PsiHost(host_items, settings)
    passed = [client.start()]
    sides = (host, client)
    while (answer := sides[(len(passed) - 1) % 2].step(passed[-1])) is not None:
        passed.append(answer)
    assert client.found == host.found
    assert client.found is not None
    assert len(client.found) == 20
    return passed


@pytest.mark.parametrize("minimum", [0, 5])
def test_an_intersection_gives_no_label_to_a_dictionary(minimum: int) -> None:
    """Not to one that hashes, and not to one that raises points of the curve itself, with an exponent of its own."""
    passed = intersect(SECRET, LABELS[20:60], PsiSettings(min_overlap=minimum))
    for width in (8, 32, 33):
        assert look_up(windows(passed, width), LABELS, usual_hashes([b"fkge", b"client", b"host"])).labels == ()
    assert look_up(windows(passed, 33), LABELS, {"own exponent": own_exponent(LABELS)}).labels == ()
    # Whoever had the client's exponent would read its first message: the attack does find points where they are.
    hashed = own_exponent(SECRET)
    assert look_up(windows([b"".join(map(hashed, SECRET))], 33), LABELS[:40], {"own": hashed}).rate > 0
    assert look_up(map(hashed, SECRET), SECRET, {"own": hashed}).labels == tuple(sorted(SECRET))


def own_exponent(labels: list[str]) -> Hash:
    """Labels to points under a secret that the attacker drew."""
    import private_set_intersection.python as library

    hider = library.client.CreateWithNewKey(True)
    table = dict(zip(labels, hider.CreateRequest(labels).encrypted_elements, strict=True))
    return table.__getitem__


def test_short_tokens_and_empty_families_are_refused() -> None:
    with pytest.raises(SettingsError, match="at least 4 bytes"):
        look_up([b"abc"], LABELS, usual_hashes())
    with pytest.raises(SettingsError, match="got 0"):
        look_up([], LABELS, usual_hashes())
    with pytest.raises(SettingsError, match="a hash to try"):
        look_up([b"abcd"], LABELS, {})
