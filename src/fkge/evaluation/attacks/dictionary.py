"""Dictionary attack: which labels are behind the tokens that passed?

A hash hides what cannot be guessed. Labels can: lists of all entities of the public graphs exist, and hashing half a
million of them takes a fraction of a second. A salt that both sides know is known to the attacker too. So hashed
labels are labels; private set intersection is what is needed.

What no alignment prevents, and this attack does not measure: a peer may put the whole dictionary into its *own* set,
and the intersection tells it what the other has. Only a limit on the size of sets, or on whom to align with, helps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fkge.errors import SettingsError
from fkge.evaluation.attacks.result import Result

Hash: TypeAlias = Callable[[str], bytes]
"""A label to its token, or to a digest of which the token is the beginning."""

SHORTEST = 4
"""Bytes. Shorter tokens fit some label of any large dictionary by chance."""


@dataclass(frozen=True)
class Recovered(Result):
    """What a dictionary has found.

    Attributes:
        labels: those recovered, in order.
        hash: the one that found most of them; empty if none did.
        tokens: distinct ones that were looked at.
        rate: share of these that some label explains.
        by_chance: labels that would be expected to fit if all tokens were random bytes.
    """

    labels: tuple[str, ...]
    hash: str
    tokens: int
    rate: float
    by_chance: float


def plain(name: str) -> Hash:
    """A hash by its name in `hashlib`, of the label in UTF-8."""

    def digest(label: str) -> bytes:
        return hashlib.new(name, label.encode()).digest()

    return digest


def salted(name: str, salt: bytes) -> Hash:
    """The same with a known salt before the label."""

    def digest(label: str) -> bytes:
        return hashlib.new(name, salt + label.encode()).digest()

    return digest


def keyed_blake2b(key: bytes, person: bytes = b"", size: int = 32) -> Hash:
    """BLAKE2b under a known key. Its size is part of what is hashed: a short one is not the start of a long one."""
    start = hashlib.blake2b(digest_size=size, key=key, person=person)

    def digest(label: str) -> bytes:
        one = start.copy()
        one.update(label.encode())
        return one.digest()

    return digest


def usual_hashes(salts: Iterable[bytes] = ()) -> dict[str, Hash]:
    """What an attacker tries first: SHA-256, SHA-1, MD5, BLAKE2b; with each of the salts it knows of."""
    out: dict[str, Hash] = {name: plain(name) for name in ("sha256", "sha1", "md5", "blake2b")}
    for salt in salts:
        out |= {f"{name}({salt!r} + label)": salted(name, salt) for name in ("sha256", "sha1", "md5", "blake2b")}
        if len(salt) <= hashlib.blake2b.MAX_KEY_SIZE:
            for size in (8, 16, 32):
                out[f"blake2b-{size}(key {salt!r})"] = keyed_blake2b(salt, size=size)
    return out


def windows(messages: Iterable[bytes], width: int) -> Iterator[bytes]:
    """Every run of `width` bytes in the messages: the tokens of a format that the attacker need not understand."""
    for message in messages:
        for i in range(len(message) - width + 1):
            yield message[i : i + width]


def dictionary(tokens: Iterable[bytes], labels: Iterable[str], hashes: Mapping[str, Hash]) -> Recovered:
    """Hash every label in every way and look it up among the tokens.

    Args:
        tokens: what passed. A token that is the beginning of a digest counts: hashes are often cut short.
        labels: the dictionary.
        hashes: by name; see `usual_hashes`.
    """
    known = set(tokens)
    widths = sorted({len(token) for token in known})
    if not known or widths[0] < SHORTEST:
        raise SettingsError(
            f"a dictionary is tried on one or more tokens of at least {SHORTEST} bytes; got {len(known)}, the shortest "
            f"of {widths[0] if widths else 0}"
        )
    if not hashes:
        raise SettingsError("a dictionary needs a hash to try; see usual_hashes()")
    found: dict[str, set[str]] = {name: set() for name in hashes}
    explained: set[bytes] = set()
    tried = 0
    for label in dict.fromkeys(labels):
        tried += 1
        for name, function in hashes.items():
            digest = function(label)
            hits = {digest[:width] for width in widths if width <= len(digest)} & known
            if hits:
                explained |= hits
                found[name].add(label)
    best = max(found, key=lambda name: len(found[name]))
    recovered = tuple(sorted(set().union(*found.values())))
    chance = sum(tried * len(hashes) * 256.0 ** -len(token) for token in known)
    return Recovered(recovered, best if found[best] else "", len(known), len(explained) / len(known), chance)
