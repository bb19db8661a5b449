"""Messages of the translation game: order, repetition, hostile contents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from torch import Tensor

from fkge.errors import PeerError, SettingsError
from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, PpatSettings, Received, Samples
from fkge.ppat.messages import LIMIT
from tests.unit.ppat.pairs import cloud, pair, rest_of_game, seeded

SMALL = PpatSettings(steps=6, candidates=2, hidden=8)


def at_step_two() -> tuple[PpatClient, PpatHost, Samples, Gradient]:
    """A running game: the host has answered step 1, the client has sent the samples of step 2."""
    client, host = pair(SMALL)
    message = client.start()
    for _ in range(2):
        answer = host.step(message)
        sent = client.step(answer)
        assert sent is not None
        message = sent
    assert isinstance(message, Samples)
    assert isinstance(answer, Gradient)
    return client, host, message, answer


def same(expected: list[Tensor], tensors: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(expected, tensors, strict=True))


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
    before = rest_of_game(client, host, samples)
    with pytest.raises(PeerError, match=word):
        host.step(replace(samples, vectors=spoil(samples.vectors)))  # type: ignore[arg-type]
    gradient = Gradient(2, torch.zeros(32, 6, dtype=torch.float64))
    with pytest.raises(PeerError, match=word):
        client.step(replace(gradient, vectors=spoil(gradient.vectors)))  # type: ignore[arg-type]
    assert same(before, rest_of_game(client, host, samples))
    assert isinstance(client.step(host.step(samples)), Candidate)  # the game continues


def test_messages_out_of_order_are_refused_and_change_nothing() -> None:
    client, host, samples, gradient = at_step_two()
    before = rest_of_game(client, host, samples)
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
    assert same(before, rest_of_game(client, host, samples))


def test_same_step_with_other_contents_is_no_duplicate() -> None:
    client, host, samples, gradient = at_step_two()
    host.step(samples)
    before = rest_of_game(client, host, samples)
    with pytest.raises(PeerError, match="Samples of step 2"):
        host.step(replace(samples, vectors=samples.vectors + 1e-9))
    with pytest.raises(PeerError, match="Gradient of step 1"):
        client.step(replace(gradient, vectors=gradient.vectors * 2))
    assert same(before, rest_of_game(client, host, samples))


def test_a_repeated_message_gets_the_same_answer_and_draws_no_noise() -> None:
    client, host = pair(SMALL, neighbours=3)
    message: Samples | Candidate | None = client.start()
    assert message is not None
    expected = rest_of_game(client, host, message)
    while message is not None:
        answer = host.step(message)
        assert host.step(replace(message, vectors=message.vectors.clone())) is answer
        assert same(expected[-3:], rest_of_game(client, host, message)[-3:])
        message = client.step(answer)
        assert client.step(answer) is message
    assert torch.equal(host.translation.vectors, expected[-2])
    assert [host.criterion, host.price["queries"]] == expected[-1].tolist()
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
            before = rest_of_game(client, host, message)
            with pytest.raises(PeerError, match="NaN"):
                host.step(replace(message, neighbours=message.neighbours * math.nan))
            with pytest.raises(PeerError, match="shape"):
                host.step(replace(message, neighbours=message.neighbours[:, 1:]))
            if candidates:
                with pytest.raises(PeerError, match="2 neighbours, but 3"):
                    host.step(replace(message, neighbours=message.neighbours[1:]))
            assert same(before, rest_of_game(client, host, message))
            candidates += 1
        message = client.step(host.step(message))
    assert candidates == 2


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


def test_messages_are_frozen_and_hold_numbers_only() -> None:
    message = Samples(0, cloud(2, 3, 0))
    with pytest.raises(FrozenInstanceError):
        message.step = 1  # type: ignore[misc]
    kinds = {f.type for m in (Samples, Candidate, Gradient, Received) for f in fields(m)}
    assert kinds == {"int", "Tensor", "Tensor | None"}


def test_result_before_any_candidate_and_late_start_are_refused() -> None:
    client, host, _, _ = at_step_two()
    with pytest.raises(RuntimeError, match="no candidate"):
        _ = host.translation
    with pytest.raises(RuntimeError, match="has started"):
        client.start()
