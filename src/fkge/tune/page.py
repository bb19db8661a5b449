"""Write the page on a search: one HTML file that needs nothing else, made from ``report/templates/tune.html``."""

from __future__ import annotations

from pathlib import Path

from fkge.files import write_atomically
from fkge.report import render_template
from fkge.tune import figures
from fkge.tune.spec import Spec, TuneResult

TITLES = {"train": "Search", "lone": "Owners alone (control)", "federated": "The federation"}


def write_page(path: Path, spec: Spec, found: TuneResult, recipe: str) -> None:
    """Write the page.

    Args:
        path: the HTML file.
        spec: of the search.
        found: what it found.
        recipe: text of ``recipe.toml``; empty if there is none.
    """
    parameters = {phase: spec.proposal(phase).parameters for phase in spec.phases}
    text = render_template(
        "tune.html", spec=spec, found=found, recipe=recipe, titles=TITLES, draw=figures, parameters=parameters,
        folder=path.resolve().parent.name,
    )  # fmt: skip
    write_atomically(path, text.encode())
