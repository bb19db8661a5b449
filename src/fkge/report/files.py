"""The report and its figures, as files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from fkge.errors import RunError
from fkge.report import figures as draw
from fkge.report.folders import Simulated, Trained, read
from fkge.report.page import simulation_page, training_page
from fkge.report.theme import resolved, standalone
from fkge.trace import SILENT, Progress, write_atomically

_SCALE = 2
"""Pixels of a PNG per unit of its figure."""


def write_report(
    run: Path, out: Path | None = None, figures: Path | None = None, *, progress: Progress = SILENT
) -> Path:
    """Write the report on a run, and its figures.

    Args:
        run: a folder made by `fkge simulate`, finished or not, or by `fkge train`.
        out: the page; ``RUN/report.html`` if None.
        figures: a folder for SVG and PNG files; ``RUN/figures`` if None. PNGs need resvg: without it there are none,
            and `progress` is told.

    Returns:
        The page's path.

    Raises:
        RunError: there is no such folder, or it holds no run; or the files cannot be written.
    """
    found = read(run)
    page = simulation_page(found) if isinstance(found, Simulated) else training_page(found)
    out, folder = out or run / "report.html", figures or run / "figures"
    drawn = _figures(found)
    can = png_possible()
    name = "report" if can else "report (figures as SVG only: PNG needs resvg_py, pip install 'fkge[figures]')"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        with progress.task(name, len(drawn) + 1, "files") as task:
            write_atomically(out, page.encode())
            task.advance(1)
            for key, svg in drawn.items():
                write_atomically(folder / f"{key}.svg", standalone(svg).encode())
                if can:
                    write_atomically(folder / f"{key}.png", png(svg))
                task.advance(1, figure=key)
    except OSError as error:
        why = error.strerror or str(error)
        raise RunError(f"{out}: the report cannot be written ({why}). Choose another --out and --figures.") from None
    return out


def _figures(found: Simulated | Trained) -> dict[str, str]:
    """By name, every figure that the run has something for."""
    if isinstance(found, Trained):
        return {"curve": draw.curve(found.records)}
    history, result = found.history, found.result
    drawn = {
        "accuracy": draw.accuracy(history, two_tracks=bool(result["two_tracks"])),
        "timeline": draw.timeline(history, clock=found.clock),
        "learned": draw.learned(history),
        "network": draw.network(history, found.shares, found.arm),
    }
    if any("control" in owner["versus"] for owner in result["owners"].values()):
        drawn["gains"] = draw.gains(result)
    if result["privacy"]["mode"] != "none":
        drawn["spending"] = draw.spending(history, result["privacy"]["epsilon"])
    return drawn


def png_possible() -> bool:
    """Whether resvg is installed."""
    return importlib.util.find_spec("resvg_py") is not None


def png(svg: str) -> bytes:
    """A figure as a PNG: light, with a font that is there on a bare machine where matplotlib is."""
    import resvg_py

    fonts = _fonts()
    more: dict[str, Any] = {"font_files": fonts, "font_family": "DejaVu Sans"} if fonts else {}
    text = resolved(svg, font="'DejaVu Sans'" if fonts else "sans-serif")
    return bytes(resvg_py.svg_to_bytes(svg_string=text, zoom=_SCALE, background="#ffffff", **more))


def _fonts() -> list[str]:
    """matplotlib's DejaVu, without importing it."""
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"
    return [str(path) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf") if (path := folder / name).exists()]
