"""Run all owners in this process under a virtual clock: one seed gives one run, whatever the machine does meanwhile.

A round of training is computed when it begins and takes effect when the clock says that it is over; in between the
owner is Busy, so peers see no difference. How long things take is a model (`Pace`), so a test can make an owner slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fkge.experiment.arms import Arm
from fkge.experiment.central import run_central
from fkge.experiment.engines.stepped import Input, Reaction, SteppedOwner
from fkge.experiment.engines.virtual_clock import Pace as Pace
from fkge.experiment.engines.virtual_clock import VirtualClock
from fkge.experiment.owners import SimulatedOwner
from fkge.federation.driver import Stop
from fkge.federation.participant import Emit


class InProcess:
    """The engine for tests, and for following what happens.

    Args:
        stores: the owners' stores.
        emit: receives every event, with ``owner`` and virtual time ``t``.
        pace: how long things take.
        losses: virtual times at which an owner stops permanently.
        late: virtual times at which an owner joins, rather than at the start. It does not start together with the
            others: it trains alone first, and turns into their frame.
        recordings: a folder for every owner's recording, NAME.tape each; see `fkge.federation.recording`.
    """

    name = "in-process"

    def __init__(
        self,
        stores: Sequence[SimulatedOwner],
        emit: Emit,
        pace: Pace | None = None,
        losses: Mapping[str, float] | None = None,
        late: Mapping[str, float] | None = None,
        recordings: Path | None = None,
    ) -> None:
        self._stores = {store.name: store for store in stores}
        self._emit, self._recordings = emit, recordings
        self._pace = pace or Pace()
        self._losses, self._late = dict(losses or {}), dict(late or {})

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def run(self, arm: Arm, stop: Stop | None = None) -> bool:
        """Run one arm and leave its results. False if it ended early, by `stop` or a loss; `run` again resumes it."""
        owners: list[SteppedOwner] = []

        def open_owner(name: str, emit: Emit) -> _Local:
            owners.append(
                SteppedOwner(
                    self._stores[name], arm, emit, stop or (lambda: False), late=name in self._late,
                    recordings=self._recordings,
                )
            )  # fmt: skip
            return _Local(owners[-1])

        try:
            clock = VirtualClock(
                list(self._stores), open_owner, self._emit, arm.name, self._pace, losses=self._losses, late=self._late
            )
            return clock.run(stop)
        finally:
            for owner in owners:
                owner.driver.close()

    def central(self, arms: Sequence[str], stop: Stop | None = None) -> None:
        """Run arms that need a server; `stop` is looked at between two of them."""
        for arm in arms:
            if stop is not None and stop():
                return
            run_central(arm, list(self._stores.values()), self._emit)


class _Local:
    """An owner in this process: it does at once what it is sent."""

    concurrent = False

    def __init__(self, owner: SteppedOwner) -> None:
        self._owner = owner

    @property
    def peers(self) -> frozenset[str]:
        return frozenset(self._owner.owner.peers)

    @property
    def triples(self) -> int:
        return self._owner.owner.work

    def send(self, given: Input) -> Callable[[], Reaction]:
        reaction = self._owner.step(given)
        if reaction.epochs is not None:
            report = self._owner.train()
            reaction = replace(reaction, computed=report, halted=report is None)
        return lambda: reaction

    def conclude(self) -> Callable[[], bool]:
        return self._owner.driver.conclude

    def save(self) -> None:
        self._owner.driver.save()

    def halt(self) -> None:
        pass
