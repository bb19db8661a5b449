"""Baselines with a server, to compare a federation without one against.

    fede      every owner trains on its own; after each slice a server averages what two or more of them share
    unified   one graph made of all, trained as one

Both spend as many epochs and as many tests as the other arms, begin from the same vectors as owners that start
together, and keep the best vectors of each owner by its own validation triples.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fkge.align import clusters
from fkge.align.links import KINDS
from fkge.embed import Best, Tables, Trainer, TrainingLoop, make_tables
from fkge.embed.fit import is_due
from fkge.embed.models import Kind
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.experiment.owners import SimulatedOwner
from fkge.federation.owner import Activity, Plan, begin_together, seed_of
from fkge.federation.owner.finish import with_lone_model
from fkge.federation.settings import FederationSettings
from fkge.graph import sample_triples, tidy
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.owner_events import Emit, Worked


def run_central(arm: str, owners: Sequence[SimulatedOwner], emit: Emit) -> None:
    """Run ``fede`` or ``unified`` and leave each owner's results in its folder for that arm.

    Args:
        arm: which of the two; owners: all owners.
        emit: receives every event.

    Raises:
        SettingsError: the owners do not train alike.
    """
    owners = sorted(owners, key=lambda owner: owner.name)
    first = owners[0].settings
    if any(owner.settings.train != first.train for owner in owners):
        raise SettingsError(f"{arm}: a server can only average or merge owners that train alike; leave this arm out")
    {"fede": _fede, "unified": _unified}[arm](arm, owners, emit)


class _Member:
    """One owner as a server sees it: its tables, its validation triples, its best so far."""

    def __init__(self, owner: SimulatedOwner, tables: Tables) -> None:
        self.owner, self.tables, self.activity = owner, tables, Activity()
        self.best = Best(tables, self.activity)
        self._known = Known.of(owner.graph)
        self._decide = sample_triples(owner.deciding(shared=False), owner.settings.train.validation_triples, owner.seed)

    def _score(self) -> float:
        with self.activity.clock("test"):
            score = metrics(rank(self.tables, self._decide, known=self._known))["mrr"]
        self.activity.tests += 1
        return score

    def validate_mean(self, epoch: int) -> None:
        """Keep the tables as the server left them, if they are the best so far."""
        if (score := self._score()) > (self.activity.best_score or 0.0):
            self.best.update(score, epoch)

    def validate(self, epoch: int, arm: str, emit: Emit) -> bool:
        """Score the tables and keep them if they are the best so far; return whether they are."""
        activity, score = self.activity, self._score()
        activity.epochs = epoch
        improved = self.best.update(score, epoch)
        emit(Worked(arm=arm, owner=self.owner.name, epoch=epoch, score=score, best=activity.best_score,
                    improved=improved, backtracked=False))  # fmt: skip
        return improved

    def conclude(self, arm: str) -> None:
        self.best.restore()
        self.activity.stale = 0
        blended = with_lone_model(self.owner, self.tables, self.activity, lambda _: None, lambda: False, peers=True)
        assert blended is not None
        tables, blend = blended
        self.owner.write_report(arm, tables, self.activity, {"blend": blend})


def _global_ids(owners: Sequence[SimulatedOwner], kind: Kind) -> tuple[dict[str, Tensor], int]:
    """Return the alignment of a server: a number for every thing, the same at every owner that has it."""
    sizes = {h.name: len(h.graph.entities if kind == "entity" else h.graph.relations) for h in owners}
    sides = {h.name: h.peers for h in owners}
    pairs = {
        (a, b): (sides[a][b].common.ids(kind), sides[b][a].common.ids(kind))
        for a in sizes
        for b in sizes
        if a < b and b in sides[a] and a in sides[b]
    }
    ids, count = clusters(sizes, pairs)
    return {name: torch.from_numpy(i) for name, i in ids.items()}, count


def validation_due(settings: FederationSettings, epoch: int) -> bool:
    """Whether the other arms validate after this epoch: at equal distances, again after a lone first training."""
    first, end = Plan.of(settings).phase(epoch - 1)
    return is_due(epoch - first, settings.epochs * settings.test_every, end - first)


def _fede(arm: str, owners: Sequence[SimulatedOwner], emit: Emit) -> None:
    """FedE: plain means over the owners that have a row, of entities, relations and their inverses.

    Adagrad's sums are averaged with their rows, as the federation does it (unless ``moments`` says otherwise): a sum
    belongs to where a row stands. Adam keeps its moments, which did better than resetting them as FedE's authors do.
    """
    settings, total = owners[0].settings, owners[0].settings.total_epochs
    members, loops = [], []
    for owner in owners:
        train = settings.shared_train.model_copy(update={"seed": seed_of(owner.seed, owner.name, "train")})
        tables = make_tables(train, len(owner.graph.entities), len(owner.graph.relations))
        begin_together(tables, owner.tokens, train, owner.seed)
        members.append(_Member(owner, tables))
        # The learning rate falls over all epochs; every member keeps its own best.
        loops.append(TrainingLoop(Trainer(tables, owner.graph.train, train), phase=lambda _: (0, total)))
    shared = {kind: _global_ids(owners, kind) for kind in KINDS}
    averages = settings.train.optimizer == "adagrad" and settings.moments == "average"
    for epoch in range(1, total + 1):
        for member, loop in zip(members, loops, strict=True):
            with member.activity.clock("train"):
                loop.run_epoch()
        if validation_due(settings, epoch):
            for member, loop in zip(members, loops, strict=True):
                if not member.validate(epoch, arm, emit):
                    loop.lower_rate()
        if epoch % settings.epochs == 0:
            for kind in KINDS:
                _average(kind, members, *shared[kind], averages)
            if settings.validate_means and epoch < total and validation_due(settings, epoch):
                for member in members:
                    member.validate_mean(epoch)
    for member in members:
        member.conclude(arm)


def _average(kind: Kind, members: Sequence[_Member], ids: dict[str, Tensor], count: int, sums: bool) -> None:
    """Give every member the mean of each row over all that have it, and of Adagrad's sums if `sums`."""
    everyone = [torch.arange(member.tables.count(kind)) for member in members]
    sent = [member.tables.vectors(kind).cpu() for member in members]
    width = sent[0].shape[1]
    if sums:  # beside the rows
        states = [m.tables.read_state(kind, "sum", rows).cpu() for m, rows in zip(members, everyone, strict=True)]
        sent = [torch.cat(pair, dim=1) for pair in zip(sent, states, strict=True)]
    total = torch.zeros(count, sent[0].shape[1])
    owners = torch.zeros(count, 1)
    for member, own in zip(members, sent, strict=True):
        where = ids[member.owner.name]
        total.index_add_(0, where, own)
        owners.index_add_(0, where, torch.ones(len(where), 1))
    mean = total / owners.clamp(min=1)
    for member, rows, own in zip(members, everyone, sent, strict=True):
        new = mean[ids[member.owner.name]]
        member.tables.replace(kind, rows, new[:, :width], keep_state=True)
        if sums:
            member.tables.replace_state(kind, "sum", rows, new[:, width:])
        member.activity.sent["server"] = member.activity.sent.get("server", 0) + own.nbytes


