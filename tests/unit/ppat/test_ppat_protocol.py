"""Messages: order, repetition, hostile contents; which candidate the host keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ppat_pair import cloud, fingerprint, pair, seeded
from torch import Tensor

import fkge.ppat
from fkge.errors import PeerError, SettingsError
from fkge.ppat import (
    Candidate,
    Gradient,
    PpatClient,
    PpatHost,
    PpatSettings,
    Received,
    Samples,
    csls_criterion,
    run_game,
)
from fkge.ppat.messages import LIMIT

SMALL = PpatSettings(steps=6, candidates=2, hidden=8)


@given(st.integers(0, 200), st.data())
def test_candidates_are_evenly_spread_and_the_last_is_at_the_end(steps: int, data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, max(1, steps)))
    s = PpatSettings(steps=steps, candidates=candidates)
    due = [step for step in range(steps + 1) if s.candidate_due(step)]
    assert len(due) == candidates
    assert due[-1] == steps
    gaps = [b - a for a, b in zip([0, *due], due, strict=False)]
    assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("neighbours", [None, 0, 7])
def test_a_whole_game(neighbours: int | None) -> None:
    client, host = pair(SMALL, client_dim=4, host_dim=6, neighbours=neighbours)
    heard: list[str] = []
    message = client.start()
    assert client.start() is message
    while message is not None:
        answer = host.step(message)
        heard.append(f"{type(message).__name__}{message.step}")
        message = client.step(answer)
    assert heard == [
        "Samples0", "Samples1", "Samples2", "Candidate3", "Samples3", "Samples4", "Samples5", "Candidate6"
    ]  # fmt: skip
    assert host.finished
    result = host.translation
    assert result.vectors.shape == (50, 6)
    assert (result.neighbours is None) == (neighbours is None)
    assert result.neighbours is None or result.neighbours.shape == (neighbours, 6)
    assert list(result.criteria) == [3, 6]
    assert result.bytes_out == 6 * 32 * 6 * 8
    assert result.bytes_in == 6 * 32 * 6 * 8 + 2 * (50 + (neighbours or 0)) * 6 * 8


def test_host_keeps_the_candidate_that_lies_best_on_its_rows() -> None:
    y = cloud(50, 6, 3) + 0.5
    for better in (0, 1):
        s = PpatSettings(steps=2, candidates=2, hidden=8)
        _, host = pair(s)
        sent = [y + (0.01 if i == better else 1.0) * cloud(50, 6, 20 + i) for i in range(2)]
        around = [torch.full((3, 6), float(i), dtype=torch.float64) for i in range(2)]
        for i in range(2):
            host.step(Samples(i, cloud(32, 6, i)))
            assert type(host.step(Candidate(i + 1, sent[i], around[i]))) is Received
        kept = host.translation
        assert torch.equal(kept.vectors, sent[better])
        assert kept.neighbours is not None
        assert torch.equal(kept.neighbours, around[better])
        assert kept.step == better + 1
        assert kept.criteria[better + 1] == max(kept.criteria.values())
        assert kept.criteria[1] == pytest.approx(csls_criterion(sent[0], y))


def test_csls_by_brute_force() -> None:
    x, y, k = cloud(23, 5, 0), cloud(31, 5, 1), 4
    cos = [[float(torch.dot(a, b) / (a.norm() * b.norm())) for b in y] for a in x]
    around_x = [sum(sorted(row)[-k:]) / k for row in cos]
    around_y = [sum(sorted(row[j] for row in cos)[-k:]) / k for j in range(31)]
    nearest = [max(2 * cos[i][j] - around_x[i] - around_y[j] for j in range(31)) for i in range(23)]
    assert csls_criterion(x, y, k) == pytest.approx(sum(nearest) / 23)
    assert csls_criterion(x, y, k, chunk=7) == pytest.approx(csls_criterion(x, y, k))


def test_csls_takes_what_is_there() -> None:
    assert math.isfinite(csls_criterion(cloud(3, 5, 0), cloud(2, 5, 1), 10))
    assert math.isfinite(csls_criterion(torch.zeros(3, 5), torch.zeros(3, 5), 10))
    y = cloud(40, 5, 2)
    assert csls_criterion(y, y) > csls_criterion(cloud(40, 5, 3), y)


def at_step_two() -> tuple[PpatClient, PpatHost, Samples, Gradient]:
    """A game under way: the host has answered step 1, the client has just said the samples of step 2."""
    client, host = pair(SMALL)
    message = client.start()
    for _ in range(2):
        answer = host.step(message)
        said = client.step(answer)
        assert said is not None
        message = said
    assert isinstance(message, Samples)
    assert isinstance(answer, Gradient)
    return client, host, message, answer


def spoiled(vectors: Tensor, value: float) -> Tensor:
    out = vectors.clone()
    out[3, 2] = value
    return out


BAD_TENSORS: list[tuple[str, Callable[[Tensor], object]]] = [
    ("NaN", lambda v: spoiled(v, math.nan)),
    ("NaN", lambda v: spoiled(v, math.inf)),
    ("NaN", lambda v: spoiled(v, -math.inf)),
    ("NaN", lambda v: spoiled(v, 2 * LIMIT)),
    ("float32", lambda v: v.float()),
    ("int64", lambda v: v.long()),
    ("complex", lambda v: v + 0j),
    ("shape", lambda v: v[:-1]),
    ("shape", lambda v: v[:, :-1]),
    ("shape", lambda v: v[0]),
    ("shape", lambda v: v[None]),
    ("shape", lambda v: v[:0]),
    ("shape", lambda v: torch.eye(6, dtype=torch.float64)),
    ("dense", lambda v: v.to_sparse()),
    ("dense", lambda v: v.to("meta")),
    ("dense", lambda v: v.tolist()),
    ("dense", lambda v: None),
    ("graph", lambda v: v.clone().requires_grad_()),
]


@pytest.mark.parametrize(("word", "spoil"), BAD_TENSORS)
def test_hostile_tensors_are_refused_and_change_nothing(word: str, spoil: Callable[[Tensor], object]) -> None:
    client, host, samples, _ = at_step_two()
    before = fingerprint(client, host)
    with pytest.raises(PeerError, match=word):
        host.step(replace(samples, vectors=spoil(samples.vectors)))  # type: ignore[arg-type]
    gradient = Gradient(2, torch.zeros(32, 6, dtype=torch.float64))
    with pytest.raises(PeerError, match=word):
        client.step(replace(gradient, vectors=spoil(gradient.vectors)))  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))
    assert isinstance(client.step(host.step(samples)), Candidate)  # the game goes on


def test_messages_out_of_order_are_refused_and_change_nothing() -> None:
    client, host, samples, gradient = at_step_two()
    before = fingerprint(client, host)
    whole = cloud(50, 6, 1)
    for step in (0, 1, 3, 6, 100, -1, True, 2.0, None, "2"):
        with pytest.raises(PeerError):
            host.step(replace(samples, step=step))  # type: ignore[arg-type]
        with pytest.raises(PeerError):
            client.step(Gradient(step, torch.ones(32, 6, dtype=torch.float64)))  # type: ignore[arg-type]
    for step in (2, 3, 6):
        with pytest.raises(PeerError, match="Samples of step 2 was due"):
            host.step(Candidate(step, whole))
        with pytest.raises(PeerError, match="Gradient of step 2 was due"):
            client.step(Received(step))
    for foreign in (gradient, Received(2), None, "hello", object()):
        with pytest.raises(PeerError, match="was due"):
            host.step(foreign)  # type: ignore[arg-type]
    for foreign in (samples, Candidate(2, whole), None, 7):
        with pytest.raises(PeerError, match="was due"):
            client.step(foreign)  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))


def test_same_step_with_other_contents_is_no_duplicate() -> None:
    client, host, samples, gradient = at_step_two()
    host.step(samples)
    before = fingerprint(client, host)
    with pytest.raises(PeerError, match="Samples of step 2"):
        host.step(replace(samples, vectors=samples.vectors + 1e-9))
    with pytest.raises(PeerError, match="Gradient of step 1"):
        client.step(replace(gradient, vectors=gradient.vectors * 2))
    assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))


def test_a_repeated_message_gets_the_same_answer_and_draws_no_noise() -> None:
    once, twice = pair(SMALL, neighbours=3), pair(SMALL, neighbours=3)
    expected = run_game(*once)
    client, host = twice
    message = client.start()
    while message is not None:
        answer = host.step(message)
        before = fingerprint(client, host)
        copy = replace(message, vectors=message.vectors.clone())
        assert host.step(copy) is answer
        assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))
        message = client.step(answer)
        before = fingerprint(client, host)
        assert client.step(answer) is message
        assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))
    result = host.translation
    assert torch.equal(result.vectors, expected.vectors)
    assert result.spent == expected.spent
    assert result.bytes_in == expected.bytes_in
    with pytest.raises(PeerError, match="nothing was due"):
        host.step(Samples(6, torch.zeros(32, 6, dtype=torch.float64)))
    with pytest.raises(PeerError, match="nothing was due"):
        client.step(Received(5))


def test_neighbours_are_checked_and_must_not_change_in_number() -> None:
    client, host = pair(SMALL, neighbours=3)
    message = client.start()
    candidates = 0
    while message is not None:
        if isinstance(message, Candidate):
            assert message.neighbours is not None
            before = fingerprint(client, host)
            with pytest.raises(PeerError, match="NaN"):
                host.step(replace(message, neighbours=message.neighbours * math.nan))
            with pytest.raises(PeerError, match="shape"):
                host.step(replace(message, neighbours=message.neighbours[:, 1:]))
            if candidates:
                with pytest.raises(PeerError, match="2 neighbours, but 3"):
                    host.step(replace(message, neighbours=message.neighbours[1:]))
            assert all(torch.equal(a, b) for a, b in zip(before, fingerprint(client, host), strict=True))
            candidates += 1
        message = client.step(host.step(message))
    assert candidates == 2


def test_largest_allowed_numbers_break_neither_side() -> None:
    s = PpatSettings(steps=30, candidates=1, hidden=8, lr=10.0)
    for dtype in (torch.float32, torch.float64):
        host = PpatHost(cloud(50, 6, 3, dtype), s, seeded(4))
        for step in range(30):
            signs = cloud(32, 6, step, dtype).sign()
            answer = host.step(Samples(step, LIMIT * signs))
            assert isinstance(answer, Gradient)
            assert answer.vectors.isfinite().all()
        assert host.teachers.networks.parameters.isfinite().all()
        assert host.student.network.parameters.isfinite().all()


def test_a_gradient_that_breaks_the_mapping_is_refused() -> None:
    s = PpatSettings(steps=9, candidates=1, lr=1e30)
    client = PpatClient(1e3 * cloud(50, 6, 1, torch.float32), 6, s, seeded(2))
    client.start()
    before = client.mapping
    with pytest.raises(PeerError, match="overflow"):
        client.step(Gradient(0, torch.full((32, 6), LIMIT)))
    assert torch.equal(before, client.mapping)
    assert client.step(Gradient(0, torch.zeros(32, 6))) is not None


@pytest.mark.parametrize("rows", [4, 5, 31])
def test_few_rows(rows: int) -> None:
    client, host = pair(SMALL, rows=rows)
    result = run_game(client, host)
    assert result.vectors.shape == (rows, 6)
    assert result.spent.queries == 6 * rows


def test_too_few_rows_and_impossible_settings_say_so() -> None:
    with pytest.raises(SettingsError, match="fewer teachers"):
        PpatHost(cloud(3, 6, 0), SMALL, seeded(0))
    with pytest.raises(SettingsError, match="aligned rows"):
        PpatClient(cloud(0, 6, 0), 6, SMALL, seeded(0))
    with pytest.raises(SettingsError, match="candidates"):
        PpatSettings.build({"steps": 3, "candidates": 4})
    with pytest.raises(SettingsError, match="lam"):
        PpatSettings.build({"lam": -1})
    with pytest.raises(SettingsError, match="did you mean teachers"):
        PpatSettings.build({"teacher": 3})


def test_no_steps_is_a_translation_and_nothing_more() -> None:
    client, host = pair(PpatSettings(steps=0, candidates=1))
    result = run_game(client, host)
    assert torch.equal(result.vectors, cloud(50, 6, 1))  # W is the identity
    assert result.spent.queries == 0
    assert result.spent.epsilon == 0


def test_criterion_on_some_rows_only() -> None:
    client, host = pair(PpatSettings(steps=0, candidates=1, csls_rows=10), rows=50)
    y = cloud(50, 6, 3) + 0.5
    value = run_game(client, host).criteria[0]
    assert value == pytest.approx(csls_criterion(cloud(50, 6, 1)[::5], y[::5]))


def test_messages_are_frozen_and_hold_numbers_only() -> None:
    message = Samples(0, cloud(2, 3, 0))
    with pytest.raises(FrozenInstanceError):
        message.step = 1  # type: ignore[misc]
    kinds = {f.type for m in (Samples, Candidate, Gradient, Received) for f in fields(m)}
    assert kinds == {"int", "Tensor", "Tensor | None"}


def test_result_before_any_candidate_and_start_after_the_first_answer_are_mistakes() -> None:
    client, host, _, _ = at_step_two()
    with pytest.raises(RuntimeError, match="no candidate"):
        _ = host.translation
    with pytest.raises(RuntimeError, match="under way"):
        client.start()


def test_public_names() -> None:
    assert {name for name, value in vars(fkge.ppat).items() if isinstance(value, type) or callable(value)} == {
        "Candidate", "Gradient", "PaperMoments", "PpatClient", "PpatHost", "PpatSettings", "Received", "Samples",
        "Spent", "Translation", "csls_criterion", "run_game",
    }  # fmt: skip
