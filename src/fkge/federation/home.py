"""Where an owner keeps its things, so that its process needs nothing from any other.

HOME/
  graph.safetensors    its graph, all of it
  shared.safetensors   what of it may leave a trace, where a policy (or differential privacy) makes two tracks
  settings.toml        how it federates and trains
  policy.toml          its sharing policy, if it has one
  links.json           what it knows of how its labels correspond to others'
  peers.safetensors    what it shares with each peer, where its rows begin, which shareable triples decide
  whole.safetensors    how the shareable graph lies in the whole, and which held-out triples a partner holds

While it federates under two tracks an owner reads the shareable graph and ``peers.safetensors`` only; it opens the
whole graph when the shared track is over.

What an experiment leaves for the owner, in a folder per arm:

  checkpoint.safetensors   everything needed to go on
  ledger.sqlite            what was spent and what left
  model.safetensors        its best vectors, and settings.toml, as `fkge train` leaves them: `fkge predict` reads it
  ranks.safetensors        of its test triples, for comparisons between arms
  result.json              what it reached
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fkge.align import Common, Pairs, Tokens, held_splits, held_through_chains, private_common, settle
from fkge.align.links import KINDS
from fkge.align.overlap import Mask
from fkge.align.psi import OverlapError
from fkge.embed import Tables, load_tensors, make_model, save_model, save_tensors
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind, Model
from fkge.errors import RunError, SettingsError
from fkge.evaluation import Known, Ranks, classify, metrics, rank
from fkge.federation.gate import Gate
from fkge.federation.owner import OWNER_FILE, Acquaintance, Activity, Owner, Plan, seed_of
from fkge.federation.private import train_private
from fkge.federation.protocol import Manners
from fkge.federation.settings import FederationSettings
from fkge.federation.source import Federation, Links, Member
from fkge.graph import Graph, Policy, Shareable, load_graph, sample_triples, save_graph
from fkge.graph.graph import Triples
from fkge.privacy import Head
from fkge.settings import TrainSettings
from fkge.trace import SILENT, Progress, read_json, write_atomically

_PEERS, _WHOLE, _RANKS = "fkge.peers.2", "fkge.whole.1", "fkge.ranks.1"
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
        random: the control in which owners send random vectors for their rows.
        begin_with: an arm whose end is this one's beginning.
    """

    name: str
    plan: Plan
    peers: bool = True
    permuted: bool = False
    random: bool = False
    begin_with: str | None = None


@dataclass(frozen=True)
class Whole:
    """What concerns all of an owner's graph, and never its shared track.

    Attributes:
        held: by split, which triples a partner holds in its training set. An owner in the field cannot know that.
        chained: by split, which further ones another owner holds, by a chain of links through others.
        rows: by kind, the id in the whole graph of each row of the shareable one; None where that is the whole.
    """

    held: Mapping[str, Mask]
    chained: Mapping[str, Mask]
    rows: Mapping[Kind, npt.NDArray[np.int64]] | None


