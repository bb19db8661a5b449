"""Where owners run. Every engine does the same with the same homes and arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fkge.engines.central import run_central as run_central
from fkge.engines.in_process import InProcess as InProcess
from fkge.engines.in_process import Pace as Pace
from fkge.engines.processes import Processes as Processes
from fkge.engines.station import Note as Note
from fkge.engines.station import Station as Station
from fkge.engines.tape import Replay as Replay
from fkge.engines.tape import Tape as Tape
from fkge.engines.tape import replay as replay
from fkge.federation.home import Arm


class Engine(Protocol):
    """What an engine is. A context manager: owners live within it."""

    def __enter__(self) -> Engine: ...
    def __exit__(self, *exc: object) -> None: ...

    def run(self, arm: Arm, stop: Callable[[], bool] | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early; `run` again takes it up."""

    def central(self, arms: Sequence[str], run: Callable[..., None], stop: Callable[[], bool] | None = None) -> None:
        """Run what only a server could, as ``run(arm, homes, note)``; what `stop` cuts short begins anew next time."""


ENGINES: dict[str, Callable[..., Engine]] = {
    "in-process": InProcess,
    "processes": Processes,
}
"""``ENGINES[name](homes, note)``, or with ``tapes=FOLDER`` to record all that is heard and said."""
