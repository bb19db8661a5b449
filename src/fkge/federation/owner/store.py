"""The folder in which an owner keeps its data: graph, sharing policy, settings, peers.

STORE/
  graph.safetensors    the whole graph
  shared.safetensors   the shareable part of it, where a policy (or differential privacy) makes two tracks
  settings.toml        how the owner federates and trains
  policy.toml          its sharing policy, if it has one
  links.json           how its labels correspond to those of others (`Origin`)
  peers.safetensors    the rows it shares with each peer, and the tokens from which rows are initialised
  whole.safetensors    where rows of the shareable graph stand in the whole graph

While an owner with two tracks federates it reads the shareable graph and ``peers.safetensors`` only; the whole graph is
opened when the shared track is finished. What training leaves (checkpoints, ledger, model) is in a
`fkge.federation.owner.workspace.Workspace`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from fkge.align import Common, Tokens
from fkge.align.links import KINDS
from fkge.embed import load_tensors, save_tensors
from fkge.embed.models import Kind, Model
from fkge.embed.reciprocal import exchanged
from fkge.errors import RunError, SettingsError
from fkge.federation.egress import Egress
from fkge.federation.owner.exchange import PeerProfile
from fkge.federation.owner.training import Owner, Plan
from fkge.federation.owner.workspace import Workspace
from fkge.federation.protocol import ProtocolConfig
from fkge.federation.settings import FederationSettings
from fkge.federation.source import Links, Member
from fkge.files import write_atomically
from fkge.graph import Graph, Policy, Shareable, load_graph, save_graph
from fkge.graph.graph import Triples
from fkge.privacy import Head
from fkge.results import ResultModel
from fkge.settings import SettingValues

PEERS_FILE, WHOLE_FILE = "fkge.peers.2", "fkge.whole.1"


@dataclass(frozen=True)
class OwnerStore:
    """An owner's data, opened.

    Attributes:
        name: the owner.
        folder: of the store.
        settings: its own.
        peers: profiles of the peers it is aligned with.
        refuses: peers it does not exchange with.
        tokens: from which rows of the shareable graph are initialised, by kind; see `fkge.align.tokens`.
        two_tracks: what it shares is less than, or other than, what it knows.
        seed: of everything random that is not secret.
        run: a random name for this store's training, so that ledger entries of two trainings never collide.
    """

    name: str
    folder: Path
    settings: FederationSettings
    peers: Mapping[str, PeerProfile]
    refuses: tuple[str, ...]
    tokens: Tokens
    two_tracks: bool
    seed: int
    run: str

    @classmethod
    def open(cls, folder: Path) -> OwnerStore:
        """Return the store in `folder`.

        Raises:
            RunError: there is none.
        """
        if not (folder / "peers.safetensors").exists():
            raise RunError(f"{folder}: is not an owner's store any more; restore it from a copy, or start a new run")
        tensors, about = load_tensors(folder / "peers.safetensors", PEERS_FILE)
        peers = {
            peer: PeerProfile(
                Common(tensors[f"{peer}/entity"].numpy(), tensors[f"{peer}/relation"].numpy()),
                entry["model"],
                entry["widths"],
            )
            for peer, entry in about["peers"].items()
        }
        tokens = Tokens({kind: tensors[f"tokens|{kind}"].numpy().view(np.uint64) for kind in KINDS})
        settings = FederationSettings.load(folder / "settings.toml")
        refuses = tuple(about["refuses"])
        return cls(
            about["name"], folder, settings, peers, refuses, tokens, about["two_tracks"], about["seed"], about["run"]
        )

    @cached_property
    def graph(self) -> Graph:
        """The whole graph."""
        return load_graph(self.folder / "graph.safetensors")

    @cached_property
    def shared(self) -> Graph:
        """The shareable part of the graph."""
        return load_graph(self.folder / "shared.safetensors") if self.two_tracks else self.graph

    @cached_property
    def rows(self) -> Mapping[Kind, npt.NDArray[np.int64]] | None:
        """The id in the whole graph of each row of the shareable one, by kind; None where all is shareable."""
        if not self.two_tracks:
            return None
        tensors, _ = load_tensors(self.folder / "whole.safetensors", WHOLE_FILE)
        return {kind: tensors[f"rows|{kind}"].numpy() for kind in KINDS}

    def with_peers(self, peers: Mapping[str, PeerProfile], tokens: Tokens) -> OwnerStore:
        """Write these peers and tokens to the store; return the store that has them."""
        changed = replace(self, peers=dict(peers), tokens=tokens)
        changed.write_peers()
        return changed

    def write_peers(self) -> None:
        """Write ``peers.safetensors``; in one step, so that a store always has all of it."""
        tensors = {f"tokens|{kind}": torch.from_numpy(self.tokens[kind].view(np.int64).copy()) for kind in KINDS}
        for peer, known in self.peers.items():
            tensors |= {f"{peer}/{kind}": torch.from_numpy(known.common.ids(kind).copy()) for kind in KINDS}
        forms = {
            peer: {"model": known.model, "widths": {str(k): w for k, w in known.widths.items()}}
            for peer, known in self.peers.items()
        }
        about = {
            "name": self.name, "peers": forms, "refuses": list(self.refuses), "two_tracks": self.two_tracks,
            "seed": self.seed, "run": self.run,
        }  # fmt: skip
        save_tensors(self.folder / "peers.safetensors", PEERS_FILE, tensors, about)

    def changed(self, member: Member, settings: FederationSettings, seed: int) -> list[str]:
        """Return what has changed since this store was made and does not let training continue from it.

        Args:
            member: the owner as its files say now.
            settings, seed: as they are now.
        """
        part = shareable(member, self.two_tracks)
        shared = member.graph if part is None else part.graph
        then_and_now = (
            ("its graph", self.graph.fingerprint, member.graph.fingerprint),
            ("what it shares", self.shared.fingerprint, shared.fingerprint),
            ("how it trains", self.settings.shared_train, settings.shared_train),
            ("its privacy mode", self.settings.privacy.mode, settings.privacy.mode),
            ("the seed", self.seed, seed),
        )
        return [what for what, then, now in then_and_now if then != now]

    def protocol_config(self) -> ProtocolConfig:
        """Return the configuration of the owner's protocol; an owner without peers trains alone."""
        config = self.settings.protocol_config(self.refuses)
        return config if self.peers else replace(config, train_alone=True)

    def open_owner(
        self,
        workspace: Workspace,
        plan: Plan,
        *,
        late: bool = False,
        secret: int | None = None,
        ledger: Head | None = None,
        label: str = "",
        decide: Triples | None = None,
        peers: Mapping[str, PeerProfile] | None = None,
        tokens: Tokens | None = None,
        kind: type[Owner] = Owner,
    ) -> tuple[Owner, bool]:
        """Return the owner, on its shareable graph: fresh, or from its last checkpoint.

        Args:
            workspace: where it keeps checkpoints and its ledger.
            plan: the epochs it spends.
            late: it joins a federation that has begun, so its rows are not initialised together with the others.
            secret: seed of rotations and of a game's noise; the store's own, which hides nothing, if None.
            ledger: how far its ledger has come at least.
            label: tells entries of this training from others in the ledger.
            decide: (k, 3) validation triples that decide what is kept; all shareable ones if None.
            peers, tokens: instead of the store's.
            kind: the class of the owner.

        Returns:
            The owner, and whether it has trained already.
        """
        profiles = self.peers if peers is None else peers
        owner = kind(
            self.name, self.shared, self.settings,
            {peer: known for peer, known in profiles.items() if peer not in self.refuses},
            plan=plan, seed=self.seed, decide=self.shared.valid if decide is None else decide,
            tokens=None if late else self.tokens if tokens is None else tokens,
            secret=self.seed if secret is None else secret,
            egress=Egress.open(workspace.folder, self.name, self.settings, f"{self.run} {label}: ", ledger),
        )  # fmt: skip
        return owner, workspace.resume(owner)


