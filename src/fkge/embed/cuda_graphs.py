"""Training steps on a GPU, recorded once as a CUDA graph and replayed: one launch a step instead of some hundred.

A step of a few hundred positives is so little work for a GPU that nearly all of its time goes into launching kernels. A
graph launches them together, but memory and shapes must stay what they were when it was recorded. So

- a chunk of steps is copied into memory that stays, and a cursor on the device points at the next step (`_Window`);
- rows are gathered place by place, not as unique rows, whose number changes from step to step. Every place of a row
  then works out the row's new numbers, all of them the same, and writes them (`_Places`);
- a step shorter than the longest repeats its last group with weight 0: rows it names anyway, nothing added;
- the recording is made again when a table's memory or shape, the facts or the sizes of a step have changed.

`steps.AutogradStep` is the slow reference: same batches, same numbers up to the order of sums. Like it, a run repeats
to the bit: sums are taken in the order of the places, never in the order in which threads arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from fkge.embed import optimizers
from fkge.embed.batches import Batch
from fkge.embed.losses import margin_of, objective_of
from fkge.embed.models import MODELS, Kind, Model, Relations
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings

_KINDS: tuple[Kind, Kind] = ("entity", "relation")


def can_record(model: Model) -> bool:
    """Return whether `GraphedStep` runs `model`: not with projections, which need each relation once, nor one from
    elsewhere, which may look at a number or do something else that a graph cannot hold.
    """
    return MODELS.get(model.name) is type(model) and not model.projects


class GraphedStep:
    """Trains on batches by replaying one recorded step. On a CPU nothing is recorded: the same step just runs.

    Between calls, tables may be written in place, grown, cut, restored or loaded.
    """

    def __init__(self, tables: Tables, settings: TrainSettings) -> None:
        self.tables = tables
        self.settings = settings
        optimizers.register(settings.optimizer, tables)
        self._window: _Window | None = None
        self._layout: list[tuple[int, torch.Size]] = []
        self._rehearsed = False
        self._replay: Callable[[], None] | None = None

    def __call__(self, batch: Batch, lr: float) -> Tensor:
        """Update the tables along the gradient of each of the batch's steps; return the sum of their losses."""
        device = self.tables.device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self._prepare(batch)
            self._lr.fill_(lr)
            self._total.zero_()
            for _ in range(len(batch.bounds) - 1):
                if not self._rehearsed:
                    self._rehearse()
                    continue
                if self._replay is None:
                    self._replay = self._record()
                self._replay()
            return self._total.clone()

    def _prepare(self, batch: Batch) -> None:
        """Put the batch where the recording reads it; drop a recording that would read or write elsewhere."""
        if self._window is None or not self._window.fits(batch):
            self._window, self._layout = _Window(batch), []
        self._window.fill(batch)
        tensors = self.tables.export(state=True).values()
        layout = [(tensor.data_ptr(), tensor.shape) for tensor in tensors]
        if layout == self._layout:
            return
        self._layout, self._rehearsed, self._replay = layout, False, None
        like = self.tables["entity"]
        self._lr, self._total = like.new_zeros(()), like.new_zeros(())
        entities, relations = self._window.places()
        self._places = {
            "entity": _Places(entities, self.tables.entities, like.device),
            "relation": _Places(relations, self.tables.relations, like.device),
        }

    def _rehearse(self) -> None:
        """Run one step without recording, on a side stream, so that CUDA libraries are initialised before recording."""
        self._rehearsed = True
        if self.tables.device.type != "cuda":
            self._step()
            return
        self._stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            self._step()
        here.wait_stream(self._stream)

    def _record(self) -> Callable[[], None]:
        """Return a function that takes the next step. Recording takes none."""
        if self.tables.device.type != "cuda":
            return self._step
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph.replay

    def _step(self) -> None:
        """Take the step at the cursor. Shapes never change and no number comes back to the host."""
        assert self._window is not None
        tables, s = self.tables, self.settings
        batch = self._window.next()
        ids = {"entity": torch.cat([batch.head, batch.tail, batch.negative], dim=1), "relation": batch.relation}
        rows = {
            name: tables[name].index_select(0, ids[kind].flatten()).unflatten(0, ids[kind].shape).requires_grad_()
            for kind in _KINDS
            for name in tables.names(kind)
        }
        loss, objective = objective_of(tables.model, s, margin_of(s), batch, rows, _AtPlaces(rows))
        gradients = torch.autograd.grad(objective, list(rows.values()))
        with torch.no_grad():
            for kind, places in self._places.items():
                places.assign(ids[kind].flatten())
            for (name, old), gradient in zip(rows.items(), gradients, strict=True):
                spec = tables.spec(name)
                places = self._places[spec.kind]
                total = places.summed(gradient.flatten(0, 1))
                step = optimizers.direction(s.optimizer, tables, name, places.ids, total)
                new = old.detach().flatten(0, 1) - self._lr * spec.rate * step
                tables[name].index_copy_(0, places.ids, new)  # places of one row bring the same numbers
            self._total.add_(loss.detach())


