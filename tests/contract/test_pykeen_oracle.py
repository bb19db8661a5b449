"""PyKEEN as an oracle: the same tables give the same scores, and the same filtered metrics."""

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
    from pykeen.models import ComplEx, DistMult, TransE, TransH

from fkge.embed import Tables, model_class
from fkge.evaluation import Known, metrics, rank, score_triples

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
