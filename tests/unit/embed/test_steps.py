"""Gradients equal autograd's on whole tables, row-wise optimisers equal torch's, kernels equal their slow twins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conftest import random_graph

from fkge.embed import MODELS, Trainer, make_tables
from fkge.embed.batches import Batch, Batcher
from fkge.embed.losses import loss_per_positive, margin_of
from fkge.embed.models import Relations, TransE
from fkge.embed.steps import AutogradStep, make_step
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings

GRAPH = random_graph()
TRAIN = torch.from_numpy(GRAPH.train.copy()).long()
BASE: dict[str, Any] = {"dim": 6, "batch": 32, "negatives": 5, "lr": 0.02, "margin": 2.0, "init": 0.5, "device": "cpu"}
KERNELS = [
    ("TransE", 1),
    ("TransE", 2),
    ("TransH", 1),
    ("TransH", 2),
    ("TransR", 1),
    ("TransR", 2),
    ("TransD", 1),
    ("TransD", 2),
    ("DistMult", 1),
    ("ComplEx", 1),
    ("RotatE", 1),
]


def one_step(settings: TrainSettings, tables: Tables) -> Batch:
    pure = tables.model.projects
    batcher = Batcher(
        TRAIN, 40, 5, batch=settings.batch, negatives=settings.negatives, share=settings.share, pure=pure, seed=7
    )
    return next(iter(next(iter(batcher.epoch(0))).steps()))


def naive_loss(tables: dict[str, torch.Tensor], like: Tables, batch: Batch, s: TrainSettings) -> torch.Tensor:
    """The loss triple by triple from whole tables: no groups, no unique rows, no queries shared."""
    model = like.model

    def score(h: int, r: int, t: int) -> torch.Tensor:
        relations = Relations(
            {n: tables[n][r : r + 1] for n in like.names("relation")}, torch.zeros(1, 1, dtype=torch.int64)
        )
        head, tail = ({n: tables[n][i].reshape(1, 1, -1) for n in like.names("entity")} for i in (h, t))
        return model.score(head, relations, tail)[0]

    total, count = torch.zeros((), dtype=torch.float64), 0
    for g in range(len(batch.head)):
        for i in range(batch.head.shape[1]):
            if not batch.weight[g, i]:
                continue
            h, r, t = int(batch.head[g, i]), int(batch.relation[g, i]), int(batch.tail[g, i])
            negatives = [
                score(h, r, n) if batch.corrupt_tail[g, i] else score(n, r, t) for n in batch.negative[g].tolist()
            ]
            loss = loss_per_positive(s.loss, score(h, r, t), torch.stack(negatives), margin_of(s), s.temperature)
            cubes = sum((x.abs() ** 3).sum() for x in (tables["entity"][h], tables["entity"][t], tables["relation"][r]))
            total, count = total + loss + s.regularization * cubes, count + 1
    return total / count


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("loss", ["margin", "sigmoid"])
@pytest.mark.parametrize("model", list(MODELS))
def test_gradients_equal_autograd_on_whole_tables(model: str, loss: str, share: int) -> None:
    s = TrainSettings(model=model, loss=loss, share=share, norm=2, regularization=0.01, kernels=False, **BASE)  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    batch = one_step(s, tables)
    _, found = AutogradStep(tables, s).gradients(batch)
    whole = {n: tables[n].clone().requires_grad_() for n in (*tables.names("entity"), *tables.names("relation"))}
    naive_loss(whole, tables, batch, s).backward()
    for name, (ids, gradient) in found.items():
        full = torch.zeros_like(tables[name])
        full[ids] = gradient
        torch.testing.assert_close(full, whole[name].grad, atol=1e-12, rtol=1e-9, msg=name)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_optimisers_equal_torchs_when_every_row_is_touched(optimizer: str) -> None:
    s = TrainSettings(model="DistMult", optimizer=optimizer, kernels=False, **{**BASE, "negatives": 200})  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    step = AutogradStep(tables, s)
    mirror = {n: tables[n].clone().requires_grad_() for n in ("entity", "relation")}
    torch_optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=s.lr),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=s.lr, eps=1e-8),
        "adam": lambda p: torch.optim.Adam(p, lr=s.lr),
    }[optimizer](list(mirror.values()))
    for batch in [x for b in Batcher(TRAIN, 40, 5, batch=200, negatives=200).epoch(0) for x in b.steps()]:
        _, gradients = step.gradients(batch)
        assert all(len(ids) == len(tables[n]) for n, (ids, _) in gradients.items()), "the test wants every row touched"
        for name, (ids, gradient) in gradients.items():
            mirror[name].grad = torch.zeros_like(mirror[name]).index_copy(0, ids, gradient)
        step(batch, s.lr)
        torch_optimizer.step()
    for name, value in mirror.items():
        torch.testing.assert_close(tables[name], value.detach(), atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("kernels", [True, False])
def test_a_step_leaves_other_rows_and_their_state_alone(optimizer: str, kernels: bool) -> None:
    s = TrainSettings(optimizer=optimizer, kernels=kernels, **{**BASE, "batch": 4, "negatives": 2})  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    step = make_step(tables, s)
    before = {k: v.clone() for k, v in tables.export(state=True).items()}
    batch = one_step(s, tables)
    step(batch, s.lr)
    touched = {
        "entity": torch.cat([batch.head, batch.tail, batch.negative], 1).unique(),
        "relation": batch.relation.unique(),
    }
    changed = False
    for key, value in tables.export(state=True).items():
        mask = torch.ones(len(value), dtype=torch.bool)
        mask[touched[key.split("/")[0]]] = False
        assert torch.equal(value[mask], before[key][mask]), key
        changed |= not torch.equal(value, before[key])
    assert changed


@pytest.mark.parametrize(("batch", "negatives", "share"), [(32, 5, 1), (30, 6, 4), (1, 1, 1)])
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("loss", ["margin", "sigmoid"])
@pytest.mark.parametrize(("model", "norm"), KERNELS)
def test_kernels_equal_their_slow_twins(
    model: str, norm: int, loss: str, optimizer: str, batch: int, negatives: int, share: int
) -> None:
    changes = {"batch": batch, "negatives": negatives, "share": share}
    results = []
    for kernels in (True, False):
        s = TrainSettings(
            model=model, norm=norm, loss=loss, optimizer=optimizer, kernels=kernels,
            regularization=0.01 if share > 1 else 0.0, filtered=share > 1, **{**BASE, **changes},
        )  # type: ignore[arg-type]  # fmt: skip
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        trainer = Trainer(tables, TRAIN[:120], s)
        losses = [trainer.run_epoch() for _ in range(2)]
        results.append((losses, tables.export(state=True)))
    (fast_losses, fast), (slow_losses, slow) = results
    assert fast_losses == pytest.approx(slow_losses, rel=1e-9)
    assert fast.keys() == slow.keys()
    for name in fast:
        torch.testing.assert_close(fast[name], slow[name], atol=1e-9, rtol=1e-7, msg=name)


def test_kernels_are_used_where_they_exist() -> None:
    for model in MODELS:
        s = TrainSettings(model=model, **BASE)
        kind = type(make_step(make_tables(s, 4, 2), s)).__name__
        expected = {"TransH": "ProjectedStep", "TransR": "ProjectedStep", "TransD": "ProjectedStep"}
        assert kind == expected.get(model, "KernelStep")
        flagged = s.model_copy(update={"normalize": True})
        if model.startswith("Trans"):
            assert type(make_step(make_tables(flagged, 4, 2), flagged)).__name__ == "AutogradStep"


def test_a_late_row_takes_a_first_step_like_any_other() -> None:
    """Adam's bias correction counts steps per row."""
    s = TrainSettings(optimizer="adam", kernels=False, **BASE)
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    step = AutogradStep(tables, s)
    from fkge.embed.optimizers import update

    early, late, g = torch.tensor([0]), torch.tensor([1]), torch.ones(1, 6, dtype=torch.float64)
    before = tables["entity"].clone()
    update("adam", tables, "entity", early, g, s.lr)
    for _ in range(50):
        update("adam", tables, "entity", torch.tensor([2]), g, s.lr)
    update("adam", tables, "entity", late, g, s.lr)
    moved = before - tables["entity"]
    torch.testing.assert_close(moved[0], moved[1])
    assert float(moved[1, 0]) == pytest.approx(s.lr, rel=1e-6)
    assert step.settings is s


