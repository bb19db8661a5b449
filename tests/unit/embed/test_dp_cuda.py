"""Private training on a GPU is the CPU's, up to rounding: the same examples, the same clipping, the same noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fkge.embed import DpSettings, DpTrainer, make_tables
from fkge.embed.dp_noise import Noise
from fkge.settings import TrainSettings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TRIPLES = np.unique(np.random.default_rng(0).integers([40, 5, 40], size=(300, 3)), axis=0)


def test_one_key_gives_one_noise_everywhere() -> None:
    results = [Noise(bytes(range(32)), device, kernels=False) for device in ("cpu", "cuda")]
    torch.testing.assert_close(*(noise.normal(100, 70).cpu() for noise in results), rtol=1e-5, atol=1e-5)
    assert torch.equal(*(noise.select(10_000, 0.03).cpu() for noise in results))


@pytest.mark.parametrize("optimizer", ["adam", "momentum", "sgd"])
@pytest.mark.parametrize(
    ("model", "norm"), [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)]
)
def test_cuda_trains_alike(model: str, norm: int, optimizer: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        s = TrainSettings(model=model, norm=norm, dim=6, init=0.5, margin=2.0, device=device, kernels=False)
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        private = DpSettings(rate=0.3, noise=0.2, optimizer=optimizer, lr=0.01, gather=32)  # type: ignore[arg-type]
        trainer = DpTrainer(tables, TRIPLES, s, private, torch.Generator().manual_seed(0))
        losses = [trainer.run_epoch() for _ in range(2)]
        results.append((losses, tables.export(state=True)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-4)
    for name, tensor in results[0][1].items():
        torch.testing.assert_close(results[1][1][name].cpu(), tensor, rtol=1e-3, atol=1e-4, msg=name)


def test_a_large_full_batch_fits() -> None:
    """300,000 triples, 16 negatives, 128 dimensions: gathered at once they would take 2.8 GB, several times over."""
    rng: Any = np.random.default_rng(0)
    s = TrainSettings(dim=128, device="cuda")
    tables = make_tables(s, 50_000, 20)
    triples = rng.integers([50_000, 20, 50_000], size=(300_000, 3))
    trainer = DpTrainer(tables, triples, s, DpSettings(negatives=16))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trainer.run_epoch()
    assert tables["entity"].isfinite().all()
    assert torch.cuda.max_memory_allocated() - before < 2**30
