"""Which rows of two owners stand for the same thing.

An alignment is a pair of lists of equal length, one at each owner: position k of both is the same thing. An owner
holds its own list only (`Common`), so it speaks of "the k-th thing we share" and never of the other's ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from fkge.embed.models import Kind as Kind
from fkge.errors import GraphError, SettingsError
from fkge.graph.graph import HEAD, RELATION, TAIL, Graph
from fkge.graph.source import opened
from fkge.trace import SILENT, Progress

Ids: TypeAlias = npt.NDArray[np.int64]
Link: TypeAlias = tuple[str, str]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Dropped:
    """Links that did not become aligned rows, entities and relations together.

    Attributes:
        unknown: an end is a label that its graph does not have.
        rivals: an end was taken by a better link (see `find_common`).
    """

    unknown: int = 0
    rivals: int = 0


@dataclass(frozen=True, eq=False)
class Common:
    """One owner's side of an alignment with one partner.

    Attributes:
        entities: (n,) int64 ids of this owner's graph, each once, in the order agreed on. Read-only.
        relations: (m,) int64, likewise.
        dropped: what was lost on the way, where that is known.
    """

    entities: Ids
    relations: Ids
    dropped: Dropped = Dropped()

    def __post_init__(self) -> None:
        for field in ("entities", "relations"):
            ids = np.array(getattr(self, field), np.int64).reshape(-1)
            if len(np.unique(ids)) < len(ids) or (len(ids) and ids.min() < 0):
                raise SettingsError(f"{field} of an alignment must be ids ≥ 0, each once; resolve rival links first")
            ids.flags.writeable = False
            object.__setattr__(self, field, ids)

    def __len__(self) -> int:
        """Aligned rows of both kinds."""
        return len(self.entities) + len(self.relations)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Common) and all(np.array_equal(self.ids(k), other.ids(k)) for k in KINDS)

    __hash__ = None  # type: ignore[assignment]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that have an aligned row."""
        return tuple(kind for kind in KINDS if len(self.ids(kind)))

    def ids(self, kind: Kind) -> Ids:
        """The aligned rows of one kind."""
        return self.entities if kind == "entity" else self.relations

    def only(self, kinds: Collection[Kind]) -> Common:
        """This alignment without the kinds that are not named."""
        none = np.empty(0, np.int64)
        return replace(
            self,
            entities=self.entities if "entity" in kinds else none,
            relations=self.relations if "relation" in kinds else none,
        )

    def sample(self, ratio: float, seed: int) -> Common:
        """A random share of the rows of each kind, at least one where there are any, in the order they had.

        The positions follow from the numbers of rows and `seed` alone, so both owners keep the same ones. With one
        seed a smaller share lies within a larger one: what changes from share to share is how much, not also which.
        """
        if not 0 < ratio <= 1:
            raise SettingsError(f"ratio is {ratio:g}; it must be above 0 and at most 1 (`only` leaves out a kind)")

        def some(kind: Kind) -> Ids:
            ids = self.ids(kind)
            keep = min(len(ids), max(1, round(ratio * len(ids))))
            return ids[np.sort(_order(kind, len(ids), seed)[:keep])]

        return replace(self, entities=some("entity"), relations=some("relation"))


Pairs: TypeAlias = Mapping[tuple[str, str], tuple[Common, Common]]
"""The alignments of a federation: by the names of two owners, each pair once, the side of either."""


def _order(kind: Kind, rows: int, seed: int) -> Ids:
    """A random order of `rows` positions. Of raw bits, which every version of numpy draws alike: owners must agree."""
    if not 0 <= seed < 2**64:
        raise SettingsError(f"seed is {seed}; it must be at least 0 and below 2⁶⁴")
    bits = np.random.Philox(key=np.array([seed, KINDS.index(kind)], np.uint64)).random_raw(rows)
    return np.argsort(np.asarray(bits, np.uint64), kind="stable")


