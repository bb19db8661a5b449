"""Differentially private training: DP-SGD on an owner's triples.

Neighbouring graphs differ by one training triple, added or removed; the vocabulary (which rows there are) is public.
A *step* sums clipped gradients (`dp_gradients`: one triple moves the sum by at most 1 in L2, over all trained tables),
adds Gaussian noise of standard deviation σ to *every* number of every row, touched or not, and lets an optimiser move
the tables along. That is a Gaussian mechanism of sensitivity 1 on a Poisson sample of rate q; whatever is computed of
its outputs, by anybody, is post-processing. What an accountant needs is (σ, q, number of steps): `DpSettings.noise`,
`DpSettings.rate`, `DpSettings.steps_in`.

What a step does *not* depend on: the number of triples (it is private: the rate is the setting, and nothing is divided
by a batch's size), losses, and the order of triples. What it is not: a guarantee for an entity, for a fact that several
triples state, for validation triples, or against timing. `dp_noise` states the quality of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from fkge.embed import kernels
from fkge.embed.batches import Examples
from fkge.embed.dp_gradients import TABLES, Gradients, draw, make_gradients
from fkge.embed.dp_noise import Noise, fresh_key
from fkge.embed.losses import find_loss
from fkge.embed.optimizers import BETA1, BETA2, EPSILON
from fkge.embed.tables import Tables
from fkge.embed.trainer import BaseTrainer, triple_ids
from fkge.errors import SettingsError
from fkge.progress import Task
from fkge.settings import Settings, TrainSettings

if TYPE_CHECKING:
    from fkge.embed.kernels.lazy_noise import LazySteps

_CHUNKS = 4
"""Breaks in an epoch of many steps, at most. Before each, all deferred noise must be drawn."""
_NUMBERS = 1 << 16
"""Numbers of a table that are updated at a time: they stay in the cache, and temporaries stay small."""


class DpSettings(Settings):
    """Settings of private training. `noise`, `rate` and the number of steps are what privacy costs; see the module."""

    noise: float = Field(1.0, ge=0, description="σ: standard deviation of the noise, in clips; 0 protects nothing")
    rate: float = Field(
        1.0,
        gt=0,
        le=1,
        description="chance of each triple to be in a step, drawn in secret; an epoch is round(1/rate) steps. 1: all",
    )
    clip: float = Field(
        0.1,
        gt=0,
        description="C: a triple's gradient is shortened to this length if it is longer; a short one, at which nearly "
        "all are shortened, serves best. Steps are measured in clips, so lr need not change with it",
    )
    negatives: int = Field(8, ge=1, description="corrupted triples of each triple; more make its gradient steadier")
    relations: Literal["learn", "public"] = Field(
        "learn", description="train relations too, or leave them as they were agreed on and spend nothing on them"
    )
    optimizer: Literal["adam", "momentum", "sgd"] = Field(
        "adam", description="row-wise optimiser; at small rates sgd and momentum have a shortcut, see `lazy`"
    )
    momentum: float = Field(0.9, gt=0, lt=1, description="what a step keeps of the last one's velocity (momentum)")
    lr: float = Field(
        0.05,
        gt=0,
        description="learning rate; for sgd and momentum it is how far one triple can move a row, so take about 0.02 "
        "and 0.002",
    )
    average: float = Field(
        0.0, ge=0, le=1, description="`averaged` gives about the mean of this share of the last epochs; 0: the last one"
    )
    lazy: bool = Field(
        True, description="draw a row's noise when it is next read, where the optimiser allows it; the same in law"
    )
    gather: int = Field(8192, ge=1, description="triples whose rows are gathered at a time: memory, not results")

    dim: int | None = Field(
        None, ge=1, description="size of vectors; small ones drown less in noise. None: as `train` has it"
    )
    margin: float | None = Field(None, ge=0, description="margin of the loss; None: as `train` has it")
    init: float | None = Field(None, gt=0, description="initial values are uniform in ±init; None: as `train` has it")
    norm: Literal[1, 2] | None = Field(None, description="distance of the model; None: as `train` has it")
    decay: float = Field(
        1.0, gt=0, le=1, description="factor on the learning rate at the last epoch, linearly until then"
    )
    travel: float | None = Field(
        None,
        gt=0,
        description="instead of lr, for sgd and momentum: how many margins the noise alone carries a row over the "
        "whole plan. So lr follows from noise, steps and dim, and one setting serves every ε",
    )

    @property
    def steps(self) -> int:
        """Steps in an epoch: a public number."""
        return max(1, round(1 / self.rate))

    @property
    def trained(self) -> tuple[str, ...]:
        """The tables that are trained."""
        return TABLES if self.relations == "learn" else ("entity",)

    def steps_in(self, epochs: int) -> int:
        """Return the number of steps that `epochs` epochs take: with noise and rate, what is to be paid for."""
        return epochs * self.steps

    def rate_for(self, noise: float, steps: int, dim: int, margin: float) -> float:
        """Return the learning rate: `lr`, or what `travel` asks for.

        Args:
            noise, steps: σ of every step of the whole plan, and their number.
            dim, margin: width of an entity's row, and margin of the loss.

        Raises:
            SettingsError: `travel` counts in margins, and there is none.
        """
        if self.travel is None or self.optimizer == "adam":
            return self.lr
        if margin == 0:
            raise SettingsError(
                "dp.travel counts in margins, and by default the losses of DistMult and ComplEx have none; set dp.lr "
                "instead, or dp.margin"
            )
        still = 1 - self.momentum if self.optimizer == "momentum" else 1.0
        return self.travel * margin * still / (max(noise, 1e-3) * math.sqrt(steps * dim))

    def of(self, train: TrainSettings) -> TrainSettings:
        """Return `train` as private training uses it, with other values for settings that DP-SGD cannot use.

        A loss over all entities becomes the same cross-entropy over negatives: a triple must not move every row. There
        is one row for each relation: its inverse would halve what each learns, under as much noise.
        """
        own = {key: value for key in ("dim", "margin", "init", "norm") if (value := getattr(self, key)) is not None}
        return train.model_copy(
            update={
                "lr": self.lr, "negatives": self.negatives, "share": 1, "corruption": "uniform", "filtered": False,
                "schedule": "linear", "decay": self.decay, "regularization_scale": "fixed",
                "reciprocal": False, "smoothing": 0.0, "dropout": 0.0,
                "relation_weight": 0.0, "loss": "sampled" if find_loss(train.loss).all_entities else train.loss, **own,
            }
        )  # fmt: skip


class DpTrainer(BaseTrainer):
    """Trains `tables` on `triples` privately, epoch by epoch. Has `Trainer`'s interface, so that an owner uses either.

    Args:
        triples: (n, 3) head, relation, tail; there may be none.
        settings: model, loss, margin, temperature, regularisation, decay, seed, device and kernels count here; batches,
            negatives and the optimiser are `private`'s. Negatives are never filtered, shared or drawn by degree.
        noise: where the key of all secret randomness is drawn from; the system's entropy if None. Give one only to
            repeat a simulation: torch seeds a CPU generator with 32 bits, which anybody can try out.

    `lr_scale` must not follow from private data, unless that is paid for.
    """

    def __init__(
        self, tables: Tables, triples: npt.NDArray[np.integer] | Tensor, settings: TrainSettings, private: DpSettings,
        noise: torch.Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tables, settings, private.lr)
        self.private = private
        self._columns = [column.contiguous() for column in triple_ids(triples, tables).unbind(1)]
        self._gradients = make_gradients(tables, settings, private.clip, learn=private.relations == "learn")
        self._noise = Noise(fresh_key(noise), tables.device, kernels=settings.kernels)
        self._register()
        self.stepper = self._make_steps()

    # -- what an owner asks ------------------------------------------------------------------------------------------

    @property
    def triples(self) -> int:
        """Number of training triples. Private: never release it."""
        return len(self._columns[0])

    def run_epoch(self, task: Task | None = None, stop: Callable[[], bool] | None = None) -> float | None:
        """Finish the current epoch, as `Trainer.run_epoch`. Whenever `stop` is asked, the tables have all their noise.

        Neither the loss that is returned nor the progress is protected: never release them, or base on them what is
        released.
        """
        steps, each = self.private.steps, self._steps_per_chunk
        self.stepper.begin(self.lr)
        while self.chunk * each < steps:
            for number in range(self.chunk * each, min((self.chunk + 1) * each, steps)):
                self._step(self.epoch * steps + number, task)
            self.chunk += 1
            if stop is not None and self.chunk * each < steps:
                self.stepper.flush()
                if stop():
                    return None
        self.stepper.flush()
        self._average()
        mean = self._loss / max(self._count, 1)
        self.epoch, self.chunk, self._loss, self._count = self.epoch + 1, 0, 0.0, 0
        return mean

    def averaged(self, table: str) -> Tensor:
        """Return `table` with the last iterates averaged as the settings say: (rows, width). Costs nothing more."""
        if not self.private.average or not self.tables.has_state(table, "average"):
            return self.tables[table]
        seen = self.tables.state(table, "averaged", columns=False) > 0
        return torch.where(seen.unsqueeze(1), self.tables.state(table, "average"), self.tables[table])

    def move_to(self, position: Mapping[str, float]) -> None:
        """Resume from `position`, with noise that was never used before.

        The same noise on other gradients would cancel out of their difference. Steps made twice are paid for twice.
        """
        super().move_to(position)
        self._noise = self._noise.child(self.epoch, self.chunk)
        self.stepper = self._make_steps()

    def graft(self, entities: Tensor, relations: Tensor, triples: Tensor) -> None:
        """Raise `SettingsError`: virtual triples would be examples that nobody accounts for."""
        raise SettingsError("private training takes no virtual triples; leave `neighbours` off")

    def ungraft(self) -> None:
        """Do nothing: there is never a graft."""

    # -- steps -------------------------------------------------------------------------------------------------------

    @property
    def _steps_per_chunk(self) -> int:
        return -(-self.private.steps // _CHUNKS)

    def _register(self) -> None:
        """Create the state of each row. Velocity is named ``mean``, as Adam's is, so that `Tables.rotate` turns it."""
        p = self.private
        slots = {"sgd": (), "momentum": ("mean",), "adam": ("mean", "square", "steps")}[p.optimizer]
        for name in p.trained:
            for slot in (*slots, *(("average", "averaged") if p.average else ())):
                self.tables.state(name, slot, columns=slot not in ("steps", "averaged"))

    def _make_steps(self) -> EagerSteps | LazySteps:
        p = self.private
        linear = p.optimizer != "adam" and p.steps > 1
        if p.lazy and linear and kernels.can_run(self.tables, self.settings):
            from fkge.embed.kernels.lazy_noise import LazySteps
            from fkge.embed.kernels.private import KernelGradients  # numba: only where it is used

            assert isinstance(self._gradients, KernelGradients)
            return LazySteps(
                self.tables, self._gradients, self._noise,
                noise=p.noise, momentum=p.momentum if p.optimizer == "momentum" else 0.0, steps=p.steps,
            )  # fmt: skip
        return EagerSteps(self.tables, self._gradients, self._noise, p)

    def _step(self, number: int, task: Task | None) -> None:
        p, seed, entities = self.private, self.settings.seed, self.tables.entities
        h, r, t = self._columns
        chosen = self._noise.select(self.triples, p.rate)
        parts = (
            draw(h[ids], r[ids], t[ids], entities, p.negatives, seed, number)
            for ids in chosen.split(p.gather) if len(ids)
        )  # fmt: skip
        self._loss += self.stepper.step(parts, len(chosen) * (p.negatives + 2))
        self._count += len(chosen)
        if task is not None:
            task.advance(len(chosen), loss=self._loss / max(self._count, 1))

    @torch.no_grad()
    def _average(self) -> None:
        """Weigh the iterate after epoch t by t^(1/share − 1): about the mean of the last `share` of them, at any time.

        (Shamir and Zhang 2013.) Rows count for themselves, so the mean of a row that was replaced starts again.
        """
        if not self.private.average:
            return
        power = 1 / self.private.average - 1
        for name in self.private.trained:
            count = self.tables.state(name, "averaged", columns=False)
            count += 1
            weight = ((power + 1) / (count + power)).unsqueeze(1)
            self.tables.state(name, "average").lerp_(self.tables[name], weight)


