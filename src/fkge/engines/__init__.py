"""Where owners run. Every engine does the same with the same homes and arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from fkge.engines.central import run_central as run_central
from fkge.engines.in_process import InProcess as InProcess
from fkge.engines.in_process import Pace as Pace
from fkge.engines.nodes import Nodes as Nodes
from fkge.engines.processes import Processes as Processes
from fkge.engines.station import Note as Note
from fkge.engines.station import Station as Station
from fkge.engines.tape import Replay as Replay
from fkge.engines.tape import Tape as Tape
from fkge.engines.tape import replay as replay
from fkge.errors import SettingsError, did_you_mean, need
from fkge.federation.home import Arm, Home


class Engine(Protocol):
    """What an engine is. A context manager: owners live within it."""

    def __enter__(self) -> Engine: ...
    def __exit__(self, *exc: object) -> None: ...

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early; `run` again takes it up."""

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could, as ``run(arm, homes, note)``; what `stop` cuts short begins anew next time."""


def _ray(homes: Sequence[Home], note: Note, *args: Any, **options: Any) -> Engine:
    """The engine on Ray, which nobody needs to have installed who does not use it."""
    check_engine("ray")
    from fkge.engines.ray_actors import RayActors

    return RayActors(homes, note, *args, **options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "in-process": InProcess,
    "processes": Processes,
    "ray": _ray,
    "nodes": Nodes,
}
"""``ENGINES[name](homes, note)``, or with ``tapes=FOLDER`` to record all that is heard and said."""

OPTIONS: dict[str, frozenset[str]] = {"ray": frozenset({"address", "cpus", "gpus"})}
"""What engines may be told beside, by keyword."""


_LIBRARIES = {"ray": [("ray", "ray")], "nodes": [("grpc", "node"), ("cryptography", "node")]}
"""What engines need to be installed, and the extra that has it."""


def check_engine(name: str, options: Sequence[str] = ()) -> None:
    """Refuse an engine that does not exist or is not installed, and options that it does not have."""
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
