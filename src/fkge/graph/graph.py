"""The immutable graph: labels in sorted order, triples as (n, 3) arrays of head, relation, tail."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from fkge.errors import UnknownLabelError

Triples: TypeAlias = npt.NDArray[np.int32]
"""(n, 3) int32: head, relation, tail."""

Id = TypeVar("Id", bound=np.integer)

HEAD, RELATION, TAIL = 0, 1, 2


class Vocabulary(tuple[str, ...]):
    """Labels in order; a label's position is its id."""

    kind: str

    def __new__(cls, labels: Iterable[str], kind: str = "label") -> Self:
        self = super().__new__(cls, labels)
        self.kind = kind
        return self

    def __contains__(self, label: object) -> bool:
        return label in self._ids

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} {self.kind} labels)"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self)}

    def id(self, label: str) -> int:
        """Return the id of `label`; raises `UnknownLabelError` naming the nearest ones."""
        try:
            return self._ids[label]
        except KeyError:
            raise self.unknown(label) from None

    def unknown(self, label: str) -> UnknownLabelError:
        """Return the error that names labels like this one, which there is not."""
        near: Iterable[str] = self
        if len(self) > 20_000:  # to compare with each of a million takes minutes
            place = bisect.bisect_left(self, label)
            around = self[max(0, place - 50) : place + 50]
            near = dict.fromkeys((*around, *itertools.islice((known for known in self if label in known), 200)))
        return UnknownLabelError(self.kind, label, near)


@dataclass(frozen=True, eq=False)
class Graph:
    """A knowledge graph with its splits.

    Every reader sorts labels, and the triples of each split, without duplicates: the order of a file does not count.

    Attributes:
        entities, relations: what the ids mean.
        splits: (n, 3) int32 arrays by name; always ``train``, ``valid``, ``test``, and any further
            test sets the source has (``test_leaked``). Read-only.
        same_as: pairs (label here, label elsewhere) that the source states to be the same thing.
        name: for people.
        notes: sentences for people on what a reader skipped, kept or did.
        split_seed: of the draw, where a reader had to split the triples itself; None if it found them split.
    """

    entities: Vocabulary
    relations: Vocabulary
    splits: Mapping[str, Triples]
    same_as: tuple[tuple[str, str], ...] = ()
    name: str = "graph"
    notes: tuple[str, ...] = field(default=())
    split_seed: int | None = None

    def __post_init__(self) -> None:
        splits: dict[str, Triples] = {}
        for key in dict.fromkeys(("train", "valid", "test", *self.splits)):
            triples = np.array(self.splits.get(key, ()), dtype=np.int32).reshape(-1, 3)
            triples.flags.writeable = False
            splits[key] = triples
        object.__setattr__(self, "splits", MappingProxyType(splits))

    @property
    def train(self) -> Triples:
        return self.splits["train"]

    @property
    def valid(self) -> Triples:
        return self.splits["valid"]

    @property
    def test(self) -> Triples:
        return self.splits["test"]

    @cached_property
    def facts(self) -> Triples:
        """Every triple of every split: what a filtered ranking knows to be true."""
        facts = np.concatenate(list(self.splits.values()))
        facts.flags.writeable = False
        return facts

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over labels and triples: equal if and only if those are.

        Name, notes and `same_as` say things about the graph; they are not part of it.
        """
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            for label in vocabulary:
                encoded = label.encode()
                digest.update(len(encoded).to_bytes(4, "little") + encoded)
            digest.update(b"\xff" * 4)
        for name, triples in sorted(self.splits.items()):
            digest.update(name.encode() + len(triples).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(triples, dtype="<i4").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(t):,}" for name, t in self.splits.items())
        return f"Graph({self.name}: {len(self.entities):,} entities, {len(self.relations):,} relations; {sizes})"


def among(rows: npt.NDArray[np.integer], table: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return which triples are in a table, (n,) bool.

    Head and relation become one number, that and the tail another. Renumbered in between, neither overflows.

    Args:
        rows, table: (n, 3) and (m, 3); ids are at least -1, which stands for no label.
    """
    if not len(rows) or not len(table):
        return np.zeros(len(rows), np.bool_)
    both = np.concatenate([rows, table]).astype(np.int64) + 1
    _, relations, tails = (int(largest) + 1 for largest in both.max(axis=0))
    _, pairs = np.unique(both[:, HEAD] * relations + both[:, RELATION], return_inverse=True)
    keys = pairs * tails + both[:, TAIL]
    return np.isin(keys[: len(rows)], keys[len(rows) :])


def mix_bits(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply SplitMix64's finaliser (Steele et al. 2014) in place: every input bit affects every output bit."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def renamed(triples: npt.NDArray[np.integer], entities: npt.NDArray[Id], relations: npt.NDArray[Id]) -> npt.NDArray[Id]:
    """Return triples in other ids, (n, 3).

    Args:
        triples: (n, 3); entities, relations: the new id of each old one.
    """
    out = np.empty(triples.shape, entities.dtype)
    for column, table in ((HEAD, entities), (RELATION, relations), (TAIL, entities)):
        out[:, column] = table[triples[:, column]]
    return out


def seen(
    triples: npt.NDArray[np.integer], train: npt.NDArray[np.integer], entities: int, relations: int
) -> npt.NDArray[np.bool_]:
    """Return the triples of which `train` has both entities and the relation, as (n,) bool.

    Args:
        triples: (n, 3); train: (m, 3).
        entities, relations: how many there are.
    """
    known_entities, known_relations = np.zeros(entities, np.bool_), np.zeros(relations, np.bool_)
    known_entities[train[:, [HEAD, TAIL]]] = True
    known_relations[train[:, RELATION]] = True
    known: npt.NDArray[np.bool_] = known_entities[triples[:, [HEAD, TAIL]]].all(axis=1)
    known &= known_relations[triples[:, RELATION]]
    return known


def tidy(triples: npt.NDArray[np.integer]) -> Triples:
    """Return `triples` (n, 3) sorted by head, relation, tail, without duplicates."""
    if len(triples) == 0:
        return np.empty((0, 3), np.int32)
    heads, relations, tails = (int(n) + 1 for n in triples.max(axis=0))
    if int(triples.min()) < 0 or heads * relations * tails > np.iinfo(np.int64).max:
        return np.unique(triples, axis=0).astype(np.int32)
    # A triple fits one 64-bit number: a single sort of those is many times faster than by columns.
    key = triples[:, HEAD].astype(np.int64)
    for column, size in ((RELATION, relations), (TAIL, tails)):
        key *= size
        key += triples[:, column]
    key = np.unique(key)
    out = np.empty((len(key), 3), np.int32)
    for column, size in ((TAIL, tails), (RELATION, relations)):
        out[:, column] = key % size
        key //= size
    out[:, HEAD] = key
    return out
