"""What all compiled steps share."""

from __future__ import annotations

from fkge.embed.kernels.primitives import LOSSES as COMPILED
from fkge.embed.losses import LOSSES


def test_compiled_losses_have_a_code_in_the_kernels() -> None:
    assert {name for name, loss in LOSSES.items() if loss.compiled} == set(COMPILED)
