"""Draw figures as SVG text.

Figures are plain Python and neither templates nor matplotlib: they are mostly arithmetic on coordinates, must be drawn
in milliseconds while a run is running, and take their colours (light or dark) from the style sheet of the page.

Coordinates are units of the view box, 12 of which are a line of text. A figure has a title, a description and, on its
marks, titles that browsers show as tooltips; `fkge.report.theme` says what its classes look like.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fkge.report.formatting import score

TEXT, SMALL = 12, 11
"""Sizes of text, as in the style sheet."""

Shape = Literal["circle", "square", "diamond", "down", "cross"]
Anchor = Literal["start", "middle", "end"]

_SHAPES: Mapping[str, Sequence[tuple[str, float, float]]] = {
    "square": (("M", -0.9, -0.9), ("L", 0.9, -0.9), ("L", 0.9, 0.9), ("L", -0.9, 0.9)),
    "diamond": (("M", 0, -1.25), ("L", 1.25, 0), ("L", 0, 1.25), ("L", -1.25, 0)),
    "down": (("M", -1.1, -0.8), ("L", 1.1, -0.8), ("L", 0, 1.1)),
    "cross": (("M", -0.9, -0.9), ("L", 0.9, 0.9), ("M", 0.9, -0.9), ("L", -0.9, 0.9)),
}

_EMS = {
    c: em
    for chars, em in (("iljI.,:;'|! ", 0.34), ("()[]tfr-/·", 0.42), ("ABCDEFGHJKLNOPQRSTUVXYZ", 0.74),
                      ("mwMW%@+−…→↓=<>~", 0.97))
    for c in chars
}  # fmt: skip
"""Widths of characters in ems; others are 0.64 wide, East Asian ones 1."""

_NOT_XML = (*range(9), 11, 12, *range(14, 32), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
UNPRINTABLE = dict.fromkeys(_NOT_XML, "\N{REPLACEMENT CHARACTER}")
"""For `str.translate`: characters that XML cannot hold become �."""


def escape(text: str) -> str:
    """Escape `text` for XML and HTML, inside and outside of attributes."""
    return html.escape(text.translate(UNPRINTABLE), quote=True)


def width_of(text: str, size: float = TEXT) -> float:
    """Estimate the width of `text` in any usual font; rather too wide than too narrow."""
    return size * sum(_EMS.get(c) or (1.0 if unicodedata.east_asian_width(c) in "WFA" else 0.64) for c in text)


def fit(text: str, room: float, size: float = TEXT) -> str:
    """Shorten `text` with an ellipsis if it is wider than `room`."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def n(value: float) -> str:
    """Format a coordinate, rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Scale:
    """Map values in [low, high] to coordinates between start and end; values outside are clamped."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        part = (value - self.low) / span if span > 0 else 0.0
        return self.start + (self.end - self.start) * min(1.0, max(0.0, part))


