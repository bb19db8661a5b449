"""Poisoning: an owner turns hostile. What does that cost the one it deals with?

A short federation of two, begun after a first training alone, on what the two share. The hostile one sends what an
attack makes of its rows and claims all the weight there is. Three ways to meet it: with limits on what a gift may move
and going back when validation falls (what an owner does with `patience` set); with limits only; with neither. A peer
that sends rubbish cannot be made to help, so what is claimed is that the victim ends no worse than it stood before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fkge.audits.interference import Epochs
from fkge.audits.subject import BROKEN, HOLDS, Subject, finding, nearest
from fkge.embed import Tables
from fkge.engines import InProcess
from fkge.evaluation import Known, metrics, rank
from fkge.evaluation.attacks import POISONS, targeted
from fkge.federation import Arm, Federation, Home, Offer, Owner
from fkge.federation.source import Member
from fkge.graph.graph import HEAD, TAIL
from fkge.privacy import Head
from fkge.simulations import Simulation

TOLERANCE = 0.02
"""MRR that a test on other triples than those decided on may differ by."""

_WEIGHT = 1e6
_NEVER = 1_000_000
DEFENCES: Mapping[str, Mapping[str, Any]] = {
    "limits and backtrack": {"patience": 1, "test_every": 1},
    "limits": {"patience": 0, "test_every": _NEVER},
    "neither": {"patience": 0, "test_every": _NEVER, "limit": 1e12},
}
TARGETED = "targeted"

Attack = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Hostile(Home):
    """A home whose owner sends poisoned rows.

    Attributes:
        poison: of the entity rows of an offer, (n, d) to the same.
    """

    poison: Attack | None = None

    def owner(
        self, arm: Arm, late: bool = False, secret: int | None = None, ledger: Head | None = None
    ) -> tuple[Owner, bool]:
        """The owner, with its mouth under the attacker's control. Nobody else can tell."""
        owner, trained = super().owner(arm, late, secret, ledger)
        honest, poison = owner._offer, self.poison

        def offer(peer: str, mode: Any) -> Offer:
            made = honest(peer, mode)
            if poison is None or made.entity.numel() == 0:
                return made
            weight = None if made.entity_weight is None else torch.full_like(made.entity_weight, _WEIGHT)
            return replace(made, entity=poison(made.entity), entity_weight=weight)

        owner._offer = offer  # type: ignore[method-assign]
        return owner, trained


def poisoning(subject: Subject) -> dict[str, Any]:
    """The victim's MRR on held-out triples of its shareable graph, by attack and defence."""
    hostile = subject.peer
    simulation = _short_federation(subject, hostile)
    victim = next(home for home in simulation.homes if home.name == subject.owner)
    target = _target(victim, hostile)
    attacks: dict[str, Attack | None] = {"honest": None} | _attacks(subject, target)
    defences = {n: d for n, d in DEFENCES.items() if not subject.quick or n != "limits"}
    with subject.progress.task("poisoning", None, "epochs") as task:
        InProcess(simulation.homes, Epochs(task)).run(simulation.arm("independent"))
        before = _score(victim, "independent", simulation, target)
        drops: dict[str, dict[str, Any]] = {}
        for defence, changes in defences.items():
            drops[defence] = {}
            for attack, poison in attacks.items():
                homes = [_home(simulation, name, changes, poison if name == hostile else None)
                         for name in simulation.about["owners"]]  # fmt: skip
                arm = replace(simulation.arm("federated"), name=f"{attack}, {defence}")
                InProcess(homes, Epochs(task)).run(arm)
                scored = _score(victim, arm.name, simulation, target, best="backtrack" in defence)
                drops[defence][attack] = scored | {"drop": before["mrr"] - scored["mrr"]}
    worst = {
        defence: max((a for a in found if a != "honest"), key=lambda a: found[a]["drop"])
        for defence, found in drops.items()
    }
    figures = {defence: drops[defence][attack]["drop"] for defence, attack in worst.items()}
    broken = figures["limits and backtrack"] > TOLERANCE
    return finding(
        f"limits and backtrack: a hostile peer costs at most {TOLERANCE:g} of the MRR one had before",
        BROKEN if broken else HOLDS,
        f"{subject.owner}, with {hostile} hostile",
        f"MRR {before['mrr']:.3f} before; largest drop "
        + ", ".join(f"{d:+.3f} with {name} ({worst[name]})" for name, d in figures.items()),
        before=before, hostile=hostile, drops=drops, largest=figures, tolerance=TOLERANCE,
    )  # fmt: skip


def _short_federation(subject: Subject, hostile: str) -> Simulation:
    """The two owners, on their shareable graphs, with few exchanges after a first training alone."""
    names = (subject.owner, hostile)
    members = {
        name: Member(_with_test(subject.homes[name]), subject.federation.members[name].train)
        for name in subject.simulation.about["owners"] if name in names
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
        seed=subject.simulation.about["seed"], progress=subject.progress,
    )  # fmt: skip


def _with_test(home: Home) -> Any:
    """The shareable graph; where it has no test set, its validation triples are split in two."""
    graph = home.shared
    if len(graph.splits.get("test", ())):
        return graph
    half = len(graph.valid) // 2
    order = np.random.default_rng([home.seed, 14]).permutation(len(graph.valid))
    a, b = np.sort(order[:half]), np.sort(order[half:])
    return replace(graph, splits={"train": graph.train, "valid": graph.valid[a], "test": graph.valid[b]})


def _home(simulation: Simulation, name: str, changes: Mapping[str, Any], poison: Attack | None) -> Home:
    home = Hostile.open(simulation.folder / "owners" / name)
    assert isinstance(home, Hostile)
    return replace(home, settings=home.settings.model_copy(update=dict(changes)), poison=poison)


def _target(victim: Home, hostile: str) -> int:
    """Position, among shared entities, of the one with most held-out triples."""
    ends = np.concatenate([t[:, [HEAD, TAIL]].ravel() for n, t in victim.shared.splits.items() if n != "train"])
    counts = np.bincount(ends, minlength=len(victim.shared.entities))
    return int(counts[victim.peers[hostile].common.entities].argmax())


def _attacks(subject: Subject, target: int) -> dict[str, Attack]:
    def made(name: str) -> Attack:
        generator = torch.Generator().manual_seed(subject.seed + 15)
        return lambda rows: POISONS[name](rows, generator)

    def aimed(rows: torch.Tensor) -> torch.Tensor:
        return targeted(rows, target, (target + 1) % len(rows)) if len(rows) > 1 else rows

    names = ("huge", "flipped") if subject.quick else tuple(POISONS)
    return {name: made(name) for name in names} | {TARGETED: aimed}


def _score(victim: Home, arm: str, simulation: Simulation, target: int, *, best: bool = True) -> dict[str, float]:
    """MRR on all held-out triples, and on those of the targeted entity; of the best vectors, or of the last."""
    kind = simulation.arm("independent") if arm == "independent" else replace(simulation.arm("federated"), name=arm)
    owner, _ = victim.owner(kind)
    tables: Tables = owner.best() if best else owner.tables
    graph = victim.shared
    held_out = np.concatenate([t for name, t in graph.splits.items() if name != "train"])
    entity = int(victim.peers[nearest(victim)].common.entities[target])
    theirs = (held_out[:, [HEAD, TAIL]] == entity).any(axis=1)
    ranks = rank(tables, held_out, known=Known.of(graph))
    out = {"mrr": metrics(ranks)["mrr"], "handshakes": float(sum(owner.activity.handshakes.values()))}
    return out | ({"target_mrr": metrics(ranks[theirs])["mrr"]} if theirs.any() else {})
