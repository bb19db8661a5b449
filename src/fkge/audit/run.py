"""Run attacks on a finished simulation."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from fkge.audit import attack_names
from fkge.audit.findings import AuditReport, Finding
from fkge.audit.subject import Subject, opened
from fkge.errors import SettingsError, did_you_mean
from fkge.progress import SILENT, Progress


class AttackModule(Protocol):
    """A module of `fkge.audit.attacks`."""

    def attack(self, subject: Subject) -> Finding:
        """Attack `subject.victim`, as `subject.peer` could, and return what was found and whether the claim holds."""


def audit(
    run: Path, *, only: Iterable[str] = (), owner: str | None = None, quick: bool = False, progress: Progress = SILENT
) -> AuditReport:
    """Attack a copy of a finished simulation.

    Args:
        run: a folder made by `fkge simulate`; only read.
        only: names of attacks; all if empty.
        owner: the owner to attack; the one with the largest alignment if None.
        quick: fewer canaries, exchanges and attacks, no shadow models.
        progress: where to report progress.

    Raises:
        SettingsError: there is no attack of that name.
        RunError: `run` holds no simulation, or one that is not finished.
    """
    names = attack_names()
    wanted = set(only) or set(names)
    for name in wanted.difference(names):
        raise SettingsError(f"there is no attack {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}")
    found: dict[str, Finding] = {}
    with (
        progress.task("audit", len(wanted), "attacks") as task,
        opened(run, owner, quick=quick, progress=progress) as subject,
    ):
        for name in (name for name in names if name in wanted):
            task.advance(0, attack=name)
            started = time.monotonic()
            module = cast(AttackModule, import_module(f"fkge.audit.attacks.{name.replace('-', '_')}"))
            found[name] = replace(module.attack(subject), seconds=round(time.monotonic() - started, 2))
            task.advance(1)
        simulation = subject.simulation
        return AuditReport(
            str(run), simulation.spec.federation, subject.owner, subject.peer,
            simulation.settings.privacy.model_dump(), quick, found,
        )  # fmt: skip
