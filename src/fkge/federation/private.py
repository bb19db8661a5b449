"""The private track: what an owner keeps for itself, made of its shared track and of everything it knows.

The shared track is a function of shareable triples and of what peers sent; it is all that others ever see. When it is
finished, the private track begins from its vectors and trains on all triples, shareable and confidential, as a
*residual*: every few epochs its rows go part of the way back to the shared ones. So it keeps what the company has
taught, which a plain further training forgets, and adds what only the owner knows. It answers the owner's questions and
never leaves. It begins when the shared track is over, so the time it takes does not show in what the shared one does
(whoever then goes on to another run shows when).

How strong the pull back is (`pull`) is left to the owner's own validation triples, confidential ones included: nobody
sees the choice. A lone training from a fresh start stands for election too (`alone`), so an owner whose peers are no
good to it ends about where it would have been without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fkge.align.links import KINDS
from fkge.embed import Snapshot, Tables, Trainer, make_tables
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind
from fkge.settings import Settings, TrainSettings


class PrivateSettings(Settings):
    """How the private track learns from the shared one."""

    epochs: int = Field(60, ge=0, description="epochs on all triples, for each `pull` that is tried")
    pull: tuple[float, ...] = Field(
        (0.5, 0.0),
        min_length=1,
        description="part of the way back to the shared vectors; of several, the owner's validation triples choose",
    )
    alone: bool = Field(
        True, description="try a lone training from a fresh start as well, so that company that is no good does no harm"
    )
    follow: Literal["rows", "relations"] = Field(
        "rows",
        description="what to take over and be pulled to: every shared row, or relations only, the least noisy ones",
    )
    scale: float = Field(1.0, gt=0, description="factor on the shared vectors, beside the ratio of the two margins")
    rest: float = Field(1.0, ge=0, description="factor on how columns begin that a narrower shared track does not fill")
    every: int = Field(3, ge=1, description="epochs between two pulls")
    tests: int = Field(4, ge=1, description="looks at validation triples on the way; the best vectors are kept")

    @property
    def total(self) -> int:
        """Epochs, over all that is tried."""
        return self.epochs * len(self.tries)

    @property
    def tries(self) -> tuple[float | None, ...]:
        """What is tried: pulls, and None for the lone training."""
        return (*self.pull, None) if self.alone else self.pull


@dataclass(frozen=True)
class Private:
    """A private track at its best.

    Attributes:
        tables: over the owner's whole vocabulary.
        score: on the validation triples that decide; shared: that of the shared vectors it began with.
        pull, epoch: where the best was found; None is the lone training, epoch 0 the shared vectors as they came.
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
        shared: the shared track, finished. It may be narrower: then it fills the first columns, and only they are
            pulled.
        rows: where each of its rows stands in the whole vocabulary, by kind.
        settings: how the owner trains; margin: the shared track's, whose vectors are scaled to this one's.
        score: the owner's validation score of tables.
        stop: told how many epochs are done, after each; True leaves, and None is returned.
    """
    goal = _goal(shared, rows, private, private.scale * margin_of(settings) / max(margin, 1e-6))
    best: tuple[float, Snapshot, float | None, int] | None = None
    done, first = 0, 0.0
    tables = make_tables(settings, sizes["entity"], sizes["relation"])
    trainer = Trainer(tables, graph_train, settings)
    fresh = tables.snapshot()
    for number, pull in enumerate(private.tries):
        tables.restore(fresh)
        if pull is not None:
            _take_over(tables, shared, goal, private.rest)
        trainer.move_to({"epoch": 0, "chunk": 0, "lr_scale": 1.0, "loss": 0.0, "steps": 0})
        if number == 0:
            first = score(tables)
            best = (first, tables.snapshot(), pull, 0)
        for epoch in range(1, private.epochs + 1):
            trainer.fall_linearly(epoch - 1, private.epochs)
            trainer.run_epoch()
            if pull and epoch % private.every == 0:
                _pull(tables, goal, pull)
            done += 1
            if stop is not None and stop(done):
                return None
            if epoch % max(1, private.epochs // private.tests) == 0 or epoch == private.epochs:
                now = score(tables)
                if best is None or now > best[0]:
                    best = (now, tables.snapshot(best and best[1]), pull, epoch)
    assert best is not None
    tables.restore(best[1])
    return Private(tables, best[0], first, best[2], best[3])


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
            vectors = (
                shared[name] * scale if name == kind else shared[name]
            )  # further tables turn or project, not shift
            out[name] = _Goal(vectors, ids, scale != 1)
    return out


def _take_over(tables: Tables, shared: Tables, goal: Mapping[str, _Goal], rest: float) -> None:
    """The shared vectors, with the optimiser's state where both keep the same, into the rows they stand for."""
    for name, g in goal.items():
        width = g.rows.shape[1]
        if width < tables[name].shape[1]:
            tables[name].mul_(rest)
            tables[name][g.ids, :width] = g.rows.to(tables.dtype)
            continue
        tables[name][g.ids] = g.rows.to(tables.dtype)
        if g.scaled:
            continue
        for slot, columns in (("mean", True), ("square", True), ("steps", False)):
            if tables.has_state(name, slot) and shared.has_state(name, slot):
                tables.state(name, slot, columns=columns)[g.ids] = shared.state(name, slot, columns=columns)


@torch.no_grad()
def _pull(tables: Tables, goal: Mapping[str, _Goal], part: float) -> None:
    """Every row that follows the shared track goes `part` of the way back to it."""
    for name, g in goal.items():
        width = g.rows.shape[1]
        tables[name][g.ids, :width] = torch.lerp(tables[name][g.ids, :width], g.rows.to(tables.dtype), part)