@dataclass(frozen=True)
class Home:
    """An owner's folder, opened.

    Attributes:
        name: the owner.
        folder: of the home.
        settings: its own.
        peers: whom it knows.
        refuses: whom it will have nothing to do with.
        tokens: where rows of the shareable graph begin, by kind; see `fkge.align.tokens`.
        strict: (valid triples of the shareable graph,) those that nobody else shares, as a simulation can tell.
        two_tracks: what it shares is less than, or other than, what it knows.
        seed: of the experiment.
        run: a name for it that no other has.
    """

    name: str
    folder: Path
    settings: FederationSettings
    peers: Mapping[str, Acquaintance]
    refuses: tuple[str, ...]
    tokens: Tokens
    strict: Mask
    two_tracks: bool
    seed: int
    run: str

    @classmethod
    def open(cls, folder: Path) -> Home:
        """The home in `folder`."""
        if not (folder / "peers.safetensors").exists():
            raise RunError(f"{folder}: is no owner's home any more; put it back from a copy, or simulate anew")
        tensors, about = load_tensors(folder / "peers.safetensors", _PEERS)
        peers = {
            peer: Acquaintance(
                Common(tensors[f"{peer}/entity"].numpy(), tensors[f"{peer}/relation"].numpy()),
                entry["model"],
                entry["widths"],
            )
            for peer, entry in about["peers"].items()
        }
        tokens = Tokens.restore({kind: tensors[f"tokens|{kind}"].numpy().view(np.uint64) for kind in KINDS})
        settings = FederationSettings.load(folder / "settings.toml")
        return cls(
            about["name"], folder, settings, peers, tuple(about["refuses"]), tokens,
            tensors["strict"].numpy().astype(bool), about["two_tracks"], about["seed"],
            about["run"],
        )  # fmt: skip

    @cached_property
    def graph(self) -> Graph:
        """All the owner knows."""
        return load_graph(self.folder / "graph.safetensors")

    @cached_property
    def shared(self) -> Graph:
        """What of it may leave a trace."""
        return load_graph(self.folder / "shared.safetensors") if self.two_tracks else self.graph

    @cached_property
    def whole(self) -> Whole:
        """What concerns the whole graph."""
        tensors, _ = load_tensors(self.folder / "whole.safetensors", _WHOLE)
        held, chained = (
            {n.removeprefix(what): t.numpy().astype(bool) for n, t in tensors.items() if n.startswith(what)}
            for what in ("held|", "chained|")
        )
        rows: dict[Kind, npt.NDArray[np.int64]] = {kind: tensors[f"rows|{kind}"].numpy() for kind in KINDS}
        return Whole(held, chained, rows if self.two_tracks else None)

    def knowing(self, peers: Mapping[str, Acquaintance], tokens: Tokens) -> Home:
        """The same home, kept, with these acquaintances and tokens."""
        save_peers(
            self.folder, self.name, peers, tokens, self.strict, self.refuses, two_tracks=self.two_tracks,
            seed=self.seed, run=self.run,
        )  # fmt: skip
        return replace(self, peers=dict(peers), tokens=tokens)

    # -- working -------------------------------------------------------------------------------------

    def arm_folder(self, arm: str) -> Path:
        """Where the owner keeps what belongs to `arm`."""
        return self.folder.parent.parent / "arms" / arm / self.name

    def owner(
        self, arm: Arm, late: bool = False, secret: int | None = None, ledger: Head | None = None
    ) -> tuple[Owner, bool]:
        """The owner as this arm begins, or where it was when it was last saved; and whether it has trained already.

        One that deals with others works on its shareable graph; a lone one on all it knows.

        Args:
            late: it joins a federation that has begun, so it does not start together with the others.
            secret: seed of rotations and of a game's noise; a simulation's own, which hides nothing, if None.
            ledger: how far its ledger has come at least.
        """
        peers = {p: known for p, known in self.peers.items() if arm.peers and p not in self.refuses}
        graph = self.shared if arm.peers else self.graph
        tokens = self.tokens if arm.peers else Tokens.draw(graph, seed_of(self.seed, self.name, "lone"))
        if arm.permuted and peers:
            peers, tokens = self._mixed_up(peers, tokens)
        folder = self.arm_folder(arm.name)
        owner = Owner(
            self.name, graph, self.settings, peers, plan=arm.plan, seed=self.seed, decide=self.deciding(arm.peers),
            tokens=None if late else tokens, secret=self.seed if secret is None else secret, random=arm.random,
            gate=self._gate(arm, ledger) if arm.peers else None,
        )  # fmt: skip
        checkpoint = folder / "checkpoint.safetensors"
        if checkpoint.exists():
            owner.load(checkpoint)
            owner.renew_secret()
            return owner, owner.trainer.epoch >= arm.plan.initial
        if arm.begin_with is not None:
            owner.load(self.arm_folder(arm.begin_with) / "checkpoint.safetensors")
            return owner, True
        return owner, False

    def save(self, arm: Arm, owner: Owner) -> None:
        """Keep the owner's state; the one kept before stays beside it, in case that this one is damaged later."""
        folder = self.arm_folder(arm.name)
        folder.mkdir(parents=True, exist_ok=True)
        now, before = (folder / f"checkpoint{suffix}.safetensors" for suffix in ("", ".before"))
        if now.exists():
            before.unlink(missing_ok=True)
            before.hardlink_to(now)
        owner.save(now)

    def changed(self, member: Member, settings: FederationSettings, seed: int) -> list[str]:
        """What of an owner is not as it was when this home was founded, so that it cannot go on from there."""
        part = (member.policy or Policy.everything()).shareable(member.graph) if self.two_tracks else None
        shared = member.graph if part is None else part.graph
        then_and_now = (
            ("its graph", self.graph.fingerprint, member.graph.fingerprint),
            ("what it shares", self.shared.fingerprint, shared.fingerprint),
            ("how it trains", self.settings.shared_train, settings.shared_train),
            ("its privacy mode", self.settings.privacy.mode, settings.privacy.mode),
            ("the seed", self.seed, seed),
        )
        return [what for what, then, now in then_and_now if then != now]

    def seen(self, arm: Arm) -> Head | None:
        """How far the ledger had come by the owner's last checkpoint, if that says so."""
        path = self.arm_folder(arm.name) / "checkpoint.safetensors"
        try:
            told = load_tensors(path, OWNER_FILE)[1]["ledger"]
        except (RunError, KeyError):
            return None
        return None if told is None else Head(**told)

    def mend(self, arm: Arm) -> str | None:
        """Put the state kept before in the place of a damaged one. What was wrong, or None if nothing was."""
        folder = self.arm_folder(arm.name)
        now, before = (folder / f"checkpoint{suffix}.safetensors" for suffix in ("", ".before"))
        if not now.exists():
            return None
        try:
            load_tensors(now, OWNER_FILE)
        except RunError as error:
            if before.exists():
                try:
                    load_tensors(before, OWNER_FILE)
                except RunError:
                    raise RunError(
                        f"{folder}: both checkpoints are damaged. Put one back from a copy, or begin "
                        "anew (fkge node --anew)"
                    ) from None
            now.replace(folder / "checkpoint.damaged")
            if before.exists():
                now.hardlink_to(before)
            return str(error)
        return None

    def _gate(self, arm: Arm, at_least: Head | None) -> Gate:
        return Gate.open(self.arm_folder(arm.name), self.name, self.settings, f"{self.run} {arm.name}: ", at_least)

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

    def deciding(self, shared: bool) -> Triples:
        """Validation triples that decide, all or those that nobody else holds: shareable ones, or of all."""
        if shared and self.two_tracks:
            return self.shared.valid[self.strict] if self.settings.decide == "strict" else self.shared.valid
        strict = ~(self.whole.held["valid"] | self.whole.chained["valid"])
        return self.graph.valid[strict] if self.settings.decide == "strict" else self.graph.valid

    # -- reporting -----------------------------------------------------------------------------------

    def conclude(
        self, arm: Arm, owner: Owner, note: Callable[..., None], stop: Callable[[], bool], stays: bool = False
    ) -> bool:
        """End an owner's arm: train its private track, if it has two, and leave everything in the arm's folder.

        Args:
            stays: the owner goes on to serve others with what it has reached.

        Returns:
            False if `stop` said to leave; called again, it begins again.
        """
        tables, more = owner.best(), dict[str, Any]()
        if arm.peers and self.two_tracks:
            note("state", state="private")
            concluded = self._private_track(owner, tables, note, stop)
            if concluded is None:
                return False
            tables, more = concluded
        more |= owner.account()
        if not stays:
            owner.gate.close()
        note("state", state="scoring")
        self.report(arm.name, tables, owner.activity, self.settings.train, more)
        spent = [budget["spent"]["epsilon"] for budget in more.get("privacy", {}).get("budgets", ())]
        note("concluded", spent=max(spent) if spent and None not in spent else None)
        return True

    def _private_track(
        self, owner: Owner, shared: Tables, note: Callable[..., None], stop: Callable[[], bool]
    ) -> tuple[Tables, dict[str, Any]] | None:
        graph, whole, known = self.graph, self.whole, Known.of(self.graph)
        assert whole.rows is not None
        settings = self.settings.train.model_copy(update={"seed": seed_of(self.seed, self.name, "private")})
        decide = sample_triples(self.deciding(shared=False), settings.validation_triples, self.seed)
        began = owner.activity.epochs

        def between(done: int) -> bool:
            note("progress", epoch=began + done)
            return stop()

        sizes: dict[Kind, int] = {"entity": len(graph.entities), "relation": len(graph.relations)}
        with owner.clock("private"):
            track = train_private(
                torch.from_numpy(graph.train.astype(np.int64)), sizes, shared,
                {kind: torch.from_numpy(ids) for kind, ids in whole.rows.items()}, settings, self.settings.private,
                margin_of(self.settings.shared_train),
                lambda tables: metrics(rank(tables, decide, known=known))["mrr"], between,
            )  # fmt: skip
        if track is None:
            return None
        about = {"score": track.score, "shared": track.shared, "pull": track.pull, "epoch": track.epoch}
        return track.tables, {"private": about}

    def report(
        self, arm: str, tables: Tables, activity: Activity, settings: TrainSettings, more: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Score an owner's best vectors and leave everything in the arm's folder.

        ``valid`` is scored on all validation triples; ``test`` on each of `PARTS` apart, whichever file they stand in.
        """
        folder = self.arm_folder(arm)
        folder.mkdir(parents=True, exist_ok=True)
        known = Known.of(self.graph)
        tests = [name for name in self.graph.splits if name.startswith("test")]
        triples = np.concatenate([self.graph.splits[name] for name in tests])
        held, chained = (
            np.concatenate([masks[name] for name in tests]) for masks in (self.whole.held, self.whole.chained)
        )
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
            **asdict(activity),
            **more,
        }
        save_ranks(folder / "ranks.safetensors", ranks, held, chained)
        save_model(folder / "model.safetensors", tables, settings)
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        write_atomically(folder / "result.json", (json.dumps(result, indent=2) + "\n").encode())
        return result

    def result(self, arm: str) -> dict[str, Any] | None:
        """What the owner reached in `arm`, if that is over."""
        path = self.arm_folder(arm) / "result.json"
        way_out = f"Remove it, and go on: fkge simulate --resume {self.folder.parent.parent}"
        return read_json(path, way_out) if path.exists() else None


def make_homes(
    folder: Path, federation: Federation, settings: FederationSettings, seed: int, progress: Progress = SILENT
) -> None:
    """Give every owner its home under `folder`.

    This is what owners do between themselves before they train: split off what they share, align (each pair, by private
    set intersection), tell the form of their vectors, and agree on where aligned rows begin.
    """
    trains = {
        name: TrainSettings.build(settings.train.model_dump() | dict(member.train), f"owner {name}")
        for name, member in federation.members.items()
    }
    owns = {name: settings.model_copy(update={"train": trains[name]}) for name in federation.members}
    # what cannot work shows before anything is written
    models = {name: make_model(own.shared_train) for name, own in owns.items()}
    drawn = [name for name, member in federation.members.items() if member.graph.split_seed is not None]
    if settings.privacy.mode == "dp" and drawn:
        raise SettingsError(
            f"{', '.join(drawn)}: its triples were split at random, all together, so one fact more or less moves "
            "others between train and valid, and no ε would hold for it; give files train, valid and test"
        )
    two_tracks = settings.privacy.mode == "dp" or any(m.policy is not None for m in federation.members.values())
    parts = {
        name: (member.policy or Policy.everything()).shareable(member.graph) if two_tracks else None
        for name, member in federation.members.items()
    }
    graphs = {name: member.graph if (part := parts[name]) is None else part.graph
              for name, member in federation.members.items()}  # fmt: skip
    for name, graph in graphs.items():
        if len(graph.train) == 0:
            raise SettingsError(f"{name}: its policy shares no training triple; there is nothing to federate with")
    pairs = _align(federation, graphs, settings, seed, progress)
    # Each owner draws its own: only links make rows begin alike, not labels that happen to be equal.
    tokens = {name: Tokens.draw(graph, seed_of(seed, name, "tokens")) for name, graph in graphs.items()}
    settle(tokens, pairs)
    run = secrets.token_hex(8)
    anyhow = held_through_chains(federation.graphs, federation.pairs)
    apart = held_through_chains(graphs, pairs) if two_tracks else anyhow
    for name, member in federation.members.items():
        home = folder / "owners" / name
        links = {pair: known for pair, known in federation.links.items() if name in pair}
        write_home(home, federation.name, member, parts[name], owns[name], links)
        _save_whole(home, parts[name], held_splits(name, federation.graphs, federation.pairs), anyhow[name])
        peers = {
            peer: Acquaintance(common, trains[peer].model, widths(models[peer]))
            for peer, common in _sides(name, pairs).items()
        }
        save_peers(
            home, name, peers, tokens[name], ~apart[name]["valid"], member.refuses, two_tracks=two_tracks, seed=seed,
            run=run,
        )  # fmt: skip


def found_home(folder: Path, name: str, member: Member, settings: FederationSettings, seed: int, secret: int) -> Home:
    """A home for an owner in the field, under `folder`: it knows nobody yet, and nothing of what others hold.

    Args:
        secret: what its tokens are drawn from.
    """
    two_tracks = settings.privacy.mode == "dp" or member.policy is not None
    if settings.privacy.mode == "dp" and member.graph.split_seed is not None:
        raise SettingsError(
            f"{name}: its triples were split at random, all together, so one fact more or less moves others between "
            "train and valid, and no ε would hold for it; give files train, valid and test"
        )
    part = (member.policy or Policy.everything()).shareable(member.graph) if two_tracks else None
    graph = member.graph if part is None else part.graph
    if len(graph.train) == 0 or len(member.graph.valid) == 0:
        raise SettingsError(
            f"{name}: needs shareable training triples and validation triples; see its graph and policy"
        )
    home = folder / "owners" / name
    write_home(home, name, member, part, settings, {})
    nobodys = {split: np.zeros(len(triples), bool) for split, triples in member.graph.splits.items()}
    _save_whole(home, part, nobodys, nobodys)
    tokens = Tokens.draw(graph, secret)
    save_peers(
        home, name, {}, tokens, np.ones(len(graph.valid), bool), (), two_tracks=two_tracks, seed=seed,
        run=secrets.token_hex(8),
    )  # fmt: skip
    return Home.open(home)


def write_home(
    home: Path, federation: str, member: Member, part: Shareable | None, settings: FederationSettings,
    links: Mapping[tuple[str, str], Links],
) -> None:  # fmt: skip
    """Write what an owner has of its own: graph, policy, links and settings."""
    home.mkdir(parents=True, exist_ok=True)
    save_graph(member.graph, home / "graph.safetensors")
    if part is not None:
        save_graph(part.graph, home / "shared.safetensors")
    if member.policy is not None:
        member.policy.save(home)
    known = {f"{a}|{b}": pair.to_dict() for (a, b), pair in links.items()}
    about_links = {"name": federation, "links": known, "train": dict(member.train)}
    write_atomically(home / "links.json", json.dumps(about_links).encode())
    write_atomically(home / "settings.toml", settings.to_toml().encode())


def save_peers(
    home: Path,
    name: str,
    peers: Mapping[str, Acquaintance],
    tokens: Tokens,
    strict: Mask,
    refuses: Sequence[str],
    *,
    two_tracks: bool,
    seed: int,
    run: str,
) -> None:
    """Write what an owner knows of others, and where its rows begin; in one step, so a home always has all of it."""
    tensors = {f"tokens|{kind}": torch.from_numpy(tokens[kind].view(np.int64).copy()) for kind in KINDS}
    tensors["strict"] = torch.from_numpy(strict).to(torch.uint8)
    for peer, known in peers.items():
        tensors |= {f"{peer}/{kind}": torch.from_numpy(known.common.ids(kind).copy()) for kind in KINDS}
    forms = {
        peer: {"model": known.model, "widths": {str(k): w for k, w in known.widths.items()}}
        for peer, known in peers.items()
    }
    about = {
        "name": name, "peers": forms, "refuses": list(refuses), "two_tracks": two_tracks, "seed": seed, "run": run,
    }  # fmt: skip
    save_tensors(home / "peers.safetensors", _PEERS, tensors, about)


def widths(model: Model) -> dict[Kind, int]:
    """Of a model's vectors, by kind."""
    return {kind: model.tables()[kind].width for kind in KINDS}


def federation_of(folder: Path, owners: Sequence[str]) -> Federation:
    """The federation whose homes lie under `folder`: what `make_homes` was given."""
    members, links, name = {}, {}, ""
    for owner in owners:
        home = folder / "owners" / owner
        _, about = load_tensors(home / "peers.safetensors", _PEERS)
        known = json.loads((home / "links.json").read_text(encoding="utf-8"))
        policy = Policy.load(home / "policy.toml") if (home / "policy.toml").exists() else None
        graph = load_graph(home / "graph.safetensors")
        members[owner] = Member(graph, known["train"], tuple(about["refuses"]), policy)
        for pair, values in known["links"].items():
            a, b = pair.split("|")
            links[a, b] = Links.from_dict(values)
        name = known["name"]
    return Federation(name, members, links)


def _align(
    federation: Federation, graphs: Mapping[str, Graph], settings: FederationSettings, seed: int, progress: Progress
) -> dict[tuple[str, str], tuple[Common, Common]]:
    """What each two owners that deal with each other find to have in common, of what they share."""
    kinds: list[Kind] = [
        k for k in KINDS if settings.share in ("both", {"entity": "entities", "relation": "relations"}[k])
    ]
    found, refused = {}, list[str]()
    for (a, b), links in federation.links.items():
        if federation.refused(a, b):
            continue
        try:
            rule = settings.psi.normalisation
            keys = links.keys(graphs[a], 0, kinds, rule), links.keys(graphs[b], 1, kinds, rule)
            sides = private_common(*keys, settings.psi, progress)
        except OverlapError as error:
            refused.append(f"{a} and {b} do not federate: {error}")
            continue
        one, other = (side.only(kinds).sample(settings.ratio, seed) for side in sides)
        if len(one):
            found[a, b] = one, other
    if not found and refused:
        raise SettingsError("; ".join(refused))
    return found


def _sides(owner: str, pairs: Pairs) -> dict[str, Common]:
    """What `owner` shares with each of its peers, from its side."""
    out = {b: side for (a, b), (side, _) in pairs.items() if a == owner}
    out |= {a: side for (a, b), (_, side) in pairs.items() if b == owner}
    return dict(sorted(out.items()))


def _save_whole(home: Path, part: Shareable | None, held: Mapping[str, Mask], anyhow: Mapping[str, Mask]) -> None:
    none = np.empty(0, np.int64)
    tensors = {
        "rows|entity": torch.from_numpy((none if part is None else part.entities).copy()),
        "rows|relation": torch.from_numpy((none if part is None else part.relations).copy()),
    }
    for split, mask in held.items():
        tensors[f"held|{split}"] = torch.from_numpy(mask.astype(np.uint8))
        tensors[f"chained|{split}"] = torch.from_numpy((anyhow[split] & ~mask).astype(np.uint8))
    save_tensors(home / "whole.safetensors", _WHOLE, tensors, {})


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
