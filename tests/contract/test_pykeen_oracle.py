"""PyKEEN as an oracle: the same tables give the same scores, filtered metrics, losses, gradients and regulariser."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

with warnings.catch_warnings():  # of PyKEEN's own dependencies, while they are imported
    warnings.simplefilter("ignore")
    pykeen = pytest.importorskip("pykeen")
    from pykeen.datasets import Nations
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.losses import CrossEntropyLoss
    from pykeen.models import ComplEx, DistMult, TransE, TransH
    from pykeen.regularizers import PowerSumRegularizer

from fkge.embed import Tables, make_model, model_class
from fkge.embed.losses import regularizer_of
from fkge.embed.questions import QuestionBatcher, Questions
from fkge.embed.reciprocal import Reciprocal
from fkge.embed.softmax import SoftmaxStep
from fkge.evaluation import Known, metrics, rank, score_triples
from fkge.settings import TrainSettings

pytestmark = pytest.mark.filterwarnings("ignore:::pykeen", "ignore:::class_resolver", "ignore:::torch")

DIM = 12
METRICS = {
    "mr": "arithmetic_mean_rank",
    "mrr": "inverse_harmonic_mean_rank",
    "hits@1": "hits_at_1",
    "hits@3": "hits_at_3",
    "hits@10": "hits_at_10",
}


def _plain(tables: Tables, kind: str) -> torch.Tensor:
    return tables[kind]


def _complex(tables: Tables, kind: str) -> torch.Tensor:
    re, im = tables[kind].chunk(2, dim=1)
    return torch.stack([re, im], dim=-1)


Build = Callable[[Any], Any]
CASES: dict[str, tuple[str, int, Build, Callable[[Tables, str], torch.Tensor]]] = {
    "TransE L1": ("TransE", 1, lambda f: TransE(triples_factory=f, embedding_dim=DIM, scoring_fct_norm=1), _plain),
    "TransE L2": ("TransE", 2, lambda f: TransE(triples_factory=f, embedding_dim=DIM, scoring_fct_norm=2), _plain),
    "TransH L1": ("TransH", 1, lambda f: TransH(triples_factory=f, embedding_dim=DIM, scoring_fct_norm=1), _plain),
    "TransH L2": ("TransH", 2, lambda f: TransH(triples_factory=f, embedding_dim=DIM, scoring_fct_norm=2), _plain),
    "DistMult": ("DistMult", 1, lambda f: DistMult(triples_factory=f, embedding_dim=DIM), _plain),
    "ComplEx": ("ComplEx", 1, lambda f: ComplEx(triples_factory=f, embedding_dim=DIM), _complex),
}


@pytest.fixture(scope="module")
def nations() -> Any:
    return Nations()


@pytest.fixture(params=list(CASES))
def pair(request: pytest.FixtureRequest, nations: Any) -> tuple[Tables, Any]:
    """Our tables, and PyKEEN's model with the same numbers."""
    name, norm, build, layout = CASES[request.param]
    factory = nations.training
    tables = Tables(model_class(name)(DIM, norm=norm), factory.num_entities, factory.num_relations, seed=7, bound=0.9)
    oracle = build(factory)
    numbers = {"entity": [layout(tables, "entity")], "relation": [layout(tables, "relation")]}
    if name == "TransH":  # the oracle takes the normal first, and does not scale it
        numbers["relation"].insert(0, F.normalize(tables["normal"], dim=1))
    for kind, representations in (
        ("entity", oracle.entity_representations),
        ("relation", oracle.relation_representations),
    ):
        for values, representation in zip(numbers[kind], representations, strict=True):
            weight = representation._embeddings.weight
            with torch.no_grad():
                weight.copy_(values.reshape(weight.shape))
    return tables, oracle.eval()


