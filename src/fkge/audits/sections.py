"""All audits of a simulation, or some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fkge.audits.canaries import canaries
from fkge.audits.dictionary import dictionary
from fkge.audits.interference import interference
from fkge.audits.membership import membership
from fkge.audits.poisoning import poisoning
from fkge.audits.reconstruction import reconstruction
from fkge.audits.subject import BROKEN, Subject, opened
from fkge.errors import SettingsError, did_you_mean
from fkge.trace import SILENT, Progress

SECTIONS: Mapping[str, Callable[[Subject], dict[str, Any]]] = {
    "non-interference": interference,
    "membership": membership,
    "canaries": canaries,
    "reconstruction": reconstruction,
    "dictionary": dictionary,
    "poisoning": poisoning,
}
"""By name, in the order they are run."""


def audit(
    run: Path,
    *,
    only: Iterable[str] = (),
    owner: str | None = None,
    quick: bool = False,
    progress: Progress = SILENT,
    seed: int = 0,
) -> dict[str, Any]:
    """Attack a finished simulation, in a copy that is thrown away.

    Args:
        run: a folder made by `fkge simulate`; only read.
        only: names of `SECTIONS`; all if empty.
        owner: the victim; the owner with the largest alignment if None.
        quick: fewer canaries, exchanges and attacks, no shadow models.
        seed: of everything the attackers draw.

    Returns:
        ``broken``, whether any claim is; ``sections``, by name what each found: ``claim``, ``verdict``, ``on``,
        ``result`` and its figures.
    """
    wanted = list(dict.fromkeys(only)) or list(SECTIONS)
    for name in wanted:
        if name not in SECTIONS:
            raise SettingsError(f"there is no audit {name!r}{did_you_mean(name, SECTIONS)}; there are {_list()}")
    found: dict[str, Any] = {}
    with (
        progress.task("audit", len(wanted), "attacks") as task,
        opened(run, owner, quick=quick, progress=progress, seed=seed) as subject,
    ):
        for name in (name for name in SECTIONS if name in wanted):
            task.advance(0, attack=name)
            started = time.monotonic()
            found[name] = SECTIONS[name](subject) | {"seconds": round(time.monotonic() - started, 2)}
            task.advance(1)
        about = {
            "run": str(run), "federation": subject.simulation.about["federation"], "owner": subject.owner,
            "peer": subject.peer, "privacy": subject.simulation.settings.privacy.model_dump(), "quick": quick,
        }  # fmt: skip
    return about | {"broken": any(f["verdict"] == BROKEN for f in found.values()), "sections": found}


def _list() -> str:
    return ", ".join(SECTIONS)
