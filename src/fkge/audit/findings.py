"""Findings of attacks: typed values that convert to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

Floats: TypeAlias = npt.NDArray[np.float64]
Triples: TypeAlias = npt.NDArray[np.integer[Any]]


class Verdict(StrEnum):
    """The outcome of an attack; UNTESTED where the run has nothing to test the claim on."""

    HOLDS = "holds"
    OPEN = "as stated: no protection"
    BROKEN = "BROKEN"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Finding:
    """The finding of one attack.

    Attributes:
        claim: what is said to hold; on: what was attacked.
        result: the most important figures, in words.
        figures: all figures by name; dataclasses and numbers.
    """

    claim: str
    verdict: Verdict
    on: str
    result: str
    figures: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, JsonValue]:
        """Return the finding as JSON data, the figures next to the other fields."""
        fields = asdict(self)
        figures = fields.pop("figures")
        return to_jsonable_python(fields | figures)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class AuditReport:
    """The findings of all attacks on `owner`, which `peer` carried out on a copy of the simulation in `run`."""

    run: str
    federation: str
    owner: str
    peer: str
    privacy: Mapping[str, object]
    quick: bool
    sections: Mapping[str, Finding]

    @property
    def broken(self) -> bool:
        """Whether any claim is broken."""
        return any(finding.verdict is Verdict.BROKEN for finding in self.sections.values())

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as JSON data."""
        sections = {name: finding.to_json() for name, finding in self.sections.items()}
        return asdict(self) | {"broken": self.broken, "sections": sections}
