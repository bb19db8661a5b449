"""Compiled noise and gradients of DP-SGD."""

from __future__ import annotations

import numpy as np
import torch

from fkge.embed.dp_noise import ROUNDS, gaussians_of, key_stream
from fkge.embed.kernels import private

CPU = torch.device("cpu")
KEY = bytes(range(32))


def test_the_compiled_twin_gives_the_same_words_and_gaussians() -> None:
    key, start = np.frombuffer(KEY, "<u4").astype(np.uint32), 2**32 - 5  # the counter's halves carry within
    words = key_stream(key, 1, start, 37, ROUNDS, CPU)
    assert np.array_equal(private.chacha(key, 1, start, 37, ROUNDS).view(np.int32), words.numpy())
    found = torch.from_numpy(private.gaussians(key, 1, start, 37, ROUNDS))
    torch.testing.assert_close(found, gaussians_of(words), rtol=1e-4, atol=1e-4)
