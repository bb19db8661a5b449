"""`Engine`, the base of all engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.owners import SimulatedOwner
from fkge.federation.driver import Stop
from fkge.owner_events import Emit


def never() -> bool:
    """Return False: nobody asks to stop."""
    return False


class Engine(ABC):
    """Runs arms. A context manager: owners' processes exist within it.

    Args:
        stores: the owners' stores.
        emit: receives every event, with ``owner`` and seconds ``t`` since the arm began, of the engine's clock.
        recordings: a folder for every owner's recording, NAME.tape each; see `fkge.federation.recording`.
    """

    def __init__(self, stores: Sequence[SimulatedOwner], emit: Emit, recordings: Path | None = None) -> None:
        self._stores = {store.name: store for store in stores}
        self._emit, self._recordings = emit, recordings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:  # noqa: B027  # only some have something to end
        """End the owners' processes, if they have any."""

    @abstractmethod
    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again resumes it."""

    def central(self, arms: Sequence[str], stop: Stop = never) -> None:
        """Run arms that need a server (`fkge.experiment.central`); one that `stop` ends early starts again later.

        Raises:
            EngineError: a process died, or failed.
        """
        for arm in arms:
            if stop():
                return
            run_central(arm, list(self._stores.values()), self._emit)

    def _recording(self, name: str) -> Path | None:
        return None if self._recordings is None else self._recordings / f"{name}.tape"

    def _unfinished(self, arm: str) -> set[str]:
        """Owners that have no result in `arm`."""
        return {name for name, store in self._stores.items() if not store.workspace(arm).finished}
