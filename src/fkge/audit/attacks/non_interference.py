"""Attack on confidential triples, non-interference: with all secrets changed, everything sent must be the same, byte
for byte.

Exact, not statistical: two tracks promise that nothing that is sent depends on a confidential triple at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fkge.audit.findings import Finding, Verdict
from fkge.audit.subject import Subject, epoch_counter
from fkge.experiment.engines import InProcess
from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, FederationSettings
from fkge.federation.recording import read_recording
from fkge.federation.source import Member
from fkge.graph import Graph, Policy, Vocabulary, tidy
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.progress import SILENT, Progress

SECRET = "\x00 a secret thing "
"""The start of labels that no graph has; they sort before all others, so every id of the whole graph changes."""

Sent = tuple[str, int, str]
"""A message sent: peer, bytes, SHA-256."""


@dataclass(frozen=True)
class Comparison:
    """The messages that one owner sent in two runs with different secrets, of which it has so many by split.

    The first message that differs has the number `first_difference`; None if none does.
    """

    secrets: Mapping[str, int]
    messages: int
    bytes: int
    first_difference: int | None
    same_graph: bool
    same_alignment: bool

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.first_difference is None and self.same_graph and self.same_alignment


def attack(subject: Subject) -> Finding:
    """Run `non_interference` on the simulation's federation and settings, if any owner has secrets."""
    federation, settings = subject.federation, subject.simulation.settings
    if not any(any(_secrets(member).values()) for member in federation.members.values()):
        claim = "no policy keeps a triple confidential: others may learn of all"
        return Finding(claim, Verdict.OPEN, "every owner", "nothing is confidential")
    owners = non_interference(
        federation, settings, subject.scratch / "worlds", seed=subject.simulation.spec.seed,
        exchanges=2 if subject.quick else 4, progress=subject.progress,
    )  # fmt: skip
    differ = [name for name, found in owners.items() if not found.same]
    messages, size = sum(o.messages for o in owners.values()), sum(o.bytes for o in owners.values())
    secrets = sum(sum(o.secrets.values()) for o in owners.values())
    words = f"{messages:,} messages, {size:,} bytes compared over {secrets:,} secrets: "
    words += f"not the same at {', '.join(differ)}" if differ else "all the same"
    if settings.privacy.mode == "dp":
        words += " (without noise, which would hide a leak)"
    return Finding(
        "nothing that is sent depends on a confidential triple",
        Verdict.BROKEN if differ else Verdict.HOLDS,
        "all that every owner sends",
        words,
        {"messages": messages, "bytes": size, "secrets": secrets, "same": not differ, "owners": owners},
    )


def disturbed(member: Member, seed: int = 0) -> Member:
    """Return the owner with other secrets: confidential triples removed, replaced and added in every split, with
    entities that only they name; its shareable triples are unchanged.
    """
    if member.policy is None:
        return member
    graph, rng = member.graph, np.random.default_rng(seed)
    new_labels = [f"{SECRET}{i}" for i in range(5)]
    wider = Graph(
        Vocabulary((*new_labels, *graph.entities), "entity"), graph.relations,
        {split: triples + np.array([len(new_labels), 0, len(new_labels)]) for split, triples in graph.splits.items()},
        name=graph.name,
    )  # fmt: skip
    splits = {}
    for split, triples in wider.splits.items():
        shared = member.policy.mask(wider, split)
        secrets = triples[~shared]
        kept = secrets[rng.random(len(secrets)) < 0.4]
        invented = _invented(wider, member.policy, len(secrets), rng)
        splits[split] = tidy(np.concatenate([triples[shared], kept, invented]))
    return replace(member, graph=_trimmed(replace(wider, splits=splits)))


