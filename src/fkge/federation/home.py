"""Where an owner keeps its things, so that its process needs nothing from any other.

HOME/
  graph.safetensors   its graph
  settings.toml       how it federates and trains
  peers.safetensors   what it shares with each peer, where its rows begin, and which held-out triples a partner holds

What an experiment leaves for the owner, in a folder per arm:

  checkpoint.safetensors   everything needed to go on
  model.safetensors        its best vectors, and settings.toml, as `fkge train` leaves them: `fkge predict` reads it
  ranks.safetensors        of its test triples, for comparisons between arms
  result.json              what it reached
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fkge.align import Common, Tokens, held_splits, held_through_chains, settle
from fkge.align.links import KINDS
from fkge.align.overlap import Mask
from fkge.embed import Tables, load_tensors, make_model, save_model, save_tensors
from fkge.embed.models import Kind
from fkge.evaluate import Known, Ranks, classify, metrics, rank
from fkge.federation.owner import Acquaintance, Ledger, Owner, Plan
from fkge.federation.protocol import Manners
from fkge.federation.settings import FederationSettings
from fkge.federation.source import Federation
from fkge.graph import Graph, load_graph, save_graph
from fkge.settings import TrainSettings
from fkge.trace import write_atomically

_PEERS, _RANKS = "fkge.peers.1", "fkge.ranks.1"
PARTS = ("strict", "chained", "held")
"""Test triples that nobody else holds; that another owner holds, as only a chain of links through others shows; and
that stand in the training set of a partner linked directly."""


@dataclass(frozen=True)
class Arm:
    """One arm of an experiment, as each owner sees it.

    Attributes:
        name: of its folder.
        plan: what an owner spends.
        peers: whether it deals with others.
        permuted: the control in which aligned rows are mixed up.
        begin_with: an arm whose end is this one's beginning.
    """

    name: str
    plan: Plan
    peers: bool = True
    permuted: bool = False
    begin_with: str | None = None


@dataclass(frozen=True)
class Home:
    """An owner's folder, opened.

    Attributes:
        name: the owner.
        folder: of the home.
        graph, settings: its own.
        peers: whom it knows.
        refuses: whom it will have nothing to do with.
        tokens: where rows begin, by kind; see `fkge.align.tokens`.
        held: by split, which triples a partner holds in its training set. An owner in the field cannot know that.
        chained: by split, which further ones another owner holds, by a chain of links through others.
        seed: of the experiment.
    """

    name: str
    folder: Path
    graph: Graph
    settings: FederationSettings
    peers: Mapping[str, Acquaintance]
    refuses: tuple[str, ...]
    tokens: Tokens
    held: Mapping[str, Mask]
    chained: Mapping[str, Mask]
    seed: int

    @classmethod
    def open(cls, folder: Path) -> Home:
        """The home in `folder`."""
        tensors, about = load_tensors(folder / "peers.safetensors", _PEERS)
        graph = load_graph(folder / "graph.safetensors")
        peers = {
            peer: Acquaintance(
                Common(tensors[f"{peer}/entity"].numpy(), tensors[f"{peer}/relation"].numpy()),
                entry["model"],
                entry["widths"],
            )
            for peer, entry in about["peers"].items()
        }
        tokens = Tokens.restore({kind: tensors[f"tokens|{kind}"].numpy().view(np.uint64) for kind in KINDS})
        held, chained = (
            {n.removeprefix(what): t.numpy().astype(bool) for n, t in tensors.items() if n.startswith(what)}
            for what in ("held|", "chained|")
        )
        settings = FederationSettings.load(folder / "settings.toml")
        return cls(
            about["name"], folder, graph, settings, peers, tuple(about["refuses"]), tokens, held, chained, about["seed"]
        )  # fmt: skip

    # -- working -------------------------------------------------------------------------------------

    def arm_folder(self, arm: str) -> Path:
        """Where the owner keeps what belongs to `arm`."""
        return self.folder.parent.parent / "arms" / arm / self.name

    def owner(self, arm: Arm, late: bool = False) -> tuple[Owner, bool]:
        """The owner as this arm begins, or where it was when it was last saved; and whether it has trained already.

        Args:
            late: it joins a federation that has begun, so it does not start together with the others.
        """
        peers = {p: known for p, known in self.peers.items() if arm.peers and p not in self.refuses}
        tokens = self.tokens if arm.peers else Tokens(self.graph, f"lone {self.name}")
        if arm.permuted and peers:
            peers, tokens = self._mixed_up(peers, tokens)
        owner = Owner(
            self.name, self.graph, self.settings, peers, plan=arm.plan, seed=self.seed, decide=self.deciding(),
            tokens=None if late else tokens, secret=self.seed,
        )  # fmt: skip
        checkpoint = self.arm_folder(arm.name) / "checkpoint.safetensors"
        if checkpoint.exists():
            owner.load(checkpoint)
            owner.renew_secret()
            return owner, owner.trainer.epoch >= arm.plan.initial
        if arm.begin_with is not None:
            owner.load(self.arm_folder(arm.begin_with) / "checkpoint.safetensors")
            return owner, True
        return owner, False

    def manners(self, arm: Arm) -> Manners:
        """How the owner behaves in this arm. One that deals with nobody trains alone."""
        manners = self.settings.manners(self.refuses)
        return manners if arm.peers and self.peers else replace(manners, train_alone=True)

    def _mixed_up(self, peers: Mapping[str, Acquaintance], tokens: Tokens) -> tuple[dict[str, Acquaintance], Tokens]:
        """The owner as it would be had it confused its shared things with each other, the same way towards everybody.

        Each takes the place of another in every exchange and at the start; so all is as in the federation, rows that
        meet begin alike, and just what they stand for is wrong.
        """
        place: dict[Kind, npt.NDArray[np.int64]] = {}
        for number, kind in enumerate(KINDS):
            shared = np.unique(np.concatenate([known.common.ids(kind) for known in peers.values()]))
            circle = np.random.default_rng([self.seed, number, *self.name.encode()]).permutation(shared)
            place[kind] = np.arange(len(tokens[kind]))
            place[kind][circle] = np.roll(circle, 1)
        confused = {
            peer: replace(
                known,
                common=Common(place["entity"][known.common.entities], place["relation"][known.common.relations]),
            )
            for peer, known in peers.items()
        }
        moved = {kind: tokens[kind].copy() for kind in KINDS}
        for kind in KINDS:
            moved[kind][place[kind]] = tokens[kind]
        return confused, Tokens.restore(moved)

    def deciding(self) -> Any:
        """Validation triples that decide: all, or those that nobody else holds."""
        strict = ~(self.held["valid"] | self.chained["valid"])
        return self.graph.valid[strict] if self.settings.decide == "strict" else self.graph.valid

    # -- reporting -----------------------------------------------------------------------------------

    def conclude(self, arm: str, tables: Tables, ledger: Ledger, settings: TrainSettings) -> dict[str, Any]:
        """Score an owner's best vectors and leave everything in the arm's folder.

        ``valid`` is scored on all validation triples; ``test`` on each of `PARTS` apart, whichever file they stand in.
        """
        folder = self.arm_folder(arm)
        folder.mkdir(parents=True, exist_ok=True)
        known = Known.of(self.graph)
        tests = [name for name in self.graph.splits if name.startswith("test")]
        triples = np.concatenate([self.graph.splits[name] for name in tests])
        held, chained = (np.concatenate([masks[name] for name in tests]) for masks in (self.held, self.chained))
        ranks = rank(tables, triples, known=known)
        parts = {"strict": ~(held | chained), "chained": chained, "held": held}
        scored = replace(
            self.graph,
            splits={"train": self.graph.train, "valid": self.graph.valid, "test": self.graph.test}
            | {part: triples[mask] for part, mask in parts.items()},
        )
        present = [part for part in PARTS if parts[part].any()]
        accuracy = classify(tables, scored, splits=("valid", *present)).accuracy
        result: dict[str, Any] = {
            "valid": metrics(rank(tables, self.graph.valid, known=known)) | {"accuracy": accuracy["valid"]},
            "test": {
                part: {"triples": int(parts[part].sum())} | metrics(ranks[parts[part]]) | {"accuracy": accuracy[part]}
                for part in present
            },
            **asdict(ledger),
        }
        save_ranks(folder / "ranks.safetensors", ranks, held, chained)
        save_model(folder / "model.safetensors", tables, settings)
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        write_atomically(folder / "result.json", (json.dumps(result, indent=2) + "\n").encode())
        return result

    def result(self, arm: str) -> dict[str, Any] | None:
        """What the owner reached in `arm`, if that is over."""
        path = self.arm_folder(arm) / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def make_homes(folder: Path, federation: Federation, settings: FederationSettings, seed: int) -> None:
    """Give every owner its home under `folder`.

    This is what owners do between themselves before they train: align (each pair), tell the form of their vectors, and
    agree on where aligned rows begin.
    """
    kinds: list[Kind] = [
        k for k in KINDS if settings.share in ("both", {"entity": "entities", "relation": "relations"}[k])
    ]
    chosen = {
        names: (a.only(kinds).sample(settings.ratio, seed), b.only(kinds).sample(settings.ratio, seed))
        for names, (a, b) in federation.pairs.items()
        if not federation.refused(*names)
    }
    used = replace(federation, pairs={names: sides for names, sides in chosen.items() if len(sides[0])})
    # Each owner hashes under its own name too: only links make rows begin alike, not labels that happen to be equal.
    tokens = {name: Tokens(graph, f"{federation.name}/{name}") for name, graph in federation.graphs.items()}
    settle(tokens, used.pairs)
    trains = {
        name: TrainSettings.build(settings.train.model_dump() | dict(member.train), f"owner {name}")
        for name, member in federation.members.items()
    }
    models = {
        name: make_model(train) for name, train in trains.items()
    }  # what cannot work shows before anything is written
    anyhow = held_through_chains(federation.graphs, federation.pairs)
    for name, member in federation.members.items():
        home = folder / "owners" / name
        home.mkdir(parents=True, exist_ok=True)
        save_graph(member.graph, home / "graph.safetensors")
        own = settings.model_copy(update={"train": trains[name]})
        write_atomically(home / "settings.toml", own.to_toml().encode())
        tensors = {f"tokens|{kind}": torch.from_numpy(tokens[name][kind].view(np.int64).copy()) for kind in KINDS}
        peers = {}
        for peer, common in used.common(name).items():
            widths = {kind: models[peer].tables()[kind].width for kind in KINDS}
            peers[peer] = {"model": trains[peer].model, "widths": widths}
            tensors |= {f"{peer}/{kind}": torch.from_numpy(common.ids(kind).copy()) for kind in KINDS}
        held = held_splits(name, federation.graphs, federation.pairs)
        for split, mask in held.items():
            tensors[f"held|{split}"] = torch.from_numpy(mask.astype(np.uint8))
            tensors[f"chained|{split}"] = torch.from_numpy((anyhow[name][split] & ~mask).astype(np.uint8))
        about = {"name": name, "peers": peers, "refuses": list(member.refuses), "seed": seed}
        save_tensors(home / "peers.safetensors", _PEERS, tensors, about)


def save_ranks(path: Path, ranks: Ranks, held: Mask, chained: Mask | None = None) -> None:
    """Keep ranks for a comparison with another arm's."""
    chained = np.zeros_like(held) if chained is None else chained
    tensors = {
        "optimistic": torch.from_numpy(ranks.optimistic.astype(np.int32)),
        "pessimistic": torch.from_numpy(ranks.pessimistic.astype(np.int32)),
        "held": torch.from_numpy(held.astype(np.uint8)),
        "chained": torch.from_numpy(chained.astype(np.uint8)),
    }
    save_tensors(path, _RANKS, tensors, {})


def load_ranks(path: Path) -> tuple[Ranks, dict[str, Mask]]:
    """What `save_ranks` kept: ranks, and which of them belong to each of `PARTS`."""
    tensors, _ = load_tensors(path, _RANKS)
    held, chained = (tensors[name].numpy().astype(bool) for name in ("held", "chained"))
    ranks = Ranks(tensors["optimistic"].numpy().astype(np.int64), tensors["pessimistic"].numpy().astype(np.int64))
    return ranks, {"strict": ~(held | chained), "chained": chained, "held": held}
