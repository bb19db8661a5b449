"""Models that score a triple, from TransE to RotatE. A model is one small class; nothing here knows how it is trained.

Every model is written in three steps, which training, ranking and the closed-form kernels share:

1. `project`: an entity as a relation sees it (identity unless the model has projections);
2. `tail_query`, `head_query`: the point at which the missing tail, or head, is expected;
3. `similarity`: how near a candidate is to that point. Higher is better, so distances are negated.

    score(h, r, t) = similarity(tail_query(h', r), t') = similarity(head_query(t', r), h')

with h' = project(h, r). A query is computed once and compared with any number of candidates.

Formulas of TransE, TransH, TransR, TransD and RotatE are OpenKE's, with its norm flag (`normalize`: entity
and relation vectors are scaled to unit length before they are compared, after projection).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fkge.errors import SettingsError, UnknownLabelError

Kind = Literal["entity", "relation"]

Comparison = Literal["l1", "l2", "dot", "modulus", "own"]
"""How a query q is compared with a candidate c: −Σ|q − c|, −‖q − c‖, Σ q c, −Σ|q − c| of complex numbers, other."""


@dataclass(frozen=True)
class Table:
    """One table of parameters: a row per entity or per relation.

    Attributes:
        kind: what a row belongs to.
        width: numbers per row.
        init: ``uniform`` in ±bound, ``phase`` in ±π, ``identity`` for a flattened (rows, columns) matrix.
        bound: half-width of the uniform distribution; None stands for the run's setting.
        shape: rows and columns of an ``identity`` matrix.
        rate: factor on the learning rate.
        turns: what becomes of it when the entities' space is turned by W: a ``vector`` x of that space becomes x W,
            a ``matrix`` M from that space WᵀM, and what is ``elsewhere`` stays.
        complex: a row is complex numbers: all real parts, then all imaginary ones.
    """

    kind: Kind
    width: int
    init: Literal["uniform", "phase", "identity"] = "uniform"
    bound: float | None = None
    shape: tuple[int, int] = (0, 0)
    rate: float = 1.0
    turns: Literal["vector", "matrix", "elsewhere"] = "vector"
    complex: bool = False

    def draw(self, rows: int, bound: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """Return initial rows, (rows, width). Drawn on the CPU in float64: every device and dtype starts alike.

        Args:
            rows, dtype: how many, of which type.
            bound: half-width of the uniform distribution, unless the table states one; generator: draws them.
        """
        if self.init == "identity":
            return torch.eye(*self.shape, dtype=dtype).reshape(1, -1).repeat(rows, 1)
        half = math.pi if self.init == "phase" else (bound if self.bound is None else self.bound)
        out = torch.empty(rows, self.width, dtype=dtype)
        for part in out.split(4096):  # the float64 numbers of a large table at once would be the peak of a run
            unit = torch.rand(len(part), self.width, generator=generator, dtype=torch.float64)
            part.copy_((2 * unit - 1) * half)
        return out

    def turned(self, rows: Tensor, w: Tensor) -> Tensor:
        """Return `rows` (n, width) as they stand in a space turned by `w`."""
        if self.turns == "elsewhere":
            return rows
        if self.turns == "vector":
            return rows @ w
        return (w.T @ rows.reshape(-1, *self.shape)).reshape(rows.shape)

    def levelled(self, rows: Tensor) -> Tensor:
        """Return `rows` (n, width), each number replaced by the mean over those that `turned` mixes it with."""
        if self.turns == "elsewhere":
            return rows
        if self.turns == "vector":
            return rows.mean(1, keepdim=True).expand_as(rows)
        matrices = rows.reshape(-1, *self.shape)
        return matrices.mean(1, keepdim=True).expand_as(matrices).reshape(rows.shape)


class Relations:
    """Relation rows for a batch: one copy of each, and an index that spreads them out.

    Attributes:
        unique: rows of each relation table, (u, width).
        index: (groups, 1) or (groups, size) positions in `unique`, ascending along the groups if the model projects.
    """

    def __init__(self, unique: Mapping[str, Tensor], index: Tensor) -> None:
        self.unique = unique
        self.index = index

    def __getitem__(self, name: str) -> Tensor:
        """Return rows spread out: `index.shape` + (width,)."""
        return self.unique[name][self.index]


Rows = Mapping[str, Tensor]


class Model(ABC):
    """A knowledge-graph embedding model: its tables, and how they score a triple.

    Args:
        dim: size of an entity vector (complex numbers count once).
        relation_dim: size of a relation vector where a model lets the two differ; `dim` if None.
        norm: 1 or 2, the distance of translational models.
        normalize: OpenKE's norm flag.
    """

    name: str
    projects: ClassVar[bool] = False
    """Whether an entity looks different to each relation."""
    kernel: str | None = None
    """The closed-form CPU kernel that computes this model, if there is one (see `kernels`)."""
    comparison: Comparison = "own"
    """Ranking has fast ways for all but ``own``, which needs `similarity` to be written out."""
    turns: ClassVar[bool] = False
    """Whether the space of entities can be turned, under a distance that allows it (see `fixed_by`)."""

    def __init_subclass__(cls) -> None:
        """Reset what a subclass must not inherit: kernel, comparison and rotation invariance.

        A kernel computes one class; a new `similarity` is no known comparison; a new formula may know its axes.
        """
        super().__init_subclass__()
        if "kernel" not in cls.__dict__:
            cls.kernel = None
        if "turns" not in cls.__dict__:
            cls.turns = False
        if "similarity" in cls.__dict__ and "comparison" not in cls.__dict__:
            cls.comparison = "own"

    def __init__(self, dim: int, *, relation_dim: int | None = None, norm: int = 1, normalize: bool = False) -> None:
        if dim < 1 or (relation_dim is not None and relation_dim < 1):
            raise SettingsError(f"dim and relation_dim must be at least 1, got {dim} and {relation_dim}")
        if norm not in (1, 2):
            raise SettingsError(f"norm must be 1 or 2, got {norm}")
        self.dim = dim
        self.relation_dim = dim if relation_dim is None else relation_dim
        self.norm = norm
        self.normalize = normalize
        if self.relation_dim != dim and not self.projects:
            raise SettingsError(f"{self.name} needs relation_dim = dim; only TransR and TransD let them differ")

    def tables(self) -> dict[str, Table]:
        """Return the model's tables; ``entity`` and ``relation`` are the ones peers exchange."""
        return {"entity": Table("entity", self.dim), "relation": Table("relation", self.relation_dim)}

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        """Return entities (groups, m, width) as the relation of their group sees them, (groups, m, p)."""
        return entities["entity"]

    @abstractmethod
    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        """Return the point at which the tail is expected, (..., p)."""

    @abstractmethod
    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        """Return the point at which the head is expected, (..., p)."""

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor | None:
        """Return the vectors (..., width) whose dot products with relations' rows are the scores; None if none are."""
        return None

    @property
    def width(self) -> int:
        """p, the numbers in a projected entity and in a query."""
        return self.tables()["entity"].width

    @property
    def rotation_invariant(self) -> bool:
        """Whether all tables may be rotated together without changing a score, as `Tables.rotate` does."""
        return self.fixed_by() is None

    def fixed_by(self) -> str | None:
        """Return, in words, why the space of entities cannot be turned; None if it can."""
        return None if self.turns else "its scores compare coordinate with coordinate"

    def similarity(self, query: Tensor, candidates: Tensor) -> Tensor:
        """Return the scores (..., s, k) of all pairs of queries (..., s, p) and candidates (..., k, p)."""
        if self.comparison == "dot":
            return query @ candidates.mT
        if self.comparison == "modulus":
            difference = query.unsqueeze(-2) - candidates.unsqueeze(-3)
            return -_length(difference.unflatten(-1, (2, -1)), -2).sum(-1)
        if self.comparison == "own":
            raise NotImplementedError(f"{self.name} states no comparison, so it must define similarity")
        return -distances(query, candidates, 1 if self.comparison == "l1" else 2)

    def score(self, head: Rows, relations: Relations, tail: Rows) -> Tensor:
        """Return the scores of n triples, (n,).

        Args:
            head, tail: rows (n, 1, width) of each entity table; relations: of the triples.
        """
        query = self.tail_query(self.project(head, relations), relations)
        return self.similarity(query, self.project(tail, relations)).reshape(-1)


