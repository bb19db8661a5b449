"""The host of the translation game: its noise, what its answers depend on, and the candidate it keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from fkge.embed.dp_noise import Noise
from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, PpatSettings, Received, Samples
from fkge.ppat.host import Student, csls_criterion, laplace, noisy_labels
from fkge.ppat.messages import LIMIT
from fkge.privacy.moments import paper_epsilon
from tests.unit.ppat.pairs import cloud, pair, run_game, seeded


def distance_from_laplace(draws: Tensor, scale: float) -> float:
    """Kolmogorov and Smirnov's statistic times √n; above 1.95 one honest sample in a thousand."""
    x = np.sort(draws.numpy().ravel())
    n = len(x)
    cdf = np.where(x < 0, 0.5 * np.exp(np.minimum(x, 0) / scale), 1 - 0.5 * np.exp(-np.maximum(x, 0) / scale))
    steps = np.arange(n + 1) / n
    return float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()) * math.sqrt(n))


@pytest.mark.parametrize("source", ["generator", "cipher"])
@pytest.mark.parametrize("lam", [0.05, 1.5])
def test_noise_has_scale_one_over_lambda_and_no_other(lam: float, source: str) -> None:
    draws = laplace((5000, 2), 1 / lam, seeded(0) if source == "generator" else Noise(bytes(range(32))))
    assert distance_from_laplace(draws, 1 / lam) < 1.95
    for wrong in (lam, 2 / 3 / lam, 1.5 / lam):
        assert distance_from_laplace(draws, wrong) > 4
    both = torch.stack([draws[:, 0], draws[:, 1]])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / math.sqrt(5000)  # the two classes' noise is independent
    later = torch.stack([draws[:-1, 0], draws[1:, 0]])
    assert abs(float(torch.corrcoef(later)[0, 1])) < 4 / math.sqrt(5000)  # and so is every sample's


def chance_of_the_majority(lead: int, scale: float) -> float:
    """P(lead + V₁ − V₀ > 0); the difference of two Laplace variables has the tail ½(1 + t/2)e^{−t} beyond t scales."""
    t = lead / scale
    return 1 - 0.5 * (1 + t / 2) * math.exp(-t)


@pytest.mark.parametrize("lam", [0.05, 0.5])
def test_labels_are_right_as_often_as_their_noise_allows(lam: float) -> None:
    n = 40_000
    labels = noisy_labels(torch.full((n,), 4), 4, lam, seeded(1)).double().mean()
    error = 4 * 0.5 / math.sqrt(n)
    assert abs(float(labels) - chance_of_the_majority(4, 1 / lam)) < error
    for wrong in (lam, 2 / 3 / lam, 1.5 / lam):
        assert abs(float(labels) - chance_of_the_majority(4, wrong)) > error


def test_without_noise_the_majority_decides_and_a_tie_is_a_fake() -> None:
    generator = seeded(0)
    before = generator.get_state()
    labels = noisy_labels(torch.tensor([0, 1, 2, 3, 4]), 4, 0.0, generator)
    assert labels.tolist() == [0, 0, 0, 1, 1]
    assert torch.equal(before, generator.get_state())


def answers(rows: Tensor, settings: PpatSettings) -> list[Tensor]:
    host = PpatHost(rows, settings, seeded(4))
    client = PpatClient(cloud(40, 6, 1), 6, settings, seeded(2))
    message, out = client.start(), []
    while message is not None:
        answer = host.step(message)
        if isinstance(answer, Gradient):
            out.append(answer.vectors)
        else:
            assert type(answer) is Received
            assert vars(answer) == {"step": message.step}
        message = client.step(answer)
    return out


def test_answers_depend_on_y_through_the_noisy_labels_only() -> None:
    """With noise so large that it alone makes the labels, hosts of any rows whatever answer alike, to the bit."""
    settings = PpatSettings(steps=25, candidates=5, hidden=8, lam=1e-9)
    y = cloud(40, 6, 3)
    others = [y.flip(0), 5 + 100 * cloud(40, 6, 8), torch.zeros(40, 6).double(), torch.full((40, 6), math.nan).double()]
    expected = answers(y, settings)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(expected, answers(other, settings), strict=True))
    # The test can fail: where votes count, other rows give other answers.
    settings = PpatSettings(steps=25, candidates=5, hidden=8, lam=0)
    assert not all(torch.equal(a, b) for a, b in zip(answers(y, settings), answers(others[1], settings), strict=True))


