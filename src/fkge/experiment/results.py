"""What a simulation was asked for and what it found, as written to its folder once and read everywhere.

Versions of ``results.json``:
  1   fkge 0.1.0; has no ``version``, ``arms``, ``two_tracks`` and ``policies``: these are read from beside it
  2   all in one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from pydantic import Field

from fkge.files import read_json
from fkge.results import METRICS, OwnerReport, ResultModel, Scores, VersionedResult

if TYPE_CHECKING:  # at run time results are read without torch
    from fkge.experiment.owners import SimulatedOwner

FILE = "results.json"
SPECIFICATION = "simulation.json"
PARTS = ("strict", "chained", "held")
"""Parts of the test triples: those that nobody else holds; those that another owner holds, as only a chain of links
through others shows; those that stand in the training set of a partner linked directly."""


class Specification(ResultModel):
    """What a simulation was asked for, in ``simulation.json``."""

    federation: str
    owners: list[str]
    arms: list[str]
    engine: str
    seed: int
    two_tracks: bool
    engine_options: dict[str, object] = Field(default_factory=dict)

    @classmethod
    def load(cls, run: Path) -> Self:
        """Read that of the simulation in the folder `run`."""
        return cls.read(run / SPECIFICATION, "Restore it from a copy, or run the simulation again.")


class SharedRows(ResultModel):
    """Numbers of rows that two owners share."""

    entities: int
    relations: int


class Comparison(ResultModel):
    """A paired bootstrap of a metric over test triples: federated minus the other arm, 95% interval, p-value."""

    difference: float
    low: float
    high: float
    p: float


Versus: TypeAlias = dict[str, dict[str, dict[str, Comparison]]]
"""``versus[arm][part][metric]`` compares the federated owner with another arm."""


class PrivacySummary(ResultModel):
    """The privacy settings of the federation."""

    mode: str
    epsilon: float | None = None
    delta: float
    ledger: str | None = None


class OwnerResult(ResultModel):
    """One owner in all arms: its model and graph, what it shares with each peer, and what it reached and gained."""

    model: str
    entities: int | None = None
    relations: int | None = None
    triples: int | None = None
    shares: dict[str, SharedRows]
    arms: dict[str, OwnerReport]
    versus: Versus

    @classmethod
    def of(cls, owner: SimulatedOwner, arms: Sequence[str], versus: Versus) -> Self:
        """Return the result of an owner.

        Args:
            owner: the owner; arms: of these, those that it has finished count.
            versus: comparisons of its federated arm with others.
        """
        return cls(
            model=owner.settings.train.model,
            entities=len(owner.graph.entities),
            relations=len(owner.graph.relations),
            triples=len(owner.graph.train),
            shares={
                peer: SharedRows(entities=len(known.common.entities), relations=len(known.common.relations))
                for peer, known in owner.peers.items()
            },
            arms={arm: report for arm in arms if (report := owner.workspace(arm).report()) is not None},
            versus=versus,
        )


class SimulationResult(VersionedResult):
    """What a simulation found, or has found so far.

    Attributes:
        arms: that were asked for; `mean` has those that are finished.
        two_tracks: owners have a private track, which spends `private_epochs`.
        policies: owners with a sharing policy.
        epochs: of each owner in each arm but ``independent``; lone_epochs: further ones without peers, whose model is
            blended with the first.
        seconds: wall time of all finished arms.
        mean: ``mean[arm][part]``, over owners.
    """

    federation: str
    engine: str
    seed: int
    arms: list[str]
    two_tracks: bool
    policies: list[str]
    start: str
    translate: str
    decide: str
    epochs: int
    private_epochs: int
    lone_epochs: int = 0
    privacy: PrivacySummary
    seconds: float
    mean: dict[str, dict[str, Scores]]
    owners: dict[str, OwnerResult]

    @classmethod
    def load(cls, run: Path) -> Self:
        """The result of the finished simulation in the folder `run`, of any version.

        Raises:
            RunError: the file is damaged, or of a later version.
        """
        path, way_out = run / FILE, f"Remove it, and sum up again: fkge simulate --resume {run}"
        data = read_json(path, way_out, "mean", "owners")
        if data.get("version", 1) == 1:  # which left the rest to other files of the run
            spec = Specification.load(run)
            data |= {"version": cls.VERSION, "policies": with_policy(run, spec.owners)}
            data |= spec.to_json("arms", "two_tracks")
        return cls.parse(data, path, way_out)

    def finished(self, arm: str) -> bool:
        """Whether all owners have finished `arm`."""
        return arm in self.mean


def with_policy(run: Path, owners: Sequence[str]) -> list[str]:
    """The owners of a run that have a sharing policy."""
    return [owner for owner in owners if (run / "owners" / owner / "policy.toml").exists()]


def mean_scores(reports: Sequence[OwnerReport]) -> dict[str, Scores]:
    """Means over owners, for each part of the test triples that any of them has."""
    out = {}
    for part in PARTS:
        found = [report.test[part] for report in reports if part in report.test]
        if found:
            out[part] = Scores.model_validate({m: sum(scores[m] for scores in found) / len(found) for m in METRICS})
    return out


def means(owners: Mapping[str, OwnerResult], arms: Sequence[str]) -> dict[str, dict[str, Scores]]:
    """`mean_scores` of each arm that all owners have finished."""
    finished = [arm for arm in arms if all(arm in owner.arms for owner in owners.values())]
    return {arm: mean_scores([owner.arms[arm] for owner in owners.values()]) for arm in finished}
