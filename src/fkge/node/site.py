"""What a site does for its identity: make a key and ask for a certificate, put a kit in its place, renew.

The key is made here and stays here. All else that a node starts from is written beside it, each setting explained; what
is there already is the owner's, and is never written over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fkge.errors import IdentityError, RunError
from fkge.node.authority import DAYS, Authority
from fkge.node.consortium import Consortium
from fkge.node.identity import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    KIT,
    NEXT_KEY,
    REQUEST,
    REVOKED,
    Identity,
    key_for,
    new_key,
    read_key,
    write_key,
)
from fkge.node.kits import Kit
from fkge.node.requests import read_request, vouched, write_request
from fkge.node.trust import Trust, fingerprint, public_key, read_certificate, spoken, suppressed_if_old
from fkge.settings import Settings
from fkge.trace import sync_folder, write_atomically

RENEW_WITHIN = timedelta(days=30)
"""How long before its end a certificate is better renewed."""


def request(folder: Path, name: str, consortium: str) -> str:
    """Make a key and a request for a certificate in `folder`. Returns the key's fingerprint, to be compared."""
    for file in (KEY, NEXT_KEY):
        if (folder / file).exists():
            raise RunError(
                f"{folder}: has a key ({file}) already, which is not written over. To replace it: fkge cert renew "
                f"{folder}; for another owner, name another folder"
            )
    key = new_key()
    data = write_request(key, name, consortium)  # whose mistakes show before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_key(folder / KEY, key)
    write_atomically(folder / REQUEST, data)
    return fingerprint(key.public_key())


def renew(folder: Path) -> str:
    """Make a new key and a request that the present one vouches for. Returns the new key's fingerprint.

    The present key and certificate stay in use until the kit for the new one is installed.
    """
    identity = Identity.load(folder)
    _finish_rotation(folder)
    if (folder / NEXT_KEY).exists():
        raise RunError(
            f"{folder}: a renewal is under way; have {REQUEST} approved and install the kit. To begin anew, remove "
            f"{NEXT_KEY}"
        )
    key = new_key()
    voucher = identity.sign(vouched(key.public_key()))
    write_key(folder / NEXT_KEY, key)
    write_atomically(folder / REQUEST, write_request(key, identity.name, identity.consortium, voucher))
    return fingerprint(key.public_key())


@dataclass(frozen=True)
class Installed:
    """What `install` did.

    Attributes:
        identity: the site's, from now on.
        notes: what else its owner should know.
    """

    identity: Identity
    notes: tuple[str, ...] = ()


def install(data: bytes, what: str, folder: Path, now: datetime, compare: Callable[[Kit], None]) -> Installed:
    """Put a kit in its place in a site's folder. Either all of it holds afterwards, or nothing has changed.

    Args:
        data: the kit.
        what: its name, for messages.
        compare: called when the site knows no authority yet, with a kit whose signature holds by the certificate in it;
            raises unless a person, or a fingerprint that one gave, says that this is the consortium's authority.

    Raises:
        IdentityError: the kit is forged, of another authority, for another key, older than the one here, or its
            certificate does not hold now.
    """
    here = [read_key(folder / file).public_key() for file in (KEY, NEXT_KEY) if (folder / file).is_file()]
    if not here:
        raise IdentityError(
            "unreadable",
            f"{folder}: is not a site's folder; it has no {KEY}. Name the folder where `fkge cert request` made it.",
        )
    pinned = (folder / AUTHORITY).read_bytes() if (folder / AUTHORITY).is_file() else None
    kit = Kit.read(data, what, pinned)
    certificate = read_certificate(kit.certificate.encode())
    if key_for(folder, certificate) is None:
        keys = " or ".join(spoken(fingerprint(key)) for key in here)
        raise IdentityError(
            "name",
            f"{what}: is for {kit.name}'s key {spoken(fingerprint(public_key(certificate)))}, and {folder} holds "
            f"{keys}. Install it where its request was made.",
        )
    trust = Trust(kit.authority.encode(), kit.revoked.encode(), file=folder / REVOKED, what=what)
    with suppressed_if_old():
        trust.reload()
    trust.check(kit.certificate.encode(), now, kit.name)
    before = _kit_before(folder, pinned)
    if before is not None and before.number > kit.number:
        raise IdentityError(
            "old",
            f"{what}: is number {kit.number} of {kit.date:%Y-%m-%d}, and number {before.number} of "
            f"{before.date:%Y-%m-%d} is installed. Ask for the latest.",
        )
    if pinned is None:
        compare(kit)
        write_atomically(folder / AUTHORITY, kit.authority.encode())
    notes = tuple(_write_beside(folder, kit, before))
    write_atomically(folder / REVOKED, trust.revoked.pem)
    write_atomically(folder / KIT, data)  # from here on it holds
    _finish_rotation(folder)
    write_atomically(folder / CERTIFICATE, kit.certificate.encode())
    if not (folder / NEXT_KEY).exists():  # whose request is still to be approved
        (folder / REQUEST).unlink(missing_ok=True)
    return Installed(Identity.load(folder), notes)


