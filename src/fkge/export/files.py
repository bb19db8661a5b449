"""Write tables of vectors as safetensors, NumPy, Parquet and word2vec text; make pandas frames of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from fkge import files
from fkge.embed import Tables
from fkge.errors import ExportError, SettingsError, did_you_mean, need
from fkge.files import write_atomically
from fkge.graph import Graph
from fkge.progress import Progress

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["entity", "relation"]
Array = npt.NDArray[Any]

PLURAL: dict[Kind, str] = {"entity": "entities", "relation": "relations"}
_ROWS = 4096
LARGEST = 1 << 32


def arrays(tables: Tables) -> dict[str, Array]:
    """Return all tables of a model by name, each (rows, width) float32."""
    return {name: tables[name].numpy(force=True) for kind in PLURAL for name in tables.names(kind)}


def vectors_of(tables: Tables, kind: Kind) -> Array:
    """Return the vectors of entities or relations as peers exchange them, (rows, width); see `Tables.read`."""
    return np.asarray(tables.vectors(kind).numpy(force=True))


def frame_of(tables: Tables, graph: Graph, kind: Kind = "entity") -> pd.DataFrame:
    """Return the vectors of entities or relations as a pandas DataFrame, (rows, width), indexed by label.

    Args:
        tables, graph: the model, and the graph with its labels.
        kind: entities or relations.
    """
    pandas = need("pandas", "pandas", "a DataFrame")
    labels = labels_of(graph, kind)
    return pandas.DataFrame(vectors_of(tables, kind), index=pandas.Index(labels, name=kind))


def labels_of(graph: Graph, kind: Kind) -> list[str]:
    """Return labels of entities or relations, in the order of their rows; raise `SettingsError` for another `kind`."""
    if kind not in PLURAL:
        raise SettingsError(f"there are entity and relation vectors, not {kind!r}{did_you_mean(kind, PLURAL)}")
    return list(graph.entities if kind == "entity" else graph.relations)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` on success; refuse a folder in its place (`ExportError`)."""
    if path.is_dir():
        raise ExportError(f"{path}: is a folder; this format is one file, so name one")
    with files.replacing(path) as temporary:
        yield temporary


def folder_at(path: Path) -> Path:
    """Create the folder `path` if it does not exist.

    Raises:
        ExportError: there is a file in its place.
    """
    if path.exists() and not path.is_dir():
        raise ExportError(f"{path}: is a file; this format is a folder of files, so name one")
    path.mkdir(exist_ok=True)
    return path


def labels_json(graph: Graph) -> dict[str, list[str]]:
    return {plural: labels_of(graph, kind) for kind, plural in PLURAL.items()}


def save_arrays(tensors: Mapping[str, Array], path: Path, about: Mapping[str, str]) -> None:
    """Write arrays to a safetensors file.

    Args:
        tensors: by name; path: the file, replaced in one step.
        about: metadata.
    """
    from safetensors.numpy import save_file

    metadata = {"fkge": json.dumps(about, sort_keys=True)}
    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, temporary, metadata)


def write_safetensors(tables: Tables, graph: Graph, to: Path, progress: Progress) -> None:
    """Write all tables as tensors, and labels to a JSON file of a similar name.

    Args:
        tables, graph, to, progress: see `fkge.export.FORMATS`.
    """
    labels = json.dumps(labels_json(graph), ensure_ascii=False)
    write_atomically(to.with_name(to.name + ".labels.json"), labels.encode())
    save_arrays(arrays(tables), to, {"format": "fkge.vectors.1", "model": tables.model.name})


def write_numpy(tables: Tables, graph: Graph, to: Path, progress: Progress) -> None:
    """Write all tables and labels as arrays of one ``.npz`` file.

    Args:
        tables, graph, to, progress: see `fkge.export.FORMATS`.

    Raises:
        ExportError: NumPy's fixed-width strings cannot hold the labels.
    """
    named: dict[str, Array] = {}
    for kind, plural in PLURAL.items():
        labels = labels_of(graph, kind)
        longest = max(map(len, labels), default=0)
        if 4 * longest * len(labels) > LARGEST:
            raise ExportError(
                f"{plural}: the longest label has {longest:,} characters, and an array of labels gives each as many "
                f"({4 * longest * len(labels) / 1e9:.0f} GB); export to safetensors or parquet instead"
            )
        named[plural] = np.array(labels, np.str_)
        if named[plural].tolist() != labels:
            raise ExportError(f"{plural}: a label ends in NUL, which an array drops; export to parquet instead")
    with replacing(to) as temporary, temporary.open("wb") as f:
        np.savez(f, **{**arrays(tables), **named})  # type: ignore[arg-type]


def write_parquet(tables: Tables, graph: Graph, to: Path, progress: Progress) -> None:
    """Write a folder with a Parquet file of entities and one of relations.

    Args:
        tables, graph, to, progress: see `fkge.export.FORMATS`.
    """
    pa = need("pyarrow", "export", "Parquet")
    parquet = need("pyarrow.parquet", "export", "Parquet")
    folder = folder_at(to)
    for kind in PLURAL:
        labels = labels_of(graph, kind)
        columns = {"label": pa.array(labels, pa.string()), "kind": pa.array([kind] * len(labels), pa.string())}
        for name in tables.names(kind):
            rows = tables[name].numpy(force=True)
            flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
            columns["vector" if name == kind else name] = pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])
        with replacing(folder / f"{kind}.parquet") as temporary:
            parquet.write_table(pa.table(columns, metadata={"model": tables.model.name}), temporary)


_UNSAFE = re.compile(r"[\s%]")


def escape(label: str) -> str:
    """Escape a label as one word of a word2vec file: white space and ``%`` are percent-encoded, as in a URL.

    gensim ends a word at the first space and strips white space from lines; other labels are unchanged.
    """
    return _UNSAFE.sub(lambda found: quote(found[0], safe=""), label)


def unescape(word: str) -> str:
    """Undo `escape`."""
    return unquote(word, errors="strict")


def write_word2vec(tables: Tables, graph: Graph, to: Path, progress: Progress) -> None:
    """Write vectors of entities as word2vec text.

    Args:
        tables, graph, to, progress: see `fkge.export.FORMATS`.
    """
    rows, labels = tables["entity"].numpy(force=True), labels_of(graph, "entity")
    with (
        progress.task(f"writing {to.name}", len(labels), "entities") as task,
        replacing(to) as temporary,
        temporary.open("w", encoding="utf-8", newline="\n") as f,
    ):
        f.write(f"{len(labels)} {rows.shape[1]}\n")
        for start in range(0, len(labels), _ROWS):
            part = rows[start : start + _ROWS].tolist()
            for label, row in zip(labels[start : start + _ROWS], part, strict=True):
                f.write(f"{escape(label)} {' '.join(f'{x:.9g}' for x in row)}\n")  # nine digits restore every float32
            task.advance(len(part))
