"""Batches of questions: every answer once per epoch, the same bits again, steps of about the size asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fkge.embed import questions
from fkge.embed.questions import QuestionBatcher, Questions

ENTITIES, RELATIONS = 12, 3
TRIPLES = st.integers(1, 60).flatmap(
    lambda n: arrays(np.int64, (n, 3), elements=st.integers(0, 11)).map(lambda x: x % [ENTITIES, RELATIONS, ENTITIES])
)


def batcher_of(
    triples: Any, batch: int, per_question: bool = False, seed: int = 0, together: int | None = None
) -> QuestionBatcher:
    ids = torch.from_numpy(triples.copy())
    return QuestionBatcher(
        ids, ENTITIES, RELATIONS, batch=batch, per_question=per_question, together=together, seed=seed
    )


def pairs(step: Questions) -> Counter[tuple[int, int, bool, int]]:
    """(entity, relation, asks tail, answer), as often as they occur."""
    sizes = step.first.diff()
    columns = (x.repeat_interleave(sizes).tolist() for x in (step.entity, step.relation, step.asks_tail))
    return Counter(zip(*columns, step.answer.tolist(), strict=True))


def expected(triples: Any) -> Counter[tuple[int, int, bool, int]]:
    return Counter(
        [(h, r, True, t) for h, r, t in triples.tolist()] + [(t, r, False, h) for h, r, t in triples.tolist()]
    )


def same(a: Questions, b: Questions) -> bool:
    names = ("entity", "relation", "asks_tail", "first", "answer")
    return (
        all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)
        and np.array_equal(a.bounds, b.bounds)
        and a.positives == b.positives
        and torch.equal(a.generator.get_state(), b.generator.get_state())
    )


@pytest.fixture(params=["a step per chunk", "many"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU a chunk is a step; a GPU gets several at a time."""
    if request.param == "many":
        original = QuestionBatcher.__init__

        def several(self: QuestionBatcher, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            self.steps_per_chunk = 3

        monkeypatch.setattr(QuestionBatcher, "__init__", several)


@pytest.mark.usefixtures("chunks")
def test_the_properties_of_an_epoch() -> None:
    @settings(max_examples=60, deadline=None)
    @given(
        TRIPLES, st.integers(1, 40), st.booleans(), st.integers(0, 5), st.integers(0, 3), st.sampled_from([None, 1, 3])
    )
    def holds(triples: Any, batch: int, per_question: bool, seed: int, epoch: int, together: int | None) -> None:
        batcher = batcher_of(triples, batch, per_question, seed, together)
        parts = list(batcher.epoch(epoch))
        assert len(parts) == len(batcher)
        assert sum(part.positives for part in parts) == len(triples) == batcher.size
        assert len(parts[0].bounds) > 1, "a loss is divided by the number of steps so far"
        # Every answer of every question, once; and every question in one step.
        steps = [step for part in parts for step in part.steps()]
        assert sum((pairs(step) for step in steps), Counter()) == expected(triples)
        columns = [torch.cat([getattr(step, name) for step in steps]) for name in ("entity", "relation", "asks_tail")]
        asked = list(zip(*(column.tolist() for column in columns), strict=True))
        if together is None:
            assert len(asked) == len(set(asked))
        else:
            assert max(int(step.first.diff().max()) for step in steps) <= together
        for step in steps:
            assert len(step.entity) > 0
            assert int(step.first[0]) == 0
            assert int(step.first[-1]) == len(step.answer)
            assert bool((step.first.diff() > 0).all())
            assert step.bounds.tolist() == [0, len(step.entity)]
        # The same bits from seed, epoch and chunk, in whatever order the triples come.
        mixed = triples[np.random.default_rng(seed).permutation(len(triples))]
        again = batcher_of(mixed, batch, per_question, seed, together)
        for start in {0, len(parts) // 2, len(parts) - 1}:
            resumed = list(again.epoch(epoch, start))
            assert len(resumed) == len(parts) - start
            assert all(same(a, b) for a, b in zip(resumed, parts[start:], strict=True))

    holds()


@settings(max_examples=60, deadline=None)
@given(TRIPLES, st.integers(1, 40), st.booleans())
def test_steps_are_about_as_large_as_asked_for(triples: Any, batch: int, per_question: bool) -> None:
    batcher = batcher_of(triples, batch, per_question)
    steps = [step for part in batcher.epoch(0) for step in part.steps()]
    size = [len(step.entity if per_question else step.answer) for step in steps]
    amount, longest = sum(size), 1 if per_question else max(int(step.first.diff().max()) for step in steps)
    assert len(steps) <= max(1, amount // batch)
    # A step begins less than `longest` past its place, and the last takes up to a whole one more.
    assert all(x < batch + longest for x in size[:-1])
    assert size[-1] < 2 * batch + longest
    if len(steps) > 1 and longest <= batch:
        assert all(x > batch - longest for x in size[:-1])
    if per_question:
        assert all(x == batch for x in size[:-1])
        assert size[-1] == amount if len(size) == 1 else size[-1] >= batch


def test_epochs_and_seeds_differ() -> None:
    triples = np.random.default_rng(0).integers([ENTITIES, RELATIONS, ENTITIES], size=(60, 3))
    orders = [
        torch.cat([part.entity for part in batcher_of(triples, 10, seed=seed).epoch(epoch)])
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])


def test_chunks_have_streams_of_their_own() -> None:
    triples = np.random.default_rng(0).integers([ENTITIES, RELATIONS, ENTITIES], size=(60, 3))
    draws = [
        float(torch.rand(1, generator=part.generator))
        for epoch in (0, 1)
        for part in batcher_of(triples, 10).epoch(epoch)
    ]
    assert len(set(draws)) == len(draws) > 4


def test_a_question_with_more_answers_than_a_step_is_a_step() -> None:
    """The steps that its answers leave without a question are left out; chunks without any step train nothing."""
    hub = np.array([[0, 0, t] for t in range(ENTITIES)])
    batcher = batcher_of(hub, 2)
    assert len(batcher) == ENTITIES
    parts = list(batcher.epoch(0))
    empty = [part for part in parts if len(part.bounds) == 1]
    assert empty
    assert all(len(part.entity) == len(part.answer) == 0 and not list(part.steps()) for part in empty)
    assert max(len(part.answer) for part in parts) >= ENTITIES
    assert sum(part.positives for part in parts) == ENTITIES


def test_answers_that_go_together_are_drawn_anew_in_each_epoch() -> None:
    """A question of 12 answers, 5 at most together: three pieces of 4, of other answers each time."""
    hub = np.array([[0, 0, t] for t in range(ENTITIES)])
    batcher = batcher_of(hub, 10**6, together=5)

    def pieces(epoch: int) -> set[frozenset[int]]:
        step = next(next(batcher.epoch(epoch)).steps())
        first = step.first.tolist()
        spans = zip(first, first[1:], step.asks_tail.tolist(), strict=False)
        return {frozenset(step.answer[a:b].tolist()) for a, b, asks_tail in spans if asks_tail}

    found = [pieces(epoch) for epoch in range(4)]
    assert all([len(piece) for piece in some] == [4, 4, 4] for some in found)
    assert all(frozenset().union(*some) == set(range(ENTITIES)) for some in found)
    assert len({frozenset(some) for some in found}) == 4
    assert pieces(2) == found[2]


def test_each_answer_alone_is_a_question() -> None:
    triples = np.random.default_rng(0).integers([ENTITIES, RELATIONS, ENTITIES], size=(60, 3))
    step = next(next(batcher_of(triples, 10**6, together=1).epoch(0)).steps())
    assert len(step.entity) == len(step.answer) == 120
    assert pairs(step) == expected(triples)


def test_triples_given_twice_count_twice() -> None:
    twice = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 2]])
    step = next(next(batcher_of(twice, 100).epoch(0)).steps())
    assert pairs(step)[0, 0, True, 1] == 2
    assert len(step.entity) == 3


def test_a_gpu_gets_several_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    triples = np.random.default_rng(0).integers([ENTITIES, RELATIONS, ENTITIES], size=(60, 3))
    monkeypatch.setattr(questions, "CELLS_PER_CHUNK", 1 << 12)
    batcher = batcher_of(triples, 10)
    assert batcher.steps_per_chunk == 1  # it is a CPU
    assert len(batcher) == 12
