"""Write the results of a search: its best settings as a TOML file, for ``--config``, and its page.

The page is one HTML file that needs nothing else, made from ``report/templates/tune.html``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fkge.federation import FederationSettings
from fkge.files import write_atomically
from fkge.report import render_template
from fkge.report.formatting import duration
from fkge.settings import Settings, TrainSettings, toml_value
from fkge.tune import figures
from fkge.tune.spec import PhaseResult, Spec, TuneResult

TITLES = {"train": "Search", "lone": "Owners alone (control)", "federated": "The federation"}
LOCAL = ("seed", "device", "threads", "kernels")
"""Settings of a run and a machine; a recipe leaves them out."""


def recipe_text(spec: Spec, found: PhaseResult, settings: TrainSettings | FederationSettings) -> str:
    """Return the recipe of a phase's best trial, with comments that say where it comes from.

    Args:
        spec: of the search.
        found: the phase.
        settings: of its best trial.
    """
    best = found.winner
    assert best is not None
    assert best.score is not None
    command = "train GRAPH" if spec.kind == "graph" else "simulate FEDERATION"
    how = {"train": "", "lone": " of owners that train alone (control)", "federated": " of the federation"}
    file = "lone.toml" if found.phase == "lone" else "recipe.toml"
    source = " ".join(f"{spec.name} ({spec.source})".split())  # a comment is one line
    lines = [
        f"# Found by `fkge tune` on {source}: fkge {command} --config {file}",
        f"# Validation MRR{how[found.phase]}: {best.score:.4f}, in trial {best.number} of "
        f"{len(found.trials)}, after {best.best_epoch} of {best.epochs} epochs.",
        f"# Searched for {duration(found.seconds)} (budget: {spec.minutes:g} minutes), seed {spec.seed}, "
        f"fkge {spec.fkge}. Chosen by validation triples alone.",
    ]
    epochs = settings.epochs if isinstance(settings, TrainSettings) else settings.total_epochs
    if best.state == "cut" or (best.state == "complete" and best.epochs < epochs):
        lines.append("# That trial ended before its last epoch, by its share of the time or for want of improvement.")
    if found.hurried:
        lines.append("# It was still improving: these settings learn fastest, and may not be the best in the end.")
    if spec.split_off:
        settings = settings.model_copy(update={"epochs": max(1, best.best_epoch)})
        lines.append("# The graph has no validation triples of its own, so epochs is where the search found the best.")
    return "\n".join(lines) + "\n" + _toml(settings)


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


def _toml(settings: Settings) -> str:
    """Return the settings that differ from the defaults, and those that make a training what it is."""
    lines, sections = list[str](), dict[str, str]()
    for key, field in type(settings).model_fields.items():
        value: Any = getattr(settings, key)
        if isinstance(value, Settings):
            if text := _toml(value):
                sections[key] = text
        elif value is not None and key not in LOCAL and (value != field.default or key in ("model", "dim", "loss")):
            lines.append(f"{key} = {toml_value(value)}")
    text = "\n".join(lines) + "\n" if lines else ""
    return text + "".join(f"\n[{key}]\n{part}" for key, part in sections.items())