def distances(query: Tensor, candidates: Tensor, norm: int) -> Tensor:
    """Return the norms of all differences, (..., s, k).

    Args:
        query, candidates: (..., s, p) and (..., k, p); norm: 1 or 2.
    """
    if query.shape[-2] == 1 or candidates.shape[-2] == 1:
        difference = query.unsqueeze(-2) - candidates.unsqueeze(-3)
        return difference.abs().sum(-1) if norm == 1 else _length(difference, -1)
    return torch.cdist(query, candidates, p=float(norm))


def _length(x: Tensor, dim: int) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=dim)
    return length


class Translation(Model):
    """The base of the Trans* family, −‖h' + r − t'‖; see `Model` for the arguments."""

    comparison: Comparison = "l1"

    def __init__(self, dim: int, *, relation_dim: int | None = None, norm: int = 1, normalize: bool = False) -> None:
        super().__init__(dim, relation_dim=relation_dim, norm=norm, normalize=normalize)
        if norm == 2 and self.comparison == "l1":
            self.comparison = "l2"
        if norm == 2 and self.kernel == "l1":
            self.kernel = "l2"
        if normalize or (self.kernel == "transd" and self.relation_dim != dim):
            self.kernel = None

    @property
    def width(self) -> int:
        return self.relation_dim

    def unit(self, rows: Tensor) -> Tensor:
        return F.normalize(rows, dim=-1) if self.normalize else rows

    def fixed_by(self) -> str | None:
        if self.turns and self.comparison != "l2":
            return "its L1 distance depends on the axes (train it with norm=2)"
        return super().fixed_by()

    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        return head + self.unit(relations["relation"])

    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        return tail - self.unit(relations["relation"])


