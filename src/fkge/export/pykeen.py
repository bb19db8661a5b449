"""Export models to PyKEEN, with equal scores.

Scores are equal up to rounding (1e-5 relative); higher is better in both. For that the exported
models are PyKEEN's `ERModel` with an interaction, not its classes of the same names, whose defaults differ:

- norms are not squared, and the limit of TransR's projections is set out of reach;
- vectors that a model compares at unit length (TransH's normals; TransE's under ``normalize``, TransD's relations too)
  are exported at that length, relations of RotatE as e^{iθ};
- TransD's entities are multiplied by 2³⁰: PyKEEN cuts projections down to length 1 where we scale them to it, and so it
  always cuts;
- RotatE sums moduli, which is p = 1. PyKEEN's interaction accepts a p and ignores it; `fkge.export.moduli` uses it.

PyKEEN has no equivalent of TransH and TransR under ``normalize``: these are refused. So are reciprocal models: PyKEEN
keeps inverse relations too (``create_inverse_triples``), but scores a triple by its relation alone, and here its score
is the mean over both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fkge.embed import MODELS, Tables
from fkge.embed.reciprocal import Reciprocal
from fkge.errors import ExportError, RunError, need
from fkge.export.files import PLURAL, Array, arrays, folder_at, labels_json, save_arrays
from fkge.files import write_atomically
from fkge.graph import Graph
from fkge.progress import Progress

_FORMAT = "fkge.pykeen.1"
_OUT_OF_REACH = 1e30
_ALWAYS_CUT = 2.0**30


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _complex(re: Array, im: Array) -> Array:
    """Interleave real and imaginary parts, both (n, d), to (n, 2d), as PyKEEN stores complex numbers."""
    return np.stack([re, im], axis=-1).reshape(len(re), -1)


def _halves(rows: Array) -> Array:
    return _complex(*np.split(rows, 2, axis=1))


def _as_pykeen(tables: Tables) -> tuple[str, dict[str, float | str], list[Array], list[Array]]:
    """Return the name of PyKEEN's interaction, its arguments, and the representations of entities and relations."""
    model, own = tables.model, arrays(tables)
    entity, relation = own["entity"], own["relation"]
    norm: dict[str, float | str] = {"p": model.norm, "power_norm": False}
    if isinstance(model, Reciprocal):
        raise ExportError(
            f"reciprocal: {model.name}'s score is the mean over a relation and its inverse, and PyKEEN's is of one of "
            "them; export to safetensors, numpy or parquet, which have both, or train with reciprocal=false"
        )
    if type(model) is not MODELS.get(model.name):
        raise ExportError(f"{type(model).__name__}: PyKEEN has no equivalent of it; export to safetensors instead")
    if model.name in ("TransH", "TransR") and model.normalize:
        raise ExportError(f"{model.name} with normalize scales projections to unit length; no model of PyKEEN does")
    if model.normalize and model.name in ("TransE", "TransD"):
        relation = _unit(relation)
    match model.name:
        case "TransE":
            return "TransE", norm, [_unit(entity) if model.normalize else entity], [relation]
        case "TransH":
            return "TransH", norm, [entity], [_unit(own["normal"]), relation]
        case "TransR":
            return "TransR", norm | {"max_projection_norm": _OUT_OF_REACH}, [entity], [relation, own["matrix"]]
        case "TransD":
            scaled = entity * np.float32(_ALWAYS_CUT)
            return "TransD", norm, [scaled, own["entity_transfer"]], [relation, own["relation_transfer"]]
        case "DistMult":
            return "DistMult", {}, [entity], [relation]
        case "ComplEx":
            return "ComplEx", {}, [_halves(entity)], [_halves(relation)]
        case "RotatE":
            angles = relation.astype(np.float64)
            phases = _complex(np.cos(angles), np.sin(angles))
            return "RotatE", {"p": 1, "power_norm": False}, [_halves(entity)], [phases]
    raise ExportError(f"{model.name}: PyKEEN has no equivalent of it; export to safetensors instead")


def write_pykeen(tables: Tables, graph: Graph, to: Path, progress: Progress) -> None:
    """Write a folder that `load_pykeen` opens.

    Args:
        tables, graph, to, progress: see `fkge.export.FORMATS`.

    Raises:
        ExportError: PyKEEN has no equivalent of the model.
    """
    interaction, arguments, entities, relations = _as_pykeen(tables)
    is_complex = interaction in ("ComplEx", "RotatE")
    state: dict[str, Array] = {}
    shapes: dict[str, list[list[int]]] = {}
    for kind, representations in (("entity", entities), ("relation", relations)):
        for i, rows in enumerate(representations):
            state[f"{kind}_representations.{i}._embeddings.weight"] = rows.astype(np.float32)
        shapes[kind] = [[rows.shape[1] // (2 if is_complex else 1)] for rows in representations]
    if interaction == "TransR":
        shapes["relation"][1] = [tables.model.dim, tables.model.relation_dim]
    about = {
        "format": _FORMAT, "class": "pykeen.models.ERModel", "interaction": interaction,
        "interaction_kwargs": arguments, "complex": is_complex, "entity_shapes": shapes["entity"],
        "relation_shapes": shapes["relation"], **labels_json(graph),
    }  # fmt: skip
    folder = folder_at(to)
    save_arrays(state, folder / "model.safetensors", {"format": _FORMAT})
    write_atomically(folder / "model.json", json.dumps(about, ensure_ascii=False).encode())


def load_pykeen(folder: Path) -> tuple[Any, Any]:
    """Load an export as a PyKEEN model and a `TriplesFactory` of its labels, without triples.

    Raises:
        RunError: the folder holds no such export.
    """
    need("pykeen", "pykeen", "opening a PyKEEN model")
    import torch
    from pykeen.models import ERModel
    from pykeen.triples import TriplesFactory
    from safetensors.torch import load_file

    try:
        about = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{folder}: holds no model exported for PyKEEN ({error})") from None
    if about.get("format") != _FORMAT:
        raise RunError(f"{folder}: model.json says {about.get('format')!r}, not {_FORMAT}; export it again")
    ids = [{label: i for i, label in enumerate(about[plural])} for plural in PLURAL.values()]
    factory = TriplesFactory(torch.empty(0, 3, dtype=torch.long), entity_to_id=ids[0], relation_to_id=ids[1])
    kinds = {"dtype": torch.cfloat} if about["complex"] else {}
    interaction = about["interaction"]
    if interaction == "RotatE":
        from fkge.export.moduli import Moduli as interaction
    rows: dict[str, Any] = {
        f"{kind}_representations_kwargs": [{"shape": tuple(shape), **kinds} for shape in about[f"{kind}_shapes"]]
        for kind in PLURAL
    }
    given = about["interaction_kwargs"]
    model = ERModel(triples_factory=factory, interaction=interaction, interaction_kwargs=given, random_seed=0, **rows)
    model.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return model.eval(), factory
