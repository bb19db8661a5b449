"""What the tests of ledgers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, LAPLACE_VOTES, REPLACE, Budget, Ledger, Release

TRIPLES = Budget("triple", ADD_OR_REMOVE, 4.0, 1e-5)
ROWS = Budget("row", REPLACE, 2.0, 1e-5)


def steps(count: int = 10, noise: float = 20.0) -> Release:
    """Full-batch steps; of noise 20, 342 cost ε = 4 and 343 more than that."""
    return Release(GAUSSIAN, "triple", ADD_OR_REMOVE, 1.0, noise, count)


def votes(count: int = 29) -> Release:
    return Release(LAPLACE_VOTES, "row", REPLACE, 2.0, 20.0, count)


def open_ledger(folder: Path, **changes: Any) -> Ledger:
    return Ledger.open(folder / "ledger", **{"graph": "atlas", "budgets": [TRIPLES, ROWS], **changes})
