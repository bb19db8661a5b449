"""Non-interference: with every secret changed, is all that leaves the same, byte for byte?

Exact, not statistical: two tracks promise that nothing that leaves depends on a confidential triple at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fkge.audits.subject import BROKEN, HOLDS, OPEN, Subject, finding
from fkge.engines import InProcess
from fkge.federation import Federation, FederationSettings
from fkge.federation.source import Member
from fkge.graph import Graph, Policy, Vocabulary, tidy
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.simulations import Simulation
from fkge.trace import SILENT, Progress, Task

SECRET = "\x00 a secret thing "
"""The beginning of labels that no graph has; they sort before all others, so every id of the whole graph moves."""


def interference(subject: Subject) -> dict[str, Any]:
    """`non_interference` over a simulation's federation and settings, where somebody has secrets."""
    federation, settings = subject.federation, subject.simulation.settings
    claim = "nothing that leaves depends on a confidential triple"
    if not any(any(_secrets(member).values()) for member in federation.members.values()):
        return finding(
            "no policy keeps a triple: all of them may leave a trace", OPEN, "every owner", "nothing is confidential"
        )
    found = non_interference(
        federation, settings, subject.scratch / "worlds", seed=subject.simulation.about["seed"],
        exchanges=2 if subject.quick else 4, progress=subject.progress,
    )  # fmt: skip
    owners = found["owners"]
    differ = [
        name for name, o in owners.items()
        if o["first_difference"] is not None or not (o["same_graph"] and o["same_alignment"])
    ]  # fmt: skip
    messages, size = (sum(o[what] for o in owners.values()) for what in ("messages", "bytes"))
    secrets = sum(sum(o["secrets"].values()) for o in owners.values())
    words = f"{messages:,} messages, {size:,} bytes compared over {secrets:,} secrets: "
    words += "all the same" if found["same"] else f"not the same at {', '.join(differ)}"
    if settings.privacy.mode == "dp":
        words += " (noise left out, which would hide a leak)"
    return finding(
        claim, HOLDS if found["same"] else BROKEN, "all that every owner says", words,
        messages=messages, bytes=size, secrets=secrets, **found,
    )  # fmt: skip


# -- two worlds --------------------------------------------------------------------------------------


def disturbed(member: Member, seed: int = 0) -> Member:
    """The owner with other secrets: confidential triples removed, replaced and added, in every split, and things that
    only they name; its shareable triples as they were.
    """
    if member.policy is None:
        return member
    graph, rng = member.graph, np.random.default_rng(seed)
    strangers = [f"{SECRET}{i}" for i in range(5)]
    wider = Graph(
        Vocabulary((*strangers, *graph.entities), "entity"), graph.relations,
        {split: triples + np.array([len(strangers), 0, len(strangers)]) for split, triples in graph.splits.items()},
        name=graph.name,
    )  # fmt: skip
    splits = {}
    for split, triples in wider.splits.items():
        shared = member.policy.mask(wider, split)
        secrets = triples[~shared]
        kept = secrets[rng.random(len(secrets)) < 0.4]
        splits[split] = tidy(
            np.concatenate([triples[shared], kept, _invented(wider, member.policy, len(secrets), rng)])
        )
    return replace(member, graph=_trimmed(replace(wider, splits=splits)))


