"""Train on one graph, epoch by epoch: `batches` and `steps` for losses with sampled negatives, `questions` and
`softmax` for those over all entities. Knows no peer, no file and no validation set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import optimizers
from fkge.embed.batches import Batcher
from fkge.embed.losses import LOSSES, find_loss, margin_of, scaled_to
from fkge.embed.models import Model, model_class
from fkge.embed.questions import QuestionBatcher
from fkge.embed.reciprocal import Reciprocal
from fkge.embed.softmax import SoftmaxStep
from fkge.embed.steps import Step, make_step
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.progress import Task
from fkge.settings import TrainSettings


def resolve_device(name: str) -> torch.device:
    """Return the device called `name`; ``auto`` is a GPU if there is one.

    Raises:
        SettingsError: there is no such device here.
    """
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
    """Return the model that `settings` describe.

    Raises:
        SettingsError, UnknownLabelError: the loss or model does not exist, or a setting would have no effect.
    """
    if not find_loss(settings.loss).all_entities:
        for key in ("smoothing", "dropout", "relation_weight"):
            if getattr(settings, key):
                names = " and ".join(name for name, loss in LOSSES.items() if loss.all_entities)
                raise SettingsError(f"{key}: only {names} have it, and the loss is {settings.loss}; set it to 0")
    model = model_class(settings.model)(
        settings.dim, relation_dim=settings.relation_dim, norm=settings.norm, normalize=settings.normalize
    )
    return Reciprocal(model) if settings.reciprocal else model


def initial_bound(settings: TrainSettings) -> float:
    """Return the half-width of the initial uniform distribution, so that first distances come out near the margin.

    With entries uniform in ±a, an L1 distance of three vectors is about 0.8 a·dim, an L2 one a·√dim.
    """
    if settings.init is not None:
        return settings.init
    model = settings.model.lower()
    if model in ("distmult", "complex") and find_loss(settings.loss).all_entities:
        return 1e-3  # from nearly nothing: rows grow in the directions that the facts give them
    if model in ("distmult", "complex"):
        return float((3 / settings.dim) ** 0.5) * 0.5
    width = settings.dim if settings.norm == 1 or model == "rotate" else settings.dim**0.5
    return (margin_of(settings) + 2) / width


def make_tables(settings: TrainSettings, entities: int, relations: int, dtype: torch.dtype = torch.float32) -> Tables:
    """Return fresh tables as `settings` describe them.

    Args:
        settings: model, sizes, seed and device.
        entities: number of rows.
        relations: number of rows.
        dtype: of every table.
    """
    return Tables(
        make_model(settings), entities, relations, seed=settings.seed, bound=initial_bound(settings),
        device=resolve_device(settings.device), dtype=dtype,
    )  # fmt: skip


class BaseTrainer:
    """The position of a training, epoch by epoch: what `Trainer` and `DpTrainer` have in common.

    Everything drawn follows from (seed, epoch, chunk), so the position and the tables are the whole state.

    Args:
        tables: what is trained.
        settings: how.
        lr: the learning rate before `lr_scale`.

    Attributes:
        epoch: epochs finished.
        chunk: chunks of the current epoch finished (not 0 only after a stop within an epoch).
        lr_scale: factor on the learning rate, for a schedule.
    """

    def __init__(self, tables: Tables, settings: TrainSettings, lr: float) -> None:
        self.tables = tables
        self.settings = settings
        self.epoch = 0
        self.chunk = 0
        self.lr_scale = 1.0
        self._base_lr = lr
        self._loss = 0.0
        self._count = 0  # of what `_loss` is the sum over, in the current epoch

    @property
    def lr(self) -> float:
        """The learning rate now."""
        return self._base_lr * self.lr_scale

    def fall_linearly(self, done: int, epochs: int) -> None:
        """Set the learning rate after `done` of `epochs`: it falls in a straight line to `decay` times `lr`."""
        self.lr_scale = 1 - (1 - self.settings.decay) * (done / max(1, epochs - 1))

    @property
    def grafted(self) -> bool:
        """Whether there are virtual rows and triples now."""
        return False

    def position(self) -> dict[str, float]:
        """Return the position of training; with the tables, its whole state. `move_to` restores it."""
        return {
            "epoch": self.epoch, "chunk": self.chunk, "lr_scale": self.lr_scale, "loss": self._loss,
            "steps": self._count,
        }  # fmt: skip

    def move_to(self, position: Mapping[str, float]) -> None:
        """Resume from `position`."""
        self.epoch, self.chunk = int(position["epoch"]), int(position["chunk"])
        self.lr_scale, self._loss, self._count = position["lr_scale"], position["loss"], int(position["steps"])


def triple_ids(triples: npt.NDArray[np.integer] | Tensor, tables: Tables) -> Tensor:
    """Return `triples` (n, 3) as int64 on the tables' device."""
    ids = triples if isinstance(triples, Tensor) else torch.from_numpy(triples.astype(np.int64))
    return ids.to(tables.device, torch.int64)


