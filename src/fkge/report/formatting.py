"""Format numbers for people: ``.312``, ``+.065 (.063 … .066)``, ``4.1 GB``, ``9 min 36 s``."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

MINUS = "−"


def score(value: float | None, places: int = 3) -> str:
    """Return a score without its leading zero: ``.312``; empty if there is none."""
    if value is None or not math.isfinite(value):
        return ""
    text = f"{abs(value):.{places}f}"
    text = text[1:] if text.startswith("0.") else text
    return (MINUS if value < 0 and text.strip(".0") else "") + text


def signed(value: float) -> str:
    """Return a difference with its sign, with a fourth place where three would round to zero: ``+.0004``."""
    places = 4 if 0 < abs(value) < 0.0005 else 3
    text = score(value, places)
    return text if text.startswith(MINUS) or not text.strip(".0") else "+" + text


def interval(low: float, high: float) -> str:
    """Return an interval: ``−.010 … +.021``."""
    return f"{signed(low)} … {signed(high)}"


def p_value(p: float) -> str:
    """Return a p-value: ``.030``, ``<.001``."""
    return "<.001" if p < 0.001 else score(p)


def epsilon(value: float | None) -> str:
    """Return ε with four digits at most; ∞ if there is no bound."""
    return "∞" if value is None or not math.isfinite(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return ``0.8 s``, ``42 s``, ``9 min 36 s``, ``3 h 20 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        large, small, units = *divmod(round(seconds), 60), ("min", "s")
    else:
        large, small, units = *divmod(round(seconds / 60), 60), ("h", "min")
    return " ".join(f"{n} {unit}" for n, unit in zip((large, small), units, strict=True) if n)


def byte_size(nbytes: float) -> str:
    """Return ``840 B``, ``29 kB``, ``4.1 GB``."""
    units = ("B", "kB", "MB", "GB", "TB")
    for unit in units:
        if nbytes < 999.5 or unit == units[-1]:
            break
        nbytes /= 1000
    return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 9.95 else f"{nbytes:.1f} {unit}"


def date(seconds: float) -> str:
    """Return a time in seconds since 1970: ``2026-11-16 17:32 UTC``."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def thousands(n: int | None) -> str:
    """Return ``1,234,567``."""
    return "" if n is None else f"{n:,}"


_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def count_word(n: int) -> str:
    """Return a small number in words."""
    return _COUNTS[n] if n < len(_COUNTS) else f"{n:,}"


def listing(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
