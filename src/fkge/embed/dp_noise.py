"""Secret randomness for private training: a ChaCha stream, and Gaussians made of it.

Why no `torch.Generator`: the noise on rows that no triple touched shows the generator's own output. A Mersenne twister
gives its state away after 624 words, and torch seeds it with 32 bits: somebody who knows all triples but one could take
the noise off the touched rows. ChaCha (12 rounds) is a cipher's key stream: knowing a part of it helps with no other
part.

Known weakness: the Gaussians are float32, so the low bits of a noisy sum may still reveal something of the sum (Mironov
2012; Haney et al. 2022). Every ε of this package is that of real numbers.

`key_stream` below runs on every device. The CPU has a compiled twin in `kernels.private`, the same to the bit.
"""

from __future__ import annotations

import hashlib
import math
import secrets

import numpy as np
import torch
from torch import Tensor

from fkge.embed.chacha import COLUMNS, DIAGONALS, LANES

ROUNDS = 12
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
GAUSSIAN, CHOICE = 0, 1
"""Streams: noise, and which triples a step takes."""


def fresh_key(generator: torch.Generator | None = None) -> bytes:
    """Return 32 secret bytes: the system's, or for a simulation that must repeat, a generator's."""
    if generator is None:
        return secrets.token_bytes(32)
    drawn = torch.randint(256, (32,), generator=generator, device=generator.device)
    return bytes(drawn.tolist())


class Noise:
    """A stream of Gaussians and one of choices, both of which follow from `key` alone.

    Args:
        key: 32 bytes, used for nothing else and never twice: see `fresh_key`.
        kernels: use the compiled equivalent on the CPU.
    """

    def __init__(self, key: bytes, device: str | torch.device = "cpu", *, kernels: bool = True) -> None:
        self.device = torch.device(device)
        self.kernels = kernels and self.device.type == "cpu"
        self._key = key
        self.key = np.frombuffer(key, "<u4").astype(np.uint32)
        self.used = [0, 0]
        """Blocks used of each stream."""

    def child(self, *position: int) -> Noise:
        """Another stream, for a training resumed at `position`; it repeats no word of this one."""
        text = b"fkge.noise.1" + self._key + repr(position).encode()
        return Noise(hashlib.sha256(text).digest(), self.device, kernels=self.kernels)

    def normal(self, rows: int, width: int) -> Tensor:
        """Return (rows, width) float32 standard Gaussians."""
        groups, start = self.take(GAUSSIAN, rows * width)
        if self.kernels:
            from fkge.embed.kernels.private import gaussians

            flat = torch.from_numpy(gaussians(self.key, GAUSSIAN, start, groups, ROUNDS))
        else:
            flat = gaussians_of(key_stream(self.key, GAUSSIAN, start, groups, ROUNDS, self.device))
        return flat.view(-1)[: rows * width].view(rows, width)

    def select(self, size: int, rate: float) -> Tensor:
        """Return ids below `size`, ascending, each chosen with chance `rate` independently of all others.

        The gaps between chosen ids are geometric, so the work is that of the chosen ones.
        """
        if rate >= 1:
            return torch.arange(size, device=self.device)
        parts, last = [], -1
        while last < size:
            left = (size - last) * rate
            words = self._words(2 * (int(left + 4 * math.sqrt(left)) + 16)).view(-1, 2).long()
            high, low = (words[:, 0] >> 5) & 0x7FFFFFF, (words[:, 1] >> 6) & 0x3FFFFFF
            unit = ((high << 26) + low).double() * 2.0**-53 + 2.0**-54
            # A gap beyond the end ends the draw, however far beyond: keep the sum of them within an int64.
            gap = (torch.log(unit) / math.log1p(-rate)).clamp(max=float(size)).long()
            ids = torch.cumsum(gap + 1, 0) + last
            parts.append(ids)
            last = int(ids[-1])
        chosen = torch.cat(parts)
        return chosen[chosen < size]

    def take(self, stream: int, size: int) -> tuple[int, int]:
        """Mark `size` words of a stream, rounded up to whole groups, as used: how many groups, from which block on."""
        groups, start = -(-size // (16 * LANES)), self.used[stream]
        self.used[stream] += groups * LANES
        return groups, start

    def _words(self, size: int) -> Tensor:
        """At least `size` words of the stream of choices, (n,) int32."""
        groups, start = self.take(CHOICE, size)
        if self.kernels:
            from fkge.embed.kernels.private import chacha

            return torch.from_numpy(chacha(self.key, CHOICE, start, groups, ROUNDS).view(np.int32)).view(-1)
        return key_stream(self.key, CHOICE, start, groups, ROUNDS, self.device).flatten()


def key_stream(
    key: np.ndarray[tuple[int], np.dtype[np.uint32]], nonce: int, start: int, groups: int, rounds: int,
    device: torch.device,
) -> Tensor:  # fmt: skip
    """ChaCha's key stream (Bernstein 2008: 64-bit counter and nonce) from block `start`, (groups, 16, LANES) int32."""
    blocks = groups * LANES

    def constant(word: int) -> Tensor:
        signed = word - (1 << 32) if word >> 31 else word
        return torch.full((blocks,), signed, dtype=torch.int32, device=device)

    counter = torch.arange(start, start + blocks, device=device)
    x = [constant(word) for word in (*_CONSTANTS, *key.tolist())]
    x += [_low(counter), _low(counter >> 32), constant(nonce & 0xFFFFFFFF), constant(nonce >> 32)]
    first = [word.clone() for word in x]
    for _ in range(rounds // 2):
        for a, b, c, d in (*COLUMNS, *DIAGONALS):
            for i, j, k, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[i] += x[j]
                x[k] ^= x[i]
                x[k] = (x[k] << turn) | ((x[k] >> (32 - turn)) & ((1 << turn) - 1))
    rows = [(word + begun).view(groups, LANES) for word, begun in zip(x, first, strict=True)]
    return torch.stack(rows, dim=1)


def _low(words: Tensor) -> Tensor:
    """Return the low 32 bits of int64 `words`, as int32."""
    low = words & 0xFFFFFFFF
    return torch.where(low >= 1 << 31, low - (1 << 32), low).int()


def gaussians_of(words: Tensor) -> Tensor:
    """Standard Gaussians of words (groups, 16, LANES), Box and Muller: eight rows of radii and eight of angles."""
    unsigned = words.long() & 0xFFFFFFFF
    radius = torch.sqrt(-2 * torch.log((unsigned[:, :8].double() + 0.5) * 2.0**-32))
    angle = (unsigned[:, 8:].double() * 2.0**-32 - 0.125) * (2 * math.pi)
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1).float()
