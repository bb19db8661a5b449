"""Gradients equal autograd's on whole tables, row-wise optimisers equal torch's, kernels equal their slow twins."""

from __future__ import annotations

import pytest
import torch

from fkge.embed import MODELS, make_tables
from fkge.embed.batches import Batch, Batcher
from fkge.embed.losses import find_loss, margin_of
from fkge.embed.models import Relations
from fkge.embed.steps import AutogradStep, make_step
from fkge.embed.tables import Tables
from fkge.settings import TrainSettings
from tests.unit.embed.trainers import BASE, TRAIN


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
            loss = find_loss(s.loss).per_positive(score(h, r, t), torch.stack(negatives), margin_of(s), s.temperature)
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
