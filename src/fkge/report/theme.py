"""Colours and rules of figures and pages, in one place.

Figures name roles (``class="line federated"``); a style sheet gives roles their colours through custom properties, so
that the page decides on light or dark. `standalone` puts that style sheet into a figure that leaves the page.
Colour never stands alone: arms differ in their dashes, kinds of work in their height, states in their shape and word.
"""

from __future__ import annotations

import re

LIGHT = {
    "paper": "#ffffff", "panel": "#f5f7f9", "ink": "#1a1f24", "quiet": "#56606a", "rule": "#d5dbe1",
    "accent": "#0b5cad", "soft": "#a9cdf0", "warm": "#b4500b", "plum": "#7d3c98", "teal": "#0b7a66", "stone": "#7a8590",
}  # fmt: skip
DARK = {
    "paper": "#12161b", "panel": "#1b2128", "ink": "#e8edf2", "quiet": "#a5b1bd", "rule": "#343e49",
    "accent": "#7ab8ff", "soft": "#2f5d8c", "warm": "#f2a65a", "plum": "#cf9be6", "teal": "#5fd0b8", "stone": "#8b97a3",
}  # fmt: skip
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif'

_AIR = 12

FIGURES = """
.fig { font-family: var(--font); display: block; width: 100%; height: auto; }
.fig text { font-size: 12px; fill: var(--ink); font-variant-numeric: tabular-nums; }
.fig .small { font-size: 11px; }
.fig .quiet { fill: var(--quiet); }
.fig .strong { font-weight: 600; }
.fig .inverse { fill: var(--paper); }
.fig .grid { stroke: var(--rule); stroke-width: 1; }
.fig .axis { stroke: var(--quiet); stroke-width: 1; }
.fig .zero { stroke: var(--ink); stroke-width: 1; }
.fig .line { fill: none; stroke: var(--stone); stroke-width: 1.2; stroke-linejoin: round; }
.fig .federated { stroke: var(--accent); stroke-width: 2.4; }
.fig .control { stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 5 3; }
.fig .independent { stroke: var(--ink); stroke-dasharray: 1 3; }
.fig .permuted { stroke: var(--warm); stroke-dasharray: 7 2 1 2; }
.fig .random { stroke: var(--warm); stroke-dasharray: 2 2; }
.fig .fede { stroke: var(--plum); stroke-dasharray: 9 3; }
.fig .unified { stroke: var(--teal); stroke-dasharray: 3 1; }
.fig .dot { fill: var(--stone); }
.fig .full { fill: var(--accent); stroke: var(--accent); stroke-width: 1.5; }
.fig .hollow { fill: var(--paper); stroke: var(--accent); stroke-width: 1.5; }
.fig .worse { fill: var(--warm); stroke: var(--warm); stroke-width: 1.5; }
.fig .back { fill: var(--paper); stroke: var(--warm); stroke-width: 1.6; }
.fig .dead { fill: none; stroke: var(--warm); stroke-width: 2.4; }
.fig .idle { fill: var(--paper); stroke: var(--stone); stroke-width: 1.6; }
.fig .done { fill: var(--teal); stroke: var(--teal); stroke-width: 1.5; }
.fig .busy { fill: var(--soft); stroke: var(--accent); stroke-width: 1.6; }
.fig .apart { fill: var(--plum); stroke: var(--plum); stroke-width: 1.6; }
.fig .whisker { stroke: var(--accent); stroke-width: 2; }
.fig .whisker.worse { stroke: var(--warm); }
.fig .train { fill: var(--soft); stroke: var(--accent); stroke-width: .6; }
.fig .update { fill: var(--accent); }
.fig .translate { fill: var(--warm); }
.fig .private { fill: var(--plum); }
.fig .score { fill: var(--stone); }
.fig .sleep { fill: var(--stone); }
.fig .track { fill: var(--panel); stroke: var(--rule); stroke-width: 1; }
.fig .edge { stroke: var(--stone); stroke-opacity: .55; fill: none; }
.fig .live { stroke: var(--warm); stroke-width: 2.4; fill: none; }
.fig .tip { fill: var(--warm); }
"""


def properties(palette: dict[str, str]) -> str:
    """Custom properties, as declarations."""
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


def standalone(figure: str, *, font: str = FONT) -> str:
    """A figure as a file of its own: with its colours, light or dark as its reader likes it."""
    style = (
        f".fig {{ {properties(LIGHT)} --font: {font}; background: var(--paper); }}\n"
        f"@media (prefers-color-scheme: dark) {{ .fig {{ {properties(DARK)} }} }}\n{FIGURES}"
    )
    return _with_style(figure, style)


def resolved(figure: str, *, font: str = FONT) -> str:
    """A figure for programs that know neither custom properties nor dark rooms: light, every colour in its place."""
    return _with_style(figure, re.sub(r"var\(--([a-z]+)\)", lambda m: (LIGHT | {"font": font})[m[1]], FIGURES))


def _with_style(figure: str, style: str) -> str:
    """The style sheet goes right behind the opening tag; a file has some air around it, too."""
    opening, bracket, rest = figure.partition(">")
    opening = re.sub(r'viewBox="0 0 (\S+) (\S+)"', _wider, opening)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"{bracket}<style>{style}</style>{rest}\n'


def _wider(match: re.Match[str]) -> str:
    width, height = float(match[1]) + 2 * _AIR, float(match[2]) + 2 * _AIR
    return f'viewBox="-{_AIR} -{_AIR} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
