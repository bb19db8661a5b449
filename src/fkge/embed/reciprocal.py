"""Reciprocal relations (Lacroix et al. 2018): each relation has a second row, its inverse, for questions after heads.

    score of a tail   similarity(tail_query(h, r), t)
    score of a head   similarity(tail_query(t, r⁻¹), h)

The inverse rows are tables of their own (``inverse`` in addition to ``relation``), so that growing,
snapshots, optimiser state and exchange treat them like any other. The score of a triple is the mean of the two.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from fkge.embed.models import Kind, Model, Relations, Rows, Table
from fkge.errors import SettingsError

INVERSE = "inverse"


def inverse_of(table: str) -> str:
    """Return the table with the inverse rows of a relation table."""
    return INVERSE if table == "relation" else f"{INVERSE}_{table}"


def exchanged(kind: Kind, names: Collection[str]) -> list[str]:
    """Return those tables of `names` whose rows, side by side, are the vectors of `kind` that peers see."""
    return [name for name in (kind, inverse_of(kind)) if name in names]


class _Inverses(Relations):
    """The inverse rows of relations, under the names of the relations' own."""

    def __init__(self, relations: Relations) -> None:
        self._relations = relations

    def __getitem__(self, name: str) -> Tensor:
        return self._relations[inverse_of(name)]


class Reciprocal(Model):
    """A model with a second set of relation rows.

    Args:
        base: a model that does not project entities.

    Raises:
        SettingsError: `base` projects: then a candidate would look different to a relation and to its inverse.
    """

    name = "Reciprocal"

    def __init__(self, base: Model) -> None:
        if base.projects:
            raise SettingsError(f"reciprocal: {base.name} projects entities by relation; leave reciprocal off")
        super().__init__(base.dim, relation_dim=base.relation_dim, norm=base.norm, normalize=base.normalize)
        self.base = base
        self.name = base.name
        self.comparison = base.comparison

    def tables(self) -> dict[str, Table]:
        tables = self.base.tables()
        return tables | {inverse_of(name): spec for name, spec in tables.items() if spec.kind == "relation"}

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        return self.base.project(entities, relations)

    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        return self.base.tail_query(head, relations)

    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        return self.base.tail_query(tail, _Inverses(relations))

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor | None:
        return self.base.relation_query(head, tail)

    def fixed_by(self) -> str | None:
        return self.base.fixed_by()

    def similarity(self, query: Tensor, candidates: Tensor) -> Tensor:
        return self.base.similarity(query, candidates)

    def score(self, head: Rows, relations: Relations, tail: Rows) -> Tensor:
        h, t = self.project(head, relations), self.project(tail, relations)
        after_tail = self.similarity(self.tail_query(h, relations), t)
        after_head = self.similarity(self.head_query(t, relations), h)
        return ((after_tail + after_head) / 2).reshape(-1)
