"""The training loop of one owner. Knows no peer, no file and no validation set: those are handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import optimizers
from fkge.embed.batches import Batcher
from fkge.embed.losses import margin_of
from fkge.embed.models import Model, model_class
from fkge.embed.steps import make_step
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from fkge.trace import Task


def resolve_device(name: str) -> torch.device:
    """The device called `name`; ``auto`` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise SettingsError(f"device: {name!r} is none; use cpu, cuda, cuda:0 … or auto")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(f"device: {name!r} asked for, but this machine has no CUDA GPU; use cpu or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SettingsError(f"device: {name!r} asked for, but this machine has {torch.cuda.device_count()}; use cuda")
    return device


def make_model(settings: TrainSettings) -> Model:
    """The model that `settings` describe."""
    return model_class(settings.model)(
        settings.dim, relation_dim=settings.relation_dim, norm=settings.norm, normalize=settings.normalize
    )


def initial_bound(settings: TrainSettings) -> float:
    """Half-width of the initial uniform distribution, so that first distances come out near the margin.

    With entries uniform in ±a, an L1 distance of three vectors is about 0.8 a·dim, an L2 one a·√dim.
    """
    if settings.init is not None:
        return settings.init
    model = settings.model.lower()
    if model in ("distmult", "complex"):
        return float((3 / settings.dim) ** 0.5) * 0.5
    width = settings.dim if settings.norm == 1 or model == "rotate" else settings.dim**0.5
    return (margin_of(settings) + 2) / width


def make_tables(settings: TrainSettings, entities: int, relations: int, dtype: torch.dtype = torch.float32) -> Tables:
    """Fresh tables as `settings` describe them."""
    return Tables(
        make_model(settings), entities, relations, seed=settings.seed, bound=initial_bound(settings),
        device=resolve_device(settings.device), dtype=dtype,
    )  # fmt: skip


def fallen(decay: float, done: int, epochs: int) -> float:
    """The factor on a learning rate after `done` of `epochs`, where it falls in a straight line to `decay`."""
    return 1 - (1 - decay) * (done / max(1, epochs - 1))


@dataclass(frozen=True)
class Graft:
    """What `Trainer.graft` added: ids of the virtual rows."""

    entities: range
    relations: range


class Trainer:
    """Trains `tables` on `triples`, epoch by epoch.

    Attributes:
        epoch: epochs finished.
        chunk: chunks of the current epoch finished (not 0 only after a stop within an epoch).

        lr_scale: factor on the learning rate, for whoever watches the validation score.

    Everything drawn follows from (seed, epoch, chunk), so these numbers and the tables are the whole state.
    """

    def __init__(self, tables: Tables, triples: npt.NDArray[np.integer] | Tensor, settings: TrainSettings) -> None:
        if len(triples) == 0:
            raise SettingsError("there are no training triples")
        self.tables = tables
        self.settings = settings
        self.epoch = 0
        self.chunk = 0
        self.lr_scale = 1.0
        self._loss = 0.0
        self._steps = 0
        ids = triples if isinstance(triples, Tensor) else torch.from_numpy(triples.astype(np.int64))
        self._triples = ids.to(tables.device, torch.int64)
        self._graft: tuple[int, int] | None = None
        optimizers.register(settings.optimizer, tables)
        self._prepare(self._triples)

    @property
    def triples(self) -> int:
        """Training triples per epoch, virtual ones included."""
        return self._batcher.size

    def _prepare(self, triples: Tensor) -> None:
        s = self.settings
        self._batcher = Batcher(
            triples, self.tables.entities, self.tables.relations,
            batch=s.batch, negatives=s.negatives, share=s.share, corruption=s.corruption,
            filtered=s.filtered, pure=self.tables.model.projects, seed=s.seed,
        )  # fmt: skip
        self._step = make_step(self.tables, s)

    @property
    def lr(self) -> float:
        """The learning rate now."""
        return self.settings.lr * self.lr_scale

    def fall_linearly(self, done: int, epochs: int) -> None:
        """The learning rate after `done` of `epochs`: it falls in a straight line to `decay` times `lr`."""
        self.lr_scale = fallen(self.settings.decay, done, epochs)

    def run_epoch(self, task: Task | None = None, stop: Callable[[], bool] | None = None) -> float | None:
        """Finish the current epoch.

        Args:
            task: told of every chunk's triples.
            stop: asked between chunks; True leaves the epoch where it is, to be finished by the next call.

        Returns:
            The epoch's mean loss, or None if it was stopped.
        """
        lr = self.lr
        for batch in self._batcher.epoch(self.epoch, self.chunk):
            loss = self._step(batch, lr)
            self._loss += float(loss)
            self._steps += len(batch.bounds) - 1
            self.chunk += 1
            if task is not None:
                task.advance(batch.positives, loss=self._loss / self._steps)
            if stop is not None and self.chunk < len(self._batcher) and stop():
                return None
        mean = self._loss / self._steps
        if not np.isfinite(mean):
            raise SettingsError(f"training diverged in epoch {self.epoch}: the loss is {mean}; lower lr ({lr:g})")
        self.epoch, self.chunk, self._loss, self._steps = self.epoch + 1, 0, 0.0, 0
        return mean

    def position(self) -> dict[str, float]:
        """Where training stands; with the tables, its whole state. `move_to` takes it back."""
        return {
            "epoch": self.epoch, "chunk": self.chunk, "lr_scale": self.lr_scale,
            "loss": self._loss, "steps": self._steps,
        }  # fmt: skip

    def move_to(self, position: Mapping[str, float]) -> None:
        """Go on from `position`."""
        self.epoch, self.chunk = int(position["epoch"]), int(position["chunk"])
        self.lr_scale, self._loss, self._steps = (
            position["lr_scale"],
            position["loss"],
            int(position["steps"]),
        )

    # -- what the federation adds and takes out again ----------------------------------------------

    def graft(self, entities: Tensor, relations: Tensor, triples: Tensor) -> Graft:
        """Train on virtual entities, relations and triples too, until `ungraft`.

        Args:
            entities, relations: (n, width) vectors; they get the ids after the last.
            triples: (m, 3), in old and new ids alike.
        """
        if self._graft is not None:
            raise SettingsError("there is a graft already; take it out first")
        if self.chunk:
            raise SettingsError("finish the epoch before grafting")
        self._graft = (self.tables.entities, self.tables.relations)
        new = Graft(self.tables.append("entity", entities), self.tables.append("relation", relations))
        extra = triples.to(self.tables.device, torch.int64)
        if len(extra) and (
            int(extra.min()) < 0
            or int(extra[:, [0, 2]].max()) >= self.tables.entities
            or int(extra[:, 1].max()) >= self.tables.relations
        ):
            self.ungraft()
            raise SettingsError("a virtual triple names an entity or relation that is not there")
        self._prepare(torch.cat([self._triples, extra]))
        return new

    @property
    def grafted(self) -> bool:
        """Whether there are virtual rows and triples now."""
        return self._graft is not None

    def ungraft(self) -> None:
        """Take out every virtual row and triple; what the real rows learned from them stays."""
        if self._graft is None:
            return
        self.tables.truncate("entity", self._graft[0])
        self.tables.truncate("relation", self._graft[1])
        self._graft = None
        self._prepare(self._triples)
