"""Alignments: which rows of two owners stand for the same thing.

An alignment is a pair of lists of equal length, one at each owner: position k of both is the same thing. An owner
holds its own list only (`Common`), and refers to "the k-th common thing", never to the other's ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fkge.embed.models import Kind as Kind
from fkge.errors import GraphError, SettingsError
from fkge.graph.graph import HEAD, RELATION, TAIL, Graph, Vocabulary
from fkge.graph.source import opened
from fkge.progress import SILENT, Progress

Ids: TypeAlias = npt.NDArray[np.int64]
Link: TypeAlias = tuple[str, str]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, eq=False)
class Common:
    """One owner's side of an alignment with one partner.

    Attributes:
        entities: (n,) int64 ids of this owner's graph, each once, in the order agreed on. Read-only.
        relations: (m,) int64, likewise.

    Raises:
        SettingsError: an id is negative or comes twice.
    """

    entities: Ids
    relations: Ids

    def __post_init__(self) -> None:
        for field in ("entities", "relations"):
            ids = np.array(getattr(self, field), np.int64).reshape(-1)
            if len(np.unique(ids)) < len(ids) or (len(ids) and ids.min() < 0):
                raise SettingsError(f"{field} of an alignment must be ids ≥ 0, each once; resolve rival links first")
            ids.flags.writeable = False
            object.__setattr__(self, field, ids)

    def __len__(self) -> int:
        """Return the number of aligned rows of both kinds."""
        return len(self.entities) + len(self.relations)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Common) and all(np.array_equal(self.ids(k), other.ids(k)) for k in KINDS)

    __hash__ = None  # type: ignore[assignment]

    def ids(self, kind: Kind) -> Ids:
        """Return the aligned rows of one kind, (n,) int64."""
        return self.entities if kind == "entity" else self.relations

    def only(self, kinds: Collection[Kind]) -> Common:
        """Return this alignment without the kinds that are not named."""
        entities, relations = (self.ids(kind)[: None if kind in kinds else 0] for kind in KINDS)
        return Common(entities, relations)

    def sample(self, ratio: float, seed: int) -> Common:
        """Return a random share of the rows of each kind, at least one where there are any, in the order they had.

        The positions follow from the numbers of rows and `seed` alone, so both owners keep the same ones. With one
        seed a smaller share is a subset of a larger one.

        Args:
            ratio: the share, above 0 and at most 1.
            seed: at least 0 and below 2⁶⁴, the same at both owners.

        Raises:
            SettingsError: `ratio` or `seed` is out of its range.
        """
        if not 0 < ratio <= 1:
            raise SettingsError(f"ratio is {ratio:g}; it must be above 0 and at most 1 (`only` leaves out a kind)")

        def some(kind: Kind) -> Ids:
            ids = self.ids(kind)
            keep = min(len(ids), max(1, round(ratio * len(ids))))
            order = np.argsort(random_bits(seed, KINDS.index(kind), len(ids)), kind="stable")
            return ids[np.sort(order[:keep])]

        return Common(some("entity"), some("relation"))


Pairs: TypeAlias = Mapping[tuple[str, str], tuple[Common, Common]]
"""The alignments of a federation: by the names of two owners, each pair once, both sides."""


def random_bits(seed: int, stream: int, count: int) -> npt.NDArray[np.uint64]:
    """Draw (count,) uint64 of raw Philox bits, which every version of numpy draws alike: owners must agree.

    Args:
        seed: at least 0 and below 2⁶⁴ (`SettingsError`).
        stream: separates draws under one seed.
        count: how many numbers.
    """
    if not 0 <= seed < 2**64:
        raise SettingsError(f"seed is {seed}; it must be at least 0 and below 2⁶⁴")
    key = np.array([seed, stream], np.uint64)
    return np.asarray(np.random.Philox(key=key).random_raw(count), np.uint64).reshape(-1)


def find_common(
    a: Graph, b: Graph, entity_links: Iterable[Link] = (), relation_links: Iterable[Link] = ()
) -> tuple[Common, Common]:
    """Return the two sides of the alignment that links between labels give.

    Links that name a label its graph does not have are dropped. Of links that meet in one label, `one_to_one` keeps
    some, by the labels alone. So the pairs follow from the links and the labels, and tell nothing about triples.

    Args:
        a, b: the graphs.
        entity_links, relation_links: pairs (label in a, label in b); repeated pairs count once.

    Returns:
        The side of `a` and the side of `b`.
    """
    entities = _resolve(a.entities, b.entities, entity_links)
    relations = _resolve(a.relations, b.relations, relation_links)
    return Common(entities[:, 0], relations[:, 0]), Common(entities[:, 1], relations[:, 1])


def one_to_one(links: Iterable[Link]) -> list[Link]:
    """Return links that share no end: each is kept if neither of its ends is taken yet, in the order of their labels.

    That is by the smaller of a link's two labels, then by the larger, whichever side comes first. Mirror images, (x, y)
    and (y, x), tie: the one with the smaller label in front comes first, so owners that number pairs by their place in
    this list have to agree on whose labels come first. Triples are not consulted: a rule by how often a label occurs
    would keep better links, and tell the partner something about them.
    """
    kept, left, right = [], set[str](), set[str]()
    for x, y in sorted(set(links), key=lambda link: (*sorted(link), link[0])):
        if x not in left and y not in right:
            left.add(x)
            right.add(y)
            kept.append((x, y))
    return kept


def degrees(graph: Graph, kind: Kind) -> Ids:
    """Return the number of training triples of each entity, or relation, (rows,) int64; a loop counts twice."""
    labels, columns = (graph.entities, [HEAD, TAIL]) if kind == "entity" else (graph.relations, [RELATION])
    return np.bincount(graph.train[:, columns].reshape(-1), minlength=len(labels))


def _resolve(a: Vocabulary, b: Vocabulary, links: Iterable[Link]) -> Ids:
    """Return ids (n, 2) of the links kept, in the order agreed on."""
    kept = one_to_one((x, y) for x, y in links if x in a and y in b)
    return np.array([(a.id(x), b.id(y)) for x, y in kept], np.int64).reshape(-1, 2)


def read_links(path: str | Path, progress: Progress = SILENT) -> list[Link]:
    """Read links from a file: a label of one graph, a tab, a label of the other. May be compressed (``.gz``).

    Raises:
        GraphError: a line is not two labels.
    """
    path = Path(path)
    links = []
    with opened(path, progress) as source:
        for number, line in source.lines():
            cells = line.split("\t")
            if len(cells) == 2 and all(cells):
                links.append((cells[0], cells[1]))
            elif line.strip():
                problem = f"expected two labels with a tab between them, got {len([c for c in cells if c])}"
                advice = "Each line is a label of one graph, a tab and a label of the other."
                raise GraphError(path, problem, advice, number)
    return links


def same_labels(a: Graph, b: Graph) -> tuple[list[Link], list[Link]]:
    """Return links between equal labels, of entities and of relations: ``find_common(a, b, *same_labels(a, b))``."""
    entities = [(label, label) for label in a.entities if label in b.entities]
    return entities, [(label, label) for label in a.relations if label in b.relations]