def _kit_before(folder: Path, pinned: bytes | None) -> Kit | None:
    if pinned is None or not (folder / KIT).is_file():
        return None
    with suppress(IdentityError):  # a damaged one is replaced
        return Kit.read((folder / KIT).read_bytes(), str(folder / KIT), pinned)
    return None


def _finish_rotation(folder: Path) -> None:
    """If the kit in force is for the next key, that is the key."""
    kit = Kit.read((folder / KIT).read_bytes(), str(folder / KIT), (folder / AUTHORITY).read_bytes())
    if key_for(folder, read_certificate(kit.certificate.encode())) == folder / NEXT_KEY:
        (folder / NEXT_KEY).replace(folder / KEY)
        sync_folder(folder)


# -- files to start from -----------------------------------------------------------------------------


def _write_beside(folder: Path, kit: Kit, before: Kit | None) -> Iterator[str]:
    """Write what a node starts from; yields what the owner should know."""
    suggested = {} if before is None else _suggested(before)
    for name, text in _suggested(kit).items():
        path = folder / name
        there = path.read_text(encoding="utf-8") if path.exists() else None
        if there is None:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, text.encode())
        elif there != text and suggested.get(name) != text:
            write_atomically(path.with_name(path.name + ".new"), text.encode())
            yield f"{path}: stays as it is, for it is the owner's; what the kit suggests now is in {name}.new"
    if before is not None:
        came, went = kit.members.keys() - before.members.keys(), before.members.keys() - kit.members.keys()
        yield from (f"{name} is a member now" for name in sorted(came))
        yield from (f"{name} is no member any more" for name in sorted(went))


def _suggested(kit: Kit) -> dict[str, str]:
    """The owner's files, as a kit has them."""
    links = {
        f"links/{peer}.{kind}.tsv": text
        for peer, linked in kit.links.items()
        for kind, text in (("entities", linked.entities), ("relations", linked.relations))
        if text is not None
    }
    return links | {
        "node.toml": node_toml(kit), "peers.toml": peers_toml(kit), "federation.toml": federation_toml(kit)
    }  # fmt: skip


def node_toml(kit: Kit) -> str:
    """A `node.toml` to start from."""
    from fkge.node.settings import NodeSettings

    own = kit.members[kit.name]
    given: dict[str, Any] = {"name": kit.name, "graph": "graph", "identity": ".", "state": "state"}
    given |= {"listen": f"0.0.0.0:{own.address.rpartition(':')[2]}" if own.address else ""}
    given |= {"settings": "federation.toml", "peers": "peers.toml", "founder": own.founder, "seed": 0}
    head = (
        f"# The node of {kit.name} in {kit.consortium}. Paths are beside this file. Put the graph where `graph` says."
    )
    return "\n".join([head, "", *_lines(NodeSettings, given)]) + "\n"


