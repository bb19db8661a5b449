"""Losses: every registered one meets its contract, compiled or not, and a new one needs no other place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fkge.embed import Tables, Trainer, make_model, make_tables
from fkge.embed.batches import Batcher
from fkge.embed.dp_gradients import TorchGradients, make_gradients
from fkge.embed.losses import (
    HOPELESS,
    LOSSES,
    Loss,
    margin_of,
    regularizer_gradient,
    regularizer_of,
    sampling_correction,
    scaled_to,
)
from fkge.embed.steps import AutogradStep, make_step
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from tests.conftest import random_graph
from tests.unit.embed.trainers import GRAPH, TRAIN


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_hopeless_negative_has_no_weight(name: str) -> None:
    positive = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    negative = torch.tensor([[0.1, HOPELESS]], dtype=torch.float64, requires_grad=True)
    loss = LOSSES[name].per_positive(positive, negative, 1.0, 1.0)
    assert loss.shape == (1,)
    gradient = torch.autograd.grad(loss.sum(), negative)[0]
    assert float(gradient[0, 1]) == 0.0
    assert float(gradient[0, 0]) > 0.0


def test_an_unknown_loss_is_refused_before_anything_is_made() -> None:
    with pytest.raises(SettingsError, match=r"loss: there is no 'no-such-loss'; use one of margin, sigmoid"):
        make_model(TrainSettings(loss="no-such-loss"))


def softplus(positive: Tensor, negative: Tensor, margin: float, temperature: float) -> Tensor:
    return (F.softplus(-margin - positive).unsqueeze(-1) + F.softplus(margin + negative)).mean(-1)


def test_a_registered_loss_trains_by_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "softplus", Loss(softplus, distance_margin=3.0, product_margin=0.0))
    graph = random_graph()
    settings = TrainSettings(loss="softplus", dim=6, batch=50, negatives=4, device="cpu")
    tables = make_tables(settings, 40, 5)
    assert isinstance(make_step(tables, settings), AutogradStep)
    assert isinstance(make_gradients(tables, settings, 1.0, learn=True), TorchGradients)
    assert margin_of(settings) == 3.0
    trainer = Trainer(tables, graph.train, settings)
    losses = [trainer.run_epoch() for _ in range(5)]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def cross_entropy_by_hand(tables: Tables, batch: Any, correction: float) -> float:
    """Mean of −log softmax of each positive among itself and its negatives, triple by triple."""
    e, losses = tables["entity"], []
    for g, i in np.argwhere(batch.weight.numpy()):
        h, r, t = (int(x[g, i]) for x in (batch.head, batch.relation, batch.tail))
        query = e[h if batch.corrupt_tail[g, i] else t] * tables["relation"][r]
        false = {tuple(x) for x in GRAPH.train.tolist()} if batch.facts is not None else set()
        place = (lambda n: (h, r, n)) if batch.corrupt_tail[g, i] else (lambda n: (n, r, t))  # noqa: B023
        negative = [float(query @ e[n]) + correction for n in batch.negative[g].tolist() if place(n) not in false]
        positive = float(query @ e[t if batch.corrupt_tail[g, i] else h])
        losses.append(np.log(np.exp([positive, *negative]).sum()) - positive)
    return float(np.mean(losses))


@pytest.mark.parametrize(("share", "filtered"), [(1, False), (1, True), (4, False), (4, True)])
def test_sampled_negatives_stand_for_all_entities(share: int, filtered: bool) -> None:
    s = TrainSettings(
        model="DistMult", loss="sampled", dim=6, negatives=7, share=share, filtered=filtered, device="cpu"
    )
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    batcher = Batcher(TRAIN, 40, 5, batch=50, negatives=7, share=share, filtered=filtered)
    batch = next(next(batcher.epoch(0)).steps())
    loss, _ = AutogradStep(tables, s).gradients(batch)
    assert float(loss) == pytest.approx(cross_entropy_by_hand(tables, batch, np.log(39 / 7)), abs=1e-10)
    assert float(loss) != pytest.approx(cross_entropy_by_hand(tables, batch, 0.0), abs=1e-3)


def test_the_correction_makes_a_sampled_loss_that_of_all_entities() -> None:
    """With every other entity as a negative there is nothing to correct; with a sample it is right on average."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(400, generator=generator, dtype=torch.float64)
    per_positive = LOSSES["sampled"].per_positive
    full = float(per_positive(scores[:1], scores[None, 1:], 0.0, 1.0))
    assert full == pytest.approx(float(torch.logsumexp(scores, 0) - scores[0]))
    drawn = scores[1:][torch.randint(399, (20000, 50), generator=generator)]
    positive = scores[:1].expand(20000)
    with_it = per_positive(positive, drawn + sampling_correction(400, 50), 0.0, 1.0).mean()
    without = per_positive(positive, drawn, 0.0, 1.0).mean()
    assert float(with_it) == pytest.approx(full, abs=0.02)
    assert abs(float(without) - full) > 1