def _unified(arm: str, owners: Sequence[SimulatedOwner], emit: Emit) -> None:
    """All triples in one table of entities and relations; every owner is scored among its own entities."""
    settings, total = owners[0].settings, owners[0].settings.total_epochs
    ids = {kind: _global_ids(owners, kind) for kind in KINDS}
    entities, relations = ids["entity"][1], ids["relation"][1]
    parts = []
    for owner in owners:
        e, r, t = ids["entity"][0][owner.name].numpy(), ids["relation"][0][owner.name].numpy(), owner.graph.train
        parts.append(np.stack([e[t[:, HEAD]], r[t[:, RELATION]], e[t[:, TAIL]]], axis=1))
    merged = tidy(np.concatenate(parts))
    train = settings.train.model_copy(update={"seed": seed_of(owners[0].seed, "unified", "train")})
    tables = make_tables(train, entities, relations)
    members = []
    for owner in owners:
        rows: dict[Kind, Tensor] = {kind: ids[kind][0][owner.name] for kind in KINDS}
        begin_together(tables, owner.tokens, train, owner.seed, rows)
        own = make_tables(train, len(owner.graph.entities), len(owner.graph.relations))
        members.append(_Member(owner, own))
    loop = TrainingLoop(Trainer(tables, merged, train), phase=lambda _: (0, total))
    started = time.thread_time()
    for epoch in range(1, total + 1):
        loop.run_epoch()
        if validation_due(settings, epoch):
            for member in members:
                for kind in KINDS:
                    for name in tables.names(kind):
                        member.tables[name].copy_(tables[name][ids[kind][0][member.owner.name].to(tables.device)])
            improved = [member.validate(epoch, arm, emit) for member in members]
            if not any(improved):
                loop.lower_rate()
    spent = time.thread_time() - started - sum(member.activity.seconds["test"] for member in members)
    for member in members:
        member.activity.seconds["train"] = spent / len(members)
        member.conclude(arm)
