"""Cross-entropy over all entities on a GPU is the CPU's, up to rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fkge.embed import Trainer, make_tables, softmax
from fkge.embed.questions import QuestionBatcher, Questions
from fkge.embed.softmax import SoftmaxStep
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import GRAPH, TRAIN

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

KINDS = [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)]


def questions_of(s: TrainSettings) -> Questions:
    return next(QuestionBatcher(TRAIN, 40, 5, batch=10**6, per_question=s.loss == "kvsall", seed=0).epoch(0))


def moved(batch: Questions, device: str) -> Questions:
    tensors = {k: v.to(device) for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    return replace(batch, **tensors, generator=torch.Generator(device=device))


@pytest.mark.parametrize("cells", [500, 1 << 20])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize(("model", "norm"), KINDS)
def test_cuda_takes_the_same_step(
    model: str, norm: int, reciprocal: bool, loss: str, optimizer: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"relation_weight": 0.5} if model in ("DistMult", "ComplEx") else {}
    results, losses = [], []
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(softmax.CELLS, device, cells)
        s = TrainSettings(
            model=model, norm=norm, loss=loss, reciprocal=reciprocal, smoothing=0.1, regularization=0.01,
            regularizer="n3", optimizer=optimizer, dim=6, init=0.5, device=device, **changes,
        )  # fmt: skip
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        step, batch = SoftmaxStep(tables, s), moved(questions_of(s), device)
        losses.append([float(step(batch, 0.05)) for _ in range(3)])
        results.append(tables.export(state=True))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name].cpu(), tensor, atol=1e-7, rtol=1e-6, msg=name)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_products_on_a_gpu_give_nearly_the_gradient(precision: str) -> None:
    found = []
    for device, kind in (("cpu", "float32"), ("cuda", precision)):
        s = TrainSettings(model="ComplEx", loss="1vsall", dim=32, init=0.4, device=device, precision=kind)  # type: ignore[arg-type]
        tables = make_tables(s, 40, 5)
        found.append(SoftmaxStep(tables, s).gradients(moved(questions_of(s), device))[1])
    for name, exact in found[0].items():
        error = float((found[1][name].cpu() - exact).norm() / exact.norm())
        assert error < (1e-2 if precision == "bfloat16" else 2e-3), name  # float32 may be TF32 there
        assert error > 1e-5 or precision == "float32"


@pytest.mark.parametrize("changes", [{}, {"reciprocal": True, "dropout": 0.2}])
@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
@pytest.mark.parametrize("model", ["TransE", "ComplEx", "RotatE"])
def test_cuda_trains_stops_and_goes_on(model: str, loss: str, changes: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("fkge.embed.questions.CELLS_PER_CHUNK", 1 << 14)  # several chunks an epoch
    s = TrainSettings(model=model, loss=loss, dim=8, batch=32, lr=0.02, device="cuda", **changes)
    tables = make_tables(s, 40, 5)
    trainer = Trainer(tables, GRAPH.train, s)
    assert len(trainer._batcher) > 1
    snapshot = tables.snapshot()
    trainer.graft(
        torch.randn(2, tables.width("entity")), torch.randn(1, tables.width("relation")), torch.tensor([[40, 5, 41]])
    )
    first = trainer.run_epoch()
    trainer.ungraft()
    assert trainer.run_epoch(stop=lambda: True) is None
    losses = [trainer.run_epoch() for _ in range(20)]
    assert first is not None
    assert losses[-1] is not None
    assert losses[-1] < first
    tables.restore(snapshot)
    assert all(torch.equal(v, snapshot.tensors[tuple(k.split("/", 1))]) for k, v in tables.export(state=False).items())  # type: ignore[index]
