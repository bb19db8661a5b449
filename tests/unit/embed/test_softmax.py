"""Cross-entropy over all entities: losses and gradients are those of single examples, in chunks of any size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fkge.embed import Tables, Trainer, make_tables, softmax
from fkge.embed.models import MODELS, Model, Relations, TransE
from fkge.embed.questions import QuestionBatcher, Questions
from fkge.embed.softmax import SoftmaxStep, matmul_dtype
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.settings import TrainSettings
from tests.unit.embed.softmax_twin import twin

ENTITIES, RELATIONS = 14, 3
TRIPLES = np.unique(np.random.default_rng(3).integers([8, RELATIONS, ENTITIES], size=(40, 3)), axis=0)
DOT = ("DistMult", "ComplEx")
KINDS = [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("ComplEx", 1), ("RotatE", 1)]


def settings_of(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"model": "ComplEx", "loss": "1vsall", "dim": 4, "init": 0.7, "device": "cpu", **changes})


def tables_of(s: TrainSettings, dtype: torch.dtype = torch.float64, entities: int = ENTITIES) -> Tables:
    return make_tables(s, entities, RELATIONS, dtype=dtype)


def questions_of(s: TrainSettings, batch: int = 10**6, triples: Any = TRIPLES, entities: int = ENTITIES) -> Questions:
    batcher = QuestionBatcher(
        torch.from_numpy(triples), entities, RELATIONS, batch=batch, per_question=s.loss == "kvsall", seed=5
    )
    return next(next(batcher.epoch(0)).steps())


def names_of(tables: Tables) -> list[str]:
    return [*tables.names("entity"), *tables.names("relation")]


def check_against_twin(
    s: TrainSettings, monkeypatch: pytest.MonkeyPatch, cells: tuple[int, ...] = (1, 100, 1 << 20)
) -> None:
    tables, step = tables_of(s), questions_of(s)
    rows = {name: tables[name].clone().requires_grad_() for name in names_of(tables)}
    loss, objective = twin(rows, tables, step, s)
    expected = dict(zip(rows, torch.autograd.grad(objective, list(rows.values())), strict=True))
    for size in cells:
        monkeypatch.setitem(softmax.CELLS, "cpu", size)
        one = SoftmaxStep(tables, s)
        for _ in range(2):  # the second time in memory that was used before
            found, gradients = one.gradients(step)
            assert float(found) == pytest.approx(float(loss.detach()), abs=1e-9)
            assert gradients.keys() == expected.keys()
            for name, gradient in gradients.items():
                torch.testing.assert_close(gradient, expected[name], atol=1e-9, rtol=1e-9, msg=f"{name}, {size} cells")
        assert max(float(g.abs().max()) for g in gradients.values()) > 1e-3


CASES = [
    (model, norm, loss, smoothing, reciprocal, regularization, weight)
    for (model, norm), loss, smoothing, reciprocal, regularization, weight in product(
        KINDS, ("1vsall", "kvsall"), (0.0, 0.3), (False, True), (0.0, 0.05), (0.0, 0.7)
    )
    if weight == 0 or model in DOT
]


@pytest.mark.parametrize(("model", "norm", "loss", "smoothing", "reciprocal", "regularization", "weight"), CASES)
def test_gradients_are_those_of_single_examples(
    model: str, norm: int, loss: str, smoothing: float, reciprocal: bool, regularization: float, weight: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    s = settings_of(
        model=model, norm=norm, loss=loss, smoothing=smoothing, reciprocal=reciprocal, regularization=regularization,
        regularizer="n3", relation_weight=weight,
    )  # fmt: skip
    check_against_twin(s, monkeypatch)


@pytest.mark.parametrize("regularizer", ["l3", "n3", "f2"])
@pytest.mark.parametrize("model", ["TransE", "DistMult", "ComplEx", "RotatE"])
def test_every_regulariser(model: str, regularizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = settings_of(model=model, regularizer=regularizer, regularization=0.2, reciprocal=True, loss="kvsall")
    check_against_twin(s, monkeypatch, cells=(200,))


@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("norm", [1, 2])
def test_entities_are_compared_as_the_model_sees_them(
    norm: int, reciprocal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `normalize` they are scaled to unit length first, and the gradient goes through that."""
    s = settings_of(model="TransE", norm=norm, normalize=True, reciprocal=reciprocal, smoothing=0.1, regularization=0.1)
    check_against_twin(s, monkeypatch)