def ticks(low: float, high: float, at_most: int = 5) -> list[float]:
    """Return round values within [low, high] for an axis: multiples of 1, 2 or 5 times a power of ten, at least one."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / at_most))
    for factor in (1, 2, 5, 10, 20):
        first, last = math.ceil(low / (step * factor) - 1e-9), math.floor(high / (step * factor) + 1e-9)
        if last - first + 1 <= at_most:
            break
    found = [round(i * step * factor, 12) for i in range(first, last + 1)]
    return found or [low]


def labelled(values: Sequence[float], signs: bool = False) -> tuple[Sequence[float], list[str]]:
    """Return ticks, and labels of scores with as many decimal places as distinguish them."""
    step = min((b - a for a, b in pairwise(values)), default=0.1)
    places = next((p for p in range(1, 5) if abs(round(step, p) - step) < 1e-9), 5)
    labels = [score(value, places) if value else "0" for value in values]
    return values, [f"+{label}" if signs and value > 0 else label for value, label in zip(values, labels, strict=True)]


def around(values: Sequence[float], margin: float = 0.08) -> tuple[float, float]:
    """Return the range of `values`, extended by a margin at both ends."""
    low, high = min(values), max(values)
    air = (high - low) * margin or abs(high) * margin or 0.01
    return low - air, high + air


class Drawing:
    """A figure that is being drawn.

    All methods draw at coordinates of the view box. `role` is the class that the style sheet gives a look, `tip` the
    tooltip.

    Args:
        width, height: of the view box.
        title: what the figure is, for screen readers; about: what it shows.
    """

    def __init__(self, width: float, height: float, title: str, about: str = "") -> None:
        self.width, self.height = width, height
        self.title, self.about = title, about
        self._parts: list[str] = []

    def __str__(self) -> str:
        label, about = escape(self.title), escape(self.about)
        return (
            f'<svg class="fig" role="img" aria-label="{label}" viewBox="0 0 {n(self.width)} {n(self.height)}">'
            f"<title>{label}</title><desc>{about}</desc>{''.join(self._parts)}</svg>"
        )

    def place(self, other: Drawing, x: float, y: float) -> None:
        """Put the content of another drawing at (x, y)."""
        body = "".join(other._parts)
        self._parts.append(f'<g transform="translate({n(x)},{n(y)})">{body}</g>')

    def _add(self, opening: str, tip: str) -> None:
        """Add an element: the content of its opening tag, and its tooltip."""
        name = opening.partition(" ")[0]
        self._parts.append(f"<{opening}><title>{escape(tip)}</title></{name}>" if tip else f"<{opening}/>")

    def rect(
        self, x: float, y: float, width: float, height: float, role: str, tip: str = "", corner: float = 0
    ) -> None:
        rx = f' rx="{n(corner)}"' if corner else ""
        self._add(f'rect class="{role}" x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}"{rx}', tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, role: str, tip: str = "", width: float = 0) -> None:
        thick = f' stroke-width="{n(width)}"' if width else ""
        self._add(f'line class="{role}" x1="{n(x1)}" y1="{n(y1)}" x2="{n(x2)}" y2="{n(y2)}"{thick}', tip)

    def path(self, points: Iterable[tuple[float, float]], role: str, tip: str = "") -> None:
        """Draw straight lines from point to point."""
        d = "L".join(f"{n(x)},{n(y)}" for x, y in points)
        if d:
            self._add(f'path class="{role}" d="M{d}"', tip)

    def text(self, x: float, y: float, text: str, role: str = "", anchor: Anchor = "start", turn: float = 0,
             tip: str = "") -> None:  # fmt: skip
        """Draw a line of text; `anchor` says which point of its baseline is at (x, y), `turn` rotates it by degrees."""
        more = f' class="{role}"' if role else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += f' transform="rotate({n(turn)} {n(x)} {n(y)})"' if turn else ""
        inside = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<text x="{n(x)}" y="{n(y)}"{more}>{inside}{escape(text)}</text>')

    def mark(self, shape: Shape, x: float, y: float, r: float, role: str, tip: str = "") -> None:
        """Draw a shape with its centre at (x, y), about 2 r wide."""
        if shape == "circle":
            self._add(f'circle class="{role}" cx="{n(x)}" cy="{n(y)}" r="{n(r)}"', tip)
            return
        d = "".join(f"{pen}{n(x + r * dx)},{n(y + r * dy)}" for pen, dx, dy in _SHAPES[shape])
        self._add(f'path class="{role}" d="{d}{"" if shape == "cross" else "Z"}"', tip)

    def x_axis(self, scale: Scale, y: float, top: float, values: Sequence[float], labels: Sequence[str]) -> None:
        """Draw an axis at `y`, grid lines up to `top`, and as many labels, at even steps, as do not overlap."""
        halves = [width_of(label, SMALL) / 2 for label in labels]
        places = [min(max(scale(v), h), self.width - h) for v, h in zip(values, halves, strict=True)]
        for value in values:
            self.line(scale(value), top, scale(value), y, "grid")
        for i in _even(places, halves, list(values).index(0) if 0 in values else 0):
            self.text(places[i], y + 15, labels[i], "small quiet", "middle")
        self.line(scale.start, y, scale.end, y, "axis")

    def y_axis(self, scale: Scale, left: float, right: float, values: Sequence[float], labels: Sequence[str]) -> None:
        """Draw grid lines from `left` to `right`, with labels on their left."""
        for value, label in zip(values, labels, strict=True):
            y = scale(value)
            self.line(left, y, right, y, "grid")
            self.text(left - 5, y + 4, label, "small quiet", "end")


def _even(places: Sequence[float], halves: Sequence[float], first: int) -> list[int]:
    """Indices of every n-th label, including `first`, for the smallest n at which no two labels touch."""
    for step in range(1, len(places) + 1):
        kept = list(range(first % step, len(places), step))
        if all(places[b] - halves[b] > places[a] + halves[a] + 4 for a, b in pairwise(kept)):
            return kept
    return []


@dataclass(frozen=True)
class Sample:
    """An entry of a legend: a shape (``rect``: a bar of some height), its role in the style sheet, and its meaning."""

    shape: Shape | Literal["rect", "stroke"]
    role: str
    label: str
    height: float = 10


def legend(samples: Sequence[Sample], width: float) -> Drawing:
    """Draw a legend in as many lines as it needs."""
    drawing = Drawing(width, 18 if samples else 0, "Legend", "Meaning of the lines and marks")
    x = y = 0.0
    for sample in samples:
        label = fit(sample.label, width - 32, SMALL)
        wide = 24 + width_of(label, SMALL) + 14
        if x > 0 and x + wide - 14 > width:
            x, y = 0.0, y + 18
        if sample.shape == "rect":
            drawing.rect(x, y + 8 - sample.height / 2, 18, sample.height, sample.role)
        elif sample.shape == "stroke":
            drawing.line(x, y + 8, x + 18, y + 8, sample.role)
        else:
            drawing.mark(sample.shape, x + 9, y + 8, 4.5, sample.role)
        drawing.text(x + 24, y + 12, label, "small")
        x += wide
        drawing.height = y + 18
    return drawing


def notice(width: float, title: str, text: str) -> str:
    """Draw a placeholder for a figure that has nothing to show yet."""
    drawing = Drawing(width, 60, title, text)
    drawing.rect(0.5, 0.5, width - 1, 59, "track", corner=6)
    drawing.text(width / 2, 34, fit(text, width - 16), "quiet", "middle")
    return str(drawing)
