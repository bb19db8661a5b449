"""One triple moves a sum of gradients by at most one clip, whatever it collides with; fast and slow ways agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.embed import dp_gradients, make_tables
from fkge.embed.batches import Examples
from fkge.embed.dp_gradients import Gradients, TorchGradients, draw, make_gradients
from fkge.embed.kernels.private import KernelGradients
from fkge.embed.losses import find_loss, margin_of
from fkge.embed.models import Relations
from fkge.embed.tables import Tables
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from tests.unit.embed.softmax_twin import penalty

MODELS = [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)]
BASE: dict[str, Any] = {"dim": 4, "init": 0.7, "margin": 2.0, "device": "cpu"}


def tables_of(s: TrainSettings, entities: int, relations: int, dtype: torch.dtype = torch.float32) -> Tables:
    return make_tables(s, entities, relations, dtype)


def summed(gradients: Gradients, tables: Tables, examples: Examples, learn: bool = True) -> torch.Tensor:
    """All trained tables' sums, end to end."""
    sums = {name: torch.zeros_like(tables[name]) for name in ("entity", "relation")[: 1 + learn]}
    gradients.add(examples, sums)
    return torch.cat([x.flatten() for x in sums.values()])


def drawn(triples: torch.Tensor, entities: int, k: int, seed: int = 0, step: int = 0) -> Examples:
    return draw(*triples.unbind(1), entities, k, seed, step)


def without(examples: Examples, i: int) -> Examples:
    keep = torch.arange(len(examples)) != i
    return Examples(*(x[keep] for x in vars(examples).values()))


def brute(tables: Tables, s: TrainSettings, examples: Examples, clip: float, learn: bool = True) -> torch.Tensor:
    """Every example by itself on whole tables, triple by triple: nothing gathered, so nothing to sum."""
    names = ("entity", "relation")[: 1 + learn]
    total = torch.zeros(sum(tables[n].numel() for n in names), dtype=torch.float64)
    for i in range(len(examples)):
        whole = {n: tables[n].detach().clone().double().requires_grad_() for n in ("entity", "relation")}

        def score(h: int, r: int, t: int, whole: dict[str, torch.Tensor] = whole) -> torch.Tensor:
            relations = Relations({"relation": whole["relation"][r : r + 1]}, torch.zeros(1, 1, dtype=torch.int64))
            head, tail = ({"entity": whole["entity"][e].reshape(1, 1, -1)} for e in (h, t))
            return tables.model.score(head, relations, tail)[0]

        h, r, t = (int(x[i]) for x in (examples.head, examples.relation, examples.tail))
        negatives = examples.negative[i].tolist()
        bad = torch.stack([score(h, r, n) if examples.corrupt_tail[i] else score(n, r, t) for n in negatives])
        if s.loss == "sampled":
            bad = bad + np.log((tables.entities - 1) / len(negatives))
        loss = find_loss(s.loss).per_positive(score(h, r, t), bad, margin_of(s), s.temperature)
        rows = (("entity", h), ("entity", t), ("relation", r))
        sums = sum(penalty(s, whole[name][i], tables.spec(name).complex) for name, i in rows)
        parts = torch.autograd.grad(loss + s.regularization * sums, [whole[n] for n in names])
        gradient = torch.cat([part.flatten() for part in parts])
        total += gradient / max(clip, float(gradient.norm()))
    return total


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize("loss", ["margin", "sigmoid"])
@pytest.mark.parametrize(("model", "norm"), MODELS)
def test_both_ways_equal_brute_force(model: str, norm: int, loss: str, learn: bool) -> None:
    """On three entities, where loops, repeated negatives and negatives that are an end are everywhere."""
    s = TrainSettings(model=model, norm=norm, loss=loss, regularization=0.01, **BASE)  # type: ignore[arg-type]
    tables = tables_of(s, 3, 2, torch.float64)
    triples = torch.from_numpy(np.random.default_rng(0).integers([3, 2, 3], size=(40, 3)))
    examples = drawn(triples, 3, 5)
    for clip in (0.05, 0.8, 50.0):
        expected = brute(tables, s, examples, clip, learn)
        for way in (TorchGradients, KernelGradients):
            found = summed(way(tables, s, clip, learn=learn), tables, examples, learn)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11, msg=f"{way.__name__}, clip {clip}")


@pytest.mark.parametrize(
    ("loss", "regularizer"), [("sampled", "l3"), ("sampled", "n3"), ("sigmoid", "n3"), ("margin", "f2")]
)
@pytest.mark.parametrize(("model", "norm"), MODELS)
def test_what_is_not_compiled_equals_brute_force_too(model: str, norm: int, loss: str, regularizer: str) -> None:
    s = TrainSettings(model=model, norm=norm, loss=loss, regularizer=regularizer, regularization=0.1, **BASE)  # type: ignore[arg-type]
    tables = tables_of(s, 5, 2, torch.float64)
    triples = torch.from_numpy(np.random.default_rng(0).integers([5, 2, 5], size=(20, 3)))
    examples = drawn(triples, 5, 3)
    way = make_gradients(tables, s, 0.8, learn=True)
    assert isinstance(way, TorchGradients)
    torch.testing.assert_close(summed(way, tables, examples), brute(tables, s, examples, 0.8), rtol=1e-9, atol=1e-11)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kernels", [True, False])
