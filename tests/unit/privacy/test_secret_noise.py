"""Secret noise does not follow from any seed; the repeatable kind does."""

from __future__ import annotations

import secrets

import pytest
import torch

from fkge.privacy import secret_generator, seeded_for_tests


def test_no_global_seed_leads_to_secret_noise() -> None:
    draws = []
    for _ in range(2):
        torch.manual_seed(0)
        draws.append(torch.randn(8, generator=secret_generator()))
    assert not torch.equal(*draws)
    assert len({secret_generator().initial_seed() for _ in range(100)}) == 100


def test_making_one_leaves_global_randomness_alone() -> None:
    torch.manual_seed(0)
    expected = torch.randn(4)
    torch.manual_seed(0)
    secret_generator()
    seeded_for_tests(3)
    assert torch.equal(torch.randn(4), expected)


@pytest.mark.parametrize("bits", [0, 1, 2**63, 2**64 - 1])
def test_all_64_bits_come_from_the_system(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def system(count: int) -> int:
        asked.append(count)
        return bits

    monkeypatch.setattr(secrets, "randbits", system)
    first = secret_generator().initial_seed()
    assert asked == [64]
    monkeypatch.setattr(secrets, "randbits", lambda count: (bits + 1) % 2**64)
    assert secret_generator().initial_seed() != first


def test_repeatable_noise_repeats() -> None:
    a, b, c = (torch.randn(4, generator=seeded_for_tests(seed)) for seed in (5, 5, 6))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
