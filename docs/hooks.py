"""What the site does to a page on its way: equations become MathML, which browsers draw by themselves.

They are written in LaTeX, in blocks fenced as ``math``, so that a page also reads well where it lies.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

_EQUATION = re.compile(r"^```math\n(.*?)^```$", flags=re.S | re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return _EQUATION.sub(_drawn, markdown)


def _drawn(found: re.Match[str]) -> str:
    return f'<div class="equation">{convert(found[1].strip(), display="block")}</div>'
