"""What a server would do with everybody's data or vectors: baselines to measure a federation without one against.

    fede      every owner trains on its own; after each slice a server averages what two or more of them share
    unified   one graph made of all, trained as one

Both spend as many epochs and as many tests as the other arms, begin from the same vectors as owners that start
together, and keep the best vectors of each owner by its own validation triples.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fkge.align import clusters
from fkge.align.links import KINDS
from fkge.embed import Snapshot, Tables, Trainer, make_tables
from fkge.embed.models import Kind
from fkge.engines.station import Note
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.federation.home import Home
from fkge.federation.owner import Activity, begin_together, seed_of
from fkge.graph import sample_triples, tidy
from fkge.graph.graph import HEAD, RELATION, TAIL, Triples


def run_central(arm: str, homes: Sequence[Home], note: Note) -> None:
    """Run ``fede`` or ``unified`` and leave each owner's results in its folder for that arm."""
    homes = sorted(homes, key=lambda home: home.name)
    first = homes[0].settings
    if any(home.settings.train != first.train for home in homes):
        raise SettingsError(f"{arm}: a server can only average or merge owners that train alike; leave this arm out")
    {"fede": _fede, "unified": _unified}[arm](arm, homes, note)


@dataclass
class _Seat:
    """An owner in a server's eyes: its tables, its validation triples, its best so far."""

    home: Home
    tables: Tables
    decide: Triples
    known: Known
    activity: Activity
    best: Snapshot | None = None

    @classmethod
    def of(cls, home: Home, tables: Tables) -> _Seat:
        decide = sample_triples(home.deciding(shared=False), home.settings.train.validation_triples, home.seed)
        return cls(home, tables, decide, Known.of(home.graph), Activity())

    def test(self, epoch: int, arm: str, note: Note) -> bool:
        started = time.thread_time()
        score = metrics(rank(self.tables, self.decide, known=self.known))["mrr"]
        self.activity.seconds["test"] += time.thread_time() - started
        self.activity.tests += 1
        improved = self.activity.best_score is None or score > self.activity.best_score
        if improved:
            self.activity.best_score, self.activity.best_epoch = score, epoch
            self.best = self.tables.snapshot(self.best)
        self.activity.epochs = epoch
        note("work", arm=arm, owner=self.home.name, epoch=epoch, score=score, best=self.activity.best_score,
             improved=improved, backtracked=False)  # fmt: skip
        return improved

    def conclude(self, arm: str) -> None:
        if self.best is not None:
            self.tables.restore(self.best)
        self.home.report(arm, self.tables, self.activity, self.home.settings.train, {})


def _global_ids(homes: Sequence[Home], kind: Kind) -> tuple[dict[str, Tensor], int]:
    """What a server's alignment gives: a number for every thing, the same at every owner that has it."""
    sizes = {h.name: len(h.graph.entities if kind == "entity" else h.graph.relations) for h in homes}
    sides = {h.name: h.peers for h in homes}
    pairs = {
        (a, b): (sides[a][b].common.ids(kind), sides[b][a].common.ids(kind))
        for a in sizes
        for b in sizes
        if a < b and b in sides[a] and a in sides[b]
    }
    ids, count = clusters(sizes, pairs)
    return {name: torch.from_numpy(i) for name, i in ids.items()}, count


def _schedule(trainer: Trainer, total: int) -> None:
    """The learning rate of the next epoch, where it falls by the clock; where it falls by tests, those see to it."""
    if trainer.settings.schedule == "linear":
        trainer.fall_linearly(trainer.epoch, total)


def _stale(trainer: Trainer) -> None:
    """A test has brought nothing."""
    if trainer.settings.schedule == "plateau":
        trainer.lr_scale *= trainer.settings.decay


def _due(homes: Sequence[Home], epoch: int) -> bool:
    """Whether the other arms test after this epoch: at equal distances, counted anew after a lone first training."""
    settings = homes[0].settings
    first = settings.initial_epochs if settings.start == "alone" else 0
    since = epoch if epoch <= first else epoch - first
    return since % (settings.epochs * settings.test_every) == 0 or epoch in (first, settings.total_epochs)


