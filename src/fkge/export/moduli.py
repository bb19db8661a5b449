"""RotatE's interaction for PyKEEN with a norm that can be chosen. Imports PyKEEN, so it is imported on demand."""

from __future__ import annotations

from pykeen.nn.modules import RotatEInteraction
from pykeen.utils import ensure_complex, negative_norm
from torch import Tensor


class Moduli(RotatEInteraction):
    """−‖h r − t‖ in the norm ``p``; for p = 1 the sum of moduli, as RotatE's authors have it."""

    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Score complex vectors of shape (…, d); the scores have shape (…)."""
        h, r, t = ensure_complex(h, r, t)
        score: Tensor = negative_norm(h * r - t, p=self.p, power_norm=self.power_norm)
        return score
