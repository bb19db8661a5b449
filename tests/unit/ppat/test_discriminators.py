"""Discriminators: several networks computed and trained at once."""

from __future__ import annotations

import math

import torch

from fkge.ppat.discriminators import Discriminators
from tests.unit.ppat.pairs import cloud, seeded


def test_networks_computed_together_equal_single_ones() -> None:
    together = Discriminators(3, 4, 5, seeded(0), torch.float64)
    vectors = cloud(6, 4, 1)
    logits = together.logits(vectors.expand(3, 6, 4))
    assert logits.shape == (3, 6)
    for i in range(3):
        alone = Discriminators(1, 4, 5, seeded(9), torch.float64)
        alone.parameters = together.parameters[i : i + 1]
        torch.testing.assert_close(alone.logits(vectors[None])[0], logits[i])


def test_a_network_whose_step_would_overflow_keeps_its_parameters() -> None:
    networks = Discriminators(2, 3, 4, seeded(0), torch.float64)
    before = networks.parameters.detach().clone()
    gradient = torch.ones_like(before)
    gradient[1, 0] = math.inf
    networks.descend(gradient, lr=0.1, momentum=0.9)
    torch.testing.assert_close(networks.parameters[0].detach(), before[0] - 0.1)
    assert torch.equal(networks.parameters[1], before[1])
