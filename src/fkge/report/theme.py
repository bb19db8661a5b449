"""Colours and style sheets of figures and pages.

Figures name roles (``class="line federated"``); a style sheet gives roles their colours through custom properties, so
that the page decides on light or dark. `standalone` puts that style sheet into a figure that is a file of its own.
Nothing is shown by colour alone: arms differ in dashes, kinds of work in height, states in shape and word.
"""

from __future__ import annotations

import re
from pathlib import Path

LIGHT = {
    "paper": "#ffffff", "panel": "#f5f7f9", "ink": "#1a1f24", "quiet": "#56606a", "rule": "#d5dbe1",
    "accent": "#0b5cad", "soft": "#a9cdf0", "warm": "#b4500b", "plum": "#7d3c98", "teal": "#0b7a66", "stone": "#7a8590",
}  # fmt: skip
DARK = {
    "paper": "#12161b", "panel": "#1b2128", "ink": "#e8edf2", "quiet": "#a5b1bd", "rule": "#343e49",
    "accent": "#7ab8ff", "soft": "#2f5d8c", "warm": "#f2a65a", "plum": "#cf9be6", "teal": "#5fd0b8", "stone": "#8b97a3",
}  # fmt: skip
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif'

_MARGIN = 12

FIGURES = (Path(__file__).parent / "templates" / "figures.css").read_text(encoding="utf-8")
"""The style sheet of figures; custom properties give it colours."""


def properties(palette: dict[str, str]) -> str:
    """Return CSS declarations of custom properties."""
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())


def colours() -> str:
    """Return the style sheet of custom properties: light, or dark where the reader or the switch says so."""
    light, dark = properties(LIGHT), properties(DARK)
    return (
        f":root {{ color-scheme: light dark; --font: {FONT}; {light} }}\n"
        f'@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ {dark} }} }}\n'
        f':root[data-theme="light"] {{ color-scheme: light; }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        f"@media print {{ :root:root:root {{ color-scheme: light; {light} }} }}\n"
    )


def standalone(figure: str) -> str:
    """Make a figure a file of its own, with its colours, light or dark as the viewer prefers."""
    style = (
        f".fig {{ {properties(LIGHT)} --font: {FONT}; background: var(--paper); }}\n"
        f"@media (prefers-color-scheme: dark) {{ .fig {{ {properties(DARK)} }} }}\n{FIGURES}"
    )
    return _with_style(figure, style)


def resolved(figure: str, *, font: str = FONT) -> str:
    """Make a figure a file for programs without CSS custom properties, in light colours."""
    return _with_style(figure, re.sub(r"var\(--([a-z]+)\)", lambda m: (LIGHT | {"font": font})[m[1]], FIGURES))


def _with_style(figure: str, style: str) -> str:
    """Insert a style sheet after the opening tag, and add a margin to the view box."""
    opening, bracket, rest = figure.partition(">")
    opening = re.sub(r'viewBox="0 0 (\S+) (\S+)"', _wider, opening)
    return f'{opening} xmlns="http://www.w3.org/2000/svg"{bracket}<style>{style}</style>{rest}\n'


def _wider(match: re.Match[str]) -> str:
    width, height = float(match[1]) + 2 * _MARGIN, float(match[2]) + 2 * _MARGIN
    return f'viewBox="-{_MARGIN} -{_MARGIN} {width:g} {height:g}" width="{width:g}" height="{height:g}"'
