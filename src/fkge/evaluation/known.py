"""Known facts: completions of a (head, relation) or (relation, tail), and the types they imply."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed.batches import Completions, Facts
from fkge.graph.graph import Graph

Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")


class Known:
    """Facts indexed both ways.

    Args:
        facts: (n, 3) head, relation, tail, of all splits.
        entities, relations: how many there are.
    """

    def __init__(self, facts: npt.NDArray[Any], entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        indexed = Facts(_as_tensor(facts), entities, relations)
        self._of: dict[Side, Completions] = {"tail": indexed.tails, "head": indexed.heads}

    @classmethod
    def of(cls, graph: Graph) -> Known:
        """Return everything `graph` states, in any split."""
        return cls(graph.facts, len(graph.entities), len(graph.relations))

    def values(self, side: Side) -> Tensor:
        """Return all completions on `side`, list after list."""
        return self._of[side].completions

    def spans(self, side: Side, fixed: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the beginnings and ends, in `values(side)`, of the completions of (fixed, relation), (n,) each.

        Args:
            side: the missing side.
            fixed: (n,) int64 kept entities.
            relation: (n,) int64.
        """
        first, last = self._of[side].spans(fixed * self.relations + relation)
        # Nothing is known of a relation added after the graph's own; its key would be another pair's.
        return first, torch.where(relation < self.relations, last, first)


class TypeConstraint:
    """OpenKE's type constraint: a relation's candidates on a side are the entities seen there in any fact."""

    def __init__(self, facts: npt.NDArray[Any], entities: int) -> None:
        head, relation, tail = _as_tensor(facts).unbind(1)
        self._of: dict[Side, Completions] = {
            "tail": Completions(relation, tail, entities),
            "head": Completions(relation, head, entities),
        }

    @classmethod
    def of(cls, graph: Graph) -> TypeConstraint:
        """Return the constraint that follows from all splits of `graph`."""
        return cls(graph.facts, len(graph.entities))

    def candidates(self, side: Side, relation: int) -> Tensor:
        """Return entities that may stand on `side` of `relation`, ascending."""
        first, last = self._of[side].spans(torch.tensor([relation]))
        return self._of[side].completions[int(first) : int(last)]


def _as_tensor(triples: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(triples, np.int64).reshape(-1, 3))
