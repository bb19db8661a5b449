"""Tables on disk: safetensors, written in one step, checked when read.

A file cut short, of another program, or of another model is refused with one sentence; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fkge.embed.tables import Tables
from fkge.embed.trainer import Trainer, make_tables
from fkge.errors import FkgeError, RunError
from fkge.files import JsonObject, replacing
from fkge.settings import TrainSettings

_MODEL, _CHECKPOINT = "fkge.model.1", "fkge.checkpoint.1"
_DIGEST = "digest"


def save_model(path: Path, tables: Tables, settings: TrainSettings) -> None:
    """Write the tables, with all that is needed to make them again.

    Args:
        path: the file.
        tables: what is written; no optimiser state.
        settings: how they were trained.
    """
    save_tensors(path, _MODEL, tables.export(state=False), {"settings": settings.model_dump()})


def load_model(path: Path, device: str = "auto") -> tuple[Tables, TrainSettings]:
    """Return tables and settings from `save_model`.

    Raises:
        RunError: the file is missing, damaged, or of another kind.
    """
    tensors, about = load_tensors(path, _MODEL)
    try:
        settings = TrainSettings.build({**about["settings"], "device": device}, str(path))
        entities, relations = len(tensors["entity/entity"]), len(tensors["relation/relation"])
        tables = make_tables(settings, entities, relations, tensors["entity/entity"].dtype)
        tables.load(tensors)
    except KeyError as error:
        raise RunError(f"{path}: lacks {error}; it was not written by this version of fkge") from None
    return tables, settings


def save_checkpoint(path: Path, trainer: Trainer, about: JsonObject) -> None:
    """Write the whole state of a training.

    Args:
        path: the file.
        trainer: its position, tables and optimiser state are written.
        about: JSON-able values of the caller, which `load_checkpoint` returns.
    """
    state = {"trainer": trainer.position(), "about": about}
    save_tensors(path, _CHECKPOINT, trainer.tables.export(state=True), state)


def load_checkpoint(path: Path, trainer: Trainer) -> JsonObject:
    """Put `trainer` where `save_checkpoint` found it; return its `about`.

    Raises:
        RunError: the file is missing, damaged, or of another run.
    """
    tensors, state = load_tensors(path, _CHECKPOINT)
    try:
        trainer.tables.load(tensors)
        trainer.move_to(state["trainer"])
        about: JsonObject = state["about"]
    except (KeyError, FkgeError) as error:
        raise RunError(f"{path}: does not fit this run: {error}") from None
    return about


def save_tensors(path: Path, kind: str, tensors: Mapping[str, Tensor], state: JsonObject, digest: bool = False) -> None:
    """Write named tensors and a JSON-able state as one file of this `kind`, in one step.

    Args:
        path: the file.
        kind: identifier of the format.
        tensors: by name.
        state: kept in the metadata as JSON.
        digest: so that a file damaged later shows when it is read, not just one that was cut short.
    """
    if digest:
        state = {**state, _DIGEST: _digest(tensors, state)}
    # One string, with sorted keys: safetensors orders metadata at random, and files should repeat to the bit.
    metadata = {"fkge": json.dumps({"format": kind, **state}, sort_keys=True)}
    with replacing(path) as temporary:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, temporary, metadata)


def load_tensors(path: Path, kind: str) -> tuple[dict[str, Tensor], JsonObject]:
    """Return the tensors and the state that `save_tensors` wrote.

    Raises:
        RunError: the file is missing, damaged or of another kind.
    """
    try:
        with safe_open(path, framework="pt") as f:
            state = json.loads((f.metadata() or {}).get("fkge", "{}"))
            if state.get("format") != kind:
                raise RunError(f"{path}: is no {kind} file (its format is {state.get('format')!r})")
            tensors = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
            expected = state.pop(_DIGEST, None)
            if expected not in (None, _digest(tensors, {k: v for k, v in state.items() if k != "format"})):
                raise RunError(f"{path}: is damaged: its content does not fit its digest")
            return tensors, state
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path}: is damaged or no safetensors file ({error})") from None


def _digest(tensors: Mapping[str, Tensor], state: JsonObject) -> str:
    """BLAKE2b over state and tensors."""
    digest = hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
