"""Where noise that must stay secret comes from, apart from every seed that makes a run repeatable.

Whoever knows the seed of the noise subtracts the noise. A run's seed is in its settings, often 0, often published:
noise that guards anything must never come from it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # at run time only where it is needed: a ledger opens in a tenth of the time that torch takes


def secret_generator(device: str | torch.device = "cpu") -> torch.Generator:
    """A generator seeded by the operating system's cryptographic randomness; nobody can seed it so again.

    What this gives: a seed that no setting, log or checkpoint holds; of 64 bits on a GPU, of 32 on a CPU, whose
    generator in torch keeps no more. What is worth more than that many tries takes `fkge.embed.dp_noise`.

    What it does not give: torch's generators (Mersenne Twister on the CPU, Philox on a GPU) are not cryptographic: who
    sees many raw draws, without anything added to them, can work out the rest. And the noise is floating-point: its low
    bits are not those of a real Gaussian or Laplace draw, and Mironov (2012) tells neighbours apart by them. ε is
    proved for real numbers; what is sent should be rounded to a coarse grid (float32 at most) where that matters.
    """
    import torch

    return torch.Generator(device).manual_seed(secrets.randbits(64) - 2**63)


def seeded_for_tests(seed: int, device: str | torch.device = "cpu") -> torch.Generator:
    """A repeatable generator of noise. It protects nothing: for tests and audits."""
    import torch

    return torch.Generator(device).manual_seed(seed)