class EagerSteps:
    """Private steps with noise on every row at every step: any model, device and optimiser.

    Args:
        tables, gradients, source, private: what is trained, what sums gradients, the noise, and how.
    """

    def __init__(self, tables: Tables, gradients: Gradients, source: Noise, private: DpSettings) -> None:
        self.tables, self.gradients, self.source, self.private = tables, gradients, source, private
        self.sums = {name: torch.zeros_like(tables[name]) for name in private.trained}

    def begin(self, lr: float) -> None:
        """Set the length of the steps that follow."""
        self._lr = lr

    @torch.no_grad()
    def step(self, parts: Iterator[Examples], size: int) -> float:
        """One step on all examples of `parts`. Returns their summed loss."""
        for total in self.sums.values():
            total.zero_()
        loss = 0.0
        for part in parts:
            with torch.enable_grad():
                loss += self.gradients.add(part, self.sums)
        numbers = _NUMBERS if self.tables.device.type == "cpu" else _NUMBERS << 6
        for name, total in self.sums.items():
            rows, width = total.shape
            for first in range(0, rows, at_a_time := max(1, numbers // width)):
                place = slice(first, min(first + at_a_time, rows))
                gradient = total[place]
                if self.private.noise:
                    fresh = self.source.normal(len(gradient), width)
                    gradient.add_(fresh, alpha=self.private.noise)
                self._update(name, place, gradient, self._lr * self.tables.spec(name).rate)
        return loss

    def flush(self) -> None:
        """Do nothing: this trainer defers no noise."""

    def _update(self, name: str, place: slice, gradient: Tensor, lr: float) -> None:
        values, optimizer = self.tables[name][place], self.private.optimizer
        if optimizer == "sgd":
            values.sub_(gradient, alpha=lr)
            return
        mean = self.tables.state(name, "mean")[place]
        if optimizer == "momentum":
            values.sub_(mean.mul_(self.private.momentum).add_(gradient), alpha=lr)
            return
        square = self.tables.state(name, "square")[place]
        count = self.tables.state(name, "steps", columns=False)[place].add_(1)
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = square.sqrt().div_((1 - BETA2**count).sqrt_().unsqueeze(1)).add_(EPSILON)
        values.sub_(mean.div((1 - BETA1**count).unsqueeze(1)).div_(root), alpha=lr)
