from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fkge.embed import Tables, model_class
from fkge.errors import SettingsError
from fkge.evaluation import Known, Ranks, TypeConstraint, metrics, rank
from tests.unit.evaluation.rank_twin import CASES, ENTITIES, RELATIONS, assert_same, slow_rank

names = pytest.mark.parametrize(("name", "options"), CASES, ids=lambda x: str(x))
with_kernels = pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])


def scramble(tables: Tables) -> Tables:
    """Tables that start as identities or unit vectors become arbitrary."""
    generator = torch.Generator().manual_seed(9)
    for tensor in tables.export(state=False).values():
        tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
    return tables


@names
@with_kernels
@pytest.mark.parametrize("filtered", [True, False], ids=["filtered", "raw"])
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "any"])
def test_agrees_with_the_slow_twin(make_tables, facts, name, options, kernels, filtered, typed):
    tables = scramble(make_tables(name, **options))
    triples = facts[::9]
    known = Known(facts, ENTITIES, RELATIONS) if filtered else None
    types = TypeConstraint(facts[facts[:, 0] % 3 > 0], ENTITIES) if typed else None
    got = rank(tables, triples, known=known, candidates=types, kernels=kernels)
    assert_same(got, slow_rank(tables, triples, known, types))
    assert len(np.unique(got.optimistic)) > 5  # the case says something


