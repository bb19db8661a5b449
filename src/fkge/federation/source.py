"""Read a federation from a folder or a TOML file: each owner's graph and policy, and the links between owners. Splits
that were drawn at random are drawn again under the owner's policy when the federation is read.

docs/reference/files.md describes both. `fkge.graph` reads the graphs. Where there is no such file or folder, an
embedded federation of that name (`fkge.data`) is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from fkge import data
from fkge.align import Common, Keys, Pairs, find_common, label_keys, owner_keys, read_links, same_labels
from fkge.align.links import KINDS, Kind, Link
from fkge.align.psi import Normalisation
from fkge.errors import SettingsError, did_you_mean
from fkge.federation.codec import NAME
from fkge.graph import Graph, Policy, read_graph
from fkge.progress import SILENT, Progress
from fkge.settings import Settings, SettingValues, TrainSettings, read_toml


@dataclass(frozen=True)
class Member:
    """One owner of a federation.

    Attributes:
        graph: its graph.
        train: training settings of its own, over those of all.
        refuses: peers it does not exchange with.
        policy: which of its triples are shareable; all if None.
    """

    graph: Graph
    train: SettingValues = field(default_factory=dict)
    refuses: tuple[str, ...] = ()
    policy: Policy | None = None

    def keeping(self, policy: Policy) -> Member:
        """Return the owner with a policy.

        Splits that were drawn from all triples are drawn again, so that the split of a shareable triple does not depend
        on confidential ones.
        """
        graph = self.graph
        if graph.split_seed is not None:
            graph = policy.resplit(graph, seed=graph.split_seed)
        return replace(self, graph=graph, policy=policy)


@dataclass(frozen=True)
class Links:
    """The correspondence of two owners' labels.

    Attributes:
        entities, relations: pairs of labels, the first owner's first.
        same: equal labels denote the same thing, too.
    """

    entities: tuple[Link, ...] = ()
    relations: tuple[Link, ...] = ()
    same: bool = False

    def keys(self, graph: Graph, side: Literal[0, 1], kinds: Collection[Kind], normalisation: Normalisation) -> Keys:
        """Return the keys of one of the two owners for a private intersection; none of a kind that is not shared.

        Args:
            graph: the owner's.
            side: 0 for the first owner, 1 for the second.
            kinds: the kinds that are shared.
            normalisation: how labels are made comparable.
        """
        keys = owner_keys(graph, side, self.entities, self.relations, normalisation)
        if self.same:
            keys = label_keys(graph, normalisation) | keys
        entities, relations = (keys.of(kind) if kind in kinds else {} for kind in KINDS)
        return Keys(entities, relations, normalisation)

    def common(self, a: Graph, b: Graph) -> tuple[Common, Common]:
        """Return both sides of the alignment, where both graphs may be seen."""
        entities, relations = same_labels(a, b) if self.same else ([], [])
        return find_common(a, b, [*entities, *self.entities], [*relations, *self.relations])


@dataclass(frozen=True)
class Federation:
    """Owners and what they share.

    Attributes:
        name: for display.
        members: by name, in order.
        links: by pair of owners, each pair once.
    """

    name: str
    members: Mapping[str, Member]
    links: Mapping[tuple[str, str], Links]

    @property
    def graphs(self) -> dict[str, Graph]:
        return {name: member.graph for name, member in self.members.items()}

    @cached_property
    def pairs(self) -> Pairs:
        """The alignments of all pairs that share anything, confidential triples included; for simulations only."""
        found = {
            (a, b): links.common(self.members[a].graph, self.members[b].graph)
            for (a, b), links in self.links.items()
        }  # fmt: skip
        return {names: sides for names, sides in found.items() if len(sides[0])}

    def keeping(self, share: float, seed: int) -> Federation:
        """Return the federation with a random `share` confidential at every owner without a policy."""
        rule = {"share": False, "fraction": share, "seed": seed}
        policy = Policy.build({"default": "share", "rules": [rule]})
        members = {name: m if m.policy else m.keeping(policy) for name, m in self.members.items()}
        return replace(self, members=members)

    def refused(self, a: str, b: str) -> bool:
        """Return whether one of the two refuses the other."""
        return b in self.members[a].refuses or a in self.members[b].refuses

    def common(self, owner: str) -> dict[str, Common]:
        """What `owner` shares with each of its peers, from its side."""
        return sides(owner, self.pairs)


def sides(owner: str, pairs: Pairs) -> dict[str, Common]:
    """Those of `pairs` that `owner` is one of: what it shares with each of its peers, from its side."""
    out = {b: side for (a, b), (side, _) in pairs.items() if a == owner}
    out |= {a: side for (a, b), (_, side) in pairs.items() if b == owner}
    return dict(sorted(out.items()))


class MemberTable(Settings):
    """A table ``[owners.NAME]`` of a federation's file."""

    graph: str = Field(description="a path relative to the federation's file, or pykeen:NAME")
    refuses: list[str] = Field([], description="peers this owner does not exchange with")
    train: SettingValues = Field({}, description="training settings of its own")
    policy: str | None = Field(None, description="a sharing policy, a path relative to the federation's file")


class LinkTable(Settings):
    """A table ``[[links]]`` of a federation's file."""

    between: tuple[str, str] = Field(description="two owners")
    entities: str | None = Field(None, description="a file of links between entities")
    relations: str | None = Field(None, description="a file of links between relations")
    same: bool = Field(False, description="equal labels denote the same thing, of entities and of relations")


