"""The engines to compare: TransE with L1 distance, one uniform negative, margin loss 1, on one CPU thread.

All losses are means over a batch, so one learning rate per triple, multiplied by the batch size, means the same to
all of them. All start from the same tables, except PyG, which scales vectors as it reads them.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.child import Clock
from benchmarks.data import Data

MARGIN = 1.0
BOUND = 0.02
"""Initial values are uniform in ±0.02: first distances are near the margin. The best of five bounds by validation MRR,
tried with fkge alone; on FB15k-237 also PyKEEN's default for entities (Xavier)."""
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Spent:
    """Triples trained on, and the seconds it took."""

    triples: int
    cpu: float
    wall: float


class Engine(ABC):
    """One way to train, made afresh for every run."""

    start: ClassVar[float] = 10**-3.5
    """Where to begin the search for a learning rate per triple."""

    def __init__(self, data: Data, dim: int, batch: int, lr: float) -> None:
        self.data = data
        self.dim = dim
        self.batch = batch
        self.lr = lr * batch

    @abstractmethod
    def run(self, epochs: int, seconds: float) -> Spent:
        """Train for so many epochs, or a little more than so many CPU seconds if that is less; one batch at least."""

    @abstractmethod
    def tables(self) -> tuple[Vectors, Vectors]:
        """Entity and relation vectors, such that −‖h + r − t‖₁ is the model's score."""


