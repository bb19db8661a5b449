"""Link prediction: the rank of the true head, or tail, among all entities.

Filtered (other known answers do not compete) or raw, both sides, under OpenKE's type constraint or not. Ties
are kept apart: a rank is optimistic if a tie counts for the true triple, pessimistic if against, and realistic
in the middle. Scores that are not numbers always count against the true triple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import Tables
from fkge.errors import SettingsError
from fkge.evaluation.counting import Counter, OwnCounter, Questions, TorchCounter
from fkge.evaluation.geometry import Geometry, Kind, geometry_of
from fkge.evaluation.known import SIDES, Known, Side, TypeConstraint
from fkge.evaluation.scoring import MEMORY, as_ids, entity_rows, relation_rows
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.progress import SILENT, Progress, Task

Ties = Literal["realistic", "optimistic", "pessimistic"]


@dataclass(frozen=True)
class Ranks:
    """Ranks of n triples, (n, 2), 1 the best. Column 0 is the head's rank, column 1 the tail's."""

    optimistic: npt.NDArray[np.int64]
    pessimistic: npt.NDArray[np.int64]

    @property
    def realistic(self) -> npt.NDArray[np.float64]:
        """(n, 2) the mean of the two."""
        return (self.optimistic + self.pessimistic) / 2

    def of(self, ties: Ties) -> npt.NDArray[np.float64]:
        """Return ranks under a rule for ties, (n, 2) float64; raise `SettingsError` if there is no such rule."""
        if ties not in get_args(Ties):
            raise SettingsError(f"ties must be realistic, optimistic or pessimistic, got {ties!r}")
        return np.asarray(getattr(self, ties), np.float64)

    def __getitem__(self, some: Any) -> Ranks:
        """Return the ranks of some of the triples."""
        return Ranks(self.optimistic[some], self.pessimistic[some])

    def __len__(self) -> int:
        return len(self.optimistic)


def metrics(ranks: Ranks, ties: Ties = "realistic", side: Side | None = None) -> dict[str, float]:
    """Return ``mr``, ``mrr``, ``hits@1``, ``hits@3``, ``hits@10`` over both sides, or over one.

    Args:
        ranks: of one or more triples.
        ties: which rank a tie gives.
        side: over this side alone.

    Raises:
        SettingsError: there are no ranks.
    """
    if len(ranks) == 0:
        raise SettingsError("there are no triples to rank, so there are no metrics")
    r = ranks.of(ties)
    if side is not None:
        r = r[:, SIDES.index(side)]
    out = {"mr": float(r.mean()), "mrr": float((1 / r).mean())}
    return out | {f"hits@{k}": float((r <= k).mean()) for k in (1, 3, 10)}


@torch.no_grad()
def rank(
    tables: Tables,
    triples: npt.NDArray[Any] | Tensor,
    *,
    known: Known | None,
    candidates: TypeConstraint | None = None,
    entities: int | None = None,
    memory: float = MEMORY,
    kernels: bool = True,
    progress: Progress = SILENT,
) -> Ranks:
    """Rank the head and the tail of each triple.

    Args:
        triples: (n, 3) head, relation, tail.
        known: facts that do not compete with the true triple; None ranks raw.
        candidates: who competes, by relation and side; None lets every entity. The true entity always does.
        entities: how many of the first entity rows compete; all that `known` counts, or else all. (A table may
            have virtual rows after those of its graph.)
        memory: MB to work in, in addition to the tables; a chunk is at least one row.
        kernels: use the compiled kernels where they run (CPU). The ranks are the same without.
        progress: shows how far ranking is.

    Returns:
        The head's and the tail's rank of each triple.

    Raises:
        SettingsError: the triples, or `known`, do not fit the tables.
    """
    ids = as_ids(triples, tables)
    if entities is None:
        entities = known.entities if known is not None else tables.entities
    if not 0 < entities <= tables.entities or (known is not None and known.entities > tables.entities):
        raise SettingsError(
            f"{entities} entities compete and {known.entities if known else 0} are known of, but the tables have "
            f"{tables.entities} entity rows; were they trained on another graph?"
        )
    sides = {side: _Side(tables, ids, side, known) for side in SIDES}
    ranking = _Ranking(tables, entities, memory * 1e6, kernels)
    everyone = torch.arange(entities, device=tables.device)
    with progress.task("ranking", 2 * len(ids), "ranks") as task:
        if not tables.model.projects and candidates is None:
            ranking.run(None, everyone, [(s, slice(0, len(ids))) for s in sides.values()], task)
        else:
            for relation, parts in _by_relation(sides):
                if candidates is None:
                    ranking.run(relation, everyone, list(parts.values()), task)
                    continue
                for side, part in parts.items():
                    some = candidates.candidates(side, relation)
                    ranking.run(relation, some[some < entities].to(tables.device), [part], task)
    above, level = (np.stack([sides[side].restored(name) for side in SIDES], axis=1) for name in ("above", "level"))
    return Ranks(1 + above, 1 + above + level)


class _Side:
    """All questions of one side, sorted by (relation, kept entity): equal questions stand together."""

    def __init__(self, tables: Tables, ids: Tensor, side: Side, known: Known | None) -> None:
        self.side: Side = side
        keep, ask = (HEAD, TAIL) if side == "tail" else (TAIL, HEAD)
        pair = ids[:, RELATION] * tables.entities + ids[:, keep]
        self.order = torch.argsort(pair, stable=True)
        self.true = ids[self.order, ask]
        unique, self.row = torch.unique_consecutive(pair[self.order], return_inverse=True)
        self.relation, self.fixed = unique // tables.entities, unique % tables.entities
        self.above = torch.zeros(len(ids), dtype=torch.int64, device=tables.device)
        self.level = torch.zeros_like(self.above)
        if known is None:
            self.first = self.last = torch.zeros_like(unique)
            self.known = torch.empty(0, dtype=torch.int64, device=tables.device)
        else:
            spans = known.spans(side, self.fixed.cpu(), self.relation.cpu())
            self.first, self.last = (x.to(tables.device) for x in spans)
            self.known = known.values(side).to(tables.device)

    def restored(self, name: str) -> npt.NDArray[np.int64]:
        """Counts in the order of the triples."""
        out = torch.empty_like(self.above)
        out[self.order] = getattr(self, name)
        return np.asarray(out.cpu().numpy())


def _by_relation(sides: dict[Side, _Side]) -> Iterator[tuple[int, dict[Side, tuple[_Side, slice]]]]:
    """Yield each relation with its slice of questions on either side."""
    relations = sides["head"].relation.unique()
    bounds = {}
    for name, side in sides.items():
        of_question = side.relation[side.row].contiguous()
        first = torch.searchsorted(of_question, relations).tolist()
        last = torch.searchsorted(of_question, relations, right=True).tolist()
        bounds[name] = [slice(a, b) for a, b in zip(first, last, strict=True)]
    for i, relation in enumerate(relations.tolist()):
        yield relation, {name: (side, bounds[name][i]) for name, side in sides.items()}


class _Ranking:
    """Brings questions and candidates together, in chunks of both."""

    def __init__(self, tables: Tables, entities: int, memory: float, kernels: bool) -> None:
        self.tables = tables
        self.entities = entities
        self.memory = memory
        self.geometry = geometry_of(tables.model)
        self.counter = _counter_class(tables, self.geometry, kernels)
        # A projected row in float64 and in the counter's float32, with a copy of either while it is made.
        self.candidates_at_once = max(1, int(memory / 2 / (24 * self.geometry.width)))
        # A query in both, its true answer, and what is made on the way to their score.
        self.questions_at_once = max(1, int(memory / 4 / (48 * self.geometry.width)))
        # What is made on the way to a projection stays in a processor's cache: twice as fast.
        wide = sum(tables[name].shape[1] for name in tables.names("entity")) + 4 * self.geometry.width
        self.projected_at_once = max(1, int(memory / 8 / (8 * wide)))
        if tables.device.type == "cpu":
            self.projected_at_once = min(self.projected_at_once, 1024)

    def run(self, relation: int | None, candidates: Tensor, parts: list[tuple[_Side, slice]], task: Task) -> None:
        """Count `candidates` (m,) for the questions in `parts`, all of one relation unless it is None."""
        size = self.questions_at_once
        chunks = candidates.split(self.candidates_at_once) if len(candidates) else ()
        if not chunks:
            task.advance(sum(part.stop - part.start for _, part in parts))
        for i, chunk in enumerate(chunks):
            place = torch.full((self.tables.entities,), -1, device=self.tables.device)
            place[chunk] = torch.arange(len(chunk), device=self.tables.device)
            vectors = self._project(chunk, relation)
            counter = self.counter(self.geometry, vectors, place, self.memory / 4)
            for side, part in parts:
                for start in range(part.start, part.stop, size):
                    stop = min(start + size, part.stop)
                    self._count(counter, side, slice(start, stop), relation)
                    if i == len(chunks) - 1:
                        task.advance(stop - start)

    def _count(self, counter: Counter, side: _Side, part: slice, relation: int | None) -> None:
        row = side.row[part]
        rows = slice(int(row[0]), int(row[-1]) + 1)
        row, true = row - rows.start, side.true[part]
        query = self._query(side.side, side.fixed[rows], side.relation[rows], relation)
        answer = self._project(true, relation)
        counter.count(
            Questions(
                query=query,
                row=row,
                true=true,
                score=self.geometry.exact(query[row], answer),
                size=self.geometry.size(answer),
                first=side.first[rows],
                last=side.last[rows],
                known=side.known,
                above=side.above[part],
                level=side.level[part],
            )
        )

    def _project(self, entities: Tensor, relation: int | None) -> Tensor:
        """Return entities (m,) as `relation` sees them, (m, p) float64; without projections any relation will do."""
        group = torch.tensor([relation or 0], device=self.tables.device)
        relations = relation_rows(self.tables, group, torch.float64)
        out = torch.empty(len(entities), self.geometry.width, device=self.tables.device, dtype=torch.float64)
        size = self.projected_at_once
        for some, into in zip(entities.split(size), out.split(size), strict=True):
            rows = entity_rows(self.tables, some.unsqueeze(0), torch.float64)
            into.copy_(self.tables.model.project(rows, relations).squeeze(0))
        return out

    def _query(self, side: Side, fixed: Tensor, relations: Tensor, relation: int | None) -> Tensor:
        """Return the points at which the missing side of (fixed, relations) (u,) is expected, (u, p) float64."""
        model = self.tables.model
        known = self._project(fixed, relation).unsqueeze(1)
        rows = relation_rows(self.tables, relations, torch.float64)
        query = model.tail_query(known, rows) if side == "tail" else model.head_query(known, rows)
        return query.squeeze(1).contiguous()


def _counter_class(
    tables: Tables, geometry: Geometry, kernels: bool
) -> Callable[[Geometry, Tensor, Tensor, float], Counter]:
    """Return the fastest counter that runs here."""
    if geometry.kind is Kind.OWN:
        return OwnCounter
    if kernels and tables.device.type == "cpu":
        with suppress(ImportError):
            from fkge.evaluation.kernels import KernelCounter  # numba: only where it is used

            return KernelCounter
    return TorchCounter