def _invented(graph: Graph, policy: Policy, count: int, rng: np.random.Generator) -> npt.NDArray[np.int32]:
    """Return up to `count` + 1 random triples (n, 3) that the policy keeps, some with new entities."""
    size = 20 * count + 200
    ends = rng.integers(len(graph.entities), size=(size, 2))
    ends[: size // 10, 0] = rng.integers(5, size=size // 10)
    made = np.stack([ends[:, 0], rng.integers(len(graph.relations), size=size), ends[:, 1]], axis=1).astype(np.int32)
    probe = replace(graph, splits={"train": made})
    return probe.train[~policy.mask(probe, "train")][: count + 1]


def _trimmed(graph: Graph) -> Graph:
    """Return the graph with the vocabulary that its triples use, as a reader would have made it."""
    facts = graph.facts
    entities, relations = np.unique(facts[:, [HEAD, TAIL]]), np.unique(facts[:, RELATION])
    columns = list(enumerate((entities, relations, entities)))
    splits = {
        split: np.stack([np.searchsorted(ids, t[:, i]) for i, ids in columns], axis=1).astype(np.int32)
        for split, t in graph.splits.items()
    }
    return replace(
        graph, entities=Vocabulary((graph.entities[i] for i in entities), "entity"),
        relations=Vocabulary((graph.relations[i] for i in relations), "relation"), splits=splits,
    )  # fmt: skip


def non_interference(
    federation: Federation,
    settings: FederationSettings,
    scratch: Path,
    *,
    seed: int = 0,
    exchanges: int = 3,
    progress: Progress = SILENT,
) -> dict[str, Comparison]:
    """Run the federation twice, once with every owner's secrets changed, and compare all that is sent, byte by byte.

    Both runs are in one process under a virtual clock, so that nothing but the secrets differs, and without
    differential privacy, whose noise would hide a leak.

    Args:
        federation: the owners and their policies.
        settings: the settings of the federation.
        scratch: a folder to create, for both runs.
        seed: seed of the runs and of the changes.
        exchanges: exchanges of each owner, fewer than a real run has.
        progress: where to report progress.

    Returns:
        The comparison by owner.
    """
    short = settings.model_copy(
        update={
            "exchanges": exchanges, "initial_epochs": min(settings.initial_epochs, settings.epochs),
            "private": settings.private.model_copy(update={"epochs": 0}),
            "privacy": settings.privacy.model_copy(update={"mode": "none"}),
        }
    )  # fmt: skip
    changed = replace(federation, members={n: disturbed(m, seed + 1) for n, m in federation.members.items()})
    sent: list[dict[str, list[Sent]]] = []
    owners = []
    for number, world in enumerate((federation, changed)):
        folder = scratch / f"world{number}"
        simulation = Simulation.create(
            folder, world, short, baselines=(), engine="in-process", seed=seed, progress=progress
        )
        with progress.task(f"the federation with {('its', 'other')[number]} secrets", None, "epochs") as task:
            recordings = folder / "tapes"
            InProcess(simulation.owners, epoch_counter(task), recordings=recordings).run(simulation.arm("federated"))
        sent.append({name: list(sent_messages(recordings / f"{name}.tape")) for name in world.members})
        owners.append({owner.name: owner for owner in simulation.owners})
    found = {}
    for name, member in federation.members.items():
        (before, after), (one, other) = (world[name] for world in sent), (world[name] for world in owners)
        first = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
        if first is None and len(before) != len(after):
            first = min(len(before), len(after))
        same_graph = (one.shared.fingerprint, one.shared.notes) == (other.shared.fingerprint, other.shared.notes)
        size = sum(size for _, size, _ in before)
        found[name] = Comparison(_secrets(member), len(before), size, first, same_graph, one.peers == other.peers)
    return found


def sent_messages(recording: Path) -> Iterator[Sent]:
    """Yield all messages that the owner of a recording sent."""
    for record, _ in read_recording(recording):
        if record["what"] == "said":
            yield record["peer"], record["size"], record["sha256"]


def _secrets(member: Member) -> Mapping[str, int]:
    if member.policy is None:
        return {}
    return {split: int((~member.policy.mask(member.graph, split)).sum()) for split in member.graph.splits}
