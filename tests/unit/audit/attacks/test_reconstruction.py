"""Reconstruction: the game gives the client's rows away, whatever noise the host adds to its votes."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor

from fkge.align import random_rotation
from fkge.audit.attacks.reconstruction import (
    Replay,
    from_anchors,
    gram,
    recovery,
    relative_error,
    remains,
)
from fkge.errors import SettingsError
from fkge.federation.exchange import Update, hidden
from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, PpatSettings, Samples


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cloud(rows: int, dim: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, dim, generator=seeded(seed), dtype=torch.float64).to(dtype)


def replay(samples: list[Tensor], gradients: list[Tensor], translated: Tensor, **rules: float) -> np.ndarray:
    """The client's rows, out of the transcript of a game."""
    host = Replay(translated.shape[1], **rules)
    for batch, answer in zip(samples, gradients, strict=True):
        host.step(batch, answer)
    return host.rows(translated)


class Transcript:
    """All that passed in one game, as the host has it. The noise on the votes is that of the settings."""

    def __init__(self, rows: Tensor, host_dim: int, settings: PpatSettings) -> None:
        self.samples: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.candidates: list[tuple[int, Tensor]] = []
        client = PpatClient(rows, host_dim, settings, seeded(2))
        host = PpatHost(cloud(len(rows), host_dim, 3, rows.dtype) + 0.5, settings, seeded(4))
        message = client.start()
        while message is not None:
            answer = host.step(message)
            if isinstance(message, Samples):
                assert isinstance(answer, Gradient)
                self.samples.append(message.vectors)
                self.gradients.append(answer.vectors)
            else:
                assert isinstance(message, Candidate)
                self.candidates.append((len(self.samples), message.vectors))
            message = client.step(answer)
        self.mapping = client.mapping


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_replay_gives_every_row_of_the_client_away(lam: float) -> None:
    """λ = 0.05 is the paper's noise. It covers the host only."""
    settings = PpatSettings(steps=120, candidates=3, hidden=16, lr=0.2, lam=lam)
    rows = cloud(200, 16, 1)
    seen = Transcript(rows, 16, settings)
    assert relative_error(rows, seen.candidates[-1][1]) > 0.2  # W has moved: what is sent last is not X
    rules = {"lr": settings.lr, "momentum": settings.momentum, "beta": settings.beta}
    for done, translated in seen.candidates:
        guess = replay(seen.samples[:done], seen.gradients[:done], translated, **rules)
        found = recovery(rows, guess)
        assert found.error < 1e-4
        assert found.identified == 1
    # Without the rules' arithmetic, the rows do not come out: the replay is what recovers them.
    wrong = replay(seen.samples, seen.gradients, seen.candidates[-1][1], lr=settings.lr / 2, beta=settings.beta)
    assert relative_error(rows, wrong) > 0.05


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_of_other_widths_the_gram_matrix_is_given_away(lam: float) -> None:
    settings = PpatSettings(steps=60, candidates=1, hidden=16, lam=lam)
    rows = cloud(100, 12, 1)
    seen = Transcript(rows, 16, settings)
    rules = {"lr": settings.lr, "momentum": settings.momentum, "beta": settings.beta}
    guess = replay(seen.samples, seen.gradients, seen.candidates[-1][1], **rules)
    assert relative_error(gram(rows), gram(guess)) < 1e-4
    # With a few known rows the rotation is known too, and all rows are.
    anchors = np.arange(16)
    assert recovery(rows[16:], from_anchors(guess, anchors, rows[:16])[16:]).error < 1e-3


def test_the_first_batch_of_equal_widths_is_the_clients_rows_as_they_are() -> None:
    """W begins as the identity: no attack is needed at all."""
    settings = PpatSettings(steps=30, candidates=1, hidden=16)
    rows = cloud(60, 16, 1)
    seen = Transcript(rows, 16, settings)
    known = {tuple(row) for row in rows.tolist()}
    assert {tuple(row) for row in seen.samples[0].tolist()} <= known
    assert not {tuple(row) for row in seen.samples[-1].tolist()} & known


def test_the_replayed_mapping_is_the_clients() -> None:
    settings = PpatSettings(steps=40, candidates=1, hidden=16)
    rows = cloud(80, 10, 1, torch.float64)
    seen = Transcript(rows, 10, settings)
    host = Replay(10, lr=settings.lr, momentum=settings.momentum, beta=settings.beta)
    for batch, answer in zip(seen.samples, seen.gradients, strict=True):
        host.step(batch, answer)
    np.testing.assert_allclose(host.mapping, seen.mapping.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.05])
def test_as_many_anchors_as_dimensions_give_all_rows(lam: float) -> None:
    settings = PpatSettings(steps=60, candidates=1, hidden=16, lam=lam)
    rows = cloud(200, 16, 1)
    (_, translated), order = Transcript(rows, 16, settings).candidates[-1], np.random.default_rng(0).permutation(200)
    errors = {}
    for count in (4, 8, 15, 16, 24):
        chosen, others = order[:count], order[24:]
        guess = from_anchors(translated, chosen, rows[chosen])
        errors[count] = recovery(rows[others], guess[others]).error
    assert errors[4] > errors[8] > errors[15] > 0.05
    assert errors[16] < 1e-3
    assert errors[24] < 1e-4


def test_a_secret_rotation_keeps_the_gram_matrix_exactly() -> None:
    rows = cloud(100, 16, 1)
    offer = hidden(Update(0, "home", rows, rows[:5]), seeded(7))
    assert relative_error(rows, offer.entity) > 1
    assert relative_error(gram(rows), gram(offer.entity)) < 1e-6
    together = torch.cat([offer.entity, offer.relation])
    assert relative_error(gram(torch.cat([rows, rows[:5]])), gram(together)) < 1e-6
    anchors = np.arange(16)
    assert from_anchors(offer.entity, anchors, rows[:16], rotation=True) == pytest.approx(rows.numpy(), abs=1e-4)


def test_noise_on_the_rows_takes_away_what_it_costs() -> None:
    rows = cloud(300, 16, 1, torch.float64)
    turned = rows @ random_rotation(16, seeded(5))
    noise = torch.randn(rows.shape, generator=seeded(6), dtype=torch.float64)
    anchors = np.arange(64)
    exact, some, much = (remains(rows, turned + scale * noise, anchors) for scale in (0.0, 0.3, 10.0))
    assert exact.gram_error < 1e-12
    assert exact.distances == pytest.approx(1)
    assert exact.from_anchors.error < 1e-12
    assert 0.05 < some.from_anchors.error < 0.5
    assert some.distances > 0.8
    assert some.from_anchors.identified > 0.9
    assert much.from_anchors.error > 0.9
    assert much.distances < 0.3
    assert much.from_anchors.identified < 0.05
    assert json.loads(json.dumps(asdict(some)))["from_anchors"]["rows"] == 300 - 64


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be compared with"):
        recovery(np.ones((3, 2)), np.ones((2, 2)))
    with pytest.raises(SettingsError, match="anchors are"):
        from_anchors(np.ones((3, 2)), np.array([], np.int64), np.ones((0, 2)))
    with pytest.raises(SettingsError, match="without the anchors"):
        remains(np.ones((3, 2)), np.ones((3, 2)), np.arange(2))