def find_common(
    a: Graph, b: Graph, entity_links: Iterable[Link] = (), relation_links: Iterable[Link] = ()
) -> tuple[Common, Common]:
    """The two sides of the alignment that links between labels give.

    Links that name a label its graph does not have are dropped. Where several links meet in one label, they are
    taken in this order, and each is kept if neither of its ends is taken yet:

    1. the larger the smaller of its two degrees (training triples that a label stands in): what a row can pass on
       is limited by the end that has learned less;
    2. the larger the other degree;
    3. by the two labels, smaller one first.

    So the pairs do not depend on the order of the links, nor on which graph comes first. They are numbered by their
    labels, smaller one first; both owners number them alike.

    Args:
        a, b: the graphs.
        entity_links, relation_links: pairs (label in a, label in b); repeated pairs count once.

    Returns:
        The side of `a` and the side of `b`. `Common.dropped` counts what was left out.
    """
    a_first = a.fingerprint <= b.fingerprint
    entities, entities_lost = _resolve(_Side(a, "entity"), _Side(b, "entity"), entity_links, a_first)
    relations, relations_lost = _resolve(_Side(a, "relation"), _Side(b, "relation"), relation_links, a_first)
    lost = Dropped(entities_lost.unknown + relations_lost.unknown, entities_lost.rivals + relations_lost.rivals)
    return Common(entities[:, 0], relations[:, 0], lost), Common(entities[:, 1], relations[:, 1], lost)


class _Side:
    """Labels of one kind in one graph, and their degrees."""

    def __init__(self, graph: Graph, kind: Kind) -> None:
        self.labels = graph.entities if kind == "entity" else graph.relations
        self.degrees = degrees(graph, kind).tolist()


def degrees(graph: Graph, kind: Kind) -> Ids:
    """Training triples that each entity, or relation, stands in, (rows,); a loop counts twice."""
    labels, columns = (graph.entities, [HEAD, TAIL]) if kind == "entity" else (graph.relations, [RELATION])
    return np.bincount(graph.train[:, columns].reshape(-1), minlength=len(labels))


def _resolve(a: _Side, b: _Side, links: Iterable[Link], a_first: bool) -> tuple[Ids, Dropped]:
    """Ids (n, 2) of the links kept, in the order agreed on."""
    distinct = set(links)
    known = [(a.labels.id(x), b.labels.id(y)) for x, y in distinct if x in a.labels and y in b.labels]

    def names(pair: tuple[int, int]) -> list[str]:
        return sorted((a.labels[pair[0]], b.labels[pair[1]]))

    def strength(pair: tuple[int, int]) -> tuple[int, int]:
        low, high = sorted((a.degrees[pair[0]], b.degrees[pair[1]]))
        return -low, -high

    # Two links that tie in all of this are mirror images, (x, y) and (y, x). They share no end, so either may come
    # first here; they are numbered, below, as the owner whose graph has the smaller fingerprint sorts them.
    kept, taken_a, taken_b = [], set[int](), set[int]()
    for i, j in sorted(known, key=lambda pair: (strength(pair), names(pair))):
        if i not in taken_a and j not in taken_b:
            taken_a.add(i)
            taken_b.add(j)
            kept.append((i, j))
    kept.sort(key=lambda pair: (names(pair), pair[0] if a_first else pair[1]))
    return np.array(kept, np.int64).reshape(-1, 2), Dropped(len(distinct) - len(known), len(known) - len(kept))


def read_links(path: str | Path, progress: Progress = SILENT) -> list[Link]:
    """Links from a file: a label of one graph, a tab, a label of the other. May be packed (``.gz``)."""
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
    """Links between equal labels, of entities and of relations: ``find_common(a, b, *same_labels(a, b))``."""
    entities = [(label, label) for label in a.entities if label in b.entities]
    return entities, [(label, label) for label in a.relations if label in b.relations]
