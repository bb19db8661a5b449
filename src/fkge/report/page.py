"""Write the report on a run's folder (`fkge report`, `fkge demo`): one HTML page that needs nothing else, and its
figures.

The page is made from the Jinja2 templates in ``templates/``; what it says stands there. To show a new field of an
owner's result, declare it in `fkge.experiment.results`, fill it in `OwnerResult.of`, and show it in
``simulation.html``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import time
from contextlib import suppress
from pathlib import Path

import jinja2

from fkge.errors import RunError
from fkge.files import write_atomically
from fkge.progress import SILENT, Progress
from fkge.report import figures as draw
from fkge.report import findings, formatting
from fkge.report.run_folder import SimulationRun, TrainingRun, read
from fkge.report.svg import UNPRINTABLE
from fkge.report.theme import colours, resolved, standalone

_PIXELS_PER_UNIT = 2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("fkge.report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    name: getattr(formatting, name)
    for name in ("byte_size", "date", "duration", "epsilon", "interval", "p_value", "score", "signed", "thousands")
}


def write_report(
    run: Path, out: Path | None = None, figures: Path | None = None, *, progress: Progress = SILENT
) -> Path:
    """Write the report on a run, and its figures.

    Args:
        run: a folder made by `fkge simulate`, finished or not, or by `fkge train`.
        out: the page; ``RUN/report.html`` if None.
        figures: a folder for SVG and PNG files; ``RUN/figures`` if None. PNG files need resvg and are left out without.
        progress: receives the progress, and whether PNG files are left out.

    Returns:
        The path of the page.

    Raises:
        RunError: there is no such folder, or it holds no run; or the files cannot be written.
    """
    found = read(run)
    page, drawn = render(found), _draw_all(found)
    out, folder = out or run / "report.html", figures or run / "figures"
    as_png = importlib.util.find_spec("resvg_py") is not None
    name = "report" if as_png else "report (figures as SVG only: PNG needs resvg_py, pip install 'fkge[figures]')"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        with progress.task(name, len(drawn) + 1, "files") as task:
            write_atomically(out, page.encode())
            task.advance(1)
            for key, svg in drawn.items():
                write_atomically(folder / f"{key}.svg", standalone(svg).encode())
                if as_png:
                    write_atomically(folder / f"{key}.png", _png(svg))
                task.advance(1, figure=key)
    except OSError as error:
        why = error.strerror or str(error)
        raise RunError(f"{out}: the report cannot be written ({why}). Choose another --out and --figures.") from None
    return out


def render(run: SimulationRun | TrainingRun) -> str:
    """Render the report on a run as HTML."""
    name = "simulation.html" if isinstance(run, SimulationRun) else "training.html"
    return render_template(name, run=run, figures=draw, findings=findings)


def render_template(name: str, **values: object) -> str:
    """Render a page in the style of the report.

    Args:
        name: of a template in ``templates/`` that extends ``base.html``.
        values: what the template shows.
    """
    page = _ENVIRONMENT.get_template(name).render(colours=colours(), now=time.time(), versions=_versions(), **values)
    return page.translate(UNPRINTABLE)


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in ("fkge", "torch", "numpy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def _draw_all(found: SimulationRun | TrainingRun) -> dict[str, str]:
    """Return every figure that the run has data for, by name."""
    if isinstance(found, TrainingRun):
        return {"curve": draw.curve(found.validations)}
    history, result = found.history, found.result
    drawn = {
        "accuracy": draw.accuracy(history, two_tracks=result.two_tracks),
        "timeline": draw.timeline(history, clock=found.clock),
        "learned": draw.learned(history),
        "network": draw.network(history, found.shares, found.arm),
    }
    if any("control" in owner.versus for owner in result.owners.values()):
        drawn["gains"] = draw.gains(result)
    if result.privacy.mode != "none":
        drawn["spending"] = draw.spending(history, result.privacy.epsilon)
    return drawn


def _png(svg: str) -> bytes:
    """Return a figure as PNG, in light colours; with the DejaVu fonts of matplotlib where that is installed."""
    import resvg_py

    matplotlib = importlib.util.find_spec("matplotlib")
    folders = (matplotlib.submodule_search_locations or ()) if matplotlib is not None else ()
    paths = [Path(f, "mpl-data/fonts/ttf", name) for f in folders for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")]
    fonts = [str(path) for path in paths if path.exists()]
    family = "DejaVu Sans" if fonts else "sans-serif"
    text = resolved(svg, font=f"'{family}'" if fonts else family)
    image = resvg_py.svg_to_bytes(
        svg_string=text, zoom=_PIXELS_PER_UNIT, background="#ffffff", font_files=fonts, font_family=family
    )
    return bytes(image)
