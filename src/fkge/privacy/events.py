"""Release events: what left under a guarantee, as frozen values that `fkge.privacy.accountants` prices.

A release is a mechanism, applied `count` times, about one kind of unit under one neighbouring relation. What has no
guarantee is no release: it has no price, and a type of its own, `Unprotected`, so that it is seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from fkge.errors import PrivacyError, did_you_mean
from fkge.privacy.tamper_evident import canonical

GAUSSIAN: Final = "gaussian"
"""A vector with Gaussian noise on every coordinate: a step of DP-SGD, of the full batch or of a Poisson sample."""

LAPLACE_VOTES: Final = "laplace votes"
"""A PATE query: two vote counts, each with Laplace noise. One unit sways one teacher: both counts move by 1."""

MECHANISMS: Final = (GAUSSIAN, LAPLACE_VOTES)

ADD_OR_REMOVE: Final = "add or remove"
REPLACE: Final = "replace"
RELATIONS: Final = (ADD_OR_REMOVE, REPLACE)
"""Neighbouring data sets: one has a unit more than the other, or one unit is replaced."""


@dataclass(frozen=True)
class Release:
    """A mechanism applied to data: something that leaves under a guarantee, or may.

    Attributes:
        mechanism: one of `MECHANISMS`; anything else is refused, since no accountant could price it.
        unit: what is hidden, such as "triple" or "row of the host's aligned vectors".
        relation: one of `RELATIONS`.
        sensitivity: how far what is released moves between neighbours *under this relation*, before noise: the L2 norm
            for "gaussian" (the clip C of DP-SGD for "add or remove", 2C for "replace"), the L1 norm for "laplace votes"
            (2: both counts move by 1), of which each count takes half.
        noise: of each released number: standard deviation for "gaussian", scale 1/λ for "laplace votes".
        count: number of steps or queries.
        sampling: the rate of Poisson sampling of "gaussian", each unit in or out on its own; None for all units.
            A shuffled or fixed-size batch is not Poisson sampling.

    Raises:
        PrivacyError: a field is not as described.
    """

    mechanism: str
    unit: str
    relation: str
    sensitivity: float
    noise: float
    count: int = 1
    sampling: float | None = None

    def __post_init__(self) -> None:
        _check_word("mechanism", self.mechanism, MECHANISMS)
        _check_word("relation", self.relation, RELATIONS)
        if not isinstance(self.unit, str) or not self.unit:
            raise PrivacyError(f"release: unit must say what is hidden, such as 'triple'; got {self.unit!r}")
        for name in ("sensitivity", "noise"):
            value = getattr(self, name)
            if not _is_number(value) or not (0 < value < math.inf):
                raise PrivacyError(
                    f"release: {name} must be a positive number, got {value!r}; without noise, no release"
                )
            object.__setattr__(self, name, float(value))
        if type(self.count) is not int or self.count < 1:
            raise PrivacyError(f"release: count must be a whole number from 1 up, got {self.count!r}")
        if self.sampling is not None:
            if self.mechanism != GAUSSIAN:
                raise PrivacyError(f"release: only {GAUSSIAN!r} may be of a sample; {self.mechanism!r} has no sampling")
            if not _is_number(self.sampling) or not (0 < self.sampling <= 1):
                raise PrivacyError(f"release: sampling must be a rate in (0, 1], got {self.sampling!r}")
            object.__setattr__(self, "sampling", None if self.sampling == 1 else float(self.sampling))

    def times(self, count: int) -> Release:
        """Return the same event, `count` times."""
        return replace(self, count=count)

    @property
    def of(self) -> tuple[str, str]:
        """(unit, relation); only releases with equal ones compose."""
        return self.unit, self.relation

    def to_json(self) -> dict[str, str | float | None]:
        """Return a JSON object that `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Release:
        """Return the release that `to_json` wrote; every field must be there, and no other (`PrivacyError`)."""
        names = {f.name for f in fields(cls)}
        if not isinstance(value, Mapping) or set(value) != names:
            got = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise PrivacyError(f"release: expected the fields {sorted(names)}, got {got}")
        return cls(**value)

    def canonical(self) -> bytes:
        """Return one byte string for one release, the same everywhere, for hashing."""
        return canonical(self.to_json())

    def __str__(self) -> str:
        times = f"{self.count:,} × " if self.count > 1 else ""
        sampled = "" if self.sampling is None else f", sampled at {self.sampling:g}"
        return f"{times}{self.mechanism} (noise {self.noise:g}, sensitivity {self.sensitivity:g}{sampled})"


@dataclass(frozen=True)
class Unprotected:
    """Something that leaves without any guarantee, so no budget covers it; `what` names it, such as "shared rows"."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} (protection: none)"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_word(field: str, word: object, known: tuple[str, ...]) -> None:
    if word not in known:
        raise PrivacyError(
            f"release: unknown {field} {word!r}{did_you_mean(str(word), known)}; known: {', '.join(known)}"
        )
