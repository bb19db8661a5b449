"""The client of the translation game: its mapping stays orthogonal and finite."""

from __future__ import annotations

import pytest
import torch

from fkge.errors import PeerError
from fkge.ppat import Gradient, PpatClient, PpatHost, PpatSettings
from fkge.ppat.client import orthogonalize
from fkge.ppat.messages import LIMIT
from tests.unit.ppat.pairs import cloud, pair, seeded


def test_a_gradient_that_breaks_the_mapping_is_refused() -> None:
    s = PpatSettings(steps=9, candidates=1, lr=1e30)
    client = PpatClient(1e3 * cloud(50, 6, 1, torch.float32), 6, s, seeded(2))
    client.start()
    before = client.mapping
    with pytest.raises(PeerError, match="overflow"):
        client.step(Gradient(0, torch.full((32, 6), LIMIT)))
    assert torch.equal(before, client.mapping)
    assert client.step(Gradient(0, torch.zeros(32, 6))) is not None


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