def _fede(arm: str, homes: Sequence[Home], note: Note) -> None:
    """FedE: plain means over the owners that have a row, of entities and relations; Adam keeps its moments."""
    settings = homes[0].settings
    seats, trainers = [], []
    for home in homes:
        train = settings.train.model_copy(update={"seed": seed_of(home.seed, home.name, "train")})
        tables = make_tables(train, len(home.graph.entities), len(home.graph.relations))
        begin_together(tables, home.tokens, train, home.seed)
        seats.append(_Seat.of(home, tables))
        trainers.append(Trainer(tables, home.graph.train, train))
    shared = {kind: _global_ids(homes, kind) for kind in KINDS}
    for epoch in range(1, settings.total_epochs + 1):
        for seat, trainer in zip(seats, trainers, strict=True):
            started = time.thread_time()
            _schedule(trainer, settings.total_epochs)
            trainer.run_epoch()
            seat.activity.seconds["train"] += time.thread_time() - started
        if _due(homes, epoch):
            for seat, trainer in zip(seats, trainers, strict=True):
                if not seat.test(epoch, arm, note):
                    _stale(trainer)
        if epoch % settings.epochs == 0:
            for kind in KINDS:
                _average(kind, seats, *shared[kind])
    for seat in seats:
        seat.conclude(arm)


def _average(kind: Kind, seats: Sequence[_Seat], ids: dict[str, Tensor], count: int) -> None:
    total = torch.zeros(count, seats[0].tables.width(kind))
    owners = torch.zeros(count, 1)
    for seat in seats:
        where = ids[seat.home.name]
        total.index_add_(0, where, seat.tables[kind].cpu())
        owners.index_add_(0, where, torch.ones(len(where), 1))
    mean = total / owners.clamp(min=1)
    for seat in seats:
        seat.tables[kind].copy_(mean[ids[seat.home.name]])
        seat.activity.sent["server"] = seat.activity.sent.get("server", 0) + seat.tables[kind].nbytes


def _unified(arm: str, homes: Sequence[Home], note: Note) -> None:
    """All triples in one table of entities and relations; every owner is scored among its own entities."""
    settings = homes[0].settings
    ids = {kind: _global_ids(homes, kind) for kind in KINDS}
    entities, relations = ids["entity"][1], ids["relation"][1]
    parts = []
    for home in homes:
        e, r, t = ids["entity"][0][home.name].numpy(), ids["relation"][0][home.name].numpy(), home.graph.train
        parts.append(np.stack([e[t[:, HEAD]], r[t[:, RELATION]], e[t[:, TAIL]]], axis=1))
    merged = tidy(np.concatenate(parts))
    train = settings.train.model_copy(update={"seed": seed_of(homes[0].seed, "unified", "train")})
    tables = make_tables(train, entities, relations)
    seats = []
    for home in homes:
        rows: dict[Kind, Tensor] = {kind: ids[kind][0][home.name] for kind in KINDS}
        begin_together(tables, home.tokens, train, home.seed, rows)
        own = make_tables(train, len(home.graph.entities), len(home.graph.relations))
        seats.append(_Seat.of(home, own))
    trainer = Trainer(tables, merged, train)
    started = time.thread_time()
    for epoch in range(1, settings.total_epochs + 1):
        _schedule(trainer, settings.total_epochs)
        trainer.run_epoch()
        if _due(homes, epoch):
            for seat in seats:
                for kind in KINDS:
                    for name in tables.names(kind):
                        seat.tables[name].copy_(tables[name][ids[kind][0][seat.home.name].to(tables.device)])
            better = [seat.test(epoch, arm, note) for seat in seats]
            if not any(better):
                _stale(trainer)
    spent = time.thread_time() - started - sum(seat.activity.seconds["test"] for seat in seats)
    for seat in seats:
        seat.activity.seconds["train"] = spent / len(seats)
        seat.conclude(arm)
