"""Run all owners in this process under a virtual clock: one seed gives one run, whatever the machine does meanwhile.

A round of training is computed when it begins and takes effect when the clock says that it is over; in between the
owner is Busy, so peers see no difference. How long things take is a model (`Pace`), so a test can make an owner slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fkge.experiment.arms import Arm
from fkge.experiment.engines.base import Engine, never
from fkge.experiment.engines.stepped import Input, Reaction, SteppedOwner
from fkge.experiment.engines.virtual_clock import Pace as Pace
from fkge.experiment.engines.virtual_clock import VirtualClock
from fkge.experiment.owners import ArmJob, SimulatedOwner
from fkge.federation.driver import Stop
from fkge.owner_events import Emit


class InProcess(Engine):
    """The engine for tests, and for following what happens; `pace` says how long things take. See `Engine`."""

    def __init__(
        self, stores: Sequence[SimulatedOwner], emit: Emit, pace: Pace | None = None, recordings: Path | None = None
    ) -> None:
        super().__init__(stores, emit, recordings)
        self._pace = pace or Pace()

    def run(self, arm: Arm, stop: Stop = never) -> bool:
        """See `Engine.run`."""
        owners: list[_Local] = []

        def open_owner(name: str, emit: Emit) -> _Local:
            job, late = ArmJob(self._stores[name], arm), name in self._pace.late
            owners.append(_Local(job, emit, stop, late=late, recording=self._recording(name)))
            return owners[-1]

        try:
            return VirtualClock(list(self._stores), open_owner, self._emit, arm.name, self._pace).run(stop)
        finally:
            for owner in owners:
                owner.driver.close()


class _Local(SteppedOwner):
    """An owner in this process: it does at once what it is sent."""

    concurrent = False

    @property
    def peers(self) -> frozenset[str]:
        return frozenset(self.owner.peers)

    @property
    def triples(self) -> int:
        return self.owner.work

    def send(self, given: Input) -> Callable[[], Reaction]:
        reaction = self.step(given)
        if reaction.epochs is not None:
            report = self.train()
            reaction = replace(reaction, computed=report, halted=report is None)
        return lambda: reaction

    def conclude(self) -> Callable[[], bool]:
        return self.driver.conclude

    def save(self) -> None:
        self.driver.save()

    def halt(self) -> None:
        pass
