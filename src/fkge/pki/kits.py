"""The agreement of a consortium's members, and the kit in which each site receives it.

A `Consortium` is read from a TOML file that one person writes. A `Kit` is one JSON file for one site, signed as a
whole by the authority; nothing in it is secret except the links. The kit's signature is over canonical JSON, which no
dependency provides.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import Field, field_validator

from fkge.errors import IdentityError, SettingsError, did_you_mean
from fkge.pki import certificates as certs
from fkge.pki.certificates import MAX_BYTES, OWNER_NAME
from fkge.pki.trust import Trust
from fkge.settings import Settings, read_toml

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


class Member(Settings):
    """One owner of a consortium, as all members know it."""

    address: str = Field("", description="host:port where its node listens; empty if it only connects to others")
    founder: bool = Field(True, description="it takes part in agreeing on common initial rows; if not, it joins later")

    @field_validator("address")
    @classmethod
    def _address(cls, address: str) -> str:
        found = _ADDRESS.fullmatch(address)
        if address and not (found and 0 < int(found[2]) < 65536):
            raise ValueError("expected host:port, such as genes.example:7443")
        return address


class LinkTexts(Settings):
    """The links between a site and one peer: texts of files, the site's own labels in the first column."""

    same: bool = Field(False, description="equal labels are the same thing, entities and relations alike")
    entities: str | None = Field(None, description="the text of a file of pairs")
    relations: str | None = Field(None, description="the text of a file of pairs")

    @property
    def texts(self) -> dict[str, str]:
        """The texts that there are, by what they link: entities, relations."""
        found = {"entities": self.entities, "relations": self.relations}
        return {kind: text for kind, text in found.items() if text is not None}


# -- the consortium's file -------------------------------------------------------------------------


class Pair(LinkTexts):
    """The links between two members, labels of the first in the first column; in the file, names of files of pairs."""

    between: tuple[str, str] = Field(description="the two members' names")


class _File(Settings):
    name: str = Field(description="the consortium's name")
    settings: str | None = Field(None, description="a file of federation settings, the same for all")
    members: dict[str, dict[str, object]] = Field(description="a table for each owner")
    links: list[dict[str, object]] = Field([], description="a table for each pair of owners that share something")


@dataclass(frozen=True)
class Consortium:
    """The members of a consortium and what they agreed on; links and settings are texts instead of file names."""

    name: str
    members: dict[str, Member]
    links: tuple[Pair, ...] = ()
    settings: str | None = None

    @classmethod
    def read(cls, path: Path) -> Consortium:
        """Read a consortium's TOML file, and the files that it names.

        Raises:
            SettingsError: a key, a name or a file is wrong.
            GraphError: a file of links cannot be read.
        """
        file = _File.build(read_toml(path), str(path))
        members = {}
        for name, table in file.members.items():
            where = f"{path}: [members.{name}]"
            try:
                members[certs.checked_name(name)] = Member.build(table, where)
            except IdentityError as error:
                raise SettingsError(f"{where}: {error}") from None
        if not members:
            raise SettingsError(f"{path}: names no members; add [members.NAME] with an address for each")
        if not any(member.founder for member in members.values()):
            raise SettingsError(f"{path}: no member is a founder; set founder = true for those that start together")
        addresses = [member.address for member in members.values() if member.address]
        if twice := [address for i, address in enumerate(addresses) if address in addresses[:i]]:
            raise SettingsError(f"{path}: two members have the address {twice[0]}; each node has its own")
        pairs = [_pair(table, f"{path}: links[{i}]", path.parent, members) for i, table in enumerate(file.links)]
        ends = [frozenset(pair.between) for pair in pairs]
        for i, end in enumerate(ends):
            if len(end) < 2 or end in ends[:i]:
                raise SettingsError(f"{path}: links[{i}]: {' and '.join(sorted(end))}: one owner, or linked above")
        settings = None if file.settings is None else _settings(path.parent / file.settings)
        return cls(certs.checked_consortium(file.name), members, tuple(pairs), settings)

    def links_of(self, name: str) -> dict[str, LinkTexts]:
        """Return the links of one member by peer, its own labels in the first column."""
        found = {}
        for pair in self.links:
            if name in pair.between:
                first = pair.between[0] == name
                texts = {kind: text if first else _swap_columns(text) for kind, text in pair.texts.items()}
                found[pair.between[first]] = LinkTexts(same=pair.same, **texts)
        return found


def _pair(table: dict[str, object], where: str, folder: Path, members: dict[str, Member]) -> Pair:
    from fkge.align.links import read_links

    pair = Pair.build(table, where)
    for name in pair.between:
        if name not in members:
            raise SettingsError(f"{where}: there is no member {name!r}{did_you_mean(name, members)}")
    read = {kind: read_links(folder / file) for kind, file in pair.texts.items()}
    return pair.model_copy(update={k: "".join(f"{a}\t{b}\n" for a, b in links) for k, links in read.items()})


