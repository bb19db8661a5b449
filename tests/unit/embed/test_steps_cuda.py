"""A training step on a GPU is the CPU's, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fkge.embed import MODELS, Trainer, make_tables
from fkge.embed.batches import Batcher
from fkge.embed.steps import AutogradStep
from fkge.settings import TrainSettings
from tests.conftest import random_graph

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GRAPH = random_graph()


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", list(MODELS))
def test_cuda_takes_the_same_step(model: str, optimizer: str, share: int) -> None:
    results = []
    triples = torch.from_numpy(GRAPH.train.astype("int64"))
    for device in ("cpu", "cuda"):
        s = TrainSettings(
            model=model, optimizer=optimizer, share=share, dim=6, negatives=5, device=device, kernels=False
        )
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        step = AutogradStep(tables, s)
        pure = tables.model.projects
        batch = next(iter(Batcher(triples, 40, 5, batch=64, negatives=5, share=share, pure=pure).epoch(0)))
        moved = {k: v.to(device) for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
        step(replace(batch, **moved), 0.05)
        results.append(tables.export(state=True))
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name].cpu(), tensor, msg=name)


@pytest.mark.parametrize("model", list(MODELS))
def test_cuda_trains_and_rolls_back(model: str) -> None:
    s = TrainSettings(model=model, dim=8, negatives=6, batch=32, device="cuda", filtered=True, corruption="bernoulli")
    tables = make_tables(s, 40, 5)
    trainer = Trainer(tables, GRAPH.train, s)
    snapshot = tables.snapshot()
    trainer.graft(
        torch.randn(2, tables.width("entity")), torch.randn(1, tables.width("relation")), torch.tensor([[40, 5, 41]])
    )
    first = trainer.run_epoch()
    trainer.ungraft()
    losses = [trainer.run_epoch() for _ in range(20)]
    assert first is not None
    assert losses[-1] is not None
    assert losses[-1] < first
    tables.restore(snapshot)
    assert all(torch.equal(v, snapshot.tensors[tuple(k.split("/", 1))]) for k, v in tables.export(state=False).items())  # type: ignore[index]
