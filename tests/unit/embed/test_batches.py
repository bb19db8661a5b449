"""Batches: everything is dealt once, negatives come from where they should, and draws repeat."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fkge.embed.batches import Batch, Batcher, Facts


def some_triples(n: int = 200, entities: int = 15, relations: int = 4, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    columns = (rng.integers(entities, size=n), rng.integers(relations, size=n), rng.integers(entities, size=n))
    return torch.from_numpy(np.unique(np.stack(columns, axis=1), axis=0))


def positives(batches: list[Batch]) -> list[tuple[int, ...]]:
    out = []
    for b in batches:
        stacked = torch.stack([b.head, b.relation, b.tail], -1)[b.weight]
        out += [tuple(row) for row in stacked.tolist()]
    return out


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 120),
    batch=st.integers(1, 50),
    share=st.integers(1, 9),
    negatives=st.integers(1, 7),
    pure=st.booleans(),
)
def test_an_epoch_deals_every_triple_once(n: int, batch: int, share: int, negatives: int, pure: bool) -> None:
    triples = some_triples(n)
    b = Batcher(triples, 15, 4, batch=batch, negatives=negatives, share=share, pure=pure)
    dealt = list(b.epoch(3))
    assert len(dealt) == len(b)
    assert sorted(positives(dealt)) == sorted(map(tuple, triples.tolist()))
    assert sum(x.positives for x in dealt) == len(triples)
    for steps in dealt:
        for step in steps.steps():
            assert 0 < int(step.weight.sum()) <= batch
            assert step.negative.shape == (len(step.head), negatives)
            if pure:
                assert (step.relation == step.relation[:, :1]).all()
                assert (step.relation[1:, 0] >= step.relation[:-1, 0]).all()


def test_draws_follow_from_seed_epoch_and_chunk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fkge.embed.batches.CHUNK_IDS", 100)
    triples = some_triples()
    make = lambda seed: Batcher(triples, 15, 4, batch=10, negatives=3, seed=seed)  # noqa: E731
    first, again = list(make(1).epoch(5)), list(make(1).epoch(5, start=3))
    assert len(first) > 5
    for a, b in zip(first[3:], again, strict=True):
        assert torch.equal(a.negative, b.negative)
        assert torch.equal(a.head, b.head)
    other = next(iter(make(2).epoch(5)))
    assert not torch.equal(other.negative, first[0].negative)
    assert not torch.equal(next(iter(make(1).epoch(6))).head, first[0].head)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 3))
def test_outside_draws_are_exactly_the_complement(seed: int, entities: int, relations: int) -> None:
    """Every entity that is not a completion comes up, in order, and no other does."""
    triples = some_triples(30, entities, relations, seed)
    facts = Facts(triples, entities, relations)
    known = set(map(tuple, triples.tolist()))
    for fixed in range(entities):
        for relation in range(relations):
            for tail in (True, False):
                outside = [
                    e for e in range(entities)
                    if ((fixed, relation, e) if tail else (e, relation, fixed)) not in known
                ]  # fmt: skip
                expected = outside or list(range(entities))  # nothing outside: anything will do
                uniform = (torch.arange(len(expected), dtype=torch.float64) + 0.5) / len(expected)
                drawn = facts.draw_outside(
                    torch.tensor([fixed]), torch.tensor([relation]), torch.tensor([tail]), uniform[None]
                )
                assert drawn[0].tolist() == expected


def test_filtered_batches_hold_no_training_triple() -> None:
    triples = some_triples(150)
    known = set(map(tuple, triples.tolist()))

    def false_negatives(filtered: bool) -> int:
        count = 0
        for b in Batcher(triples, 15, 4, batch=32, negatives=20, filtered=filtered).epoch(0):
            for h, r, t, side, row in zip(
                b.head[:, 0], b.relation[:, 0], b.tail[:, 0], b.corrupt_tail[:, 0], b.negative, strict=True
            ):
                for n in row.tolist():
                    count += ((int(h), int(r), n) if side else (n, int(r), int(t))) in known
        return count

    assert false_negatives(False) > 0
    assert false_negatives(True) == 0


def test_uniform_negatives_are_uniform() -> None:
    """A chi-square test that passes a uniform draw and rejects one without the last entity."""
    triples = some_triples(200)
    drawn = torch.cat(
        [b.negative.flatten() for e in range(20) for b in Batcher(triples, 15, 4, batch=64, negatives=10).epoch(e)]
    )

    def chi_square(ids: torch.Tensor) -> float:
        counts = torch.bincount(ids, minlength=15).double()
        expected = len(ids) / 15
        return float(((counts - expected) ** 2 / expected).sum())

    limit = 42.6  # 14 degrees of freedom, p = 1e-4
    assert chi_square(drawn) < limit
    assert chi_square(drawn % 14) > limit


def test_bernoulli_corrupts_the_many_side_less() -> None:
    # Relation 0: one head, ten tails. Relation 1: the mirror image.
    one_to_many = [(0, 0, t) for t in range(1, 11)]
    many_to_one = [(h, 1, 0) for h in range(1, 11)]
    triples = torch.tensor(one_to_many + many_to_one)
    chance = Facts(triples, 11, 3).tail_chance()
    # tails per head 10, heads per tail 1: P(corrupt head) = 10/11, so that a corrupted tail, often true, is rare.
    assert chance.tolist() == pytest.approx([1 / 11, 10 / 11, 0.5])
    sides = torch.cat([
        b.corrupt_tail[b.relation == 0]
        for e in range(200) for b in Batcher(triples, 11, 3, batch=8, negatives=1, corruption="bernoulli").epoch(e)
    ])  # fmt: skip
    assert float(sides.double().mean()) == pytest.approx(1 / 11, abs=0.03)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), share=st.integers(2, 6), pure=st.booleans())
def test_false_negatives_among_shared_ones_are_all_found(seed: int, share: int, pure: bool) -> None:
    triples = some_triples(60, 8, 3, seed)
    known = set(map(tuple, triples.tolist()))
    found = 0
    batcher = Batcher(triples, 8, 3, batch=16, negatives=5, share=share, pure=pure, filtered=True, seed=seed)
    for step in next(iter(batcher.epoch(0))).steps():
        false = step.false_negatives()
        assert false is not None
        for g in range(len(step.head)):
            for s in range(share):
                h, r, t = int(step.head[g, s]), int(step.relation[g, s]), int(step.tail[g, s])
                for n, flag in zip(step.negative[g].tolist(), false[g, s].tolist(), strict=True):
                    assert flag == (((h, r, n) if step.corrupt_tail[g, s] else (n, r, t)) in known)
                    found += flag
    assert found > 0
    unfiltered = Batcher(triples, 8, 3, batch=16, negatives=5, share=share)
    assert next(iter(unfiltered.epoch(0))).false_negatives() is None
