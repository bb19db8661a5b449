"""Recipes of embedded federations: owners, the sources of their facts, and the split of facts.

A recipe yields claims; a claim with an unknown end, or one that relates a thing to itself, is dropped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fkge.progress import Progress

Fact: TypeAlias = tuple[str, str, str]
"""Head, relation, tail."""

Claim: TypeAlias = tuple[str | None, str, str | None]
"""A fact whose ends may be unknown (None)."""

SPLITS = ("train", "valid", "test")
SHARES = (0.8, 0.1, 0.1)
DEGREE = 2
"""An entity that only one owner has must occur in so many facts, else it is dropped."""


@dataclass(frozen=True)
class Origin:
    """The source of an owner's facts.

    Attributes:
        version: of the package, with which the federation was made.
        licence: of the data, which may differ from that of the package's code.
        attribution: the authors to name, and the source that the package took the data from.
    """

    package: str
    version: str
    licence: str
    attribution: str


@dataclass(frozen=True)
class Recipe:
    """The recipe of one federation.

    Attributes:
        origins: the source of each owner's facts.
        claims: yields each owner and its claims, in the order of `origins`.
        versions: returns the installed versions by package; raises `DataError` if one is missing.
        seed: of the split.
    """

    name: str
    about: str
    origins: Mapping[str, Origin]
    claims: Callable[[Progress], Iterator[tuple[str, Iterable[Claim]]]]
    versions: Callable[[], Mapping[str, str]]
    seed: int = 0

    def facts(self, progress: Progress) -> dict[str, set[Fact]]:
        """Return every owner's facts, trimmed."""
        owners = {}
        with progress.task(f"building {self.name}", len(self.origins), "owners") as task:
            for owner, claims in self.claims(progress):
                owners[owner] = clean(claims)
                task.advance(1)
        return trim(owners, DEGREE)


def clean(claims: Iterable[Claim]) -> set[Fact]:
    """Return the claims with two known, different ends."""
    return {(h, r, t) for h, r, t in claims if h and t and h != t}


def entities(facts: Iterable[Fact]) -> set[str]:
    return {end for h, _, t in facts for end in (h, t)}


def trim(owners: Mapping[str, set[Fact]], degree: int) -> dict[str, set[Fact]]:
    """Drop the entities that only one owner has, in fewer than `degree` facts: nothing can be learned about them.

    Entities of several owners stay, however few facts each has.
    """
    known = Counter(entity for facts in owners.values() for entity in entities(facts))
    shared = {entity for entity, count in known.items() if count > 1}
    return {owner: _trim(facts, shared, degree) for owner, facts in owners.items()}


def _trim(facts: set[Fact], shared: set[str], degree: int) -> set[Fact]:
    while True:
        degrees = Counter(end for h, _, t in facts for end in (h, t))
        kept = {f for f in facts if all(end in shared or degrees[end] >= degree for end in (f[0], f[2]))}
        if len(kept) == len(facts):
            return kept
        facts = kept


def split(facts: Iterable[Fact], owner: str, shares: tuple[float, float, float], seed: int) -> dict[str, list[Fact]]:
    """Split facts into train, valid and test such that every entity and relation occurs in train.

    Facts are ordered by a hash of themselves, the owner and the seed. The first with some entity or relation goes to
    train; of the others, valid and test get their share of all facts, or as much as there is, in proportion.

    Args:
        facts: of one owner.
        owner: its name.
        shares: of train, valid and test.
        seed: of the order.

    Returns:
        Disjoint, sorted lists by split.
    """
    ordered = sorted(facts, key=lambda fact: _rank(fact, owner, seed))
    seen: set[tuple[str, str]] = set()
    train: list[Fact] = []
    free: list[Fact] = []
    for fact in ordered:
        h, r, t = fact
        named = {("entity", h), ("relation", r), ("entity", t)}
        (free if named <= seen else train).append(fact)
        seen |= named
    valid, test = (round(share * len(ordered)) for share in shares[1:])
    if valid + test > len(free):
        valid = round(len(free) * valid / (valid + test))
        test = len(free) - valid
    parts = (train + free[valid + test :], free[:valid], free[valid : valid + test])
    return {name: sorted(part) for name, part in zip(SPLITS, parts, strict=True)}


def _rank(fact: Fact, owner: str, seed: int) -> bytes:
    return hashlib.blake2b("\t".join((str(seed), owner, *fact)).encode(), digest_size=16).digest()