def test_scores(pair: tuple[Tables, Any], nations: Any) -> None:
    tables, oracle = pair
    triples = nations.training.mapped_triples
    with torch.no_grad():
        expected = oracle.score_hrt(triples).squeeze(1)
    got = score_triples(tables, triples)
    assert expected.std() > 0.01
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("doubled", [False, True], ids=["all different", "every entity twice"])
def test_filtered_metrics(pair: tuple[Tables, Any], nations: Any, doubled: bool) -> None:
    tables, oracle = pair
    if doubled:  # ties, which the oracle splits by the same three rules
        half = tables.entities // 2
        tables["entity"][half : 2 * half] = tables["entity"][:half]
        weight = oracle.entity_representations[0]._embeddings.weight
        with torch.no_grad():
            weight[half : 2 * half] = weight[:half]
    splits = [f.mapped_triples for f in (nations.training, nations.validation, nations.testing)]
    evaluator = RankBasedEvaluator(filtered=True, clear_on_finalize=False)
    results = evaluator.evaluate(oracle, splits[2], additional_filter_triples=splits[:2], batch_size=32, use_tqdm=False)
    known = Known(torch.cat(splits).numpy(), tables.entities, tables.relations)
    ranks = rank(tables, splits[2], known=known)
    assert (ranks.optimistic < ranks.pessimistic).any() == doubled
    for ties in ("realistic", "optimistic", "pessimistic"):
        for side in ("head", "tail", None):
            got = metrics(ranks, ties, side)
            for ours, theirs in METRICS.items():
                expected = results.get_metric(f"{side or 'both'}.{ties}.{theirs}")
                assert got[ours] == pytest.approx(expected, abs=1e-6), (ties, side, ours)


def test_the_oracle_can_disagree(pair: tuple[Tables, Any], nations: Any) -> None:
    """Other tables have other scores: agreement above is not a matter of course."""
    tables, oracle = pair
    tables["relation"].mul_(1.1)
    triples = nations.training.mapped_triples
    with torch.no_grad():
        expected = oracle.score_hrt(triples).squeeze(1)
    assert not np.allclose(score_triples(tables, triples), expected, atol=1e-3)


# -- cross-entropy over all entities, and reciprocal relations -------------------------------------------------------


@pytest.fixture(scope="module")
def doubled_nations() -> Any:
    """With an inverse beside each relation: number 2 r + 1 beside 2 r."""
    return Nations(create_inverse_triples=True)


REAL_CASES = {name: case for name, case in CASES.items() if case[0] != "TransH"}


@pytest.fixture(params=list(REAL_CASES))
def reciprocal_pair(request: pytest.FixtureRequest, doubled_nations: Any) -> tuple[Tables, Any]:
    """Our reciprocal tables, and PyKEEN's model with inverse triples and the same numbers."""
    name, norm, build, layout = REAL_CASES[request.param]
    factory = doubled_nations.training
    model = Reciprocal(model_class(name)(DIM, norm=norm))
    tables = Tables(model, factory.num_entities, factory.real_num_relations, seed=7, bound=0.9)
    oracle = build(factory)
    with torch.no_grad():
        weight = oracle.entity_representations[0]._embeddings.weight
        weight.copy_(layout(tables, "entity").reshape(weight.shape))
        weight = oracle.relation_representations[0]._embeddings.weight
        for place, table in enumerate(("relation", "inverse")):
            weight[place::2] = layout(tables, table).reshape(weight[place::2].shape)
    return tables, oracle.eval()


def _scores(oracle: Any, step: Questions) -> torch.Tensor:
    """PyKEEN's scores of every entity as an answer, (q, n)."""
    inverse = oracle.num_relations > oracle.num_real_relations
    number = step.relation * 2 + (~step.asks_tail).long() if inverse else step.relation
    as_tail = oracle.score_t(torch.stack([step.entity, number], dim=1))
    if inverse:
        return as_tail
    return torch.where(
        step.asks_tail.unsqueeze(1), as_tail, oracle.score_h(torch.stack([step.relation, step.entity], dim=1))
    )