def test_the_twin_can_disagree() -> None:
    s = settings_of(regularizer="n3", regularization=0.1)
    tables, step = tables_of(s), questions_of(s)
    with torch.no_grad():
        right = twin({name: tables[name] for name in names_of(tables)}, tables, step, s)
        for other in ({"smoothing": 0.01}, {"loss": "kvsall"}, {"regularizer": "l3"}, {"relation_weight": 0.01}):
            changed = s.model_copy(update=other)
            wrong = twin({name: tables[name] for name in names_of(tables)}, tables, step, changed)
            assert float((wrong[0] - right[0]).abs() + (wrong[1] - right[1]).abs()) > 1e-5, other


def test_equal_questions_are_grouped_without_a_trace() -> None:
    """A step over grouped questions is a step over (question, answer) pairs, each a question of its own."""
    s = settings_of(smoothing=0.1, regularization=0.1, regularizer="n3", relation_weight=0.3, reciprocal=True)
    tables, step = tables_of(s), questions_of(s)
    sizes = step.first.diff()
    assert sizes.max() > 1
    apart = replace(
        step, entity=step.entity.repeat_interleave(sizes), relation=step.relation.repeat_interleave(sizes),
        asks_tail=step.asks_tail.repeat_interleave(sizes), first=torch.arange(len(step.answer) + 1),
        bounds=np.array([0, len(step.answer)]),
    )  # fmt: skip
    loss, gradients = SoftmaxStep(tables, s).gradients(step)
    other_loss, others = SoftmaxStep(tables, s).gradients(apart)
    torch.testing.assert_close(loss, other_loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_a_step_leaves_relations_that_no_question_names_alone(optimizer: str) -> None:
    s = settings_of(optimizer=optimizer, reciprocal=True, regularization=0.1)
    tables = tables_of(s)
    step = SoftmaxStep(tables, s)
    batch = questions_of(s, triples=TRIPLES[TRIPLES[:, 1] != 1])
    step(batch, 0.1)
    before = {k: v.clone() for k, v in tables.export(state=True).items()}
    step(batch, 0.1)
    for key, value in tables.export(state=True).items():
        if key.startswith("relation"):
            assert torch.equal(value[1], before[key][1]), key
        assert not torch.equal(value[0], before[key][0]), key


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("model", ["TransE", "ComplEx"])
def test_a_step_is_the_optimisers_on_the_gradient(model: str, optimizer: str) -> None:
    s = settings_of(model=model, optimizer=optimizer)
    tables = tables_of(s)
    step, batch = SoftmaxStep(tables, s), questions_of(s)
    mirror = {name: tables[name].clone().requires_grad_() for name in names_of(tables)}
    torch_optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.03),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.03, eps=1e-8),
        "adam": lambda p: torch.optim.Adam(p, lr=0.03),
    }[optimizer](list(mirror.values()))
    for _ in range(4):
        for name, gradient in step.gradients(batch)[1].items():
            mirror[name].grad = gradient.clone()
        step(batch, 0.03)
        torch_optimizer.step()
    for name, value in mirror.items():
        torch.testing.assert_close(tables[name], value.detach(), atol=1e-10, rtol=1e-8)


# -- dropout -----------------------------------------------------------------------------------------------------------


