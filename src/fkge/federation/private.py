"""The private track: what an owner keeps for itself, made of its shared track and of everything it knows.

The shared track is a function of shareable triples and of what peers sent; it is all that others ever see. When it is
finished, the private track begins from its vectors and trains on all triples, shareable and confidential, as a
*residual*: every few epochs its rows go part of the way back to the shared ones. So it keeps what the company has
taught, which a plain further training forgets, and adds what only the owner knows. It answers the owner's questions and
never leaves; and since it begins when the shared track is over, not even the time it takes can be told from outside.

How strong the pull back is (`pull`) may be left to the owner's own validation triples, confidential ones included:
nobody sees the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from fkge.align.links import KINDS
from fkge.embed import Snapshot, Tables, Trainer, make_tables
from fkge.embed.models import Kind
from fkge.settings import Settings, TrainSettings


class PrivateSettings(Settings):
    """How the private track learns from the shared one."""

    epochs: int = Field(60, ge=0, description="epochs on all triples, for each `pull` that is tried")
    pull: tuple[float, ...] = Field(
        (0.5,),
        min_length=1,
        description="part of the way back to the shared vectors; of several, the owner's validation triples choose",
    )
    every: int = Field(3, ge=1, description="epochs between two pulls")
    tests: int = Field(4, ge=1, description="looks at validation triples on the way; the best vectors are kept")

    @property
    def total(self) -> int:
        """Epochs, over all that is tried."""
        return self.epochs * len(self.pull)


@dataclass(frozen=True)
class Private:
    """A private track at its best.

    Attributes:
        tables: over the owner's whole vocabulary.
        score: on the validation triples that decide; shared: that of the shared vectors it began with.
        pull, epoch: where the best was found; epoch 0 is the shared vectors as they came.
    """

    tables: Tables
    score: float
    shared: float
    pull: float
    epoch: int


def train_private(
    graph_train: Tensor,
    sizes: Mapping[Kind, int],
    shared: Tables,
    rows: Mapping[Kind, Tensor],
    settings: TrainSettings,
    private: PrivateSettings,
    score: Callable[[Tables], float],
    stop: Callable[[int], bool] | None = None,
) -> Private | None:
    """Train a private track from `shared`.

    Args:
        graph_train: (n, 3) all training triples, in ids of the whole vocabulary.
        sizes: rows of each kind in the whole vocabulary.
        shared: the shared track, finished. It may be narrower: then it fills the first columns, and only they are
            pulled.
        rows: where each of its rows stands in the whole vocabulary, by kind.
        settings: how the owner trains.
        score: the owner's validation score of tables.
        stop: told how many epochs are done, after each; True leaves, and None is returned.
    """
    best: tuple[float, Snapshot, float, int] | None = None
    done, first = 0, 0.0
    tables = make_tables(settings, sizes["entity"], sizes["relation"])
    trainer = Trainer(tables, graph_train, settings)
    fresh = tables.snapshot()
    for pull in private.pull:
        tables.restore(fresh)
        _take_over(tables, shared, rows)
        trainer.move_to({"epoch": 0, "chunk": 0, "lr_scale": 1.0, "loss": 0.0, "steps": 0})
        if best is None:
            first = score(tables)
            best = (first, tables.snapshot(), pull, 0)
        for epoch in range(1, private.epochs + 1):
            trainer.fall_linearly(epoch - 1, private.epochs)
            trainer.run_epoch()
            if epoch % private.every == 0:
                _pull(tables, shared, rows, pull)
            done += 1
            if stop is not None and stop(done):
                return None
            if epoch % max(1, private.epochs // private.tests) == 0 or epoch == private.epochs:
                now = score(tables)
                if now > best[0]:
                    best = (now, tables.snapshot(best[1]), pull, epoch)
    assert best is not None
    tables.restore(best[1])
    return Private(tables, best[0], first, best[2], best[3])


def _take_over(tables: Tables, shared: Tables, rows: Mapping[Kind, Tensor]) -> None:
    """The shared vectors, with the optimiser's state where both keep the same, into the rows they stand for."""
    for kind in KINDS:
        ids = rows[kind].to(tables.device)
        for name in tables.names(kind):
            width = shared[name].shape[1]
            tables[name][ids, :width] = shared[name].to(tables.device, tables.dtype)
            if width < tables[name].shape[1]:
                continue
            for slot, columns in (("mean", True), ("square", True), ("steps", False)):
                if tables.has_state(name, slot) and shared.has_state(name, slot):
                    state = tables.state(name, slot, columns=columns)
                    state[ids] = shared.state(name, slot, columns=columns).to(tables.device)


@torch.no_grad()
def _pull(tables: Tables, shared: Tables, rows: Mapping[Kind, Tensor], part: float) -> None:
    """Every row that the shared track has goes `part` of the way back to it."""
    if part == 0:
        return
    for kind in KINDS:
        ids = rows[kind].to(tables.device)
        for name in tables.names(kind):
            width = shared[name].shape[1]
            goal = shared[name].to(tables.device, tables.dtype)
            tables[name][ids, :width] = torch.lerp(tables[name][ids, :width], goal, part)
