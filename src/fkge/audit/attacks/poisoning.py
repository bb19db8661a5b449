"""Poisoning: a hostile peer sends harmful rows. What does that cost the victim?

A short federation of two, after a first training alone, on what the two share. The hostile peer changes its rows and
claims the largest weight. Everything it sends passes the codec: finite numbers, the right shapes, no coordinate beyond
the cap. The victim defends itself in three ways: with limits on how far an update may move its rows and by rolling back
when validation falls (`patience`); with limits only; with neither. A hostile peer cannot be made to help, so the claim
is that the victim ends no worse than it was before.

Known limits of the defence: a peer that stays below the limit can still push in one direction exchange after exchange,
a small move of one chosen row may not show in any score, and rows that are merely wrong (permuted, flipped) have
ordinary lengths. Rows are clipped *before* alignment too: one huge row would otherwise decide the rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fkge.audit.findings import Finding, Verdict
from fkge.audit.subject import Subject, epoch_counter, nearest
from fkge.embed import Tables
from fkge.errors import SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.experiment.arms import Arm
from fkge.experiment.engines import InProcess
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, Owner, Update
from fkge.federation.source import Member
from fkge.graph import Graph
from fkge.graph.graph import HEAD, TAIL
from fkge.privacy import Head

CAP = 1e6
"""The largest coordinate that a receiver accepts."""
TOLERANCE = 0.02
"""MRR by which a test on other triples than those decided on may differ."""
_WEIGHT = 1e6
_NEVER = 1_000_000
DEFENCES: Mapping[str, Mapping[str, float]] = {
    "limits and backtrack": {"patience": 1, "test_every": 1},
    "limits": {"patience": 0, "test_every": _NEVER},
    "neither": {"patience": 0, "test_every": _NEVER, "limit": 1e12},
}

Poison: TypeAlias = Callable[[Tensor], Tensor]
"""Maps honest rows (n, d) to hostile ones of the same shape and type."""


@dataclass(frozen=True)
class Score:
    """The victim's scores after an attack.

    Attributes:
        mrr: MRR on all held-out triples of its shareable graph; target_mrr: on those of the targeted entity.
        handshakes: exchanges that it hosted.
        drop: MRR before the attack minus `mrr`.
    """

    mrr: float
    target_mrr: float | None
    handshakes: int
    drop: float = 0.0


@dataclass(frozen=True)
class HostileOwner(SimulatedOwner):
    """An owner that sends entity rows poisoned by `poison`; honest ones if that is None."""

    poison: Poison | None = None

    def owner(
        self, arm: Arm, late: bool = False, secret: int | None = None, ledger: Head | None = None
    ) -> tuple[Owner, bool]:
        """Return the owner, with its updates under the attacker's control."""
        owner, trained = super().owner(arm, late, secret, ledger)
        honest, poison = owner.make_update, self.poison

        def make_update(peer: str, mode: Any) -> Update:
            made = honest(peer, mode)
            if poison is None or made.entity.numel() == 0:
                return made
            weight = None if made.entity_weight is None else torch.full_like(made.entity_weight, _WEIGHT)
            return replace(made, entity=poison(made.entity), entity_weight=weight)

        owner.make_update = make_update  # type: ignore[method-assign]
        return owner, trained


def attack(subject: Subject) -> Finding:
    """Measure the victim's MRR on held-out triples of its shareable graph, by attack and defence."""
    hostile = subject.peer
    simulation = _short_federation(subject, hostile)
    victim = next(owner for owner in simulation.owners if owner.name == subject.owner)
    target = _target(victim, hostile)
    poisons: dict[str, Poison | None] = {"honest": None, **_poisons(subject, target)}
    defences = {n: d for n, d in DEFENCES.items() if not subject.quick or n != "limits"}
    with subject.progress.task("poisoning", None, "epochs") as task:
        InProcess(simulation.owners, epoch_counter(task)).run(simulation.arm("independent"))
        before = _score(victim, "independent", simulation, target)
        scores: dict[str, dict[str, Score]] = {}
        for defence, changes in defences.items():
            scores[defence] = {}
            for name, poison in poisons.items():
                owners = [_owner(simulation, owner, changes, poison if owner == hostile else None)
                          for owner in simulation.spec.owners]  # fmt: skip
                arm = replace(simulation.arm("federated"), name=f"{name}, {defence}")
                InProcess(owners, epoch_counter(task)).run(arm)
                score = _score(victim, arm.name, simulation, target, best="backtrack" in defence)
                scores[defence][name] = replace(score, drop=before.mrr - score.mrr)
    worst = {
        defence: max((name for name in found if name != "honest"), key=lambda name: found[name].drop)
        for defence, found in scores.items()
    }
    largest = {defence: scores[defence][name].drop for defence, name in worst.items()}
    return Finding(
        f"limits and backtrack: a hostile peer costs at most {TOLERANCE:g} of the MRR one had before",
        Verdict.BROKEN if largest["limits and backtrack"] > TOLERANCE else Verdict.HOLDS,
        f"{subject.owner}, with {hostile} hostile",
        f"MRR {before.mrr:.3f} before; largest drop "
        + ", ".join(f"{drop:+.3f} with {defence} ({worst[defence]})" for defence, drop in largest.items()),
        {"before": before, "hostile": hostile, "drops": scores, "largest": largest, "tolerance": TOLERANCE},
    )


# -- hostile rows ------------------------------------------------------------------------------------


