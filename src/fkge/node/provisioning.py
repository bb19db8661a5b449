"""The files a node starts from (`node.toml`, `peers.toml`, `federation.toml`), and a whole consortium of such folders.

`fkge.pki.site` checks a kit and puts it in force; this module writes the node's own files from it, each setting with
its meaning. They belong to the site's owner: a file that exists is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from fkge.errors import IdentityError
from fkge.files import write_atomically
from fkge.node.settings import NodeSettings, PeerSettings
from fkge.pki import site
from fkge.pki.authority import DAYS, Authority
from fkge.pki.certificates import AUTHORITY, KEY, fingerprint, read_key, read_request, write_request
from fkge.pki.kits import Consortium, Kit

RENEW_WITHIN = timedelta(days=30)
"""`provision` replaces certificates that end within this time."""

_NOTHING_AGREED = """\
# How the owners train and exchange: the members agree on it, and each has the same file. Nothing is set, so
# the defaults apply. `fkge new FOLDER` writes a settings.toml in which all keys are explained.
"""


@dataclass(frozen=True)
class Installed:
    """The result of `install`."""

    identity: site.Identity  # by the new kit
    notes: tuple[str, ...] = ()  # for the site's owner: files that differ from the kit's, members that came or left


def install(data: bytes, source: str, folder: Path, now: datetime, compare: Callable[[Kit], None]) -> Installed:
    """Install a kit in a site's folder and write the files a node starts from. A kit that is refused changes nothing.

    Args:
        data, source, folder, now, compare: see `fkge.pki.site.check_kit`, and its errors.
    """
    checked = site.check_kit(data, source, folder, now, compare)
    notes = tuple(_write_files(folder, checked.kit, checked.previous))  # first: a repeated install completes them
    return Installed(checked.install(), notes)


def _write_files(folder: Path, kit: Kit, previous: Kit | None) -> Iterator[str]:
    """Write the files of a kit that are not there yet; yield what the owner should know."""
    before = {} if previous is None else _files(previous)
    for name, text in _files(kit).items():
        path = folder / name
        present = path.read_text(encoding="utf-8") if path.exists() else None
        if present is None:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, text.encode())
        elif present != text and before.get(name) != text:
            write_atomically(path.with_name(path.name + ".new"), text.encode())
            yield f"{path}: stays as it is, for it is the owner's; what the kit suggests now is in {name}.new"
    if previous is not None:
        joined, left = kit.members.keys() - previous.members.keys(), previous.members.keys() - kit.members.keys()
        yield from (f"{name} is a member now" for name in sorted(joined))
        yield from (f"{name} is no longer a member" for name in sorted(left))


def _files(kit: Kit) -> dict[str, str]:
    links = {f"links/{p}.{kind}.tsv": text for p, both in kit.links.items() for kind, text in both.texts.items()}
    settings = _NOTHING_AGREED if kit.settings is None else kit.settings
    return links | {"node.toml": _node_toml(kit), "peers.toml": _peers_toml(kit), "federation.toml": settings}


def _node_toml(kit: Kit) -> str:
    own = kit.members[kit.name]
    listen = f"0.0.0.0:{own.address.rpartition(':')[2]}" if own.address else ""
    given = {
        "name": kit.name, "graph": "graph", "identity": ".", "state": "state", "listen": listen,
        "settings": "federation.toml", "peers": "peers.toml", "founder": own.founder, "seed": 0,
    }  # fmt: skip
    head = f"# The node of {kit.name} in {kit.consortium}. Paths are relative to this file. `graph` names your graph."
    return f"{head}\n\n{NodeSettings.build(given).explained(given)}"


def _peers_toml(kit: Kit) -> str:
    text = "# What each peer may receive from this owner. Only this file decides that; it is this owner's own.\n"
    for name, member in sorted(kit.members.items()):
        if name == kit.name:
            continue
        given: dict[str, object] = {"address": member.address} if member.address else {}
        given["founder"] = member.founder
        if (links := kit.links.get(name)) is not None:
            given |= {"same": True} if links.same else {}
            given |= {kind: f"links/{name}.{kind}.tsv" for kind in links.texts}
        text += f"\n[peers.{name}]\n{PeerSettings.build(given).explained(given)}"
    return text


# -- a whole consortium ------------------------------------------------------------------------------


def provision(consortium: Consortium, out: Path, now: datetime, days: int = DAYS) -> dict[str, Installed]:
    """Make an authority and, for every member, a site's folder with everything in it, private keys included.

    Returns what was installed, by member, in ``out/kits/NAME``. Run again, it adds new members and replaces
    certificates that are about to end. A member whose key is not here, because its folder was handed over or its owner
    has renewed, only gets a new kit.

    Args:
        consortium: its members and what they agreed on.
        out: the folder of everything.
        now: the time, aware.
        days: for how long certificates are valid.

    Raises:
        IdentityError: the authority in `out` is another consortium's, or a member's key was revoked.
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
    sites = {name: out / "kits" / name for name in consortium.members}
    sites = {name: path for name, path in sites.items() if _has_key_here(path, name, authority)}
    for name, path in sites.items():
        held = authority.holding(name)
        if not (path / KEY).exists():
            site.request(path, name, consortium.name)
        if not held or held[-1].expires - now < min(RENEW_WITHIN, timedelta(days=days) / 2):
            data = write_request(read_key(path / KEY), name, consortium.name)
            authority.approve(read_request(data, str(path)), now, days, refresh=False)
    authority.agree(consortium, now)

    def compare(kit: Kit) -> None:
        assert kit.authority.encode() == (folder / AUTHORITY).read_bytes()

    kits = {name: authority.kit(name) for name in sites}
    return {name: install(kit.read_bytes(), str(kit), sites[name], now, compare) for name, kit in kits.items()}


def _has_key_here(path: Path, name: str, authority: Authority) -> bool:
    """Return whether a member's key is in its folder, or nowhere yet; raise `IdentityError` if it was revoked."""
    held = authority.holding(name)
    key = fingerprint(read_key(path / KEY)) if (path / KEY).exists() else None
    if not held and any(line.fingerprint == key for line in authority.book.issued):
        raise IdentityError(
            "revoked",
            f"{path}: the key in it was revoked, and is not certified again. Take {name} off the list; or, for a new "
            f"key, delete {path}",
        )
    return not held or held[-1].fingerprint == key
