"""Shared by the tests of the game: seeds, rows, and two roles ready to play."""

from __future__ import annotations

import torch
from torch import Tensor

from fkge.ppat import PpatClient, PpatHost, PpatSettings


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cloud(rows: int, dim: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, dim, generator=seeded(seed), dtype=dtype)


def pair(
    settings: PpatSettings, rows: int = 50, client_dim: int = 6, host_dim: int = 6, neighbours: int | None = None
) -> tuple[PpatClient, PpatHost]:
    around = None if neighbours is None else cloud(neighbours, client_dim, 9)
    client = PpatClient(cloud(rows, client_dim, 1), host_dim, settings, seeded(2), around)
    host = PpatHost(cloud(rows, host_dim, 3) + 0.5, settings, seeded(4))
    return client, host


def fingerprint(client: PpatClient, host: PpatHost) -> tuple[Tensor, ...]:
    """Everything that a refused message must leave alone."""
    return (
        client.mapping,
        client._velocity.clone(),
        client._generator.get_state(),
        host.teachers.networks.parameters.detach().clone(),
        host.teachers.networks._velocity.clone(),
        host.student.network.parameters.detach().clone(),
        host.student.network._velocity.clone(),
        host._noise.get_state(),
        torch.tensor([client._done, host._done, host.spent.queries, host._owed, len(host._criteria)]),
        torch.tensor([host._bytes_in, host._bytes_out]),
    )