def test_regularisers_are_their_formulas() -> None:
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    re, im = rows.chunk(2, dim=1)
    moduli = (re.square() + im.square()).sqrt()
    expected = {"l3": rows.abs().pow(3).sum(1), "n3": moduli.pow(3).sum(1), "f2": rows.square().sum(1)}
    for name, value in expected.items():
        s = TrainSettings(model="ComplEx", dim=4, regularizer=name)  # type: ignore[arg-type]
        torch.testing.assert_close(regularizer_of(s, make_model(s))(rows), value)
        real = TrainSettings(model="DistMult", dim=8, regularizer=name)  # type: ignore[arg-type]
        if name != "f2":  # a number is its own modulus
            torch.testing.assert_close(regularizer_of(real, make_model(real), "relation")(rows), expected["l3"])
    s = TrainSettings(model="ComplEx", dim=4, regularizer="n3")
    zero = torch.zeros(1, 8, requires_grad=True)
    assert float(torch.autograd.grad(regularizer_of(s, make_model(s))(zero).sum(), zero)[0].abs().max()) == 0.0


@pytest.mark.parametrize("regularizer", ["l3", "n3", "f2"])
@pytest.mark.parametrize("table", ["entity", "relation"])
@pytest.mark.parametrize("name", ["ComplEx", "DistMult", "RotatE"])
def test_the_gradient_of_a_regulariser_is_that_of_autograd(name: str, table: str, regularizer: str) -> None:
    s = TrainSettings(model=name, dim=6, regularizer=regularizer, regularization=0.1)  # type: ignore[arg-type]
    model = make_model(s)
    width = model.tables()[table].width
    rows = torch.randn(9, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (expected,) = torch.autograd.grad(regularizer_of(s, model, table)(rows).sum(), rows)
    torch.testing.assert_close(regularizer_gradient(s, model, table)(rows.detach()), expected)


def test_a_scaled_weight_is_that_of_the_graph() -> None:
    s = TrainSettings(regularization=0.2, regularization_scale="sparsity", model="ComplEx", dim=4, device="cpu")
    assert scaled_to(s.model_copy(update={"regularization_scale": "fixed"}), 10, 10).regularization == 0.2
    assert scaled_to(s, 10_000, 10_000).regularization == pytest.approx(0.2)
    assert scaled_to(s, 10_000, 80_000).regularization == pytest.approx(0.1)
    assert scaled_to(s, 10, 10_000).regularization == pytest.approx(0.02)
    assert scaled_to(s, 10**6, 10).regularization == pytest.approx(0.24)
    tables = make_tables(s, len(GRAPH.entities), len(GRAPH.relations))
    trainer = Trainer(tables, GRAPH.train, s)
    assert trainer.settings == scaled_to(s, len(GRAPH.entities), len(GRAPH.train))
    assert trainer.settings.regularization != 0.2


@pytest.mark.parametrize("key", ["smoothing", "dropout", "relation_weight"])
@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if not loss.all_entities])
def test_what_a_loss_would_not_heed_is_refused(loss: str, key: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}: only 1vsall and kvsall have it, and the loss is {loss}"):
        make_model(TrainSettings(loss=loss, **{key: 0.5}))  # type: ignore[arg-type]


@pytest.mark.parametrize("regularizer", ["n3", "f2"])
def test_only_the_cubes_are_compiled(regularizer: str) -> None:
    for regularization in (0.0, 0.1):
        s = TrainSettings(model="ComplEx", dim=4, device="cpu", regularization=regularization, regularizer=regularizer)  # type: ignore[arg-type]
        assert isinstance(make_step(make_tables(s, 40, 5), s), AutogradStep) == (regularization > 0)
