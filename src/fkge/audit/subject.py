"""A copy of a finished simulation for attacks to open, replay and change.

Opening an owner opens its ledger, and replaying a federation writes checkpoints; neither may happen in the given
folder. The copy has what the attacks need, and is removed after them, however they end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fkge.errors import RunError, UnknownLabelError
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.simulation import Simulation
from fkge.federation import Owner
from fkge.federation.source import Federation, Member
from fkge.progress import SILENT, Progress, Task

ARM = "federated"


@dataclass(frozen=True)
class Subject:
    """A copy of a simulation, which attacks may change, and the owner that is attacked.

    Attributes:
        scratch: an empty folder for files of attacks.
        owner: the victim.
        quick: run weaker attacks, in a fraction of the time.
        seed: seed of all random numbers of the attackers.
    """

    simulation: Simulation
    scratch: Path
    owner: str
    quick: bool = False
    progress: Progress = SILENT
    seed: int = 0
    _tracks: dict[str, Owner] = field(default_factory=dict)

    @cached_property
    def owners(self) -> dict[str, SimulatedOwner]:
        """All owners by name."""
        return {owner.name: owner for owner in self.simulation.owners}

    @cached_property
    def federation(self) -> Federation:
        """The federation that was simulated."""
        return self.simulation.federation

    @property
    def victim(self) -> SimulatedOwner:
        """The owner that is attacked."""
        return self.owners[self.owner]

    @property
    def member(self) -> Member:
        """The victim as the federation describes it."""
        return self.federation.members[self.owner]

    @cached_property
    def peer(self) -> str:
        """The peer that shares most with the victim: the attacker who sees most."""
        return nearest(self.victim)

    def track(self, name: str) -> Owner:
        """Return an owner at the end of the federation: its shared track, the only one it exchanged."""
        if name not in self._tracks:
            self._tracks[name] = self.owners[name].owner(self.simulation.arm(ARM))[0]
        return self._tracks[name]


def epoch_counter(task: Task) -> Callable[..., None]:
    """Return an event handler of engines that advances a task by each finished epoch."""
    return lambda event, **fields: task.advance(1) if event == "progress" else None


def shared_sizes(owner: SimulatedOwner) -> dict[str, int]:
    """Return how many rows an owner shares with each peer that it does not refuse."""
    return {peer: len(known.common) for peer, known in owner.peers.items() if peer not in owner.refuses}


def nearest(owner: SimulatedOwner) -> str:
    """Return the peer with the largest alignment; raise a RunError if there is none."""
    sizes = shared_sizes(owner)
    if not sizes:
        raise RunError(f"{owner.name} shares no rows with any peer, so there is no attacker; choose another --owner")
    return max(sizes, key=lambda peer: sizes[peer])


@contextmanager
def opened(
    run: Path, owner: str | None = None, *, quick: bool = False, progress: Progress = SILENT
) -> Iterator[Subject]:
    """Copy the finished simulation in `run` while the context lasts; `run` itself is only read.

    Args:
        run: the simulation's folder.
        owner: the victim; the one with the largest alignment if None.
        quick, progress: see `Subject`.

    Raises:
        RunError: `run` holds no simulation, or one that is not finished.
        UnknownLabelError: there is no such owner.
    """
    names = Simulation.open(run).spec.owners
    if owner is not None and owner not in names:
        raise UnknownLabelError("owner", owner, names)
    if any(not (run / "arms" / ARM / name / "result.json").exists() for name in names):
        raise RunError(f"{run}: is not finished, so it cannot be audited. Resume it: fkge simulate --resume {run}")
    with tempfile.TemporaryDirectory(prefix="fkge-audit-") as folder:
        copy, scratch = Path(folder) / "run", Path(folder) / "scratch"
        scratch.mkdir()
        with progress.task("copying", None):
            _copy(run, copy, names)
        simulation = Simulation.open(copy)
        if owner is None:
            owner = max(simulation.owners, key=lambda one: max(shared_sizes(one).values(), default=0)).name
        yield Subject(simulation, scratch, owner, quick, progress)


def _copy(run: Path, copy: Path, names: list[str]) -> None:
    shutil.copytree(run / "owners", copy / "owners")
    for name in names:
        source, target = run / "arms" / ARM / name, copy / "arms" / ARM / name
        target.mkdir(parents=True)
        for file in (source / "checkpoint.safetensors", *source.glob("ledger*")):
            shutil.copy2(file, target / file.name)
    for name in ("simulation.json", "settings.toml"):
        shutil.copy2(run / name, copy / name)
