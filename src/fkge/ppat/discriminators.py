"""Small networks that tell the host's rows from translated ones, after MUSE; many are trained at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Discriminators:
    """`count` independent networks dim → hidden → hidden → 1 with leaky ReLU, trained by SGD with momentum.

    They are computed together: four small networks cost little more than one. MUSE's dropout is left out, so that a
    game with given seeds repeats exactly.

    Attributes:
        parameters: (count, p); a row holds all weights and biases of one network, first layer first.
    """

    def __init__(self, count: int, dim: int, hidden: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        sizes = [(dim, hidden), (hidden, hidden), (hidden, 1)]
        self._shapes = [shape for fan_in, out in sizes for shape in ((fan_in, out), (1, out))]
        drawn = []
        for fan_in, out in sizes:  # uniform in ±1/√fan_in, weights and biases alike, as torch's own linear layers
            width = (fan_in + 1) * out
            drawn.append((torch.rand(count, width, generator=generator, dtype=dtype) * 2 - 1) / fan_in**0.5)
        self.parameters = torch.cat(drawn, dim=1).requires_grad_()
        self._velocity = torch.zeros_like(self.parameters, requires_grad=False)

    def logits(self, vectors: Tensor) -> Tensor:
        """Map vectors (count, n, d) to logits (count, n), positive where a network takes a vector for a real one."""
        flat = self.parameters.split([rows * columns for rows, columns in self._shapes], dim=1)
        w1, b1, w2, b2, w3, b3 = (part.view(-1, *shape) for part, shape in zip(flat, self._shapes, strict=True))
        h = F.leaky_relu(torch.baddbmm(b1, vectors, w1), 0.2)
        h = F.leaky_relu(torch.baddbmm(b2, h, w2), 0.2)
        return torch.baddbmm(b3, h, w3).squeeze(-1)

    @torch.no_grad()
    def descend(self, gradient: Tensor, lr: float, momentum: float) -> None:
        """Take one step of SGD with momentum.

        A network whose step would overflow keeps its parameters: that a teacher broke would reveal something of raw Y.

        Args:
            gradient: (count, p).
            lr, momentum: learning rate, and the part of the last step that is taken again.
        """
        velocity = momentum * self._velocity + gradient
        parameters = self.parameters - lr * velocity
        if not bool(parameters.sum().isfinite()):
            sound = parameters.isfinite().all(dim=1, keepdim=True)
            velocity = torch.where(sound, velocity, self._velocity)
            parameters = torch.where(sound, parameters, self.parameters)
        self._velocity = velocity
        self.parameters = parameters.requires_grad_()