def huge(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Return rows as long as the cap allows, in random directions: they dominate any mean."""
    signs = (torch.randint(2, rows.shape, generator=generator) * 2 - 1).to(rows.dtype)
    return 0.99 * CAP * signs


def noise(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Return random rows of about the honest lengths."""
    drawn = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    return (drawn * rows.double().square().mean().sqrt()).to(rows.dtype)


def permuted(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Return the honest rows in another order; none stays in its place."""
    order = torch.randperm(len(rows), generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(1)  # one cycle through all rows
    return rows[source]


def flipped(rows: Tensor, generator: torch.Generator) -> Tensor:
    """Return the opposite of the honest rows: their mean with honest ones vanishes."""
    return -rows


POISONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "huge": huge, "noise": noise, "permuted": permuted, "flipped": flipped,
}  # fmt: skip
"""Attacks on all rows, by name."""


def targeted(rows: Tensor, victim: int, onto: int, share: float = 0.5) -> Tensor:
    """Return honest rows with one changed, so that a mean moves one row of the host to another of its rows.

    The host's row is taken to be the honest one. Nothing else changes, so no other score shows it.

    Args:
        rows: (n, d) honest rows; victim, onto: positions of the row that moves, and of the row that it moves to.
        share: weight of the hostile row in the mean.

    Raises:
        SettingsError: the two are not different rows, or `share` is not in (0, 1].
    """
    if victim == onto or not 0 < share <= 1 or not all(0 <= i < len(rows) for i in (victim, onto)):
        raise SettingsError(f"needs two of {len(rows)} rows and a share in (0, 1], got {victim}, {onto}, {share}")
    out = rows.clone()
    out[victim] = (rows[onto] - (1 - share) * rows[victim]) / share
    return out.clamp(-CAP, CAP)


def _poisons(subject: Subject, target: int) -> dict[str, Poison]:
    def seeded(name: str) -> Poison:
        generator = torch.Generator().manual_seed(subject.seed + 15)
        return lambda rows: POISONS[name](rows, generator)

    def aimed(rows: Tensor) -> Tensor:
        return targeted(rows, target, (target + 1) % len(rows)) if len(rows) > 1 else rows

    names = ("huge", "flipped") if subject.quick else tuple(POISONS)
    return {name: seeded(name) for name in names} | {"targeted": aimed}


# -- a federation of two -----------------------------------------------------------------------------


def _short_federation(subject: Subject, hostile: str) -> Simulation:
    """Create a simulation of the two owners on their shareable graphs: a first training alone, then few exchanges."""
    names = (subject.owner, hostile)
    members = {
        name: Member(_with_test(subject.owners[name]), subject.federation.members[name].train)
        for name in subject.simulation.spec.owners if name in names
    }  # fmt: skip
    links = {pair: link for pair, link in subject.federation.links.items() if set(pair) == set(names)}
    asked = subject.simulation.settings
    changes = {
        "start": "alone", "initial_epochs": min(asked.total_epochs, 24 if subject.quick else 60),
        "exchanges": 3 if subject.quick else 6, "epochs": min(asked.epochs, 3), "decide": "all", "neighbours": False,
        "privacy": asked.privacy.model_copy(update={"mode": "none", "epsilon": None}), "test_every": 1,
    }  # fmt: skip
    return Simulation.create(
        subject.scratch / "poisoning", Federation(subject.federation.name, members, links),
        asked.model_copy(update=changes), baselines=("independent",), engine="in-process",
        seed=subject.simulation.spec.seed, progress=subject.progress,
    )  # fmt: skip


def _with_test(owner: SimulatedOwner) -> Graph:
    """Return the shareable graph; if it has no test set, its validation triples are split in two."""
    graph = owner.shared
    if len(graph.splits.get("test", ())):
        return graph
    half = len(graph.valid) // 2
    order = np.random.default_rng([owner.seed, 14]).permutation(len(graph.valid))
    a, b = np.sort(order[:half]), np.sort(order[half:])
    return replace(graph, splits={"train": graph.train, "valid": graph.valid[a], "test": graph.valid[b]})


def _owner(simulation: Simulation, name: str, changes: Mapping[str, float], poison: Poison | None) -> HostileOwner:
    owner = HostileOwner.open(simulation.folder / "owners" / name)
    return replace(owner, settings=owner.settings.model_copy(update=dict(changes)), poison=poison)


def _target(victim: SimulatedOwner, hostile: str) -> int:
    """Return the position, among shared entities, of the one with most held-out triples."""
    ends = np.concatenate([t[:, [HEAD, TAIL]].ravel() for n, t in victim.shared.splits.items() if n != "train"])
    counts = np.bincount(ends, minlength=len(victim.shared.entities))
    return int(counts[victim.peers[hostile].common.entities].argmax())


def _score(victim: SimulatedOwner, arm: str, simulation: Simulation, target: int, *, best: bool = True) -> Score:
    """Score the best vectors of the victim in an arm, or the last ones."""
    kind = simulation.arm("independent") if arm == "independent" else replace(simulation.arm("federated"), name=arm)
    owner, _ = victim.owner(kind)
    tables: Tables = owner.best() if best else owner.tables
    graph = victim.shared
    held_out = np.concatenate([t for name, t in graph.splits.items() if name != "train"])
    entity = int(victim.peers[nearest(victim)].common.entities[target])
    of_target = (held_out[:, [HEAD, TAIL]] == entity).any(axis=1)
    ranks = rank(tables, held_out, known=Known.of(graph))
    target_mrr = metrics(ranks[of_target])["mrr"] if of_target.any() else None
    return Score(metrics(ranks)["mrr"], target_mrr, sum(owner.activity.handshakes.values()))
