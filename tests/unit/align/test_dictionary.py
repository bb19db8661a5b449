"""What an onlooker with a dictionary of all labels can match: every hash of a label, and nothing that is sent now."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable

import numpy as np

from fkge.align import Keys, PsiClient, PsiHost, PsiSettings, Tokens, label_keys
from fkge.graph import Graph, Vocabulary

DICTIONARY = [f"http://dbpedia.org/resource/Q{i}" for i in range(400)]
"""Every label there is: the attacker's candidates."""
GRAPH = Graph(Vocabulary(sorted(DICTIONARY[::2])), Vocabulary(["r"]), {})


def hashed(label: str, kind: str, salt: str) -> bytes:
    """How a token used to follow from a label: a hash under a salt that is no secret."""
    key = hashlib.sha256(salt.encode()).digest()
    return hashlib.blake2b(label.encode(), digest_size=8, key=key, person=kind.encode()).digest()


def onlooker_finds(message: bytes, guesses: Iterable[Callable[[str], bytes]]) -> set[str]:
    """Labels that stand in a message under some guess of how they were written."""
    return {
        text for written in guesses for text in [*DICTIONARY, *label_keys(full()).entities] if written(text) in message
    }


def full() -> Graph:
    return Graph(Vocabulary(DICTIONARY), Vocabulary([]), {})


@functools.cache
def curve_point(text: str) -> bytes:
    """H(text) itself: hidden behind the exponent 1."""
    import private_set_intersection.python as library

    one = library.client.CreateFromKey((1).to_bytes(32, "big"), True)
    return bytes(one.CreateRequest([text]).encrypted_elements[0])


GUESSES: list[Callable[[str], bytes]] = [
    str.encode,
    lambda text: hashed(text, "entity", "federation/owner"),
    lambda text: hashlib.sha256(text.encode()).digest()[:8],
    lambda text: hashlib.blake2b(text.encode(), digest_size=32).digest(),
    curve_point,
]


def test_a_dictionary_attack_breaks_hashed_labels() -> None:
    sent = b"".join(hashed(label, "entity", "federation/owner") for label in GRAPH.entities)
    assert onlooker_finds(sent, GUESSES) == set(GRAPH.entities)


def test_tokens_do_not_depend_on_labels_at_all() -> None:
    sent = Tokens.draw(GRAPH, seed=123)["entity"]
    assert not onlooker_finds(sent.astype("<u8").tobytes(), GUESSES)
    renamed = Graph(Vocabulary([f"{i:04}" for i in range(len(GRAPH.entities))]), Vocabulary(["s"]), {})
    assert np.array_equal(Tokens.draw(renamed, seed=123)["entity"], sent)


def intersect(here: Keys, there: Keys) -> list[bytes]:
    """Everything that two owners say to each other while they intersect."""
    settings = PsiSettings.build({"min_overlap": 1})
    client, host = PsiClient(here.entities, settings), PsiHost(there.entities, settings)
    said: list[bytes] = [client.start()]
    while (answer := (host, client)[(len(said) - 1) % 2].step(said[-1])) is not None:
        said.append(answer)
    assert client.found
    return said


def test_a_dictionary_matches_nothing_in_an_intersection() -> None:
    partner = Graph(Vocabulary(sorted(DICTIONARY[::3])), Vocabulary([]), {})
    said = b"".join(intersect(label_keys(GRAPH), label_keys(partner)))
    assert not onlooker_finds(said, GUESSES)
    leaky = said + curve_point(next(iter(label_keys(GRAPH).entities)))  # and the attack sees a leak if there is one
    assert len(onlooker_finds(leaky, GUESSES)) == 1


def test_a_proof_is_a_hash_under_a_key_that_never_crosses_the_wire() -> None:
    """Where one item is common, the proofs are hashes of it; who heard everything else can still not try labels."""
    only = Graph(Vocabulary([GRAPH.entities[5]]), Vocabulary([]), {})
    said = intersect(label_keys(only), label_keys(GRAPH))
    *before, claim, _ = said
    heard = bytes(16)
    for frame in before:
        heard = hashlib.blake2b(frame, digest_size=16, key=heard).digest()

    def proof(text: str, secret: bytes) -> bytes:
        data = len(text.encode()).to_bytes(4, "little") + text.encode()
        return hashlib.blake2b(data, digest_size=32, key=secret + heard, person=b"client").digest()

    answer = before[-1]
    public = [before[-2][34:67], answer[30:63]]  # both halves of the agreement
    assert {point[0] for point in public} <= {2, 3}
    guesses = [functools.partial(proof, secret=secret) for secret in (b"", *public)]
    assert not onlooker_finds(claim, guesses)

    settings = PsiSettings.build({})  # and with the key, which the two have, one label fits
    client, host = PsiClient(label_keys(only).entities, settings), PsiHost(label_keys(GRAPH).entities, settings)
    ask = client.start()
    reply = host.step(ask)
    assert reply is not None
    claim = client.step(reply) or b""
    heard = bytes(16)
    for frame in (ask, reply):
        heard = hashlib.blake2b(frame, digest_size=16, key=heard).digest()
    assert onlooker_finds(claim, [functools.partial(proof, secret=client._shared)]) == set(label_keys(only).entities)