def test_dropout_keeps_its_expectation() -> None:
    rows = torch.rand(50, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1
    generator, part, draws = torch.Generator().manual_seed(0), 0.3, 400
    dropped = torch.stack([softmax._drop(rows, part, generator) for _ in range(draws)])
    zeros = float((dropped == 0).double().mean())
    assert zeros == pytest.approx(part, abs=5 * (part * (1 - part) / dropped.numel()) ** 0.5)
    error = (dropped.mean(0) / rows - 1).square().mean().sqrt()
    expected = (part / (1 - part) / draws) ** 0.5  # of a mean of that many
    assert 0.9 * expected < float(error) < 1.1 * expected
    assert (
        float(((dropped * (1 - part)).mean(0) / rows - 1).square().mean().sqrt()) > 5 * expected
    )  # without the factor
    left = dropped[dropped != 0] / (rows.expand_as(dropped)[dropped != 0])
    assert torch.allclose(left, torch.tensor(1 / (1 - part), dtype=torch.float64))


@pytest.mark.parametrize("model", DOT)
def test_queries_under_dropout_are_right_on_average(model: str) -> None:
    """Entity and relation are dropped apart, so the mean of a product is the product of the means."""
    s = settings_of(model=model, dropout=0.2, reciprocal=True)
    tables, step = tables_of(s), questions_of(s)
    known = tables["entity"][step.entity]
    relations = Relations({n: tables[n] for n in tables.names("relation")}, step.relation)
    exact = SoftmaxStep(tables, s.model_copy(update={"dropout": 0.0}))._query(step, known, relations)
    one = SoftmaxStep(tables, s)
    queries = torch.stack([one._query(step, known, relations) for _ in range(3000)])
    deviation = queries.std(0) / len(queries) ** 0.5
    off = (queries.mean(0) - exact) / deviation
    assert float(off.square().mean()) == pytest.approx(1, abs=0.35)
    assert float(((0.98 * queries.mean(0) - exact) / deviation).square().mean()) > 1.35  # off by 2 % it would fail


def test_dropout_is_of_questions_and_follows_from_the_generator() -> None:
    s = settings_of(dropout=0.5)
    tables, step = tables_of(s), questions_of(s)
    results = []
    for seed in (1, 1, 2):
        fresh = replace(step, generator=torch.Generator().manual_seed(seed))
        results.append(SoftmaxStep(tables, s).gradients(fresh)[1]["entity"])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


# -- precision ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
def test_bfloat16_products_give_nearly_the_gradient(loss: str) -> None:
    """Each number of a product is off by a part in 2⁹ at most, by chance up or down."""
    generator = np.random.default_rng(0)
    triples = np.unique(generator.integers([300, RELATIONS, 300], size=(2000, 3)), axis=0)
    found = {}
    for precision in ("float32", "bfloat16"):
        s = settings_of(loss=loss, dim=32, init=0.4, precision=precision, smoothing=0.1)
        tables = tables_of(s, torch.float32, 300)
        found[precision] = SoftmaxStep(tables, s).gradients(questions_of(s, triples=triples, entities=300))
    assert float(found["bfloat16"][0]) == pytest.approx(float(found["float32"][0]), rel=2e-3)
    for name, exact in found["float32"][1].items():
        error = float((found["bfloat16"][1][name] - exact).norm() / exact.norm())
        assert 1e-5 < error < 6e-3, name  # below, nothing would have been rounded


def shifts(n: int = 60, seed: int = 0) -> tuple[Any, Any]:
    """A graph that can be learned: (i, k, i + k mod n); training and test triples."""
    all_of = np.array([(i, k, (i + k + 1) % n) for i in range(n) for k in range(6)])
    mixed = np.random.default_rng(seed).permutation(all_of)
    return mixed[60:], mixed[:60]


def mrr(changes: dict[str, Any], seed: int = 0) -> float:
    train, test = shifts()
    s = settings_of(
        **{"dim": 24, "init": None, "optimizer": "adagrad", "lr": 0.3, "batch": 100, "seed": seed} | changes
    )
    tables = make_tables(s, 60, 6)
    trainer = Trainer(tables, train, s)
    for _ in range(40):
        trainer.run_epoch()
    return metrics(rank(tables, test, known=Known(np.concatenate([train, test]), 60, 6)))["mrr"]


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
def test_bfloat16_products_train_to_nearly_the_same_ranks(loss: str) -> None:
    changes = {"loss": loss, "reciprocal": True, "regularization": 0.01, "regularizer": "n3"}
    wide, narrow = (
        np.mean([mrr({**changes, "precision": precision}, seed) for seed in range(3)])
        for precision in ("float32", "bfloat16")
    )
    untrained = mrr({**changes, "lr": 1e-9})
    assert wide > 0.5 > 2 * untrained
    assert narrow == pytest.approx(wide, abs=0.05)


def test_the_type_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for fast in (True, False):
        monkeypatch.setattr(softmax, "_fast_bfloat16", lambda _, fast=fast: fast)
        auto = matmul_dtype(settings_of(), cpu, torch.float32)
        assert auto == (torch.bfloat16 if fast else torch.float32)
        assert matmul_dtype(settings_of(precision="bfloat16"), cpu, torch.float32) == torch.bfloat16
        assert matmul_dtype(settings_of(precision="float32"), cpu, torch.float32) == torch.float32
        assert matmul_dtype(settings_of(precision="bfloat16"), cpu, torch.float64) == torch.float64


# -- memory ------------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """Remembers the most numbers that a result of an operation had."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.numbers = max(self.numbers, tensor.numel())
        return result


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
@pytest.mark.parametrize(("model", "norm"), KINDS)
def test_no_more_than_a_chunk_of_scores_is_in_memory(
    model: str, norm: int, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    triples = np.unique(np.random.default_rng(0).integers([500, RELATIONS, 500], size=(400, 3)), axis=0)
    s = settings_of(model=model, norm=norm, loss=loss, relation_weight=0.5 if model in DOT else 0.0)
    tables, step = tables_of(s, entities=500), questions_of(s, triples=triples, entities=500)
    everything = len(step.entity) * 500
    for cells, bounded in ((10_000, True), (1 << 30, False)):
        monkeypatch.setitem(softmax.CELLS, "cpu", cells)
        with Largest() as largest:
            SoftmaxStep(tables, s).gradients(step)
        if bounded:
            assert largest.numbers <= 10_000
        else:  # the counter sees what is there
            assert largest.numbers >= everything > 100_000


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
@pytest.mark.parametrize("model", [name for name, cls in MODELS.items() if cls.projects])
def test_models_that_project_are_refused(model: str, loss: str) -> None:
    s = settings_of(model=model, loss=loss)
    with pytest.raises(SettingsError, match=rf"loss: {loss} compares with every entity, and {model}"):
        Trainer(tables_of(s), TRIPLES, s)


@pytest.mark.parametrize("model", ["TransE", "RotatE"])
def test_models_that_predict_no_relation_are_refused(model: str) -> None:
    s = settings_of(model=model, relation_weight=1.0)
    with pytest.raises(SettingsError, match=r"relation_weight: .* cannot predict relations"):
        SoftmaxStep(tables_of(s), s)


class Scaled(TransE):
    """A model of somebody else's with a second table of entities, which every relation sees alike."""

    name = "Scaled"

    def tables(self) -> dict[str, Any]:
        return super().tables() | {"scale": replace(super().tables()["entity"], bound=1.0)}

    def project(self, entities: Any, relations: Relations) -> torch.Tensor:
        return entities["entity"] * (1 + entities["scale"])


def test_a_model_from_elsewhere_trains_every_table_of_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "Scaled", Scaled)
    s = settings_of(model="Scaled")
    tables, step = tables_of(s), questions_of(s)
    rows = {name: tables[name].clone().requires_grad_() for name in names_of(tables)}

    def scores(_: str, s: TrainSettings, head: Any, relation: Any, tail: Any) -> torch.Tensor:
        return -(head + relation - tail).abs().sum(-1)

    seen = {**rows, "entity": rows["entity"] * (1 + rows["scale"])}
    loss, objective = twin(seen, tables, step, s, scores)
    found, gradients = SoftmaxStep(tables, s).gradients(step)
    assert float(found) == pytest.approx(float(loss.detach()), abs=1e-9)
    for name, row in rows.items():
        torch.testing.assert_close(gradients[name], torch.autograd.grad(objective, row, retain_graph=True)[0])


def test_a_model_that_is_compared_in_its_own_way() -> None:
    class Own(TransE):
        name = "Own"

        def similarity(self, query: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
            return -(query.unsqueeze(-2) - candidates.unsqueeze(-3)).abs().pow(1.5).sum(-1)

    model: Model = Own(4)
    assert model.comparison == "own"
    s = settings_of(model="TransE", smoothing=0.1)
    tables, step = Tables(model, ENTITIES, RELATIONS, bound=0.7, dtype=torch.float64), questions_of(s)
    rows = {name: tables[name].clone().requires_grad_() for name in names_of(tables)}
    loss, objective = twin(
        rows,
        tables,
        step,
        s,
        lambda _, __, h, r, t: -(h + r - t).abs().pow(1.5).sum(-1),
    )
    found, gradients = SoftmaxStep(tables, s).gradients(step)
    assert float(found) == pytest.approx(float(loss.detach()), abs=1e-9)
    for name, row in rows.items():
        torch.testing.assert_close(gradients[name], torch.autograd.grad(objective, row, retain_graph=True)[0])
