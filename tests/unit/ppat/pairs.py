"""Seeds, rows and pairs of roles for the tests of the translation game."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, PpatSettings, Samples


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


def run_game(client: PpatClient, host: PpatHost) -> Candidate:
    """Pass messages between the two roles until the client is done."""
    message: Samples | Candidate | None = client.start()
    while message is not None:
        message = client.step(host.step(message))
    return host.translation


def rest_of_game(client: PpatClient, host: PpatHost, message: Samples | Candidate) -> list[Tensor]:
    """Play a copy of a game from `message` to its end; return every vector sent and what both roles end with."""
    client, host = copy.deepcopy((client, host))
    due: Samples | Candidate | None = message
    sent: list[Tensor] = []
    while due is not None:
        answer = host.step(due)
        sent += [due.vectors, answer.vectors] if isinstance(answer, Gradient) else [due.vectors]
        due = client.step(answer)
    ends = torch.tensor([host.criterion, host.price["queries"]], dtype=torch.float64)
    return [*sent, client.mapping, host.translation.vectors, ends]
