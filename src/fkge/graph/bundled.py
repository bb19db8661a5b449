"""The data sets that lie in the PyKEEN package, read as files: PyKEEN is not imported, nothing is fetched."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fkge.errors import GraphError, did_you_mean

PREFIX = "pykeen:"


def bundled_folder(address: str) -> Path:
    """Return the folder with the files of ``pykeen:NAME``.

    Only data sets whose files ship with the package count; PyKEEN would download all others, which
    reading a graph must never do.

    Raises:
        GraphError: PyKEEN is not installed, or bundles no such data set.
    """
    spec = importlib.util.find_spec("pykeen")
    if spec is None or not spec.submodule_search_locations:
        problem = "PyKEEN is not installed"
        raise GraphError(address, problem, "Run: pip install 'fkge[pykeen]'.")
    root = Path(spec.submodule_search_locations[0]) / "datasets"
    bundled = {file.parent.name: file.parent for file in sorted(root.glob("*/train.txt"))}
    name = address.removeprefix(PREFIX).strip().lower()
    if name not in bundled:
        problem = f"PyKEEN bundles no data set {name!r}{did_you_mean(name, bundled).rstrip('?')}"
        advice = f"Bundled are {', '.join(bundled)}; save any other as TSV files and read their folder."
        raise GraphError(address, problem, advice)
    return bundled[name]