def test_student_gradient_points_where_the_loss_says() -> None:
    student = Student(5, PpatSettings(hidden=7), seeded(1), torch.float64)
    x, step = cloud(6, 5, 2), 1e-6
    start = student.network.parameters.detach().clone()

    def loss(samples: Tensor) -> float:
        probabilities = torch.sigmoid(student.network.logits(samples[None])[0])
        return float((1 - probabilities).log().mean().detach())

    slopes = torch.zeros_like(x)
    for i in range(6):
        for j in range(5):
            up, down = x.clone(), x.clone()
            up[i, j] += step
            down[i, j] -= step
            slopes[i, j] = (loss(up) - loss(down)) / (2 * step)
    for labels in (torch.zeros(6).long(), torch.ones(6).long()):
        student.network.parameters = start.clone().requires_grad_()
        torch.testing.assert_close(student.judge(x, labels), slopes, rtol=1e-5, atol=1e-9)


def test_host_counts_every_sample_and_names_the_papers_figure_apart() -> None:
    settings = PpatSettings(steps=29, candidates=1, hidden=8)
    client, host = pair(settings)
    run_game(client, host)
    price = host.price
    assert price["queries"] == 29 * 32 == settings.queries(50)
    assert f"{price['epsilon_paper_per_batch']:.2f}" == "2.73"
    assert price["epsilon_paper_per_sample"] == paper_epsilon(29 * 32, 0.05, 1e-5) > 19
    assert host.votes.queries == 29 * 32
    assert host.votes.epsilon <= price["epsilon_paper_per_sample"]


def test_the_price_of_an_aborted_game_is_known() -> None:
    client, host = pair(PpatSettings(steps=10, candidates=1, hidden=8))
    assert host.price["epsilon_paper_per_sample"] == 0
    first = client.start()
    assert isinstance(first, Samples)
    host.step(first)
    assert host.price["queries"] == 32
    assert f"{host.price['epsilon_paper_per_sample']:.2f}" == "2.88"
    _, silent = pair(PpatSettings(steps=10, candidates=1, hidden=8, lam=0))
    silent.step(first)
    assert silent.price == {"queries": 32}


def test_teachers_hold_disjoint_parts_that_cover_y() -> None:
    _, host = pair(PpatSettings(), rows=50)
    parts = host.teachers.parts
    assert sorted(len(p) for p in parts) == [12, 12, 13, 13]
    together = torch.cat(parts)
    y = cloud(50, 6, 3) + 0.5
    assert torch.equal(together[together[:, 0].argsort()], y[y[:, 0].argsort()])


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
        assert host.criterion == pytest.approx(max(csls_criterion(rows, y) for rows in sent))


def test_csls_by_brute_force() -> None:
    x, y, k = cloud(23, 5, 0), cloud(31, 5, 1), 4
    cos = [[float(torch.dot(a, b) / (a.norm() * b.norm())) for b in y] for a in x]
    around_x = [sum(sorted(row)[-k:]) / k for row in cos]
    around_y = [sum(sorted(row[j] for row in cos)[-k:]) / k for j in range(31)]
    nearest = [max(2 * cos[i][j] - around_x[i] - around_y[j] for j in range(31)) for i in range(23)]
    assert csls_criterion(x, y, k) == pytest.approx(sum(nearest) / 23)
    assert csls_criterion(x, y, k, chunk=7) == pytest.approx(csls_criterion(x, y, k))


def test_csls_with_fewer_rows_than_neighbours() -> None:
    assert math.isfinite(csls_criterion(cloud(3, 5, 0), cloud(2, 5, 1), 10))
    assert math.isfinite(csls_criterion(torch.zeros(3, 5), torch.zeros(3, 5), 10))
    y = cloud(40, 5, 2)
    assert csls_criterion(y, y) > csls_criterion(cloud(40, 5, 3), y)


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


def test_criterion_on_some_rows_only() -> None:
    client, host = pair(PpatSettings(steps=0, candidates=1, csls_rows=10), rows=50)
    y = cloud(50, 6, 3) + 0.5
    run_game(client, host)
    assert host.criterion == pytest.approx(csls_criterion(cloud(50, 6, 1)[::5], y[::5]))
