"""Reading a federation: owners' graphs, what each pair shares, and what a simulation may know on top of that.

A federation is a folder with a folder per owner (anything `read_graph` reads) and ``aligned/A__B.entities.tsv``,
``aligned/A__B.relations.tsv`` with one link per line; or a TOML file:

    [owners.clinic]
    graph = "clinic.nt"                  # a path beside this file, or pykeen:NAME
    refuses = ["shop"]                   # peers it will have nothing to do with
    [owners.clinic.train]                # what differs from everybody's [train]
    model = "TransR"

    [owners.genes]
    graph = "genes"

    [[links]]
    between = ["clinic", "genes"]
    entities = "clinic-genes.tsv"        # or same = true for equal labels
    relations = "clinic-genes.relations.tsv"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from fkge.align import Common, Pairs, find_common, read_links, same_labels
from fkge.errors import SettingsError, did_you_mean
from fkge.graph import Graph, read_graph
from fkge.settings import Settings, TrainSettings, read_toml
from fkge.trace import SILENT, Progress


@dataclass(frozen=True)
class Member:
    """An owner as a federation's description has it.

    Attributes:
        graph: its graph.
        train: settings of its own, over those of all.
        refuses: peers it never deals with.
    """

    graph: Graph
    train: Mapping[str, Any] = field(default_factory=dict)
    refuses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Federation:
    """Owners and what they share.

    Attributes:
        name: for people, and for the tokens of a common start.
        members: by name, in order.
        pairs: for each two owners that share something, the side of either.
    """

    name: str
    members: Mapping[str, Member]
    pairs: Pairs

    @property
    def graphs(self) -> dict[str, Graph]:
        return {name: member.graph for name, member in self.members.items()}

    def refused(self, a: str, b: str) -> bool:
        """Whether one of the two will have nothing to do with the other."""
        return b in self.members[a].refuses or a in self.members[b].refuses

    def common(self, owner: str) -> dict[str, Common]:
        """What `owner` shares with each of its peers, from its side."""
        out = {}
        for (a, b), (side_a, side_b) in self.pairs.items():
            if owner == a:
                out[b] = side_a
            elif owner == b:
                out[a] = side_b
        return dict(sorted(out.items()))


class _Member(Settings):
    graph: str = Field(description="a path beside the federation's file, or pykeen:NAME")
    refuses: list[str] = Field([], description="peers this owner will have nothing to do with")
    train: dict[str, Any] = Field({}, description="training settings of its own")


class _Links(Settings):
    between: tuple[str, str] = Field(description="two owners")
    entities: str | None = Field(None, description="a file of links between entities")
    relations: str | None = Field(None, description="a file of links between relations")
    same: bool = Field(False, description="equal labels are the same thing, entities and relations alike")


class _File(Settings):
    name: str | None = Field(None, description="the federation's name")
    owners: dict[str, dict[str, Any]] = Field(description="a table for each owner")
    links: list[dict[str, Any]] = Field([], description="a table for each pair of owners that share something")


def read_federation(path: str | Path, progress: Progress = SILENT) -> Federation:
    """The federation in a folder or described by a TOML file."""
    path = Path(path)
    if path.is_dir():
        return _from_folder(path, progress)
    if path.suffix == ".toml":
        return _from_toml(path, progress)
    missing = "" if path.exists() else ": no such file or folder"
    raise SettingsError(f"{path}{missing}. A federation is a folder with a folder per owner, or a .toml file.")


def _from_folder(folder: Path, progress: Progress) -> Federation:
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name != "aligned" and p.name[0] != ".")
    if len(names) < 2:
        raise SettingsError(f"{folder}: holds {len(names)} folders of owners; a federation has at least two")
    members = {name: Member(read_graph(str(folder / name), progress=progress)) for name in names}
    pairs = {}
    for file in sorted((folder / "aligned").glob("*__*.entities.tsv")) + sorted(
        (folder / "aligned").glob("*__*.relations.tsv")
    ):
        a, _, b = file.name.removesuffix(".entities.tsv").removesuffix(".relations.tsv").partition("__")
        for name in (a, b):
            if name not in members:
                raise SettingsError(f"{file}: there is no owner {name!r} in {folder}{did_you_mean(name, members)}")
        if a == b or (b, a) in pairs:
            raise SettingsError(
                f"{file}: {a} and {b} are one owner, or linked by {b}__{a} already; keep one of the two"
            )
        if (a, b) not in pairs:
            stem = folder / "aligned" / f"{a}__{b}"
            links = [_links(Path(f"{stem}.{kind}.tsv"), progress) for kind in ("entities", "relations")]
            pairs[a, b] = find_common(members[a].graph, members[b].graph, *links)
    return _checked(folder.resolve().name, members, pairs, folder)


def _links(path: Path, progress: Progress) -> list[tuple[str, str]]:
    return read_links(path, progress) if path.exists() else []


def _from_toml(path: Path, progress: Progress) -> Federation:
    file = _File.build(read_toml(path), str(path))
    members = {}
    for name, table in file.owners.items():
        where = f"{path}: [owners.{name}]"
        entry = _Member.build(table, where)
        TrainSettings.build(entry.train, f"{where} train")
        source = entry.graph if entry.graph.startswith("pykeen:") else str(path.parent / entry.graph)
        members[name] = Member(read_graph(source, progress=progress), entry.train, tuple(entry.refuses))
    for name, member in members.items():
        for peer in member.refuses:
            if peer not in members:
                raise SettingsError(f"{path}: [owners.{name}] refuses {peer!r}{did_you_mean(peer, members)}")
    pairs = {}
    for number, table in enumerate(file.links):
        where = f"{path}: links[{number}]"
        entry_links = _Links.build(table, where)
        a, b = entry_links.between
        for name in (a, b):
            if name not in members:
                raise SettingsError(f"{where}: there is no owner {name!r}{did_you_mean(name, members)}")
        if a == b or (a, b) in pairs or (b, a) in pairs:
            raise SettingsError(f"{where}: {a} and {b} are one owner, or linked above already")
        graph_a, graph_b = members[a].graph, members[b].graph
        entities, relations = same_labels(graph_a, graph_b) if entry_links.same else ([], [])
        if entry_links.entities is not None:
            entities += read_links(path.parent / entry_links.entities, progress)
        if entry_links.relations is not None:
            relations += read_links(path.parent / entry_links.relations, progress)
        pairs[a, b] = find_common(graph_a, graph_b, entities, relations)
    return _checked(file.name or path.stem, members, pairs, path)


def _checked(name: str, members: dict[str, Member], pairs: dict[tuple[str, str], Any], where: Path) -> Federation:
    pairs = {names: sides for names, sides in pairs.items() if len(sides[0])}
    if not pairs:
        raise SettingsError(f"{where}: no two owners share an entity or a relation; are the links there?")
    for owner in members:
        if owner.startswith(".") or "/" in owner or owner == "":
            raise SettingsError(f"{where}: {owner!r} cannot be an owner's name; it names a folder too")
    return Federation(name, members, pairs)
