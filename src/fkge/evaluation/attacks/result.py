"""What every attack hands back: a small frozen value that can be written down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Triples: TypeAlias = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Result:
    """Base of all results. Fields are plain numbers and texts, all finite: fit for JSON as they are."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)
