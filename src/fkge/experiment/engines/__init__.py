"""Engines run the owners of an experiment: `processes` (the default), `in_process` and `ray` (a virtual clock) and
`nodes` (real peers). Every engine does the same with the same stores and arms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from fkge.errors import SettingsError, did_you_mean, need
from fkge.experiment.engines.base import Engine as Engine
from fkge.experiment.engines.in_process import InProcess as InProcess
from fkge.experiment.engines.in_process import Pace as Pace
from fkge.experiment.engines.processes import Processes as Processes
from fkge.experiment.owners import SimulatedOwner
from fkge.owner_events import Emit

EngineOptions = Mapping[str, object]
"""Options of an engine by name; see `OPTIONS`."""


def _ray(stores: Sequence[SimulatedOwner], emit: Emit, **options: Any) -> Engine:
    check_engine("ray")
    from fkge.experiment.engines.ray_actors import RayActors  # needs an extra that others do without

    return RayActors(stores, emit, **options)


def _nodes(stores: Sequence[SimulatedOwner], emit: Emit, **options: Any) -> Engine:
    check_engine("nodes")
    from fkge.experiment.engines.nodes import Nodes  # needs an extra that others do without

    return Nodes(stores, emit, **options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "in-process": InProcess,
    "processes": Processes,
    "ray": _ray,
    "nodes": _nodes,
}
"""``ENGINES[name](stores, emit)``, or with ``recordings=FOLDER`` to record all messages."""

OPTIONS: dict[str, frozenset[str]] = {"ray": frozenset({"address", "cpus", "gpus"})}
"""Further options of engines, by keyword."""

_LIBRARIES = {"ray": [("ray", "ray")], "nodes": [("grpc", "node"), ("cryptography", "node")]}
"""Modules that engines need, each with the extra that installs it."""


def check_engine(name: str, options: Sequence[str] = ()) -> None:
    """Check that an engine exists, is installed and has these options.

    Raises:
        SettingsError: it does not exist, or has no such option.
    """
    if name not in ENGINES:
        raise SettingsError(f"there is no engine {name!r}{did_you_mean(name, ENGINES)}")
    for option in options:
        if option not in OPTIONS.get(name, ()):
            owners = [engine for engine, own in OPTIONS.items() if option in own]
            only = f"; it belongs to --engine {', '.join(owners)}" if owners else ""
            raise SettingsError(f"the engine {name!r} has no option {option!r}{only}")
    for module, extra in _LIBRARIES.get(name, ()):
        if find_spec(module) is None:
            need(module, extra, f"--engine {name}")
