"""The two roles against a slow, honest twin: one process, one autograd graph, torch's own layers and optimiser."""

from __future__ import annotations

import pytest
import torch
from ppat_pair import cloud, pair, seeded
from torch import Tensor, nn

from fkge.ppat import Gradient, PpatClient, PpatHost, PpatSettings, Received, Samples
from fkge.ppat.client import orthogonalize
from fkge.ppat.discriminators import Discriminators


def twin_network(networks: Discriminators, row: int, dim: int, hidden: int) -> nn.Sequential:
    """One of `networks` as torch layers."""
    net = nn.Sequential(
        nn.Linear(dim, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1)
    ).double()
    flat, at = networks.parameters.detach()[row], 0
    for layer in (net[0], net[2], net[4]):
        assert isinstance(layer, nn.Linear)
        fan_in, out = layer.in_features, layer.out_features
        layer.weight.data = flat[at : at + fan_in * out].reshape(fan_in, out).T.clone()
        at += fan_in * out
        layer.bias.data = flat[at : at + out].clone()
        at += out
    assert at == len(flat)
    return net


def flat_of(net: nn.Sequential) -> Tensor:
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    return torch.cat([p.detach().reshape(-1) for layer in layers for p in (layer.weight.T, layer.bias)])


class Twin:
    """Algorithm 2 in one place, probabilities and logarithms spelled out. Only its start is copied."""

    def __init__(self, client: PpatClient, host: PpatHost, rows: Tensor, settings: PpatSettings) -> None:
        self.s, self.rows = settings, rows
        dim = host.teachers.parts[0].shape[1]
        self.parts = [part.clone() for part in host.teachers.parts]
        self.mapping = client.mapping.requires_grad_()
        self.teachers = [
            twin_network(host.teachers.networks, i, dim, settings.hidden) for i in range(settings.teachers)
        ]
        self.student = twin_network(host.student.network, 0, dim, settings.hidden)
        self.at_client, self.at_host = torch.Generator(), torch.Generator()
        self.at_client.set_state(client._generator.get_state())
        self.at_host.set_state(host._noise.get_state())
        self.optimizers = [
            torch.optim.SGD(parameters, lr=settings.lr, momentum=settings.momentum)
            for parameters in ([self.mapping], self.student.parameters(), *(t.parameters() for t in self.teachers))
        ]

    def play(self) -> None:
        s = self.s
        batch = min(s.batch, len(self.rows))
        x = self.rows[torch.randint(len(self.rows), (batch,), generator=self.at_client)]
        g = x @ self.mapping
        teacher_loss = torch.zeros((), dtype=g.dtype)
        votes = torch.zeros(batch, 2, dtype=torch.float64)
        for teacher, part in zip(self.teachers, self.parts, strict=True):
            y = part[torch.randint(len(part), (batch,), generator=self.at_host)]
            on_fake, on_real = torch.sigmoid(teacher(g.detach())[:, 0]), torch.sigmoid(teacher(y)[:, 0])
            teacher_loss = teacher_loss - ((1 - on_fake).log().sum() + on_real.log().sum()) / (2 * batch)
            for i in range(batch):
                votes[i, int(on_fake[i] > 0.5)] += 1
        if s.lam > 0:
            draws = torch.empty(2, batch, 2, dtype=torch.float64).exponential_(generator=self.at_host)
            votes += (draws[0] - draws[1]) / s.lam
        labels = votes.argmax(dim=1)
        on_own = torch.sigmoid(self.student(g.detach())[:, 0])
        student_loss = -(labels * on_own.log() + (1 - labels) * (1 - on_own).log()).mean()
        generator_loss = (1 - torch.sigmoid(self.student(g)[:, 0])).log().mean()

        for optimizer in self.optimizers:
            optimizer.zero_grad()
        generator_loss.backward()  # all the way to W; what it leaves in the student is swept out
        self.optimizers[1].zero_grad()
        student_loss.backward()
        teacher_loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            w = self.mapping
            w.copy_((1 + s.beta) * w - s.beta * (w @ w.T) @ w)