class _AtPlaces(Relations):
    """Relation rows that are already gathered per position."""

    def __init__(self, rows: Mapping[str, Tensor]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> Tensor:
        return self.rows[name]


class _Window:
    """Memory for steps like those of `batch` that stays where it is, and a cursor at the next of them."""

    def __init__(self, batch: Batch) -> None:
        device = batch.head.device
        self._columns = [torch.empty_like(column) for column in batch.columns]
        self._facts, self._entities = batch.facts, batch.entities
        self._bounds = torch.zeros(len(batch.bounds), dtype=torch.int64, device=device)
        self._cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self._groups = torch.arange(_longest(batch), device=device)

    def fits(self, batch: Batch) -> bool:
        """Return whether `fill` can take `batch` without moving anything."""
        return (
            batch.facts is self._facts
            and all(
                len(theirs) <= len(mine) and theirs.shape[1] == mine.shape[1]
                for theirs, mine in zip(batch.columns, self._columns, strict=True)
            )
            and len(batch.bounds) <= len(self._bounds)
            and _longest(batch) <= len(self._groups)
        )

    def fill(self, batch: Batch) -> None:
        """Copy `batch` in and go to its first step."""
        for theirs, mine in zip(batch.columns, self._columns, strict=True):
            mine[: len(theirs)].copy_(theirs)
        self._bounds[: len(batch.bounds)].copy_(torch.from_numpy(np.asarray(batch.bounds, np.int64)))
        self._cursor.zero_()

    def places(self) -> tuple[int, int]:
        """Return how many entities and relations a step names, repetitions counted."""
        size, k = self._columns[0].shape[1], self._columns[-1].shape[1]
        return len(self._groups) * (2 * size + k), len(self._groups) * size

    def next(self) -> Batch:
        """Return the step at the cursor, as long as the longest: its last group fills it up, with weight 0."""
        end = self._bounds.index_select(0, self._cursor + 1)
        group = self._bounds.index_select(0, self._cursor) + self._groups
        at = torch.minimum(group, end - 1)
        h, r, t, side, weight, negative = (x.index_select(0, at) for x in self._columns)
        weight &= (group < end).unsqueeze(1)
        self._cursor.add_(1)
        bounds = np.array([0, len(self._groups)])
        return Batch(h, r, t, side, weight, negative, self._facts, bounds, 0, self._entities)


def _longest(batch: Batch) -> int:
    """Return the number of groups in the longest step."""
    return int(np.diff(batch.bounds).max())


class _Places:
    """The places of a step's rows, by which the gradients of one row find each other without a sort by row.

    Every place writes its number at its row; the one that stays is the row's representative, and reading it back gives
    each place its representative. That is a number per row of the table, and never needs to be reset.
    """

    def __init__(self, places: int, rows: int, device: torch.device) -> None:
        self._number = torch.arange(places, device=device)
        self._representative_of_row = torch.zeros(rows, dtype=torch.int64, device=device)

    def assign(self, ids: Tensor) -> None:
        """Set the rows `ids` (places,) of a step."""
        self.ids = ids
        self._representative_of_row.index_copy_(0, ids, self._number)
        self._representative = self._representative_of_row.index_select(0, ids)

    def summed(self, gradient: Tensor) -> Tensor:
        """At each place the sum of `gradient` (places, width) over all places of its row."""
        # With accumulate, index_put_ sorts stably and adds in that order; index_add_ would in the order of arrival.
        total = torch.zeros_like(gradient).index_put_((self._representative,), gradient, accumulate=True)
        return total.index_select(0, self._representative)
