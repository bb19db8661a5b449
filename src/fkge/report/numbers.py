"""Figures as people read them: ``.312``, ``+.065 (.063 … .066)``, ``4.1 GB``, ``9 min 36 s``."""

from __future__ import annotations

import math
from collections.abc import Sequence

MINUS = "−"


def short(value: float | None, places: int = 3) -> str:
    """A score without its leading zero, or nothing: ``.312``."""
    if value is None or not math.isfinite(value):
        return ""
    text = f"{abs(value):.{places}f}"
    text = text[1:] if text.startswith("0.") else text
    return (MINUS if value < 0 and text.strip(".0") else "") + text


def signed(value: float) -> str:
    """A difference with its sign, with one place more where three would not tell it from nothing: ``+.0004``."""
    places = 4 if 0 < abs(value) < 0.0005 else 3
    text = short(value, places)
    return text if text.startswith(MINUS) or not text.strip(".0") else "+" + text


def between(low: float, high: float) -> str:
    """An interval: ``−.010 … +.021``."""
    return f"{signed(low)} … {signed(high)}"


def chance(p: float) -> str:
    """A p-value: ``.030``, ``<.001``."""
    return "<.001" if p < 0.001 else short(p)


def plain(value: float | None) -> str:
    """ε: four figures at most; without a bound, ∞."""
    return "∞" if value is None or not math.isfinite(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """``0.8 s``, ``42 s``, ``9 min 36 s``, ``3 h 20 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


def size(nbytes: float) -> str:
    """``840 B``, ``29 kB``, ``4.1 GB``."""
    units = ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if nbytes < 999.5 or unit == units[-1]:
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 9.95 else f"{nbytes:.1f} {unit}"


_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def count(n: int) -> str:
    """A small number in words."""
    return _COUNTS[n] if n < len(_COUNTS) else f"{n:,}"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