@pytest.mark.parametrize(("client_dim", "host_dim"), [(6, 6), (5, 8), (8, 5)])
@pytest.mark.parametrize(("lam", "rows"), [(0.05, 50), (0.0, 50), (2.0, 5)])
def test_roles_equal_the_twin_step_by_step(client_dim: int, host_dim: int, lam: float, rows: int) -> None:
    s = PpatSettings(steps=30, candidates=3, hidden=10, lam=lam, batch=16)
    client, host = pair(s, rows, client_dim, host_dim)
    twin = Twin(client, host, cloud(rows, client_dim, 1), s)
    start = client.mapping
    message = client.start()
    steps = 0
    while message is not None:
        if isinstance(message, Samples):
            twin.play()
            steps += 1
        answer = host.step(message)
        message = client.step(answer)
        if isinstance(answer, Received):
            continue
        assert isinstance(answer, Gradient)
        torch.testing.assert_close(client.mapping, twin.mapping.detach(), rtol=0, atol=1e-10)
        torch.testing.assert_close(host.student.network.parameters[0], flat_of(twin.student), rtol=0, atol=1e-10)
        for row, teacher in zip(host.teachers.networks.parameters, twin.teachers, strict=True):
            torch.testing.assert_close(row, flat_of(teacher), rtol=0, atol=1e-10)
    assert steps == 30
    assert (client.mapping - start).abs().max() > 1e-3  # there was something to agree on


def worst_bend(client: PpatClient, host: PpatHost) -> float:
    """How far, in a whole game, a singular value of W got from 1."""
    worst = 0.0
    message = client.start()
    while message is not None:
        message = client.step(host.step(message))
        worst = max(worst, float((torch.linalg.svdvals(client.mapping) - 1).abs().max()))
    return worst


@pytest.mark.parametrize(("client_dim", "host_dim"), [(6, 6), (5, 8), (8, 5)])
def test_mapping_starts_orthogonal_and_stays_nearly_so(client_dim: int, host_dim: int) -> None:
    def game(beta: float) -> tuple[PpatClient, PpatHost]:
        return pair(PpatSettings(steps=400, candidates=1, hidden=16, beta=beta), 60, client_dim, host_dim)

    client, host = game(0.01)
    start = client.mapping
    if client_dim == host_dim:
        assert torch.equal(start, torch.eye(client_dim, dtype=torch.float64))
    assert (torch.linalg.svdvals(start) - 1).abs().max() < 1e-12
    assert worst_bend(client, host) < 0.3
    assert worst_bend(*game(0.1)) < 0.03
    assert worst_bend(*game(0.0)) > 0.5  # nothing else holds it


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3)])
def test_orthogonalising_leads_to_the_nearest_semi_orthogonal_matrix(shape: tuple[int, int]) -> None:
    u, values, v = torch.linalg.svd(cloud(*shape, 5), full_matrices=False)
    mapping = u @ torch.diag(values.clamp(0.3, 3.0)) @ v
    for _ in range(3000):
        mapping = orthogonalize(mapping, 0.01)
    torch.testing.assert_close(mapping, u @ v)
    small = mapping @ mapping.T if shape[0] <= shape[1] else mapping.T @ mapping
    torch.testing.assert_close(small, torch.eye(min(shape), dtype=torch.float64))


def test_teachers_hold_disjoint_parts_that_cover_y() -> None:
    _, host = pair(PpatSettings(), rows=50)
    parts = host.teachers.parts
    assert sorted(len(p) for p in parts) == [12, 12, 13, 13]
    together = torch.cat(parts)
    y = cloud(50, 6, 3) + 0.5
    assert torch.equal(together[together[:, 0].argsort()], y[y[:, 0].argsort()])


def test_same_seeds_give_the_same_game_and_global_randomness_has_no_say() -> None:
    s = PpatSettings(steps=12, candidates=2, hidden=8)
    results = []
    for noise in (0, 1):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        client, host = pair(s)
        message = client.start()
        while message is not None:
            message = client.step(host.step(message))
        assert torch.equal(before, torch.get_rng_state())
        results.append((client.mapping, host.translation.vectors))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    other = PpatHost(cloud(50, 6, 3), s, seeded(5))
    assert not torch.equal(other.student.network.parameters, pair(s)[1].student.network.parameters)
