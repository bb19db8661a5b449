"""The private track: a model that an owner trains on all its triples and never shares.

The shared track is a function of shareable triples and of what peers sent; it is all that others ever see. When it is
finished, the private track begins from its vectors and trains on all triples, shareable and confidential, as a
*residual*: every few epochs its rows go part of the way back to the shared ones. So it keeps what the
federation contributed, which plain further training forgets, and adds what only the owner knows. It begins when the
shared track is finished, so the time it takes does not show in what the shared one sends (unless the owner then joins
another run).

How strong the pull back is (`pull`) is chosen on the owner's own validation triples, confidential ones included; the
choice is never sent. A lone training from a fresh start is a candidate too (`alone`), so an owner that gains nothing
from its peers ends about where it would have been without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fkge.align.links import KINDS
from fkge.embed import Tables, Trainer, TrainingLoop, make_tables
from fkge.embed.fit import is_due
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind
from fkge.embed.optimizers import SLOTS
from fkge.federation.settings import PrivateSettings
from fkge.settings import TrainSettings


@dataclass(frozen=True)
class Private:
    """A private track at its best.

    Attributes:
        tables: over the owner's whole vocabulary.
        score: on the validation triples that decide; shared: that of the shared vectors it began with.
        pull, epoch: where the best was found; None is training without shared vectors, epoch 0 is before training.
    """

    tables: Tables
    score: float
    shared: float
    pull: float | None
    epoch: int


def train_private(
    graph_train: Tensor,
    sizes: Mapping[Kind, int],
    shared: Tables,
    rows: Mapping[Kind, Tensor],
    settings: TrainSettings,
    private: PrivateSettings,
    margin: float,
    score: Callable[[Tables], float],
    stop: Callable[[int], bool] | None = None,
) -> Private | None:
    """Train a private track from `shared`.

    Args:
        graph_train: (n, 3) all training triples, in ids of the whole vocabulary.
        sizes: rows of each kind in the whole vocabulary.
        shared: the shared track, finished. It may be narrower: then it fills the first columns (of complex numbers,
            those of the first), and only they are pulled.
        rows: where each of its rows stands in the whole vocabulary, by kind.
        settings: how the owner trains.
        private: how the private track follows the shared one.
        margin: of the shared track, whose vectors are scaled to this one's.
        score: the owner's validation score of tables.
        stop: called after every epoch with the number of epochs done; True stops.

    Returns:
        The best private track, or None if `stop` said so.
    """
    own = margin_of(settings)
    # How much longer its vectors are; losses without a margin (products) say nothing of lengths.
    ratio = own / max(margin, 1e-6) if own > 0 and margin > 0 else 1.0
    goal = _goal(shared, rows, private, private.scale * ratio)
    tables = make_tables(settings, sizes["entity"], sizes["relation"])
    trainer = Trainer(tables, graph_train, settings)
    loop = TrainingLoop(trainer, phase=lambda _: (0, private.epochs), schedule="linear")
    fresh, start = tables.snapshot(), trainer.position()
    done, first, best_pull = 0, 0.0, private.tries[0]
    for number, pull in enumerate(private.tries):
        tables.restore(fresh)
        if pull is not None:
            _take_over(tables, shared, goal, private.rest)
        trainer.move_to(start)
        if number == 0:
            first = score(tables)
            loop.record(first)
        while trainer.epoch < private.epochs:
            loop.run_epoch()
            if pull and trainer.epoch % private.every == 0:
                _pull(tables, goal, pull)
            done += 1
            if stop is not None and stop(done):
                return None
            due = is_due(trainer.epoch, max(1, private.epochs // private.tests), private.epochs)
            if due and loop.record(score(tables)):
                best_pull = pull
    best = loop.best.state
    assert best.best_score is not None
    loop.best.restore()
    return Private(tables, best.best_score, first, best_pull, best.best_epoch)


@dataclass(frozen=True)
class _Goal:
    """Shared rows as the private track takes them: (rows, at most its width), and where they stand in it."""

    rows: Tensor
    ids: Tensor
    scaled: bool


def _goal(shared: Tables, rows: Mapping[Kind, Tensor], private: PrivateSettings, scale: float) -> dict[str, _Goal]:
    kinds = KINDS if private.follow == "rows" else ("relation",)
    out = {}
    for kind in kinds:
        ids = rows[kind].to(shared.device)
        for name in shared.names(kind):
            # Further tables turn or project, not shift.
            vectors = shared[name] * scale if name in shared.exchanged(kind) else shared[name]
            out[name] = _Goal(vectors, ids, scale != 1)
    return out


def _take_over(tables: Tables, shared: Tables, goal: Mapping[str, _Goal], rest: float) -> None:
    """Copy the shared vectors, and the optimiser's state where both have it, to the rows of the same things."""
    slots = [(slot, True) for slots in SLOTS.values() for slot in slots]
    for name, g in goal.items():
        if g.rows.shape[1] < tables[name].shape[1]:
            tables[name].mul_(rest)
            first = _columns(tables, name, g.rows.shape[1])
            tables[name][g.ids.unsqueeze(1), first] = g.rows.to(tables.dtype)
            continue
        tables[name][g.ids] = g.rows.to(tables.dtype)
        if g.scaled:
            continue
        for slot, columns in (*slots, ("steps", False)):
            if tables.has_state(name, slot) and shared.has_state(name, slot):
                tables.state(name, slot, columns=columns)[g.ids] = shared.state(name, slot, columns=columns)


@torch.no_grad()
def _pull(tables: Tables, goal: Mapping[str, _Goal], part: float) -> None:
    """Move every row that follows the shared track `part` of the distance towards it."""
    for name, g in goal.items():
        place = g.ids.unsqueeze(1), _columns(tables, name, g.rows.shape[1])
        tables[name][place] = torch.lerp(tables[name][place], g.rows.to(tables.dtype), part)


def _columns(tables: Tables, name: str, width: int) -> Tensor:
    """Return (width,) the columns of a table that the rows of a narrower one fill."""
    every = torch.arange(tables[name].shape[1], device=tables.device)
    if not tables.spec(name).complex:
        return every[:width]
    re, im = every.chunk(2)
    return torch.cat([re[: width // 2], im[: width // 2]])