@pytest.mark.parametrize("share", [1, 3])
def test_transr_segments_equal_plain_products(share: int) -> None:
    """Few and many groups per relation take different paths through TransR; both are e M_r."""
    s = TrainSettings(model="TransR", kernels=False, share=share, **{**BASE, "batch": 200})
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    tables["matrix"].add_(
        torch.randn(tables["matrix"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )
    model = tables.model
    for groups in (7, 60):
        index = torch.sort(torch.randint(5, (groups, 1), generator=torch.Generator().manual_seed(1)), dim=0).values
        rows = torch.randn(
            groups, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
        ).requires_grad_()
        matrix = tables["matrix"].clone().requires_grad_()
        out = model.project({"entity": rows}, Relations({"matrix": matrix}, index))
        plain = torch.einsum("gme,ger->gmr", rows, matrix.reshape(5, 6, 6)[index[:, 0]])
        torch.testing.assert_close(out, plain)
        weights = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        for a, b in zip(
            torch.autograd.grad((out * weights).sum(), (rows, matrix), retain_graph=True),
            torch.autograd.grad((plain * weights).sum(), (rows, matrix)), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("model", ["DistMult", "TransH"])
def test_a_positive_beyond_doubt_does_not_stop_its_negatives(model: str) -> None:
    """The gradient of a perfect positive underflows to zero; that of its negatives must still reach the query."""
    moved = []
    for kernels in (True, False):
        s = TrainSettings(model=model, optimizer="sgd", kernels=kernels, filtered=False, **{**BASE, "margin": 2000.0})
        tables = make_tables(s, 40, 5, dtype=torch.float64)
        trainer = Trainer(tables, TRAIN, s)
        before = tables["relation"].clone()
        trainer.run_epoch()
        moved.append(tables["relation"] - before)
    assert moved[0].abs().max() > 0
    torch.testing.assert_close(*moved)


def test_a_model_made_of_another_does_not_inherit_its_kernel() -> None:
    class Scaled(TransE):
        def project(self, entities: Any, relations: Relations) -> torch.Tensor:
            return 2 * entities["entity"]

    class Measured(TransE):
        def similarity(self, query: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
            return -torch.cdist(query, candidates, p=3.0)

    s = TrainSettings(**BASE)
    assert type(make_step(Tables(Scaled(6), 4, 2), s)) is AutogradStep
    assert Scaled(6, norm=2).comparison == "l2"
    assert (Measured(6).kernel, Measured(6, norm=2).comparison) == (None, "own")
