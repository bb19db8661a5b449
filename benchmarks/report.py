"""Collect the figures of all sections: tables on stdout, progress on stderr, figures for the JSON file."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_PACKAGES = ("fkge", "torch", "numba", "numpy", "pykeen", "torch-geometric", "pyoxigraph")


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes:
        quick: small sizes, to check that everything runs; the figures are meaningless.
        fb: folder of FB15k-237.
        load_triples: size of the file to load.
        work: folder for data and compiled kernels, emptied at the end.
        graphs: what to train on, of fb and geo.
    """

    quick: bool
    fb: Path
    load_triples: int
    work: Path
    graphs: tuple[str, ...] = ("fb", "geo")

    @property
    def environment(self) -> dict[str, str]:
        """Environment of child processes: compiled kernels are kept for this run only, so the first use compiles."""
        return {} if self.quick else {"NUMBA_CACHE_DIR": str(self.work / "numba")}


@dataclass
class Report:
    """Collect figures and print them."""

    figures: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.out = Console()
        if not self.out.is_terminal:
            self.out = Console(width=140)
        self._err = Console(stderr=True, highlight=False)

    def progress(self, text: str) -> None:
        self._err.print(text, style="dim", soft_wrap=True)

    def note(self, text: str) -> None:
        self.out.print(text, highlight=False, markup=False)

    def table(self, title: str, columns: list[str], rows: list[list[str]], caption: str) -> None:
        """Print a table; every column but the first is right-aligned."""
        self.out.print(title, style="bold", highlight=False)
        table = Table()
        for i, column in enumerate(columns):
            table.add_column(column, justify="right" if i else "left")
        for row in rows:
            table.add_row(*row)
        self.out.print(table)
        self.note(f"{caption}\n")


def failure(result: dict[str, Any]) -> str | None:
    """What to print in place of figures if there are none."""
    if "missing" in result:
        return f"not installed ({result['missing']})"
    return str(result["error"]) if "error" in result else None


def machine() -> dict[str, Any]:
    """Describe the machine: processor, cores, load and versions."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
