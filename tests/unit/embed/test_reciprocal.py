"""Reciprocal relations: a second row answers questions after heads; all else treats it like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fkge.embed import MODELS, Relations, Tables, Trainer, load_model, make_model, make_tables, save_model
from fkge.embed.losses import margin_of, objective_of
from fkge.embed.reciprocal import Reciprocal, inverse_of
from fkge.embed.steps import AutogradStep, make_step
from fkge.errors import SettingsError
from fkge.evaluation import Known, rank, score_triples
from fkge.settings import TrainSettings
from tests.unit.embed.softmax_twin import penalty, triple_scores
from tests.unit.embed.test_steps import one_step
from tests.unit.embed.trainers import BASE, GRAPH

FREE = [name for name, cls in MODELS.items() if not cls.projects]


def settings_of(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"dim": 6, "init": 0.7, "device": "cpu", "reciprocal": True, **changes})


def by_hand(s: TrainSettings, tables: Tables, head: Any, relation: Any, tail: Any, side: str) -> torch.Tensor:
    e = tables["entity"]
    if side == "tail":
        return triple_scores(s.model, s, e[head], tables["relation"][relation], e[tail])
    return triple_scores(s.model, s, e[tail], tables["inverse"][relation], e[head])


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("model", FREE)
def test_scores_and_ranks_are_those_of_two_relations(model: str, norm: int) -> None:
    s = settings_of(model=model, norm=norm)
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    assert not torch.equal(tables["relation"], tables["inverse"])
    triples = torch.from_numpy(GRAPH.train[:25].astype(np.int64))
    head, relation, tail = triples.unbind(1)
    sides = [by_hand(s, tables, head, relation, tail, side) for side in ("head", "tail")]
    torch.testing.assert_close(score_triples(tables, triples), (sides[0] + sides[1]) / 2)
    known = Known(triples.numpy(), 40, 5)
    ranks = rank(tables, triples, known=known)
    for i, (h, r, t) in enumerate(triples.tolist()):
        every = torch.arange(40)
        for column, (side, scores, true) in enumerate(
            (
                ("head", by_hand(s, tables, every, r, t, "head"), h),
                ("tail", by_hand(s, tables, h, r, every, "tail"), t),
            )
        ):
            facts = triples.tolist()
            others = [x for x in range(40) if x == true or ([x, r, t] if side == "head" else [h, r, x]) not in facts]
            better = int((scores[others] > scores[true] + 1e-12).sum())
            assert ranks.optimistic[i, column] == better + 1, (model, side)


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("loss", ["margin", "sigmoid", "sampled"])
@pytest.mark.parametrize("model", FREE)
def test_losses_over_negatives_use_the_row_of_the_side(model: str, loss: str, share: int) -> None:
    """Example by example: where the head is replaced, the inverse is trained, and regularised."""
    s = TrainSettings(
        model=model, loss=loss, share=share, reciprocal=True, norm=2, regularization=0.05, regularizer="n3", **BASE
    )
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    batch = one_step(s, tables)
    loss_found, found = AutogradStep(tables, s).gradients(batch)
    rows = {n: tables[n].clone().requires_grad_() for n in ("entity", "relation", "inverse")}
    total, extra, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64), 0
    from fkge.embed.losses import find_loss

    for g, i in np.argwhere(batch.weight.numpy()):
        h, r, t = (int(x[g, i]) for x in (batch.head, batch.relation, batch.tail))
        on_tail, e = bool(batch.corrupt_tail[g, i]), rows["entity"]
        used, known, true = ("relation", h, t) if on_tail else ("inverse", t, h)
        every = triple_scores(model, s, e[known], rows[used][r], e)
        negative = every[batch.negative[g]]
        if loss == "sampled":
            negative = negative + np.log(39 / len(batch.negative[g]))
        total = total + find_loss(loss).per_positive(every[true], negative, margin_of(s), s.temperature)
        for name, row in (("entity", e[h]), ("entity", e[t]), (used, rows[used][r])):
            extra = extra + s.regularization * penalty(s, row, tables.spec(name).complex)
        count += 1
    assert float(loss_found) == pytest.approx(float(total.detach()) / count, abs=1e-10)
    expected = torch.autograd.grad((total + extra) / count, list(rows.values()))
    for (name, row), gradient in zip(rows.items(), expected, strict=True):
        full = torch.zeros_like(row)
        ids, part = found[name]
        full[ids] = part
        torch.testing.assert_close(full, gradient, atol=1e-10, rtol=1e-8, msg=name)


def test_no_compiled_kernel_computes_it() -> None:
    s = settings_of(model="TransE")
    tables = make_tables(s, 40, 5)
    assert isinstance(tables.model, Reciprocal)
    assert tables.model.kernel is None
    assert isinstance(make_step(tables, s), AutogradStep)


@pytest.mark.parametrize("model", [name for name, cls in MODELS.items() if cls.projects])
def test_models_that_project_are_refused(model: str) -> None:
    with pytest.raises(SettingsError, match=f"reciprocal: {model} projects"):
        make_model(settings_of(model=model))


@pytest.mark.parametrize("model", FREE)
def test_it_is_the_base_in_all_else(model: str) -> None:
    base, double = make_model(settings_of(model=model, reciprocal=False)), make_model(settings_of(model=model))
    assert (double.name, double.comparison, double.width) == (base.name, base.comparison, base.width)
    assert (double.fixed_by(), double.rotation_invariant) == (base.fixed_by(), base.rotation_invariant)
    assert list(double.tables()) == ["entity", "relation", "inverse"]
    assert double.tables()["inverse"] == base.tables()["relation"]
    assert inverse_of("weight") == "inverse_weight"


def test_a_turn_turns_the_inverse_too() -> None:
    s = settings_of(model="TransE", norm=2)
    tables = make_tables(s, 40, 5, dtype=torch.float64)
    triples = torch.from_numpy(GRAPH.train[:25].astype(np.int64))
    before = score_triples(tables, triples)
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))[0]
    tables.rotate(turn)
    torch.testing.assert_close(score_triples(tables, triples), before)


@pytest.mark.parametrize("loss", ["sigmoid", "1vsall"])
def test_it_is_saved_and_read(loss: str, tmp_path: Any) -> None:
    s = settings_of(model="ComplEx", loss=loss)
    tables = make_tables(s, 40, 5)
    Trainer(tables, GRAPH.train, s).run_epoch()
    save_model(tmp_path / "m", tables, s)
    read, settings = load_model(tmp_path / "m", "cpu")
    assert settings == s
    for name in ("entity", "relation", "inverse"):
        assert torch.equal(read[name], tables[name])


def test_the_objective_is_that_of_the_base_where_both_rows_are_equal() -> None:
    """With r⁻¹ = −r TransE asks the same of a head as without reciprocal relations."""
    double, single = (settings_of(model="TransE", reciprocal=x) for x in (True, False))
    tables, plain = make_tables(double, 40, 5, dtype=torch.float64), make_tables(single, 40, 5, dtype=torch.float64)
    for name in ("entity", "relation"):
        plain[name].copy_(tables[name])
    tables["inverse"].copy_(-tables["relation"])
    batch = one_step(single, plain)
    ids = torch.cat([batch.head, batch.tail, batch.negative], dim=1)
    losses = [
        objective_of(
            t.model, s, margin_of(s), batch, {"entity": t["entity"][ids]},
            Relations({n: t[n] for n in t.names("relation")}, batch.relation),
        )[0]
        for t, s in ((tables, double), (plain, single))
    ]  # fmt: skip
    torch.testing.assert_close(losses[0], losses[1])