class FederationFile(Settings):
    """A federation's file."""

    name: str | None = Field(None, description="the federation's name")
    owners: dict[str, SettingValues] = Field(description="a table for each owner")
    links: list[SettingValues] = Field([], description="a table for each pair of owners that share something")


def read_federation(path: str | Path, progress: Progress = SILENT) -> Federation:
    """Return the federation in a folder, described by a TOML file, or embedded under that name; see `fkge.data`.

    Raises:
        SettingsError: there is none, or it is not consistent.
    """
    path = Path(path)
    if str(path) in data.NAMES and not path.exists():
        path = data.build(str(path), progress)
    if path.is_dir():
        return _from_folder(path, progress)
    if path.suffix == ".toml":
        return _from_toml(path, progress)
    missing = f"no such file or folder{did_you_mean(str(path), data.NAMES).rstrip('?')}"
    raise SettingsError(
        f"{path}: {'is none' if path.exists() else missing}. A federation is a folder with a folder per owner, a .toml "
        f"file, or an embedded one: {', '.join(data.NAMES)}."
    )


_RESERVED = ("aligned", "policies")


def _from_folder(folder: Path, progress: Progress) -> Federation:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in _RESERVED and p.name[0] != ".")
    if len(names) < 2:
        file = folder / "federation.toml"
        meant = f"; did you mean {file}?" if file.exists() else ""
        raise SettingsError(f"{folder}: holds {len(names)} folders of owners; a federation has at least two{meant}")
    members = {name: Member(read_graph(str(folder / name), progress=progress)) for name in names}
    for file in sorted((folder / "policies").glob("*.toml")):
        if file.stem not in members:
            raise SettingsError(f"{file}: there is no owner {file.stem!r}{did_you_mean(file.stem, members)}")
        members[file.stem] = members[file.stem].keeping(Policy.load(file))
    pairs: dict[tuple[str, str], Links] = {}
    for kind in ("entities", "relations"):
        for file in sorted((folder / "aligned").glob(f"*__*.{kind}.tsv")):
            a, _, b = file.name.removesuffix(f".{kind}.tsv").partition("__")
            for name in (a, b):
                if name not in members:
                    raise SettingsError(f"{file}: there is no owner {name!r} in {folder}{did_you_mean(name, members)}")
            if a == b or (b, a) in pairs:
                raise SettingsError(
                    f"{file}: {a} and {b} are one owner, or linked by {b}__{a} already; keep one of the two"
                )
            found, known = tuple(read_links(file, progress)), pairs.get((a, b), Links())
            pairs[a, b] = replace(known, entities=found) if kind == "entities" else replace(known, relations=found)
    return checked(folder.resolve().name, members, pairs, folder)


def _from_toml(path: Path, progress: Progress) -> Federation:
    file = FederationFile.build(read_toml(path), str(path))
    members = {}
    for name, table in file.owners.items():
        where = f"{path}: [owners.{name}]"
        entry = MemberTable.build(table, where)
        TrainSettings.build(entry.train, f"{where} train")
        source = entry.graph if entry.graph.startswith("pykeen:") else str(path.parent / entry.graph)
        member = Member(read_graph(source, progress=progress), entry.train, tuple(entry.refuses))
        members[name] = member if entry.policy is None else member.keeping(Policy.load(path.parent / entry.policy))
    for name, member in members.items():
        for peer in member.refuses:
            if peer not in members:
                raise SettingsError(f"{path}: [owners.{name}] refuses {peer!r}{did_you_mean(peer, members)}")
    pairs: dict[tuple[str, str], Links] = {}
    for number, table in enumerate(file.links):
        where = f"{path}: links[{number}]"
        entry_links = LinkTable.build(table, where)
        a, b = entry_links.between
        for name in (a, b):
            if name not in members:
                raise SettingsError(f"{where}: there is no owner {name!r}{did_you_mean(name, members)}")
        if a == b or (a, b) in pairs or (b, a) in pairs:
            raise SettingsError(f"{where}: {a} and {b} are one owner, or linked above already")
        found = {
            kind: tuple(read_links(path.parent / name, progress))
            for kind, name in (("entities", entry_links.entities), ("relations", entry_links.relations))
            if name is not None
        }
        pairs[a, b] = Links(**found, same=entry_links.same)
    return checked(file.name or path.stem, members, pairs, path)


def checked(
    name: str, members: Mapping[str, Member], links: Mapping[tuple[str, str], Links], where: str | Path
) -> Federation:
    """Return a federation whose owners share something and can each have a folder.

    Args:
        name, members, links: see `Federation`.
        where: its source, for messages.

    Raises:
        SettingsError: it is not such a federation.
    """
    federation = Federation(name, members, links)
    if len(members) < 2:
        raise SettingsError(f"{where}: names {len(members) or 'no'} owner; a federation has at least two")
    if not federation.pairs:
        raise SettingsError(
            f"{where}: no two owners share an entity or a relation; put links into aligned/A__B.entities.tsv of a "
            "folder, or into [[links]] of a .toml (same = true there: equal labels are the same thing)"
        )
    for owner in members:
        if len(owner) > NAME:
            raise SettingsError(f"{where}: the name {owner[:20]}… has {len(owner)} letters; {NAME} is the most")
        if owner.startswith(".") or "/" in owner or "|" in owner or owner == "":
            raise SettingsError(
                f"{where}: {owner!r} cannot be an owner's name, since it names a folder too; "
                "choose one without / and | that does not begin with a dot"
            )
    return federation