class Origin(ResultModel):
    """Where an owner comes from, in ``links.json``: its federation, its links by pair of owners, its own settings."""

    name: str
    links: dict[str, Links]
    train: SettingValues

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read that of the store in `folder`."""
        return cls.read(folder / "links.json", "Restore it from a copy, or make the store again.")


def create_store(
    folder: Path, name: str, member: Member, settings: FederationSettings, seed: int, secret: int
) -> OwnerStore:
    """Create the store of an owner that is aligned with nobody yet, in ``folder/owners/NAME``.

    Args:
        folder: of the node's state.
        name: of the owner.
        member: its graph and policy.
        settings: how it federates.
        seed: of everything random that is not secret.
        secret: seed of its tokens.

    Raises:
        SettingsError: the graph cannot be used with these settings.
    """
    two_tracks = settings.privacy.mode == "dp" or member.policy is not None
    check_split(settings, {name: member})
    part = shareable(member, two_tracks)
    graph = member.graph if part is None else part.graph
    if len(graph.train) == 0 or len(member.graph.valid) == 0:
        raise SettingsError(
            f"{name}: needs shareable training triples and validation triples; see its graph and policy"
        )
    store = OwnerStore(
        name, folder / "owners" / name, settings, {}, (), Tokens.draw(graph, secret), two_tracks, seed, new_run()
    )
    write_store(store, name, member, part, {})
    return OwnerStore.open(store.folder)


def write_store(
    store: OwnerStore,
    federation: str,
    member: Member,
    part: Shareable | None,
    links: Mapping[tuple[str, str], Links],
) -> None:
    """Write a new store with all its files.

    Args:
        store: what it holds.
        federation: name of the federation.
        member: the owner's graph and policy.
        part: the shareable part of the graph, where there are two tracks.
        links: how labels correspond, by pair of owners.
    """
    folder = store.folder
    folder.mkdir(parents=True, exist_ok=True)
    save_graph(member.graph, folder / "graph.safetensors")
    if part is not None:
        save_graph(part.graph, folder / "shared.safetensors")
    if member.policy is not None:
        member.policy.save(folder)
    known = {f"{a}|{b}": pair for (a, b), pair in links.items()}
    origin = Origin(name=federation, links=known, train=dict(member.train))
    write_atomically(folder / "links.json", json.dumps(origin.to_json()).encode())
    write_atomically(folder / "settings.toml", store.settings.to_toml().encode())
    none = np.empty(0, np.int64)
    ids = (none, none) if part is None else (part.entities, part.relations)
    tensors = {f"rows|{kind}": torch.from_numpy(rows.copy()) for kind, rows in zip(KINDS, ids, strict=True)}
    save_tensors(folder / "whole.safetensors", WHOLE_FILE, tensors, {})
    store.write_peers()


def new_run() -> str:
    """Return a random name for a store's training."""
    return secrets.token_hex(8)


def shareable(member: Member, two_tracks: bool) -> Shareable | None:
    """Return the shareable part of an owner's graph; None where there is one track, which is the whole graph."""
    return (member.policy or Policy.everything()).shareable(member.graph) if two_tracks else None


def check_split(settings: FederationSettings, members: Mapping[str, Member]) -> None:
    """Raise `SettingsError` for graphs that were split at random, if the settings ask for differential privacy."""
    drawn = [name for name, member in members.items() if member.graph.split_seed is not None]
    if settings.privacy.mode == "dp" and drawn:
        raise SettingsError(
            f"{', '.join(drawn)}: its triples were split at random, all together, so one fact more or less moves "
            "others between train and valid, and no ε would hold for it; give files train, valid and test"
        )


def widths(model: Model) -> dict[Kind, int]:
    """Return the widths of the vectors that owners of a model exchange, by kind: `Tables.width`, without tables."""
    specs = model.tables()
    return {kind: sum(specs[name].width for name in exchanged(kind, specs)) for kind in KINDS}