def peers_toml(kit: Kit) -> str:
    """A `peers.toml` to start from."""
    from fkge.node.settings import PeerSettings

    lines = ["# Who may have what of this owner's: this file is its own, and nobody else's says otherwise."]
    for name, member in sorted(kit.members.items()):
        if name == kit.name:
            continue
        given: dict[str, Any] = {"address": member.address} if member.address else {}
        given["founder"] = member.founder
        if (links := kit.links.get(name)) is not None:
            given |= {"same": True} if links.same else {}
            files = {kind: f"links/{name}.{kind}.tsv" for kind in ("entities", "relations")}
            given |= {kind: file for kind, file in files.items() if getattr(links, kind) is not None}
        lines += ["", f"[peers.{name}]", *_lines(PeerSettings, given)]
    return "\n".join(lines) + "\n"


def federation_toml(kit: Kit) -> str:
    """What the members agreed on; where they did not yet, a file to agree on."""
    if kit.settings is not None:
        return kit.settings
    return (
        "# How the owners train and exchange: the members agree on it, and each has the same file. Nothing is set, so\n"
        "# the defaults hold. `fkge new FOLDER` writes a settings.toml in which all keys are explained.\n"
    )


def _lines(kind: type[Settings], given: dict[str, Any]) -> Iterator[str]:
    """Settings as lines of TOML, each explained: those that are given, then all others as comments."""
    for key in sorted(kind.model_fields, key=lambda key: key not in given):
        field = kind.model_fields[key]
        yield f"# {field.description}"
        value = given.get(key, field.get_default())
        yield ("" if key in given else "# ") + f"{key} = " + ("(none)" if value is None else json.dumps(value))


# -- everything in one place -------------------------------------------------------------------------


def provision(consortium: Consortium, out: Path, now: datetime, days: int = DAYS) -> dict[str, Installed]:
    """Make an authority and, for every member, a site's folder with everything in it, keys too.

    Whoever does this has held all keys in hand. Where the authority is there already, members that came are added,
    and certificates that are about to end are made anew. A member whose key is not here, because its folder was handed
    over or its owner has renewed, keeps what it has: only its kit is made anew.

    Returns:
        What was made, by member; folders are ``out/kits/NAME``.
    """
    folder = out / "authority"
    if folder.exists():
        authority = Authority.open(folder)
    else:
        (out / "kits").mkdir(parents=True, exist_ok=True)
        for made in (out, out / "kits"):
            made.chmod(0o700)
        authority = Authority.create(folder, consortium.name, now)
    authority.check_same(consortium.name)
    ours = [name for name in consortium.members if _is_ours(out / "kits" / name, name, authority)]
    for name in ours:
        site, held = out / "kits" / name, authority.holding(name)
        if not (site / KEY).exists():
            request(site, name, consortium.name)
        key = read_key(site / KEY)
        if not held or held[-1].expires - now < min(RENEW_WITHIN, timedelta(days=days) / 2):
            asked = read_request(write_request(key, name, consortium.name), str(site))
            authority.approve(asked, now, days, refresh=False)
    authority.agree(consortium, now)

    def is_ours(kit: Kit) -> None:
        assert kit.authority.encode() == (folder / AUTHORITY).read_bytes()

    kits = {name: authority.kit(name) for name in ours}
    return {
        name: install(path.read_bytes(), str(path), out / "kits" / name, now, is_ours) for name, path in kits.items()
    }


def _is_ours(site: Path, name: str, authority: Authority) -> bool:
    """Whether a member's key is here, or nowhere yet. Raises `IdentityError` if it is here and was revoked."""
    held = authority.holding(name)
    key = fingerprint(read_key(site / KEY).public_key()) if (site / KEY).exists() else None
    if not held and any(line.fingerprint == key for line in authority.issued):
        raise IdentityError(
            "revoked",
            f"{site}: the key in it was revoked, and does not come back. Take {name} off the list; or, for a new key, "
            f"delete {site}",
        )
    return not held or held[-1].fingerprint == key