def _swap_columns(text: str) -> str:
    return "".join("\t".join(reversed(line.split("\t"))) + "\n" for line in text.splitlines())


def _settings(path: Path) -> str:
    from fkge.federation import FederationSettings  # imports torch, which the other commands do without

    FederationSettings.build(read_toml(path), str(path))
    return path.read_text(encoding="utf-8")


# -- kits ------------------------------------------------------------------------------------------


class Kit(Settings):
    """Everything a site receives from its authority; no private key is in it."""

    kind: Literal["fkge.kit.1"] = Field("fkge.kit.1", description="what this is, and in which version")
    consortium: str = Field(min_length=1, description="its name")
    name: str = Field(description="the member this kit is for")
    number: int = Field(ge=1, description="grows with every kit of an authority; a lower one does not replace a higher")
    date: datetime = Field(description="when it was made")
    members: dict[str, Member] = Field(description="by name, this site among them")
    links: dict[str, LinkTexts] = Field({}, description="by peer")
    settings: str | None = Field(None, description="the text of federation.toml, the same for all")
    authority: str = Field(description="the authority's certificate, PEM")
    certificate: str = Field(description="the site's certificate, PEM")
    revoked: str = Field(description="the revocation list at that time, PEM")

    @field_validator("members", "links")
    @classmethod
    def _names(cls, tables: dict[str, Settings]) -> dict[str, Settings]:
        for name in tables:  # a name becomes part of a file name at the site
            if not OWNER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be an owner's name")
        return tables

    @field_validator("consortium")
    @classmethod
    def _printable(cls, consortium: str) -> str:
        if not consortium.isprintable():  # it becomes part of a comment in node.toml
            raise ValueError("a consortium's name is printable")
        return consortium

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the whole kit."""
        return certs.fingerprint(_canonical(self.model_dump(mode="json")))

    @classmethod
    def read(cls, data: bytes, source: str, authority: bytes | None = None) -> Kit:
        """Parse a kit and check its signature and that its parts fit together.

        Args:
            data: the file.
            source: where it came from, for messages.
            authority: the certificate that must have signed it; None: the one in the kit, which the caller compares.

        Raises:
            IdentityError: unreadable, forged, stranger (of another authority), or name (its parts contradict each
                other).
        """
        try:
            with certs.parsing(source, "a kit"):
                if len(data) > MAX_BYTES:
                    raise ValueError(f"{len(data):,} bytes; {MAX_BYTES:,} at most")
                found = json.loads(data)
                if not isinstance(found, dict) or set(found) != {"kit", "signature"}:
                    raise ValueError("it lacks a kit and its signature")
                text, signature = _signed_text(found["kit"]), base64.b64decode(found["signature"], validate=True)
                kit = cls.build(found["kit"], "kit")
        except SettingsError as error:
            raise IdentityError("unreadable", f"{source}: is not a kit of this version of fkge ({error})") from None
        own = certs.read_certificate(kit.authority.encode(), f"{source}: its authority")
        anchor = own if authority is None else certs.read_certificate(authority, f"{source}: its authority")
        if own != anchor:
            raise IdentityError(
                "stranger",
                f"{source}: comes from another authority ({certs.short_fingerprint(own)}) than this site's "
                f"({certs.short_fingerprint(anchor)}). Use the kit of your own consortium.",
            )
        try:
            certs.public_key(anchor).verify(signature, text, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise IdentityError(
                "forged", f"{source}: its signature is not valid; it was altered in transit. Ask for it again."
            ) from None
        trust = Trust(certs.pem(anchor), kit.revoked.encode(), source=source)
        certificate = kit.certificate.encode()  # checked at its own start: whether it is valid now is not asked
        owner = trust.check(certificate, certs.read_certificate(certificate).not_valid_before_utc)
        if owner != kit.name or kit.name not in kit.members or kit.consortium != trust.consortium:
            raise IdentityError(
                "name",
                f"{source}: is for {kit.name} of {kit.consortium}, but its certificate is for {owner} of "
                f"{trust.consortium}, or {kit.name} is not in its list of members",
            )
        return kit


def signed(body: dict[str, object], key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the JSON body of a kit as a file, signed with the authority's key."""
    signature = base64.b64encode(key.sign(_signed_text(body), ec.ECDSA(SHA256()))).decode()
    return json.dumps({"kit": body, "signature": signature}, indent=1, sort_keys=True).encode() + b"\n"


def _signed_text(body: object) -> bytes:
    return b"fkge kit 1\n" + _canonical(body)


def _canonical(body: object) -> bytes:
    """Return JSON in the one form that is signed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
