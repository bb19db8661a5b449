"""What is known to be true: completions of a (head, relation) or (relation, tail), and the types they imply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fkge.graph.graph import HEAD, RELATION, TAIL, Graph

Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Lists:
    """A sorted list of entities for each key: `keys` (k,) ascending, `values[starts[i] : starts[i + 1]]`."""

    keys: Ids
    starts: Ids
    values: Ids

    @classmethod
    def build(cls, key: Ids, value: Ids, values: int) -> _Lists:
        both = np.unique(key * values + value)
        keys, first = np.unique(both // values, return_index=True)
        return cls(keys, np.append(first, len(both)), both % values)

    def spans(self, key: Ids) -> tuple[Ids, Ids]:
        """First and last + 1 place in `values` of each key's list, (n,) each; empty for a key without one."""
        if len(self.keys) == 0:
            nothing = np.zeros(len(key), np.int64)
            return nothing, nothing
        at = np.searchsorted(self.keys, key)
        at[at == len(self.keys)] = 0
        found = self.keys[at] == key
        first = self.starts[at]
        return first, np.where(found, self.starts[at + 1], first)


class Known:
    """Facts indexed both ways.

    Args:
        facts: (n, 3) head, relation, tail, of all splits.
        entities, relations: how many there are.
    """

    def __init__(self, facts: npt.NDArray[Any], entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        triples = np.asarray(facts, dtype=np.int64).reshape(-1, 3)
        head, relation, tail = triples[:, HEAD], triples[:, RELATION], triples[:, TAIL]
        self._of: dict[Side, _Lists] = {
            "tail": _Lists.build(head * relations + relation, tail, entities),
            "head": _Lists.build(tail * relations + relation, head, entities),
        }

    @classmethod
    def of(cls, graph: Graph) -> Known:
        """Everything `graph` states, in any split."""
        return cls(graph.facts, len(graph.entities), len(graph.relations))

    def values(self, side: Side) -> Ids:
        """All completions on `side`, list after list."""
        return self._of[side].values

    def spans(self, side: Side, fixed: Ids, relation: Ids) -> tuple[Ids, Ids]:
        """Where in `values(side)` the completions of (fixed, relation) begin and end, (n,) each.

        Args:
            side: the missing side.
            fixed: (n,) int64 kept entities.
            relation: (n,) int64.
        """
        first, last = self._of[side].spans(fixed * self.relations + relation)
        # Nothing is known of a relation added after the graph's own; its key would be another pair's.
        return first, np.where(relation < self.relations, last, first)

    def __contains__(self, triple: tuple[int, int, int]) -> bool:
        return bool(self.contains(np.array([triple]))[0])

    def contains(self, triples: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of the triples (n, 3) are facts, (n,)."""
        triples = np.asarray(triples, np.int64).reshape(-1, 3)
        lists = self._of["tail"]
        if len(lists.values) == 0:
            return np.zeros(len(triples), bool)
        # In this order, the facts are sorted.
        facts = np.repeat(lists.keys, np.diff(lists.starts)) * self.entities + lists.values
        asked = (triples[:, HEAD] * self.relations + triples[:, RELATION]) * self.entities + triples[:, TAIL]
        at = np.searchsorted(facts, asked).clip(max=len(facts) - 1)
        # Nothing is known of rows added after the graph's own; the key of their triple would be another triple's.
        known = (triples[:, RELATION] < self.relations) & (triples[:, TAIL] < self.entities)
        found: npt.NDArray[np.bool_] = known & (facts[at] == asked)
        return found


class TypeConstraint:
    """OpenKE's type constraint: a relation's candidates on a side are the entities seen there.

    Args:
        facts: (n, 3) head, relation, tail, of all splits.
        entities: how many there are.
    """

    def __init__(self, facts: npt.NDArray[Any], entities: int) -> None:
        triples = np.asarray(facts, dtype=np.int64).reshape(-1, 3)
        self._of: dict[Side, _Lists] = {
            "tail": _Lists.build(triples[:, RELATION], triples[:, TAIL], entities),
            "head": _Lists.build(triples[:, RELATION], triples[:, HEAD], entities),
        }

    @classmethod
    def of(cls, graph: Graph) -> TypeConstraint:
        """What `graph` implies in all its splits."""
        return cls(graph.facts, len(graph.entities))

    def candidates(self, side: Side, relation: int) -> Ids:
        """Entities that may stand on `side` of `relation`, ascending."""
        lists = self._of[side]
        first, last = lists.spans(np.array([relation], np.int64))
        return lists.values[first[0] : last[0]]