def test_one_triple_moves_the_sum_by_at_most_one_clip(kernels: bool, data: st.DataObject) -> None:
    model, norm = data.draw(st.sampled_from(MODELS))
    entities, k = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    rows = st.tuples(st.integers(0, entities - 1), st.integers(0, 1), st.integers(0, entities - 1))
    triples = torch.tensor(data.draw(st.lists(rows, min_size=1, max_size=6)))
    clip = data.draw(st.sampled_from([1e-3, 0.1, 1.0]))
    s = TrainSettings(
        model=model, norm=norm, kernels=kernels, loss=data.draw(st.sampled_from(["margin", "sigmoid"])),
        regularization=data.draw(st.sampled_from([0.0, 1.0])), seed=data.draw(st.integers(0, 9)), **BASE,
    )  # type: ignore[arg-type]  # fmt: skip
    tables = tables_of(s, entities, 2)
    if data.draw(st.booleans()):
        tables["entity"][:] = tables["entity"][0]  # distances of zero, where a length has no gradient
        tables["relation"][:] = 0
    gradients = make_gradients(tables, s, clip, learn=True)
    assert isinstance(gradients, KernelGradients) == kernels
    examples, left_out = drawn(triples, entities, k), data.draw(st.integers(0, len(triples) - 1))
    change = summed(gradients, tables, examples) - summed(gradients, tables, without(examples, left_out))
    assert change.isfinite().all()
    assert float(change.double().norm()) <= 1 + 1e-5
    # The others' examples are what they would be without it: they are drawn of themselves.
    alone = drawn(triples[torch.arange(len(triples)) != left_out], entities, k)
    for mine, theirs in zip(vars(alone).values(), vars(without(examples, left_out)).values(), strict=True):
        assert torch.equal(mine, theirs)


def test_clipping_places_apart_would_be_unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that a clipper of gathered rows gets wrong: one entity, a loop, negatives all alike.

    With each place's part taken by itself the length is that of orthogonal parts; here they are parallel.
    """
    s = TrainSettings(model="DistMult", kernels=False, **BASE)
    tables = tables_of(s, 1, 1)
    tables["entity"][:] = tables["relation"][:] = 1.0
    examples = drawn(torch.tensor([[0, 0, 0]]), 1, 8)
    gradients = TorchGradients(tables, s, 0.01, learn=True)
    assert float(summed(gradients, tables, examples).norm()) == pytest.approx(1, abs=1e-5)
    monkeypatch.setattr(dp_gradients, "_summed", lambda gradient, ids: gradient)
    assert float(summed(gradients, tables, examples).norm()) > 1.2


@pytest.mark.parametrize("kernels", [True, False])
def test_an_example_without_a_finite_gradient_stays_out(kernels: bool) -> None:
    s = TrainSettings(model="DistMult", kernels=kernels, **BASE)
    tables = tables_of(s, 30, 2)
    triples = torch.tensor([[0, 0, 1], [2, 1, 3]])
    tables["entity"][0] = 3e38
    examples = drawn(triples, 30, 2)
    assert not (examples.negative == 0).any()
    gradients = make_gradients(tables, s, 0.1, learn=True)
    both, good = summed(gradients, tables, examples), summed(gradients, tables, without(examples, 0))
    assert good.norm() > 0.1
    assert torch.equal(both, good)


def test_negatives_are_uniform_and_of_each_step_anew() -> None:
    triples = torch.from_numpy(np.random.default_rng(0).integers([7, 3, 7], size=(4000, 3))).unique(dim=0)
    steps = [drawn(triples, 7, 30, step=step) for step in range(40)]
    counts = torch.stack([e.negative for e in steps]).flatten().bincount(minlength=7).numpy()
    expected = counts.sum() / 7
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)
    tails = torch.stack([e.corrupt_tail for e in steps]).double()
    assert abs(float(tails.mean()) - 0.5) < 5 * 0.5 / np.sqrt(tails.numel())
    assert tails.mean(0).min() > 0.05, "every triple gets both sides"
    assert not torch.equal(steps[0].negative, steps[1].negative)
    assert torch.equal(steps[0].negative, drawn(triples, 7, 30).negative)
    assert not torch.equal(steps[0].negative, drawn(triples, 7, 30, seed=1).negative)
    huge = drawn(triples, 2**31 - 1, 30).negative
    assert 0 <= int(huge.min()) < int(huge.max()) < 2**31 - 1


@pytest.mark.parametrize("model", ["TransH", "TransR", "TransD"])
def test_models_that_project_are_refused(model: str) -> None:
    s = TrainSettings(model=model, **BASE)
    with pytest.raises(SettingsError, match=f"{model} cannot be trained privately.*use TransE, DistMult"):
        make_gradients(make_tables(s, 4, 2), s, 0.1, learn=True)


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
def test_losses_over_all_entities_are_refused(loss: str) -> None:
    s = TrainSettings(loss=loss, **BASE)
    with pytest.raises(SettingsError, match=f"loss: {loss} cannot be trained privately"):
        make_gradients(make_tables(s, 4, 2), s, 0.1, learn=True)


def test_reciprocal_relations_are_refused() -> None:
    s = TrainSettings(reciprocal=True, **BASE)
    with pytest.raises(SettingsError, match="reciprocal: TransE cannot be trained privately"):
        make_gradients(make_tables(s, 4, 2), s, 0.1, learn=True)
