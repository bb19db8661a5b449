"""The settings of a translation game, which both sides must share."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from fkge.settings import Settings


class PpatSettings(Settings):
    """Settings of the adversarial translation game; the defaults are the paper's where it states them."""

    batch: int = Field(32, ge=1, description="samples per adversarial step; fewer if fewer rows are aligned")
    steps: int = Field(600, ge=0, description="adversarial steps; fixed beforehand, so that stopping tells nothing")
    candidates: int = Field(
        5, ge=1, description="times the client sends its whole translation, evenly spread, the last at the end"
    )
    teachers: int = Field(4, ge=1, description="discriminators that vote, each on its own part of the host's rows")
    hidden: int = Field(128, ge=1, description="width of the two hidden layers of every discriminator")
    lr: float = Field(0.02, gt=0, description="learning rate of mapping and discriminators")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of mapping and discriminators")
    beta: float = Field(0.01, ge=0, le=0.5, description="strength of the pull of the mapping towards orthogonality")
    lam: float = Field(
        0.05, ge=0, description="λ: votes get Laplace noise of scale 1/λ; 0 means no noise, and no privacy"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of the (ε, δ) that is reported")
    csls_k: int = Field(10, ge=1, description="neighbours in the CSLS criterion by which the host picks a candidate")
    csls_rows: int = Field(
        10_000, ge=1, description="rows, evenly spread, on which that criterion is computed, at most"
    )

    @model_validator(mode="after")
    def _candidates_fit(self) -> Self:
        if self.candidates > max(1, self.steps):
            raise ValueError(f"candidates ({self.candidates}) must not outnumber steps ({self.steps})")
        return self

    def batch_of(self, rows: int) -> int:
        """Return the samples per step when `rows` rows are aligned."""
        return min(self.batch, rows)

    def queries(self, rows: int) -> int:
        """Return the number of votes of a whole game, one per sample; `paper_epsilon` prices them."""
        return self.steps * self.batch_of(rows)

    def candidate_due(self, step: int) -> bool:
        """Return whether a candidate is due once `step` adversarial steps are done."""
        if step == self.steps:
            return True
        # The i-th of c candidates falls on step floor(i·steps/c): is there such an i ≥ 1 for this step?
        i = -(-step * self.candidates // self.steps)
        return i >= 1 and i * self.steps // self.candidates == step
