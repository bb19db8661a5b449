"""Which kind of folder a command was given, and what to say if it is not the kind it needs.

`fkge train` makes runs of one model; `fkge simulate` makes simulations, in which each owner's model lies in
``arms/ARM/OWNER``.
"""

from __future__ import annotations

from pathlib import Path

from fkge.cli.options import about
from fkge.errors import RunError


def needs_run(folder: Path, command: str) -> Path:
    """`folder`, unless it is a simulation, or a part of one that holds no model."""
    if (folder / "simulation.json").exists():
        owners = about(folder).get("owners", ["OWNER"])
        raise RunError(
            f"{folder}: is a simulation; name the model of one of its owners ({', '.join(owners)}): "
            f"{command} {folder / 'arms' / 'federated' / owners[0]}"
        )
    if folder.parent.name == "owners" and (folder.parents[1] / "simulation.json").exists():
        model = folder.parents[1] / "arms" / "federated" / folder.name
        raise RunError(f"{folder}: is an owner's home; its model is in {model}")
    if (whole := _part_of(folder)) is not None and not (folder / "settings.toml").exists():
        names = {key: ", ".join(about(whole).get(key, ())) for key in ("arms", "owners")}
        raise RunError(
            f"{folder}: holds no model (yet); there may be {whole / 'arms' / 'ARM' / 'OWNER'}, with ARM one of "
            f"{names['arms']} and OWNER one of {names['owners']}"
        )
    if (folder / "settings.toml").exists() and whole is None and not any(folder.glob("*.safetensors")):
        raise RunError(f"{folder}: holds settings, but no run; name the folder after --out of what was run")
    return folder


def needs_simulation(folder: Path) -> Path:
    """`folder`, unless it is a run of one model or a part of a simulation."""
    if (folder / "simulation.json").exists():
        return needs_sound(folder)
    needs_whole(folder)
    if (folder / "settings.toml").exists() and (folder / "graph.safetensors").exists():
        raise RunError(
            f"{folder}: is a run of `fkge train`, not a simulation; fkge evaluate, predict and neighbors look at it"
        )
    missing = "" if folder.exists() else " (there is no such folder)"
    raise RunError(f"{folder}: holds no simulation{missing}. Make one: fkge simulate FEDERATION --out {folder}")


def needs_sound(folder: Path) -> Path:
    """`folder`, unless it is a simulation whose description is damaged."""
    if (folder / "simulation.json").exists():
        from fkge.simulations import Simulation

        Simulation.open(folder)
    return folder


def needs_whole(folder: Path) -> Path:
    """`folder`, unless it is a part of a simulation."""
    if (whole := _part_of(folder)) is not None:
        raise RunError(f"{folder}: is a part of a simulation; name the whole: {whole}")
    return folder


def _part_of(folder: Path) -> Path | None:
    """The simulation that a folder lies in."""
    return next((parent for parent in folder.parents[:3] if (parent / "simulation.json").exists()), None)
