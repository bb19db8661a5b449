"""A consortium as somebody wrote it down: who belongs to it, and what the members agreed on beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from fkge.errors import IdentityError, SettingsError, did_you_mean
from fkge.node.kits import LinkTexts, Member
from fkge.node.trust import checked_name
from fkge.settings import Settings, read_toml


class Pair(Settings):
    """What two members have in common; files as text, labels of the first in the first column."""

    between: tuple[str, str] = Field(description="the two members' names")
    entities: str | None = Field(None, description="a file of pairs: a label of the first, a tab, one of the second")
    relations: str | None = Field(None, description="the same for relations")
    same: bool = Field(False, description="equal labels are the same thing, entities and relations alike")


class _File(Settings):
    name: str = Field(description="the consortium's name")
    settings: str | None = Field(None, description="a file of federation settings, the same for all")
    members: dict[str, dict[str, Any]] = Field(description="a table for each owner")
    links: list[dict[str, Any]] = Field([], description="a table for each pair of owners that share something")


@dataclass(frozen=True)
class Consortium:
    """Who belongs to a consortium, and what the members agreed on.

    Attributes:
        name: its name.
        members: by name.
        links: what pairs of members have in common, where it is known beforehand.
        settings: the text of their federation settings, if they agreed on some.
    """

    name: str
    members: dict[str, Member]
    links: tuple[Pair, ...] = ()
    settings: str | None = None

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """A consortium described by a TOML file, with the files that it names.

        Raises:
            SettingsError: a key, a name or a file is wrong.
            GraphError: a file of links cannot be read.
        """
        file = _File.build(read_toml(path), str(path))
        members = {}
        for name, table in file.members.items():
            members[_named(name, f"{path}: [members.{name}]")] = Member.build(table, f"{path}: [members.{name}]")
        if not members:
            raise SettingsError(f"{path}: names no members; add [members.NAME] with an address for each")
        if not any(member.founder for member in members.values()):
            raise SettingsError(f"{path}: no member is a founder; say founder = true for those that begin")
        addresses = [member.address for member in members.values() if member.address]
        if twice := [address for i, address in enumerate(addresses) if address in addresses[:i]]:
            raise SettingsError(f"{path}: two members have the address {twice[0]}; each node has its own")
        pairs = [_pair(table, f"{path}: links[{i}]", path.parent, members) for i, table in enumerate(file.links)]
        ends = [frozenset(pair.between) for pair in pairs]
        for i, end in enumerate(ends):
            if len(end) < 2 or end in ends[:i]:
                raise SettingsError(f"{path}: links[{i}]: {' and '.join(sorted(end))}: one owner, or linked above")
        settings = None if file.settings is None else _settings(path.parent / file.settings)
        return cls(checked_consortium(file.name), members, tuple(pairs), settings)

    def links_of(self, name: str) -> dict[str, LinkTexts]:
        """What `name` shares with each of its peers, its own labels first."""
        found = {}
        for pair in self.links:
            if name in pair.between:
                first = pair.between[0] == name
                texts = (text if first or text is None else _turned(text) for text in (pair.entities, pair.relations))
                entities, relations = texts
                found[pair.between[first]] = LinkTexts(same=pair.same, entities=entities, relations=relations)
        return found


def checked_consortium(name: str) -> str:
    """A consortium's name, if a certificate can hold it."""
    if not 1 <= len(name.strip()) == len(name) <= 64 or not name.isprintable():
        raise SettingsError(
            f"{name!r} cannot be a consortium's name: it has 1 to 64 characters and no blanks around it"
        )
    return name


def _named(name: str, where: str) -> str:
    try:
        return checked_name(name)
    except IdentityError as error:
        raise SettingsError(f"{where}: {error}") from None


def _pair(table: dict[str, Any], where: str, folder: Path, members: dict[str, Member]) -> Pair:
    pair = Pair.build(table, where)
    for name in pair.between:
        if name not in members:
            raise SettingsError(f"{where}: there is no member {name!r}{did_you_mean(name, members)}")
    files = {kind: getattr(pair, kind) for kind in ("entities", "relations") if getattr(pair, kind) is not None}
    return pair.model_copy(update={kind: _links(folder / file) for kind, file in files.items()})


def _links(path: Path) -> str:
    from fkge.align.links import read_links

    return "".join(f"{a}\t{b}\n" for a, b in read_links(path))


def _turned(text: str) -> str:
    return "".join("\t".join(reversed(line.split("\t"))) + "\n" for line in text.splitlines())


def _settings(path: Path) -> str:
    from fkge.federation import FederationSettings

    FederationSettings.build(read_toml(path), str(path))
    return path.read_text(encoding="utf-8")
