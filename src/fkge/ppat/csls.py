"""Cross-domain similarity local scaling (CSLS): how well two clouds of vectors lie on each other, without pairs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def csls_criterion(x: Tensor, y: Tensor, k: int = 10, chunk: int = 1024) -> float:
    """Mean, over the rows of `x`, of the CSLS similarity to the nearest row of `y`.

    CSLS(x, y) = 2 cos(x, y) − r(x) − r(y), where r is the mean cosine to the k nearest rows of the other cloud: a row
    that is near to everything ("hub") is near to nothing in particular.

    Args:
        x: (n, d).
        y: (m, d).
        k: neighbours; all of them if there are fewer.
        chunk: rows of the similarity matrix held at a time.
    """
    x, y = F.normalize(x, dim=1), F.normalize(y, dim=1)

    def density(a: Tensor, b: Tensor) -> Tensor:
        near = min(k, len(b))
        return torch.cat([(part @ b.T).topk(near, dim=1).values.mean(dim=1) for part in a.split(chunk)])

    around_y = density(y, x)
    best = torch.cat([(2 * (part @ y.T) - around_y).amax(dim=1) for part in x.split(chunk)])
    return float((best - density(x, y)).mean())
