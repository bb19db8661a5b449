"""Noise is Gaussian with the σ it says, comes of a cipher's key stream, and never comes twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from fkge.embed.dp_noise import Noise, fresh_key, key_stream
from fkge.embed.kernels import private

CPU = torch.device("cpu")
KEY = bytes(range(32))


def test_the_key_stream_is_chacha() -> None:
    """The block of RFC 8439, section 2.3.2: its nonce's first word is our counter's upper half."""
    key = np.frombuffer(KEY, "<u4").astype(np.uint32)
    where = {"nonce": 0x4A000000, "start": 1 | 0x09000000 << 32, "groups": 1, "rounds": 20}
    block = """e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3
               466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"""
    expected = [int(word, 16) for word in block.split()]
    slow = key_stream(key, *where.values(), CPU)[0, :, 0]
    fast = private.chacha(key, *where.values())[0, :, 0]
    assert [word & 0xFFFFFFFF for word in slow.tolist()] == expected
    assert fast.tolist() == expected


@pytest.mark.parametrize("kernels", [True, False])
def test_gaussians_pass_for_gaussians_and_nothing_else_does(kernels: bool) -> None:
    draw = Noise(KEY, kernels=kernels).normal(400, 500).double().flatten().numpy()
    assert stats.kstest(draw, "norm").pvalue > 0.01
    for wrong in (2 / 3, 3 / 2, 0.96, 1.04):
        assert stats.kstest(draw * wrong, "norm").pvalue < 1e-6
    assert abs(stats.kurtosis(draw)) < 0.05
    assert np.abs(draw).max() > 4.4  # of 200,000 numbers; tails are there
    for apart in (1, 16, 128, 256):  # 128: the two numbers made of one radius and one angle
        for power in (1, 2):
            both = np.corrcoef(draw[:-apart] ** power, draw[apart:] ** power)[0, 1]
            assert abs(both) < 4 / math.sqrt(len(draw))


def test_no_word_comes_twice() -> None:
    noise = Noise(KEY)
    parts = [
        noise.normal(3, 100),
        noise.normal(3, 100),
        noise.child(1, 0).normal(3, 100),
        noise.child(1, 1).normal(3, 100),
    ]
    assert len(torch.cat(parts).unique()) == 1200
    assert not torch.equal(Noise(fresh_key()).normal(1, 9), Noise(fresh_key()).normal(1, 9))
    one, other = (Noise(fresh_key(torch.Generator().manual_seed(4))).normal(1, 9) for _ in range(2))
    assert torch.equal(one, other), "a simulation repeats"


def test_a_torch_generator_seeded_alone_would_be_no_secret() -> None:
    """Why the key comes from the system: 32 bits of a seed are all that a CPU generator takes in."""
    one, other = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.randn(9, generator=one), torch.randn(9, generator=other))


@pytest.mark.parametrize("kernels", [True, False])
def test_selection_is_poisson(kernels: bool) -> None:
    """Sizes are binomial, every id is chosen alike often, and neighbours do not know of each other."""
    noise, size, rate, rounds = Noise(KEY, kernels=kernels), 200, 0.15, 1500
    hits = np.zeros((rounds, size), bool)
    for i in range(rounds):
        chosen = noise.select(size, rate)
        assert torch.equal(chosen, chosen.unique())
        hits[i, chosen.numpy()] = True
    sizes = hits.sum(1)

    def p_value(rate: float) -> float:
        """χ² of the sizes against a binomial, in bins of about 150."""
        edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 11)[1:-1], size, rate))
        chance = np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, size, rate), [1.0]]))
        seen = np.bincount(np.searchsorted(edges, sizes), minlength=len(chance))
        return float(stats.chisquare(seen, chance * rounds).pvalue)

    assert p_value(rate) > 0.01
    assert p_value(rate * 2 / 3) < 1e-6
    assert p_value(rate * 1.1) < 1e-6
    each = hits.sum(0)
    assert stats.chisquare(each, np.full(size, each.mean())).pvalue > 0.01
    together = (hits[:, 1:] & hits[:, :-1]).sum()
    expected = rounds * (size - 1) * rate**2
    assert abs(together - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize(("size", "rate"), [(0, 0.5), (0, 1.0), (1, 1e-12), (7, 1.0), (5, 1 - 1e-9), (10**6, 1e-9)])
def test_selection_at_its_ends(size: int, rate: float) -> None:
    chosen = Noise(KEY).select(size, rate)
    assert chosen.tolist() == (list(range(size)) if rate > 0.9 else [])
