"""Checks that a folder is of the kind a command needs, with errors that name the right one.

`fkge train` makes runs of one model; `fkge simulate` makes simulations, in which each owner's model is in
``arms/ARM/OWNER``.
"""

from __future__ import annotations

from pathlib import Path

from fkge.errors import RunError
from fkge.experiment.results import Specification


def require_run(folder: Path, command: str) -> Path:
    """Return `folder`, which must hold one model; `command` is the command line before it, for the advice.

    Raises:
        RunError: it is a simulation, or a part of one that holds no model, or holds settings only.
    """
    if (folder / "simulation.json").exists():
        owners = Specification.load(folder).owners
        raise RunError(
            f"{folder}: is a simulation; name the model of one of its owners ({', '.join(owners)}): "
            f"{command} {folder / 'arms' / 'federated' / owners[0]}"
        )
    if folder.parent.name == "owners" and (folder.parents[1] / "simulation.json").exists():
        model = folder.parents[1] / "arms" / "federated" / folder.name
        raise RunError(f"{folder}: holds an owner's data; its model is in {model}")
    simulation = _simulation_around(folder)
    if simulation is not None and not (folder / "settings.toml").exists():
        spec = Specification.load(simulation)
        raise RunError(
            f"{folder}: holds no model (yet); models are in {simulation / 'arms' / 'ARM' / 'OWNER'}, with ARM one of "
            f"{', '.join(spec.arms)} and OWNER one of {', '.join(spec.owners)}"
        )
    if (folder / "settings.toml").exists() and simulation is None and not any(folder.glob("*.safetensors")):
        raise RunError(f"{folder}: holds settings, but no run; name the folder that was given to --out")
    return folder


def require_simulation(folder: Path) -> Path:
    """Return `folder`, which must hold a simulation.

    Raises:
        RunError: it does not, or its simulation.json is damaged.
    """
    if (folder / "simulation.json").exists():
        Specification.load(folder)
        return folder
    require_whole(folder)
    if (folder / "settings.toml").exists() and (folder / "graph.safetensors").exists():
        raise RunError(
            f"{folder}: is a run of `fkge train`, not a simulation; use fkge evaluate, predict or neighbors with it"
        )
    missing = "" if folder.exists() else " (there is no such folder)"
    raise RunError(f"{folder}: holds no simulation{missing}. Make one: fkge simulate FEDERATION --out {folder}")


def require_whole(folder: Path) -> Path:
    """Return `folder`; raise a RunError if it is a part of a simulation."""
    if (simulation := _simulation_around(folder)) is not None:
        raise RunError(f"{folder}: is a part of a simulation; name the whole: {simulation}")
    return folder


def _simulation_around(folder: Path) -> Path | None:
    return next((parent for parent in folder.parents[:3] if (parent / "simulation.json").exists()), None)