@torch.no_grad()
def initial_entities(vectors: torch.Tensor) -> torch.Tensor:
    """Fill a table with the values all engines start from."""
    return vectors.uniform_(-BOUND, BOUND, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def initial_relations(vectors: torch.Tensor) -> torch.Tensor:
    """The same for relations."""
    return vectors.uniform_(-BOUND, BOUND, generator=torch.Generator().manual_seed(1))


class Fkge(Engine):
    """This package: compiled kernels; with batch 1, triple by triple in place."""

    kernels: ClassVar[bool] = True

    def __init__(self, data: Data, dim: int, batch: int, lr: float) -> None:
        from fkge.embed import Trainer, make_tables
        from fkge.settings import TrainSettings

        super().__init__(data, dim, batch, lr)
        settings = TrainSettings(
            model="TransE", dim=dim, norm=1, loss="margin", margin=MARGIN, negatives=1, corruption="uniform",
            optimizer="sgd", lr=self.lr, batch=batch, device="cpu", kernels=self.kernels,
            share=1, filtered=False,
        )  # fmt: skip
        self._tables = make_tables(settings, data.entities, data.relations)
        initial_entities(self._tables["entity"])
        initial_relations(self._tables["relation"])
        self._trainer = Trainer(self._tables, data.train, settings)

    def run(self, epochs: int, seconds: float) -> Spent:
        clock, done = Clock(), _Count()
        for _ in range(epochs):
            finished = self._trainer.run_epoch(done, lambda: clock.cpu >= seconds)
            if finished is None or clock.cpu >= seconds:
                break
        return Spent(done.total, clock.cpu, clock.wall)

    def tables(self) -> tuple[Vectors, Vectors]:
        return self._tables["entity"].numpy(), self._tables["relation"].numpy()


class FkgeAutograd(Fkge):
    """This package without kernels: autograd on the rows a batch touches, as it runs other models and devices."""

    kernels = False


class _Count:
    """A progress task that only counts."""

    def __init__(self) -> None:
        self.total = 0

    def advance(self, amount: int, **_: float | str) -> None:
        self.total += amount


class PyKeen(Engine):
    """PyKEEN's sLCWA loop, dense SGD; without its default constraint, which would renormalise the table every step."""

    def __init__(self, data: Data, dim: int, batch: int, lr: float) -> None:
        from pykeen.losses import MarginRankingLoss
        from pykeen.models import TransE
        from pykeen.training import SLCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        super().__init__(data, dim, batch, lr)
        train = torch.from_numpy(data.train.astype(np.int64))
        self._factory = CoreTriplesFactory(train, num_entities=data.entities, num_relations=data.relations)
        self._model = TransE(
            triples_factory=self._factory, embedding_dim=dim, scoring_fct_norm=1, random_seed=0,
            loss=MarginRankingLoss(margin=MARGIN), entity_constrainer=None,
            entity_initializer=initial_entities, relation_initializer=initial_relations,
        )  # fmt: skip
        self._loop = SLCWATrainingLoop(
            model=self._model, triples_factory=self._factory, negative_sampler="basic",
            negative_sampler_kwargs={"num_negs_per_pos": 1}, automatic_memory_optimization=False,
            optimizer=torch.optim.SGD(self._model.get_grad_params(), lr=self.lr),
        )  # fmt: skip

    def run(self, epochs: int, seconds: float) -> Spent:
        from pykeen.training.callbacks import TrainingCallback

        clock = Clock()

        class Watch(TrainingCallback):
            """Counts triples; leaves when the time is up. The clock starts with the first batch at hand."""

            triples = 0

            def pre_batch(self, **_: Any) -> None:
                nonlocal clock
                if not self.triples:
                    clock = Clock()
                elif clock.cpu >= seconds:
                    raise _TimeIsUpError

            def post_batch(self, epoch: int, batch: Any, **_: Any) -> None:
                self.triples += len(batch["positives"])

        watch = Watch()
        with contextlib.suppress(_TimeIsUpError):
            self._loop.train(
                self._factory, num_epochs=epochs, batch_size=self.batch, callbacks=watch, num_workers=0,
                pin_memory=False, use_tqdm=False, use_tqdm_batch=False,
            )  # fmt: skip
        return Spent(watch.triples, clock.cpu, clock.wall)

    def tables(self) -> tuple[Vectors, Vectors]:
        model = self._model
        entity, relation = model.entity_representations[0], model.relation_representations[0]
        return entity(indices=None).detach().numpy(), relation(indices=None).detach().numpy()


class _TimeIsUpError(Exception):
    """Leaves PyKEEN's loop in the middle of an epoch."""


class PyG(Engine):
    """PyTorch Geometric, sparse gradients, SGD. Batches are slices of a permutation: its own loader is slower."""

    start = 1e-1

    def __init__(self, data: Data, dim: int, batch: int, lr: float) -> None:
        from torch_geometric.nn.kge import TransE

        super().__init__(data, dim, batch, lr)
        torch.manual_seed(0)
        self._model = TransE(data.entities, data.relations, dim, margin=MARGIN, p_norm=1.0, sparse=True)
        self._optimizer = self._make_optimizer()
        self._train = torch.from_numpy(data.train.T.astype(np.int64)).contiguous()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._model.parameters(), lr=self.lr)

    def run(self, epochs: int, seconds: float) -> Spent:
        clock, triples = Clock(), 0
        for _ in range(epochs):
            for batch in torch.randperm(self._train.shape[1]).split(self.batch):
                self._optimizer.zero_grad()
                self._model.loss(*(column[batch] for column in self._train)).backward()
                self._optimizer.step()
                triples += len(batch)
                if clock.cpu >= seconds:
                    return Spent(triples, clock.cpu, clock.wall)
        return Spent(triples, clock.cpu, clock.wall)

    def tables(self) -> tuple[Vectors, Vectors]:
        entity = torch.nn.functional.normalize(self._model.node_emb.weight.detach(), p=1.0, dim=-1)
        return entity.numpy(), self._model.rel_emb.weight.detach().numpy()


class PyGAdam(PyG):
    """The same with SparseAdam, nearer to its own example. Adam's rate does not grow with the batch."""

    start = 1e-3

    def _make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(self._model.parameters(), lr=self.lr / self.batch)


ENGINES: dict[str, type[Engine]] = {
    "fkge": Fkge,
    "fkge autograd": FkgeAutograd,
    "PyKEEN": PyKeen,
    "PyG": PyG,
    "PyG SparseAdam": PyGAdam,
}
