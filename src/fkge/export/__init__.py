"""Vectors for other programs: what a run, or an owner of a simulation, has learned, in files that they open.

    safetensors   TO, tables as tensors ``entity``, ``relation`` …; TO.labels.json, the labels of their rows
    numpy         TO, an .npz with the same arrays, and ``entities`` and ``relations``, labels as fixed-width unicode
    parquet       TO/entity.parquet and TO/relation.parquet: ``label``, ``kind``, ``vector`` and, where a model has
                  more tables, a column for each; all of them fixed-size lists
    word2vec      TO, word2vec's text format, for gensim: entities only, labels escaped (`escape`, `unescape`)
    pykeen        TO/model.json and TO/model.safetensors, which `load_pykeen` makes a PyKEEN model of that scores alike

Row i belongs to label i. Rows of ComplEx and RotatE are all real parts, then all imaginary ones; a relation of RotatE
is its phases, a ``matrix`` of TransR is flattened by rows (but for PyKEEN: see `fkge.export.pykeen`). An export holds
vectors and labels and no triples; but a model tells of what it was trained on, and no ledger knows of an export: hand
it only to whom you would hand the model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fkge.embed import Tables
from fkge.errors import RunError, SettingsError, UnknownLabelError, did_you_mean
from fkge.export.files import (
    Kind,
    frame_of,
    write_numpy,
    write_parquet,
    write_safetensors,
    write_word2vec,
)
from fkge.export.files import escape as escape
from fkge.export.files import labels_of as labels_of
from fkge.export.files import unescape as unescape
from fkge.export.pykeen import load_pykeen as load_pykeen
from fkge.export.pykeen import write_pykeen
from fkge.graph import Graph
from fkge.runs import Run
from fkge.trace import SILENT, Progress, read_json

if TYPE_CHECKING:
    import pandas as pd


FORMATS: dict[str, Callable[[Tables, Graph, Path, Progress], None]] = {
    "safetensors": write_safetensors,
    "numpy": write_numpy,
    "parquet": write_parquet,
    "word2vec": write_word2vec,
    "pykeen": write_pykeen,
}
"""What writes each format: a file of tensors by name with labels beside it; arrays and labels in one file; a folder of
two tables; text of the entities, as gensim reads it; a folder that `load_pykeen` makes a model of."""


def export(
    run: Path,
    to: Path,
    format: str,
    *,
    owner: str | None = None,
    arm: str = "federated",
    progress: Progress = SILENT,
) -> Path:
    """Write the best vectors of a run, or of an owner in an arm of a simulation, to `to`. Returns `to`.

    A file that is there already is replaced, in one step.
    """
    if format not in FORMATS:
        raise SettingsError(
            f"there is no format {format!r}{did_you_mean(format, FORMATS)}; there are {', '.join(FORMATS)}"
        )
    opened = Run.open(locate(Path(run), owner, arm))
    to = Path(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    FORMATS[format](opened.load("cpu"), opened.graph, to, progress)
    return to


def locate(run: Path, owner: str | None = None, arm: str = "federated") -> Path:
    """The folder with the vectors: `run` itself, or that of an owner in an arm of a simulation."""
    if not (run / "simulation.json").exists():
        if owner is not None:
            raise RunError(f"{run}: is no simulation and has no owners; leave {owner!r} out")
        return run
    about = read_json(run / "simulation.json", "Put it back from a copy.")
    owners = about["owners"]
    if owner is None:
        raise RunError(f"{run}: is a simulation; whose vectors? It has {', '.join(owners)}")
    for kind, name, known in (("owner", owner, owners), ("arm", arm, about["arms"])):
        if name not in known:
            raise UnknownLabelError(kind, name, known)
    folder = run / "arms" / arm / owner
    if not (folder / "model.safetensors").exists():
        if (run / "results.json").exists():
            raise RunError(f"{folder}: is gone from a finished simulation; put it back from a copy, or run it anew")
        raise RunError(f"{run}: {owner} has not finished {arm}. Go on with it: fkge simulate --resume {run}")
    return folder


def frame(run: Path, kind: Kind = "entity", *, owner: str | None = None, arm: str = "federated") -> pd.DataFrame:
    """The vectors of a run's entities or relations as a pandas DataFrame: labels are its index."""
    opened = Run.open(locate(Path(run), owner, arm))
    return frame_of(opened.load("cpu"), opened.graph, kind)