def _gradient(table: torch.Tensor, layout: Callable[[Tables, str], torch.Tensor]) -> torch.Tensor:
    return layout({"x": table}, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("case", list(REAL_CASES))
def test_losses_over_all_entities(
    case: str, reciprocal: bool, loss: str, smoothing: float, request: pytest.FixtureRequest
) -> None:
    """LCWA's loss and gradients: of the labels of all questions (kvsall), or of a label for each answer (1vsall)."""
    nations = request.getfixturevalue("doubled_nations" if reciprocal else "nations")
    name, norm, build, layout = REAL_CASES[case]
    s = TrainSettings(
        model=name, norm=norm, dim=DIM, loss=loss, smoothing=smoothing, reciprocal=reciprocal, precision="float32",
        device="cpu",
    )  # fmt: skip
    relations = nations.training.real_num_relations
    tables = Tables(make_model(s), nations.training.num_entities, relations, seed=3, bound=0.5)
    oracle = build(nations.training).train()
    inputs = [x[0]._embeddings.weight for x in (oracle.entity_representations, oracle.relation_representations)]
    with torch.no_grad():
        inputs[0].copy_(layout(tables, "entity").reshape(inputs[0].shape))
        for place, table in enumerate(tables.exchanged("relation")):
            part = inputs[1][place :: 1 + reciprocal]
            part.copy_(layout(tables, table).reshape(part.shape))

    triples = nations.training.mapped_triples
    triples = triples[triples[:, 1] % 2 == 0] // torch.tensor([1, 2, 1]) if reciprocal else triples
    triples = torch.unique(triples, dim=0)[:300]
    batcher = QuestionBatcher(triples, tables.entities, relations, batch=10**6, per_question=loss == "kvsall", seed=0)
    step = next(next(batcher.epoch(0)).steps())
    labels = torch.zeros(len(step.entity), tables.entities)
    question = torch.repeat_interleave(torch.arange(len(labels)), step.first.diff())
    labels[question, step.answer] = 1
    assert labels.sum() == len(step.answer) == 600
    predictions = _scores(oracle, step)
    if loss == "1vsall":
        predictions, labels = predictions[question], F.one_hot(step.answer, tables.entities).float()
    expected = CrossEntropyLoss().process_lcwa_scores(predictions, labels, label_smoothing=smoothing)
    slopes = torch.autograd.grad(expected, inputs)

    found, gradients = SoftmaxStep(tables, s).gradients(step)
    assert float(found) == pytest.approx(float(expected.detach()), rel=1e-5)
    torch.testing.assert_close(
        _gradient(gradients["entity"], layout).reshape(slopes[0].shape), slopes[0], atol=2e-6, rtol=2e-4
    )
    for place, table in enumerate(tables.exchanged("relation")):
        slope = slopes[1][place :: 1 + reciprocal]
        torch.testing.assert_close(
            _gradient(gradients[table], layout).reshape(slope.shape), slope, atol=2e-6, rtol=2e-4
        )


def test_reciprocal_scores(reciprocal_pair: tuple[Tables, Any], doubled_nations: Any) -> None:
    """A tail's score is `score_t` of the relation, a head's `score_t` of its inverse; a triple's is their mean."""
    tables, oracle = reciprocal_pair
    triples = doubled_nations.testing.mapped_triples[:60]
    head, relation, tail = triples.unbind(1)
    with torch.no_grad():
        tails = oracle.score_t(torch.stack([head, 2 * relation], dim=1))
        heads = oracle.score_t(torch.stack([tail, 2 * relation + 1], dim=1))
    rows = torch.arange(len(triples))
    expected = (tails[rows, tail] + heads[rows, head]) / 2
    torch.testing.assert_close(score_triples(tables, triples), expected, atol=1e-5, rtol=1e-5)
    ranks = rank(tables, triples, known=None)
    for column, (scores, true) in enumerate(((heads, head), (tails, tail))):
        better = (scores > scores[rows, true].unsqueeze(1) + 1e-5).sum(1)
        worse = (scores > scores[rows, true].unsqueeze(1) - 1e-5).sum(1)
        assert (ranks.optimistic[:, column] >= better.numpy() + 1).all()
        assert (ranks.pessimistic[:, column] <= worse.numpy()).all()


def test_n3_is_the_sum_of_cubed_moduli() -> None:
    """Lacroix et al. 2018, as kbc writes it: |lhs|³ + |rel|³ + |rhs|³ with moduli √(re² + im²)."""
    s = TrainSettings(model="ComplEx", dim=DIM, regularizer="n3")
    rows = torch.randn(7, 2 * DIM, generator=torch.Generator().manual_seed(0))
    ours = regularizer_of(s, make_model(s))(rows)
    re, im = rows[:, :DIM], rows[:, DIM:]
    torch.testing.assert_close(ours, (torch.sqrt(re**2 + im**2) ** 3).sum(1))
    theirs = PowerSumRegularizer(p=3.0, normalize=False)(torch.complex(re, im))
    torch.testing.assert_close(ours.mean(), theirs)
    assert not torch.allclose(ours, rows.abs().pow(3).sum(1))