class Trainer(BaseTrainer):
    """Trains `tables` on `triples`, epoch by epoch.

    Args:
        tables: what is trained.
        triples: (n, 3) head, relation, tail.
        settings: how.

    Raises:
        SettingsError: there are no triples.
    """

    def __init__(self, tables: Tables, triples: npt.NDArray[np.integer] | Tensor, settings: TrainSettings) -> None:
        super().__init__(tables, scaled_to(settings, tables.entities, len(triples)), settings.lr)
        if len(triples) == 0:
            raise SettingsError("there are no training triples")
        self._triples = triple_ids(triples, tables)
        self._rows_before_graft: tuple[int, int] | None = None
        optimizers.register(settings.optimizer, tables)
        self._prepare(self._triples)

    @property
    def triples(self) -> int:
        """Training triples per epoch, virtual ones included."""
        return self._batcher.size

    def _prepare(self, triples: Tensor) -> None:
        s = self.settings
        self._step: Step | SoftmaxStep
        self._batcher: Batcher | QuestionBatcher
        if find_loss(s.loss).all_entities:
            self._step = SoftmaxStep(self.tables, s)
            self._batcher = QuestionBatcher(
                triples, self.tables.entities, self.tables.relations,
                batch=s.batch, per_question=self._step.per_question,
                together=None if self._step.per_question else s.share, seed=s.seed,
            )  # fmt: skip
            return
        self._batcher = Batcher(
            triples, self.tables.entities, self.tables.relations,
            batch=s.batch, negatives=s.negatives, share=s.share, corruption=s.corruption,
            filtered=s.filtered, pure=self.tables.model.projects, seed=s.seed,
        )  # fmt: skip
        self._step = make_step(self.tables, s)

    def run_epoch(self, task: Task | None = None, stop: Callable[[], bool] | None = None) -> float | None:
        """Finish the current epoch.

        Args:
            task: shows progress after every chunk.
            stop: asked between chunks; True leaves the epoch where it is, to be finished by the next call.

        Returns:
            The epoch's mean loss, or None if it was stopped.

        Raises:
            SettingsError: training diverged.
        """
        lr = self.lr
        for batch in self._batcher.epoch(self.epoch, self.chunk):
            loss = self._step(batch, lr)  # type: ignore[arg-type]  # batcher and step are of one kind
            self._loss += float(loss)
            self._count += len(batch.bounds) - 1
            self.chunk += 1
            if task is not None:
                task.advance(batch.positives, loss=self._loss / self._count)
            if stop is not None and self.chunk < len(self._batcher) and stop():
                return None
        mean = self._loss / self._count
        if not np.isfinite(mean):
            raise SettingsError(f"training diverged in epoch {self.epoch}: the loss is {mean}; lower lr ({lr:g})")
        self.epoch, self.chunk, self._loss, self._count = self.epoch + 1, 0, 0.0, 0
        return mean

    # -- what the federation adds and takes out again ----------------------------------------------

    @property
    def grafted(self) -> bool:
        return self._rows_before_graft is not None

    def graft(self, entities: Tensor, relations: Tensor, triples: Tensor) -> None:
        """Train on virtual entities, relations and triples too, until `ungraft`.

        Args:
            entities: (n, width) vectors; they get the ids after the last.
            relations: (m, width) vectors, with ids after the last, too.
            triples: (t, 3), in old and new ids alike.

        Raises:
            SettingsError: there is a graft already, an epoch is unfinished, or a triple names a row that is not there.
        """
        if self.grafted:
            raise SettingsError("there is a graft already; take it out first")
        if self.chunk:
            raise SettingsError("finish the epoch before grafting")
        self._rows_before_graft = (self.tables.entities, self.tables.relations)
        self.tables.append("entity", entities)
        self.tables.append("relation", relations)
        extra = triple_ids(triples, self.tables)
        if len(extra) and (
            int(extra.min()) < 0
            or int(extra[:, [0, 2]].max()) >= self.tables.entities
            or int(extra[:, 1].max()) >= self.tables.relations
        ):
            self.ungraft()
            raise SettingsError("a virtual triple names an entity or relation that is not there")
        self._prepare(torch.cat([self._triples, extra]))

    def ungraft(self) -> None:
        """Take out every virtual row and triple; what the real rows learned from them stays."""
        if self._rows_before_graft is None:
            return
        self.tables.truncate("entity", self._rows_before_graft[0])
        self.tables.truncate("relation", self._rows_before_graft[1])
        self._rows_before_graft = None
        self._prepare(self._triples)