@names
@with_kernels
def test_equal_vectors_tie(make_tables, facts, name, options, kernels):
    tables = scramble(make_tables(name, **options))
    for table in tables.names("entity"):
        tables[table][ENTITIES // 2 :] = tables[table][: ENTITIES // 2]
    known = Known(facts[:50], ENTITIES, RELATIONS)
    got = rank(tables, facts[::9], known=known, kernels=kernels)
    assert_same(got, slow_rank(tables, facts[::9], known))
    tied = got.optimistic < got.pessimistic
    assert tied.mean() > 0.5
    assert (got.optimistic[tied] < got.realistic[tied]).all()
    assert (got.realistic[tied] < got.pessimistic[tied]).all()
    one, other = (metrics(got, ties)["mrr"] for ties in ("optimistic", "pessimistic"))
    assert one > metrics(got)["mrr"] > other


@with_kernels
@pytest.mark.parametrize(
    ("name", "options"), [("TransE", {"norm": 1}), ("TransE", {"norm": 2}), ("DistMult", {}), ("ComplEx", {})]
)
def test_different_vectors_with_equal_scores_tie(make_tables, facts, name, options, kernels):
    """On small whole numbers all arithmetic is exact, so the twin needs no tolerance."""
    tables = make_tables(name, **options)
    generator = torch.Generator().manual_seed(2)
    for tensor in tables.export(state=False).values():
        tensor.copy_(torch.randint(-1, 2, tensor.shape, generator=generator))
    got = rank(tables, facts[::9], known=None, kernels=kernels)
    assert_same(got, slow_rank(tables, facts[::9], None, tie=0.0))
    assert (got.optimistic < got.pessimistic).mean() > 0.5


@with_kernels
@pytest.mark.parametrize(("name", "norm"), [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("RotatE", 1)])
@pytest.mark.parametrize(("dim", "spread"), [(6, 1e-8), (600, 1e-6)])
def test_differences_below_float32_are_told_apart(facts, name, norm, kernels, dim, spread):
    """The fast pass cannot see these differences at all; the second one decides every pair.

    In many dimensions the fast values are also off by more than one rounding.
    """
    model = model_class(name)(dim, norm=norm)
    tables = Tables(model, ENTITIES, RELATIONS, seed=1, bound=0.5, dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    noise = torch.rand(tables["entity"].shape, generator=generator, dtype=torch.float64)
    tables["entity"].copy_(tables["entity"][:1] + spread * noise)
    got = rank(tables, facts[::9], known=None, kernels=kernels)
    assert_same(got, slow_rank(tables, facts[::9], None, tie=1e-6 * spread))
    assert len(np.unique(got.optimistic)) > 5


@names
@with_kernels
def test_chunks_do_not_show(make_tables, facts, name, options, kernels):
    tables = scramble(make_tables(name, **options))
    known = Known(facts, ENTITIES, RELATIONS)
    whole = rank(tables, facts, known=known, kernels=kernels)
    for memory, some in ((1e-6, slice(0, 4)), (5e-3, slice(0, 60)), (3e-2, slice(None))):
        assert_same(whole[some], rank(tables, facts[some], known=known, kernels=kernels, memory=memory))


@with_kernels
def test_not_a_number_earns_no_rank(make_tables, facts, kernels):
    tables = make_tables("TransE")
    tables["entity"][3] = float("nan")
    triples = np.array([[3, 0, 5], [6, 0, 7]])
    got = rank(tables, triples, known=None, kernels=kernels)
    assert (got.optimistic[0] == ENTITIES).all()
    assert_same(got[1:], slow_rank(tables, triples[1:], None))
    tables["entity"].fill_(float("nan"))
    everything = rank(tables, facts, known=Known(facts, ENTITIES, RELATIONS), kernels=kernels)
    assert metrics(everything, "optimistic")["mrr"] < 0.1


@with_kernels
@pytest.mark.parametrize("name", ["TransE", "DistMult", "RotatE"])
def test_infinite_numbers_earn_no_rank(make_tables, facts, name, kernels):
    tables = make_tables(name)
    tables["entity"].fill_(float("inf"))
    got = rank(tables, facts[:20], known=None, kernels=kernels)
    assert (got.pessimistic == ENTITIES).all()


def test_a_constant_model_ranks_in_the_middle(make_tables, facts):
    tables = make_tables("TransE")
    tables["entity"].fill_(0.25)
    got = rank(tables, facts, known=None)
    assert (got.optimistic == 1).all()
    assert (got.pessimistic == ENTITIES).all()
    assert metrics(got)["mr"] == (1 + ENTITIES) / 2


def test_known_answers_do_not_compete(make_tables):
    """Entity 1 beats the true entity 2; known, it is out of the way. The true one may be known or not."""
    tables = make_tables("TransE", dim=1)
    tables["entity"][:, 0] = torch.arange(ENTITIES) * 1.0
    tables["relation"].zero_()
    triple = np.array([[0, 0, 2]])
    raw = rank(tables, triple, known=None).optimistic[0, 1]
    other = rank(tables, triple, known=Known([(0, 0, 1)], ENTITIES, RELATIONS)).optimistic[0, 1]
    both = rank(tables, triple, known=Known([(0, 0, 1), (0, 0, 2)], ENTITIES, RELATIONS)).optimistic[0, 1]
    elsewhere = rank(tables, triple, known=Known([(0, 1, 1), (1, 0, 0)], ENTITIES, RELATIONS)).optimistic[0, 1]
    assert (raw, other, both, elsewhere) == (3, 2, 2, 3)


def test_the_true_entity_competes_even_against_its_type(make_tables):
    tables = make_tables("TransE")
    types = TypeConstraint(np.array([[0, 0, 1], [1, 0, 2]]), ENTITIES)
    got = rank(tables, np.array([[9, 0, 9], [0, 3, 1]]), known=None, candidates=types)
    assert ((got.optimistic[0] >= 1) & (got.pessimistic[0] <= 3)).all()
    assert (got.pessimistic[1] == 1).all()  # a relation that was never seen has no other candidates


@names
def test_virtual_rows_do_not_compete(make_tables, facts, name, options):
    tables = scramble(make_tables(name, **options))
    known = Known(facts, ENTITIES, RELATIONS)
    before = rank(tables, facts[::9], known=known)
    tables.append("entity", tables["entity"][:7] * 0.99)
    tables.append("relation", tables["relation"][:1])
    assert_same(before, rank(tables, facts[::9], known=known))
    assert_same(rank(tables, facts[::9], known=None), slow_rank(tables, facts[::9], None))
    virtual = np.array([[0, RELATIONS, ENTITIES], [ENTITIES + 1, 0, 3]])  # may still be asked about
    got = rank(tables, virtual, known=known)
    expected = slow_rank(tables, virtual, known, entities=ENTITIES)
    assert_same(got, expected)


def test_metrics_by_hand():
    ranks = Ranks(np.array([[1, 2], [4, 20]]), np.array([[1, 4], [4, 22]]))
    got = metrics(ranks)
    assert list(got) == ["mr", "mrr", "hits@1", "hits@3", "hits@10"]
    assert got["mr"] == (1 + 3 + 4 + 21) / 4
    assert got["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 4 + 1 / 21) / 4)
    assert (got["hits@1"], got["hits@3"], got["hits@10"]) == (0.25, 0.5, 0.75)
    assert metrics(ranks, "optimistic", "tail")["mr"] == 11
    assert metrics(ranks, "pessimistic", "head")["mr"] == 2.5


def test_progress_counts_every_rank(make_tables, facts):
    class Seen:
        def __init__(self):
            self.total, self.done = 0, 0

        def task(self, name, total, unit=""):
            self.total = total
            return self

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def advance(self, amount, **shown):
            self.done += amount

    types = TypeConstraint(facts[facts[:, 1] > 0], ENTITIES)  # relation 0 has no candidates at all
    for name, candidates, memory in itertools.product(["TransE", "TransH"], [None, types], [3e-3, 256.0]):
        seen = Seen()
        rank(make_tables(name), facts[::3], known=None, candidates=candidates, memory=memory, progress=seen)
        assert seen.done == seen.total == 2 * len(facts[::3])


def test_refuses_what_it_cannot_rank(make_tables, facts):
    tables = make_tables("TransE")
    with pytest.raises(SettingsError, match="another graph"):
        rank(tables, np.array([[0, 0, ENTITIES]]), known=None)
    with pytest.raises(SettingsError, match="another graph"):
        rank(tables, np.array([[0, RELATIONS, 0]]), known=None)
    with pytest.raises(SettingsError, match="another graph"):
        rank(tables, np.array([[0, -1, 0]]), known=None)
    with pytest.raises(SettingsError, match="another graph"):
        rank(tables, facts, known=Known(facts, ENTITIES + 1, RELATIONS))
    with pytest.raises(SettingsError, match="no triples"):
        metrics(rank(tables, facts[:0], known=None))
    with pytest.raises(SettingsError, match="ties must be"):
        metrics(rank(tables, facts, known=None), "lucky")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["TransE", "TransR", "DistMult"])
@pytest.mark.parametrize("memory", [256.0, 1e-3])
def test_a_model_may_compare_in_its_own_way(facts, name, memory):
    """Ranking by `similarity` alone gives the ranks of the fast ways."""
    base = model_class(name)

    class Own(base):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.comparison = "own"

        def similarity(self, query, candidates):
            if name == "DistMult":
                return (query.unsqueeze(-2) * candidates.unsqueeze(-3)).sum(-1)
            return -(query.unsqueeze(-2) - candidates.unsqueeze(-3)).abs().sum(-1)

    known = Known(facts, ENTITIES, RELATIONS)
    fast = Tables(base(6), ENTITIES, RELATIONS, seed=3, bound=0.5)
    own = Tables(Own(6), ENTITIES, RELATIONS, seed=3, bound=0.5)
    for tables in (fast, own):
        tables["entity"][5] = tables["entity"][3]
    some = facts[:40]
    assert_same(rank(own, some, known=known, memory=memory), rank(fast, some, known=known))
    assert_same(rank(own, some, known=None, memory=memory), rank(fast, some, known=None))