def _invented(graph: Graph, policy: Policy, count: int, rng: np.random.Generator) -> Any:
    """Up to `count` random triples that the policy keeps, some with things that nobody has heard of."""
    size = 20 * count + 200
    ends = rng.integers(len(graph.entities), size=(size, 2))
    ends[: size // 10, 0] = rng.integers(5, size=size // 10)
    made = np.stack([ends[:, 0], rng.integers(len(graph.relations), size=size), ends[:, 1]], axis=1).astype(np.int32)
    probe = replace(graph, splits={"train": made})
    return probe.train[~policy.mask(probe, "train")][: count + 1]


def _trimmed(graph: Graph) -> Graph:
    """The graph with the vocabulary that its triples use, as a reader would have made it."""
    facts = graph.facts
    entities, relations = np.unique(facts[:, [HEAD, TAIL]]), np.unique(facts[:, RELATION])
    place_e, place_r = np.zeros(len(graph.entities), np.int32), np.zeros(len(graph.relations), np.int32)
    place_e[entities], place_r[relations] = np.arange(len(entities)), np.arange(len(relations))
    splits = {
        split: np.stack([place_e[t[:, HEAD]], place_r[t[:, RELATION]], place_e[t[:, TAIL]]], axis=1)
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
) -> dict[str, Any]:
    """Run the federation twice, once with every owner's secrets changed, and compare all that left, byte by byte.

    Both runs are in one process under a virtual clock, so that nothing but the secrets differs; a few `exchanges` long,
    without differential privacy, whose noise would hide a leak.

    Returns:
        ``same``, and for each owner how much it said, and the first message that differs.
    """
    quick = settings.model_copy(
        update={
            "exchanges": exchanges, "initial_epochs": min(settings.initial_epochs, settings.epochs),
            "private": settings.private.model_copy(update={"epochs": 0}),
            "privacy": settings.privacy.model_copy(update={"mode": "none"}),
        }
    )  # fmt: skip
    members = {name: disturbed(member, seed + 1) for name, member in federation.members.items()}
    worlds = {"as it is": federation, "with other secrets": replace(federation, members=members)}
    said: dict[str, dict[str, list[tuple[str, int, str]]]] = {}
    shared: dict[str, Any] = {}
    aligned: dict[str, Any] = {}
    for number, (world, made) in enumerate(worlds.items()):
        folder = scratch / f"world{number}"
        simulation = Simulation.create(
            folder, made, quick, baselines=(), engine="in-process", seed=seed, progress=progress
        )
        with progress.task(f"the federation {world}", None, "epochs") as task:
            InProcess(simulation.homes, Epochs(task), tapes=folder / "tapes").run(simulation.arm("federated"))
        said[world] = {name: list(heard_by_others(folder / "tapes" / f"{name}.tape")) for name in made.members}
        shared[world] = {home.name: (home.shared.fingerprint, home.shared.notes) for home in simulation.homes}
        aligned[world] = {home.name: home.peers for home in simulation.homes}
    before, after = said.values()
    same_graph = [a == b for a, b in zip(*(world.values() for world in shared.values()), strict=True)]
    same_peers = [a == b for a, b in zip(*(world.values() for world in aligned.values()), strict=True)]
    owners = {}
    for number, name in enumerate(federation.members):
        pairs = zip(before[name], after[name], strict=False)
        first = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
        if first is None and len(before[name]) != len(after[name]):
            first = min(len(before[name]), len(after[name]))
        owners[name] = {
            "secrets": _secrets(federation.members[name]), "messages": len(before[name]),
            "bytes": sum(size for _, size, _ in before[name]), "first_difference": first,
            "same_graph": same_graph[number], "same_alignment": same_peers[number],
        }  # fmt: skip
    same = all(o["first_difference"] is None and o["same_graph"] and o["same_alignment"] for o in owners.values())
    return {"same": same, "owners": owners}


def heard_by_others(tape: Path) -> Iterator[tuple[str, int, str]]:
    """All that the owner of a tape said: (to whom, bytes, SHA-256)."""
    with tape.open("rb") as file:
        while line := file.readline():
            record = json.loads(line)
            if record["what"] == "heard":
                file.seek(record["size"], 1)
            elif record["what"] == "said":
                yield record["peer"], record["size"], record["sha256"]


class Epochs:
    """Tells a task of every epoch that some owner has finished."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __call__(self, event: str, **fields: Any) -> None:
        if event == "progress":
            self._task.advance(1)


def _secrets(member: Member) -> Mapping[str, int]:
    if member.policy is None:
        return {}
    return {split: int((~member.policy.mask(member.graph, split)).sum()) for split in member.graph.splits}