class TransE(Translation):
    """Bordes et al. 2013: −‖h + r − t‖."""

    name = "TransE"
    kernel = "l1"
    turns = True

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        return self.unit(entities["entity"])


class TransH(Translation):
    """Wang et al. 2014: entities are projected on the relation's hyperplane with normal w."""

    name = "TransH"
    kernel = "transh"
    projects = True
    turns = True

    def tables(self) -> dict[str, Table]:
        return super().tables() | {"normal": Table("relation", self.dim, bound=1.0)}

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        e = entities["entity"]
        w = F.normalize(relations["normal"], dim=-1)
        return self.unit(e - (e * w).sum(-1, keepdim=True) * w)


class TransR(Translation):
    """Lin et al. 2015: e' = e M_r, starting from the identity as OpenKE does."""

    name = "TransR"
    kernel = "transr"
    projects = True
    turns = True

    def fixed_by(self) -> str | None:
        """Distances are taken in the relations' space, which stays: entities turn under either norm."""
        return Model.fixed_by(self)

    def tables(self) -> dict[str, Table]:
        shape = (self.dim, self.relation_dim)
        # A projected coordinate moves by the steps of `dim` numbers at once, so each of them is 1/dim as long.
        # At full length the matrices shake the space faster than entities can follow.
        rate = 1 / self.dim
        return {
            "entity": Table("entity", self.dim),
            "relation": Table("relation", self.relation_dim, turns="elsewhere"),
            "matrix": Table(
                "relation", self.dim * self.relation_dim, init="identity", shape=shape, rate=rate, turns="matrix"
            ),
        }

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        e = entities["entity"]
        matrices = relations.unique["matrix"].reshape(-1, self.dim, self.relation_dim)
        groups = relations.index.reshape(-1)
        if e.is_cuda or len(groups) <= 4 * len(matrices):
            return self.unit(torch.bmm(e, matrices[groups]))
        # Many groups to a relation: a copy of its matrix for each would cost more than the product. They come
        # sorted by relation, so each relation's rows are one slice: one product per relation.
        lengths = (torch.bincount(groups, minlength=len(matrices)) * e.shape[1]).tolist()
        parts = e.reshape(-1, self.dim).split(lengths)
        out = torch.cat([part @ matrix for part, matrix in zip(parts, matrices.unbind(), strict=True)])
        return self.unit(out.reshape(*e.shape[:-1], self.relation_dim))


