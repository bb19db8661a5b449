"""Deferred noise: private steps whose cost is proportional to the rows they touch, on the CPU.

Private training adds noise to every row at every step. A row that no example touches moves by that noise alone, and
under SGD and momentum it moves linearly: after k steps

    v_k = μᵏ v + V,    x_k = x − lr (μ + … + μᵏ) v + X,

where (V, X) are sums of k independent Gaussians: one draw from a Gaussian of known covariance (`debts`). So a
row gets the noise of all its steps at once, just before it is next read. Whatever is read has exactly the
distribution it would have had with noise at every step. `flush` adds all pending noise: only this module
may read the tables before that.

The time of a step reveals how many rows it touched, as with any sparse training; time is not protected.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from fkge.embed.batches import Examples
from fkge.embed.chacha import LANES
from fkge.embed.dp_gradients import TABLES
from fkge.embed.dp_noise import GAUSSIAN, ROUNDS, Noise
from fkge.embed.kernels.primitives import Array, fetch_row, jit
from fkge.embed.kernels.private import Buffer, KernelGradients, begin_stream, box_muller, next_group
from fkge.embed.tables import Tables


def debts(steps: int, noise: float, mu: float, lr: float, dtype: np.dtype[np.floating]) -> list[Array]:
    """What k steps of noise do to a row, for every k up to `steps`, as (steps + 1,) arrays of the table's type.

    These are keep, slide, first, second, third: v_k = keep · v + first · z, and x_k = x − slide · v + second · z +
    third · z', with z, z' standard Gaussians.
    """
    k = np.arange(steps + 1, dtype=np.float64)
    power = mu**k
    # A Gaussian that came in j steps ago stands in v as μ^(j−1), and in x as −lr (1 + μ + … + μ^(j−1)).
    in_v, in_x = mu ** (k[1:] - 1), -lr * (1 - power[1:]) / (1 - mu)
    v, x, both = (noise**2 * np.append(0.0, np.cumsum(part)) for part in (in_v**2, in_x**2, in_v * in_x))
    first = np.sqrt(v)
    second = np.divide(both, first, out=np.zeros_like(both), where=first > 0)
    third = np.sqrt(np.maximum(x - second**2, 0))
    slide = np.append(0.0, lr * np.cumsum(power[1:]))
    if mu == 0:  # no velocity is kept: x takes a single Gaussian of the whole variance
        first, second, third = np.zeros_like(x), np.sqrt(x), np.zeros_like(x)
    return [a.astype(dtype) for a in (power, slide, first, second, third)]


@jit
def _catch_up(table, velocity, ids, done, now, keep, slide, first, second, third, key, nonce, start, rounds):
    """Bring the rows `ids` to step `now`; return how many groups of the Gaussian stream were used."""
    w = table.shape[1]
    moving = velocity.shape[0] > 0
    need = 2 * w if moving else w
    noisy = second[1] != 0
    pool = np.empty((-(-need // (16 * LANES)) + 7, 16, LANES), np.float32)
    flat = pool.reshape(pool.size)
    at = flat.size
    x, begun = np.empty((16, LANES), np.uint32), begin_stream(key, nonce)
    unit = np.empty(LANES, np.float32)
    bits = unit.view(np.int32)
    groups = 0
    for i in range(len(ids)):
        ahead = ids[min(i + 2, len(ids) - 1)]
        fetch_row(table, ahead)
        row = ids[i]
        k = now - done[row]
        if k == 0:
            continue
        done[row] = now
        if noisy and at + need > flat.size:
            for group in range(len(pool)):
                next_group(x, begun, start + groups * LANES, rounds)
                box_muller(x, unit, bits, pool[group])
                groups += 1
            at = 0
        if not moving:
            if noisy:
                for j in range(w):
                    table[row, j] += second[k] * flat[at + j]
        elif noisy:
            for j in range(w):
                v, z, other = velocity[row, j], flat[at + j], flat[at + w + j]
                table[row, j] += second[k] * z + third[k] * other - slide[k] * v
                velocity[row, j] = keep[k] * v + first[k] * z
        else:
            for j in range(w):
                v = velocity[row, j]
                table[row, j] -= slide[k] * v
                velocity[row, j] = keep[k] * v
        at += need
    return groups


@jit
def _push(table, velocity, touched, count, slots, gradient, lr, momentum):
    """Give the touched rows their gradient, and empty the buffer.

    Into the velocity it goes divided by μ: it stands before the step's own decay, which is part of the pending steps.
    """
    one = table.dtype.type(1.0)
    for s in range(count):
        row = touched[s]
        slots[row] = -1
        if velocity.shape[0] > 0:
            scale = one / momentum
            for j in range(table.shape[1]):
                velocity[row, j] += scale * gradient[s, j]
        else:
            for j in range(table.shape[1]):
                table[row, j] -= lr * gradient[s, j]


class LazySteps:
    """Private SGD or momentum with deferred noise.

    Args:
        gradients: sums clipped gradients.
        noise: σ, in units of the clip.
        momentum: μ; 0 is SGD, and no velocity is kept.
        steps: how many steps there may be between two flushes.
    """

    def __init__(
        self, tables: Tables, gradients: KernelGradients, source: Noise, *, noise: float, momentum: float, steps: int
    ) -> None:
        self.tables, self.gradients, self.source = tables, gradients, source
        self.noise, self.momentum = noise, momentum
        self.names = [name for name in TABLES if name == "entity" or gradients.learn]
        self.steps = steps
        self.now = 0
        self._pending: dict[str, list[Array]] = {}
        self._done: dict[str, Array] = {}
        self._slots: dict[str, Array] = {}
        self._buffers: dict[str, tuple[Array, Array]] = {}

    def begin(self, lr: float) -> None:
        """Set the length of the steps that follow; nothing may be pending."""
        assert self.now == 0
        self._lr = lr
        for name in self.names:
            table = self.tables[name].numpy()
            rate = lr * self.tables.spec(name).rate
            self._pending[name] = debts(self.steps, self.noise, self.momentum, rate, table.dtype)
            self._done[name] = np.zeros(len(table), np.int32)
            self._slots[name] = np.full(len(table), -1, np.int32)

    def step(self, parts: Iterable[Examples], size: int) -> float:
        """Take one step on all examples of `parts`, at most `size` row visits in all; return their summed loss."""
        loss, used = 0.0, dict.fromkeys(TABLES, 0)
        for part in parts:
            ids = {"entity": torch.cat([part.head, part.tail, part.negative.flatten()]), "relation": part.relation}
            for name in self.names:
                self._catch_up(name, ids[name].numpy())
            added, used["entity"], used["relation"] = self.gradients.run(
                part, *(self._buffer(name, size, used[name]) for name in TABLES)
            )
            loss += added
        for name in self.names:
            table, velocity = self._arrays(name)
            rate, real = self._lr * self.tables.spec(name).rate, table.dtype.type
            slots, touched, gradient, count = self._buffer(name, size, used[name])
            _push(table, velocity, touched, count, slots, gradient, real(rate), real(self.momentum))
        self.now += 1
        return loss

    def flush(self) -> None:
        """Bring every row up to date: only now may the tables be read."""
        if self.now == 0:
            return
        for name in self.names:
            self._catch_up(name, np.arange(len(self.tables[name])))
            self._done[name][:] = 0
        self.now = 0

    def _catch_up(self, name: str, ids: Array) -> None:
        table, velocity = self._arrays(name)
        groups = _catch_up(
            table, velocity, ids, self._done[name], self.now, *self._pending[name],
            self.source.key, GAUSSIAN, self.source.used[GAUSSIAN], ROUNDS,
        )  # fmt: skip
        self.source.take(GAUSSIAN, int(groups) * 16 * LANES)

    def _arrays(self, name: str) -> tuple[Array, Array]:
        table = self.tables[name].numpy()
        return table, self.tables.state(name, "mean").numpy() if self.momentum else table[:0]

    def _buffer(self, name: str, rows: int, used: int) -> Buffer:
        """Return a buffer with room for `rows` rows, or all; `used` of them are in use."""
        table = self.tables[name].numpy()
        if name not in self.names:
            return np.empty(0, np.int32), np.empty(0, np.int64), table[:0], 0
        rows = min(rows, len(table))
        if name not in self._buffers or len(self._buffers[name][0]) < rows:
            self._buffers[name] = np.empty(rows, np.int64), np.empty((rows, table.shape[1]), table.dtype)
        return self._slots[name], *self._buffers[name], used
