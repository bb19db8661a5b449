"""What is audited: a finished simulation, copied to where it can be opened, replayed and broken.

To open an owner opens its ledger, and to replay a federation writes checkpoints; neither may happen in the folder that
was handed in. So all that the audits need is copied first, and the copy goes when they are over, however they end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fkge.errors import RunError, UnknownLabelError
from fkge.federation import Home, Owner
from fkge.federation.source import Federation, Member
from fkge.simulations import Simulation
from fkge.trace import SILENT, Progress

HOLDS, OPEN, BROKEN, UNTESTED = "holds", "as stated: no protection", "BROKEN", "not tested"
"""What an audit may come to. UNTESTED: there is nothing here to put the claim to the test with; it says why."""

ARM = "federated"


@dataclass(frozen=True)
class Subject:
    """A copy of a simulation, and whose part the attackers are interested in.

    Attributes:
        simulation: the copy; nobody else sees what is done to it.
        scratch: an empty folder beside it.
        owner: the victim.
        quick: settle for less certainty, in a fraction of the time.
        progress: where attacks report how far they are.
        seed: of everything that an attacker draws.
    """

    simulation: Simulation
    scratch: Path
    owner: str
    quick: bool = False
    progress: Progress = SILENT
    seed: int = 0

    @cached_property
    def homes(self) -> dict[str, Home]:
        """All owners' homes."""
        return {home.name: home for home in self.simulation.homes}

    @cached_property
    def federation(self) -> Federation:
        """What the simulation was made of."""
        return self.simulation.federation

    @property
    def victim(self) -> Home:
        """The victim's home."""
        return self.homes[self.owner]

    @property
    def member(self) -> Member:
        """The victim as the federation describes it."""
        return self.federation.members[self.owner]

    @cached_property
    def peer(self) -> str:
        """Of those the victim deals with, the one it shares most with: the attacker who sees most."""
        return nearest(self.victim)

    @cached_property
    def _tracks(self) -> dict[str, Owner]:
        return {}

    def track(self, name: str) -> Owner:
        """An owner as the federation left it: its shared track, the only thing it ever exchanged."""
        if name not in self._tracks:
            self._tracks[name] = self.homes[name].owner(self.simulation.arm(ARM))[0]
        return self._tracks[name]


def nearest(home: Home) -> str:
    """The peer with the largest alignment."""
    peers = {peer: len(known.common) for peer, known in home.peers.items() if peer not in home.refuses}
    if not peers:
        raise RunError(f"{home.name} shares nothing with anybody, so nobody can attack it; choose another --owner")
    return max(peers, key=lambda peer: peers[peer])


@contextmanager
def opened(
    run: Path, owner: str | None = None, *, quick: bool = False, progress: Progress = SILENT, seed: int = 0
) -> Iterator[Subject]:
    """A copy of the finished simulation in `run`, for as long as the context lasts; `run` itself is only read.

    Args:
        owner: the victim; the one with the largest alignment if None.

    Raises:
        RunError: `run` holds no simulation, or one that is not finished.
    """
    given = Simulation.open(run)
    names: list[str] = given.about["owners"]
    if owner is not None and owner not in names:
        raise UnknownLabelError("owner", owner, names)
    if any(not (run / "arms" / ARM / name / "result.json").exists() for name in names):
        raise RunError(f"{run}: is not finished, so there is nothing to attack. Go on: fkge simulate --resume {run}")
    with tempfile.TemporaryDirectory(prefix="fkge-audit-") as folder:
        copy = Path(folder) / "run"
        with progress.task("copying", None):
            _copy(run, copy, names)
        simulation = Simulation.open(copy)
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        if owner is None:
            shared = {
                h.name: max((len(k.common) for p, k in h.peers.items() if p not in h.refuses), default=0)
                for h in simulation.homes
            }
            owner = max(shared, key=lambda name: shared[name])
        yield Subject(simulation, scratch, owner, quick, progress, seed)


def _copy(run: Path, copy: Path, names: list[str]) -> None:
    shutil.copytree(run / "owners", copy / "owners")
    for name in names:
        source, target = run / "arms" / ARM / name, copy / "arms" / ARM / name
        target.mkdir(parents=True)
        for file in (source / "checkpoint.safetensors", *source.glob("ledger*")):
            shutil.copy2(file, target / file.name)
    for name in ("simulation.json", "settings.toml"):
        shutil.copy2(run / name, copy / name)


def finding(claim: str, verdict: str, on: str, result: str, **figures: Any) -> dict[str, Any]:
    """What one audit has found: fit for JSON, and for a row of a table.

    Args:
        claim: what is said to hold; verdict: HOLDS, OPEN, BROKEN or UNTESTED.
        on: what was attacked.
        result: the figures that matter, in words.
    """
    return {"claim": claim, "verdict": verdict, "on": on, "result": result, **figures}
