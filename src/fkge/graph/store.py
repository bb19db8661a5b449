"""A graph in one safetensors file: no pickle, no text to parse, and damage is noticed.

Tensors::

    entities/text, relations/text, here/text, elsewhere/text     uint8: labels as UTF-8, end to end
    entities/ends, relations/ends, here/ends, elsewhere/ends     int64: where in it each label ends
    split/NAME                                                   (n, 3) int32

``here`` and ``elsewhere`` are the two sides of `Graph.same_as`. Name and notes are in the metadata, with a SHA-256 over
all the rest: safetensors itself notices a file cut short, but not a flipped bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fkge.errors import RunError
from fkge.files import write_atomically
from fkge.graph.graph import HEAD, RELATION, TAIL, Graph, Vocabulary

_FORMAT = "fkge.graph.1"
_SPLIT = "split/"


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write `graph` to the file `path`, in one step."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    _put(tensors, "entities", graph.entities)
    _put(tensors, "relations", graph.relations)
    _put(tensors, "here", (here for here, _ in graph.same_as))
    _put(tensors, "elsewhere", (elsewhere for _, elsewhere in graph.same_as))
    for name, triples in graph.splits.items():
        tensors[_SPLIT + name] = np.ascontiguousarray(triples, np.int32)
    about = json.dumps({"name": graph.name, "notes": graph.notes})
    metadata = {"format": _FORMAT, "about": about, "sha256": _digest(about, tensors)}
    write_atomically(Path(path), save(tensors, metadata))


def load_graph(path: str | Path) -> Graph:
    """Read a graph that `save_graph` wrote.

    Raises:
        RunError: the file is missing, is not such a file, or is damaged.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != _FORMAT:
                raise RunError(f"{path}: is not a graph that this version saved. Read its source again.")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        about = metadata["about"]
        if _digest(about, tensors) != metadata["sha256"]:
            raise ValueError("its checksum does not match")
        return _graph(tensors, **json.loads(about))
    except FileNotFoundError:
        raise RunError(f"{path}: there is no saved graph. Check the path.") from None
    except (SafetensorError, OSError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"{path}: the saved graph is damaged ({error}). Read its source again.") from None


def _graph(tensors: Mapping[str, npt.NDArray[Any]], name: str, notes: list[str]) -> Graph:
    entities = Vocabulary(_get(tensors, "entities"), "entity")
    relations = Vocabulary(_get(tensors, "relations"), "relation")
    limits = {HEAD: len(entities), RELATION: len(relations), TAIL: len(entities)}
    splits = {key.removeprefix(_SPLIT): value for key, value in tensors.items() if key.startswith(_SPLIT)}
    for key, triples in splits.items():
        for column, limit in limits.items():
            ids = triples[:, column]
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < limit:
                raise ValueError(f"split {key} holds ids out of range")
    same_as = tuple(zip(_get(tensors, "here"), _get(tensors, "elsewhere"), strict=True))
    ordered = {key: splits[key] for key in ("train", "valid", "test", *sorted(splits))}
    return Graph(entities, relations, ordered, same_as, name, tuple(notes))


def _put(tensors: dict[str, npt.NDArray[Any]], key: str, labels: Iterable[str]) -> None:
    encoded = [label.encode() for label in labels]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    tensors[f"{key}/text"] = np.frombuffer(b"".join(encoded), np.uint8)
    tensors[f"{key}/ends"] = ends


def _get(tensors: Mapping[str, npt.NDArray[Any]], key: str) -> tuple[str, ...]:
    text, ends = tensors[f"{key}/text"].tobytes(), tensors[f"{key}/ends"].tolist()
    starts = [0, *ends[:-1]] if ends else []
    if (ends[-1] if ends else 0) != len(text) or any(a > b for a, b in zip(starts, ends, strict=True)):
        raise ValueError(f"the ends of {key} do not fit their text")
    return tuple(text[start:end].decode() for start, end in zip(starts, ends, strict=True))


def _digest(about: str, tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256(about.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"\n{key} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