class TransD(Translation):
    """Ji et al. 2015: e' = e + (e_p · e) r_p, always scaled to unit length as in OpenKE."""

    name = "TransD"
    kernel = "transd"
    projects = True
    turns = True

    def fixed_by(self) -> str | None:
        if self.relation_dim != self.dim:
            return f"it cuts or pads entities from dim={self.dim} to relation_dim={self.relation_dim} by coordinate"
        return super().fixed_by()

    def tables(self) -> dict[str, Table]:
        entity, relation = Table("entity", self.dim), Table("relation", self.relation_dim)
        return super().tables() | {"entity_transfer": entity, "relation_transfer": relation}

    def project(self, entities: Rows, relations: Relations) -> Tensor:
        e = entities["entity"]
        along = (e * entities["entity_transfer"]).sum(-1, keepdim=True)
        resized = F.pad(e, (0, self.relation_dim - self.dim))  # a negative pad narrows
        return F.normalize(resized + along * relations["relation_transfer"], dim=-1)


class DistMult(Model):
    """Yang et al. 2015: Σ h r t."""

    name = "DistMult"
    kernel = "distmult"
    comparison = "dot"

    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        return head * relations["relation"]

    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        return tail * relations["relation"]

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        return head * tail


def _complex_product(a: Tensor, b_re: Tensor, b_im: Tensor) -> Tensor:
    re, im = a.chunk(2, dim=-1)
    return torch.cat([re * b_re - im * b_im, re * b_im + im * b_re], dim=-1)


class ComplEx(Model):
    """Trouillon et al. 2016: Re Σ h r conj(t). A row is all real parts, then all imaginary parts."""

    name = "ComplEx"
    kernel = "complex"
    comparison = "dot"

    def tables(self) -> dict[str, Table]:
        return {
            "entity": Table("entity", 2 * self.dim, complex=True),
            "relation": Table("relation", 2 * self.dim, complex=True),
        }

    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        re, im = relations["relation"].chunk(2, dim=-1)
        return _complex_product(head, re, im)

    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        re, im = relations["relation"].chunk(2, dim=-1)
        return _complex_product(tail, re, -im)

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        re, im = head.chunk(2, dim=-1)
        return _complex_product(tail, re, -im)


class RotatE(Model):
    """Sun et al. 2019: −Σ |h e^{iθ} − t|. The relation row holds the phases θ themselves."""

    name = "RotatE"
    kernel = "rotate"
    comparison = "modulus"

    def tables(self) -> dict[str, Table]:
        return {
            "entity": Table("entity", 2 * self.dim, complex=True),
            "relation": Table("relation", self.dim, init="phase"),
        }

    def tail_query(self, head: Tensor, relations: Relations) -> Tensor:
        phase = relations["relation"]
        return _complex_product(head, torch.cos(phase), torch.sin(phase))

    def head_query(self, tail: Tensor, relations: Relations) -> Tensor:
        phase = relations["relation"]
        return _complex_product(tail, torch.cos(phase), -torch.sin(phase))


MODELS: dict[str, type[Model]] = {cls.name: cls for cls in (TransE, TransH, TransR, TransD, DistMult, ComplEx, RotatE)}


def model_class(name: str) -> type[Model]:
    """Return the model called `name`, whatever its case.

    Raises:
        UnknownLabelError: there is none; names the nearest ones.
    """
    for known, cls in MODELS.items():
        if known.lower() == name.lower():
            return cls
    raise UnknownLabelError("model", name, MODELS)
