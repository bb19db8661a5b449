"""Export the vectors of a run, or of an owner of a simulation, to files for other programs.

docs/reference/files.md lists the formats and their files. Row i belongs to label i, that of ``inverse`` to the inverse
of relation i. Rows of ComplEx and RotatE are all real parts, then all imaginary ones; a relation of RotatE is its
phases, a ``matrix`` of TransR is flattened by rows (but for PyKEEN: see `fkge.export.pykeen`). An export holds vectors
and labels but no triples. Vectors still reveal what they were trained on, and no ledger accounts for an export: give it
only to those to whom you would give the model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fkge.embed import Tables
from fkge.errors import RunError, SettingsError, UnknownLabelError, did_you_mean
from fkge.experiment.results import FILE, SPECIFICATION, Specification
from fkge.experiment.training_run import Run
from fkge.export.files import escape as escape
from fkge.export.files import labels_of as labels_of
from fkge.export.files import unescape as unescape
from fkge.export.files import write_numpy, write_parquet, write_safetensors, write_word2vec
from fkge.export.pykeen import load_pykeen as load_pykeen
from fkge.export.pykeen import write_pykeen
from fkge.graph import Graph
from fkge.progress import SILENT, Progress

FORMATS: dict[str, Callable[[Tables, Graph, Path, Progress], None]] = {
    "safetensors": write_safetensors,
    "numpy": write_numpy,
    "parquet": write_parquet,
    "word2vec": write_word2vec,
    "pykeen": write_pykeen,
}
"""The writer of each format: called with tables, their graph, the path to write, and where to report progress."""


def export(
    run: Path, to: Path, format: str, *, owner: str | None = None, arm: str = "federated", progress: Progress = SILENT
) -> Path:
    """Write the best vectors of a run, or of an owner in an arm of a simulation.

    Args:
        run: a folder of `fkge train` or `fkge simulate`.
        to: the file or folder to write, depending on the format; existing files are replaced in one step.
        format: a key of `FORMATS`.
        owner, arm: whose vectors, of which arm, in a simulation.
        progress: receives the progress.

    Returns:
        `to`.

    Raises:
        SettingsError: there is no such format.
        RunError: there are no such vectors.
        ExportError: the format cannot hold them.
    """
    if format not in FORMATS:
        known = ", ".join(FORMATS)
        raise SettingsError(f"there is no format {format!r}{did_you_mean(format, FORMATS)}; there are {known}")
    opened = Run.open(locate(Path(run), owner, arm))
    to = Path(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[format](opened.load("cpu"), opened.graph, to, progress)
    return to


def locate(run: Path, owner: str | None = None, arm: str = "federated") -> Path:
    """Return the folder with the vectors: `run` itself, or that of an owner in an arm of a simulation.

    Args:
        run: a folder of `fkge train` or `fkge simulate`.
        owner, arm: whose vectors, of which arm, in a simulation.

    Raises:
        RunError: there is none, or it has not been written yet.
        UnknownLabelError: the simulation has no such owner or arm.
    """
    if not (run / SPECIFICATION).exists():
        if owner is not None:
            raise RunError(f"{run}: is no simulation and has no owners; leave {owner!r} out")
        return run
    spec = Specification.load(run)
    if owner is None:
        raise RunError(f"{run}: is a simulation; name one of its owners: {', '.join(spec.owners)}")
    for kind, name, known in (("owner", owner, spec.owners), ("arm", arm, spec.arms)):
        if name not in known:
            raise UnknownLabelError(kind, name, known)
    folder = run / "arms" / arm / owner
    if not (folder / "model.safetensors").exists():
        if (run / FILE).exists():
            raise RunError(f"{folder}: is missing from a finished simulation; put it back from a copy, or run it again")
        raise RunError(f"{run}: {owner} has not finished {arm}. Resume it: fkge simulate --resume {run}")
    return folder
