"""Attack on the alignment: recover, by a dictionary, the labels behind the tokens that passed between two owners.

A hash hides what cannot be guessed. Labels can: lists of all entities of public graphs exist, and hashing half a
million of them takes a fraction of a second. A salt that both sides know is known to the attacker too. So hashed labels
are labels, and private set intersection is needed. The attacker has the best dictionary there is, the victim's own
labels: against hashes it recovers all, against an intersection and the tokens of common initial rows it must find none.
To show that the attack can succeed, it also tries the curve points of labels under the exponent 1, which an
intersection with a known secret would send.

No alignment prevents, and this attack does not measure, that a peer puts the whole dictionary into its *own* set, and
the intersection tells it what the other has. Only a limit on the size of sets, or on the peers to align with, helps.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fkge.align import PsiClient, PsiHost
from fkge.align.links import KINDS
from fkge.audit.findings import Finding, Verdict
from fkge.audit.subject import Subject
from fkge.errors import SettingsError

Hash: TypeAlias = Callable[[str], bytes]
"""Maps a label to its token, or to a digest of which the token is the beginning."""

SHORTEST = 4
"""Bytes of the shortest token. Shorter ones match some label of any large dictionary by chance."""
_HASHES = ("sha256", "sha1", "md5", "blake2b")
_ITEMS, _QUICK_ITEMS = 2000, 300
_WIDTH = 32
"""Bytes of a SHA-256, and of a coordinate on the curve."""
_SALTS = (b"fkge", b"PSI1", b"tokens", b"nfkc-1")
"""Words that occur in the protocol, in case one was used as a salt."""


@dataclass(frozen=True)
class Recovered:
    """Labels that a dictionary has found.

    Attributes:
        hash: name of the hash that found most of them; empty if none did.
        rate: share of the distinct tokens that some label explains.
        by_chance: expected number of matches if all tokens were random bytes.
    """

    labels: tuple[str, ...]
    hash: str
    tokens: int
    rate: float
    by_chance: float

    def summary(self, tried: int) -> dict[str, object]:
        """Return the figures without the labels; `tried` is the size of the dictionary."""
        return {
            "recovered": len(self.labels), "dictionary": tried, "looked_at": self.tokens,
            "by_chance": self.by_chance, "hash": self.hash,
        }  # fmt: skip


def attack(subject: Subject) -> Finding:
    """Recover labels from hashes (all of them), from an intersection of two owners, and from their tokens."""
    victim, peer = subject.victim, subject.peer
    most = _QUICK_ITEMS if subject.quick else _ITEMS
    rng = np.random.default_rng([subject.seed, 4])
    labels = _sample(list(victim.shared.entities), most, rng)
    started = time.monotonic()
    hashed = look_up((hashlib.sha256(label.encode()).digest() for label in labels), labels, usual_hashes())
    seconds = time.monotonic() - started
    with subject.progress.task("a dictionary against the alignment", 2, "transcripts") as task:
        transcript, keys = _transcript(subject, most, rng)
        task.advance(1)
        words = [*labels, *keys]
        # Only the victim's part of the transcript is at stake, but the attacker gets both.
        psi = look_up(windows(transcript, _WIDTH), words, usual_hashes(_SALTS) | {"no exponent": _points(words)})
        task.advance(1)
    tokens = [bytes(token.astype("<u8").tobytes()) for kind in KINDS for token in victim.tokens[kind]]
    every = [*victim.shared.entities, *victim.shared.relations]
    by_tokens = look_up(tokens, every, usual_hashes(_SALTS))
    share = len(hashed.labels) / max(1, len(labels))
    return Finding(
        "no label can be recovered from an intersection or from tokens (from hashed labels, every one can)",
        Verdict.BROKEN if psi.labels or by_tokens.labels else Verdict.HOLDS,
        f"the alignment of {subject.owner} and {peer}",
        f"hashes: {share:.0%} of {len(labels):,} in {seconds:.2f} s; PSI: {len(psi.labels)}, "
        f"tokens: {len(by_tokens.labels)}",
        {
            "hashed": {"recovered": share, "labels": len(labels), "seconds": round(seconds, 4), "hash": hashed.hash},
            "psi": psi.summary(len(words)), "tokens": by_tokens.summary(len(every)),
        },
    )  # fmt: skip


def salted(name: str, salt: bytes = b"") -> Hash:
    """Return the hash of `hashlib` of that name, of a known salt and the label in UTF-8."""
    return lambda label: hashlib.new(name, salt + label.encode()).digest()


def keyed_blake2b(key: bytes, person: bytes = b"", size: int = 32) -> Hash:
    """Return BLAKE2b under a known key.

    Args:
        key, person: as in `hashlib.blake2b`.
        size: bytes. A short digest is not the beginning of a long one: its size is hashed too.
    """
    return lambda label: hashlib.blake2b(label.encode(), digest_size=size, key=key, person=person).digest()


def usual_hashes(salts: Iterable[bytes] = ()) -> dict[str, Hash]:
    """Return SHA-256, SHA-1, MD5 and BLAKE2b by name, plain and with each of the known salts."""
    out = {name: salted(name) for name in _HASHES}
    for salt in salts:
        out |= {f"{name}({salt!r} + label)": salted(name, salt) for name in _HASHES}
        if len(salt) <= hashlib.blake2b.MAX_KEY_SIZE:
            out |= {f"blake2b-{size}(key {salt!r})": keyed_blake2b(salt, size=size) for size in (8, 16, 32)}
    return out


def windows(messages: Iterable[bytes], width: int) -> Iterator[bytes]:
    """Yield every `width` successive bytes of the messages: tokens of a format that need not be understood."""
    for message in messages:
        for i in range(len(message) - width + 1):
            yield message[i : i + width]


def look_up(tokens: Iterable[bytes], labels: Iterable[str], hashes: Mapping[str, Hash]) -> Recovered:
    """Hash every label in every way and look it up among the tokens.

    Args:
        tokens: tokens that passed. The beginning of a digest counts: hashes are often truncated.
        labels: the dictionary.
        hashes: hashes by name; see `usual_hashes`.

    Raises:
        SettingsError: there are no tokens or no hashes, or a token is too short.
    """
    known = set(tokens)
    widths = sorted({len(token) for token in known})
    if not known or widths[0] < SHORTEST:
        raise SettingsError(f"a dictionary needs tokens of at least {SHORTEST} bytes; got {len(known)}: {widths[:1]}")
    if not hashes:
        raise SettingsError("a dictionary needs a hash to try; see usual_hashes()")
    found: dict[str, set[str]] = {name: set() for name in hashes}
    explained: set[bytes] = set()
    tried = set(labels)
    for label in tried:
        for name, function in hashes.items():
            digest = function(label)
            hits = {digest[:width] for width in widths if width <= len(digest)} & known
            if hits:
                explained |= hits
                found[name].add(label)
    best = max(found, key=lambda name: len(found[name]))
    recovered = tuple(sorted(set().union(*found.values())))
    chance = sum(len(tried) * len(hashes) * 256.0 ** -len(token) for token in known)
    return Recovered(recovered, best if found[best] else "", len(known), len(explained) / len(known), chance)


def _sample(items: Sequence[str], most: int, rng: np.random.Generator) -> list[str]:
    return [items[i] for i in np.sort(rng.permutation(len(items))[:most])] if len(items) > most else list(items)


def _transcript(subject: Subject, most: int, rng: np.random.Generator) -> tuple[list[bytes], list[str]]:
    """Return the messages of an intersection of the two owners' entity keys, at most `most` of each, and the keys."""
    links = subject.federation.links
    pair = next(names for names in links if {subject.owner, subject.peer} == set(names))
    one, other = (subject.owners[name].shared for name in pair)
    rule = subject.simulation.settings.psi.normalisation
    keys = links[pair].keys(one, 0, KINDS, rule).entities, links[pair].keys(other, 1, KINDS, rule).entities
    side = {name: _sample(sorted(own), most, rng) for name, own in zip(pair, keys, strict=True)}
    settings = subject.simulation.settings.psi.model_copy(update={"min_overlap": 0})
    client, host = PsiClient(side[subject.peer], settings), PsiHost(side[subject.owner], settings)
    messages: list[bytes] = []
    message: bytes | None = client.start()
    while message is not None:
        messages.append(message)
        message = (host if len(messages) % 2 else client).step(message)
    return messages, sorted({*side[subject.owner], *side[subject.peer]})


def _points(words: Sequence[str]) -> Hash:
    """Return the x coordinate of each word's point on the curve, as an intersection with exponent 1 would send it."""
    import private_set_intersection.python as library

    hider = library.client.CreateFromKey((1).to_bytes(32, "big"), True)
    points = dict(zip(words, hider.CreateRequest(list(words)).encrypted_elements, strict=True))
    return lambda word: bytes(points[word][1:])
