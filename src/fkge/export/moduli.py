"""RotatE's interaction for PyKEEN, with the norm that it is told. Imports PyKEEN; imported where that is wanted."""

from __future__ import annotations

from pykeen.nn.modules import RotatEInteraction
from pykeen.utils import ensure_complex, negative_norm
from torch import Tensor


class Moduli(RotatEInteraction):
    """−‖h r − t‖ in the norm ``p``; for p = 1 the sum of moduli, as RotatE's authors have it."""

    def forward(self, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
        """Scores of complex vectors (…, d), (…)."""
        h, r, t = ensure_complex(h, r, t)
        score: Tensor = negative_norm(h * r - t, p=self.p, power_norm=self.power_norm)
        return score
