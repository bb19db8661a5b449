"""Commands for a consortium's identities: provision; cert authority, request, approve, install, renew, revoke, show."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from fkge.cli.exit_codes import Misuse
from fkge.cli.options import NODE, Commands
from fkge.cli.tables import Answer
from fkge.errors import IdentityError

if TYPE_CHECKING:
    from fkge.node.provisioning import Installed
    from fkge.pki.kits import Kit

commands = Commands(NODE)
cert = Commands(help="Keys and certificates of a consortium's nodes.")

AuthorityFolder = Annotated[Path, typer.Option("--authority", help="The authority's folder.")]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="For how long certificates are valid.")]
Fingerprint = Annotated[
    str | None, typer.Option(help="The expected fingerprint, as the other side read it out; nothing is asked then.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Accept without comparing: only if nobody can have replaced it.")]


@commands.add("fkge provision consortium.toml --out trial")
def provision(
    plan: Annotated[Path, typer.Argument(help="A TOML file: the consortium's name and its members.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make, or to update.")] = Path("consortium"),
    days: Days = 365,
) -> Answer:
    """Make an authority and a folder for every member, private keys included: for a trial, or where all trust you.

    Run it again after a change to the file: new members get a folder, and all kits are rewritten.
    """
    from fkge.node.provisioning import provision as make
    from fkge.pki.authority import Authority
    from fkge.pki.certificates import short_fingerprint
    from fkge.pki.kits import Consortium

    agreed = Consortium.read(plan)
    made = make(agreed, out, _now(), days)
    authority, folder = Authority.open(out / "authority"), out / "authority"
    elsewhere = {name: authority.holding(name)[-1].expires for name in agreed.members if name not in made}
    left = sorted({line.name for line in authority.book.issued if line.revoked is None} - agreed.members.keys())
    lines = [f"{authority.consortium}: authority {short_fingerprint(authority.fingerprint)} in {folder}"]
    for name, done in made.items():
        own = done.identity
        lines.append(f"{out / 'kits' / name}: {name}, key {own.short_fingerprint}, until {own.expires:%Y-%m-%d}")
    lines += [note for done in made.values() for note in done.notes]
    for name, end in elsewhere.items():
        lines.append(
            f"{name}: its key is not here. Its certificate is valid until {end:%Y-%m-%d}, and its owner renews it. "
            f"Send it {authority.kit(name)}"
        )
    for name in left:
        lines.append(
            f"{name}: is no longer in {plan.name} but still has a certificate. To revoke it: fkge cert revoke {name} "
            f"--authority {quote(str(folder))}"
        )
    if made:
        lines += [
            f"This folder holds {len(made)} private keys: whoever has it can impersonate these members. Hand each its "
            "folder over a secure channel, delete it here, and keep authority/ where nobody else can read it.",
            "To have keys that never leave their owners: fkge cert request, at each site.",
        ]
    return Answer({
        "consortium": authority.consortium,
        "authority": short_fingerprint(authority.fingerprint),
        "sites": {name: {"folder": str(out / "kits" / name), **_summary(done)} for name, done in made.items()},
        "elsewhere": {
            name: {"kit": str(authority.kit(name)), "expires": end.isoformat()} for name, end in elsewhere.items()
        },
        "left": left,
    }, lines)  # fmt: skip


@cert.add(
    "fkge cert authority --name heart-study --out authority",
    "fkge cert authority --members consortium.toml --out authority",
)
def authority(
    out: Annotated[Path, typer.Option("--out", help="The authority's folder.")],
    name: Annotated[str | None, typer.Option(help="The consortium's name.", show_default="as in --members")] = None,
    members: Annotated[
        Path | None,
        typer.Option(help="A TOML file with the members' addresses; replaces the list of an existing authority."),
    ] = None,
    days: Days = 3650,
) -> Answer:
    """Make the authority of a consortium: the key that certifies the members' keys."""
    from fkge.pki.authority import BOOK, Authority
    from fkge.pki.certificates import short_fingerprint
    from fkge.pki.kits import Consortium

    agreed = None if members is None else Consortium.read(members)
    chosen = name or (agreed.name if agreed else None)
    if chosen is None:
        raise Misuse("which consortium? fkge cert authority --name CONSORTIUM (or --members FILE)")
    if agreed is not None and agreed.name != chosen:
        raise Misuse(f"--name {chosen} and {members}, which is of {agreed.name}; leave --name out")
    exists = agreed is not None and (out / BOOK).exists()
    made = Authority.open(out) if exists else Authority.create(out, chosen, _now(), days)
    if agreed is not None:
        made.agree(agreed, _now())
    short = short_fingerprint(made.fingerprint)
    lines = [
        f"{out}: the authority of {chosen}, until {made.expires:%Y-%m-%d}",
        f"  {short}",
        "Tell every member this fingerprint by telephone or on paper. Keep the folder off the network, and a copy.",
        *(["All kits were rewritten: send each site its own."] if exists else []),
    ]
    found = {"consortium": chosen, "fingerprint": made.fingerprint, "spoken": short}
    return Answer(found | {"folder": str(out), "expires": made.expires.isoformat()}, lines)


@cert.add("fkge cert request --name clinic --consortium heart-study --out site")
def request(
    name: Annotated[str, typer.Option(help="The owner's name: small letters, digits and hyphens.")],
    consortium: Annotated[str, typer.Option(help="The consortium's name, as its authority writes it.")],
    out: Annotated[Path, typer.Option("--out", help="The site's folder.")],
) -> Answer:
    """Make a private key, which stays in the folder, and a request for a certificate, to be sent to the authority."""
    from fkge.pki.site import request as make

    return _requested(out, make(out, name, consortium))


@cert.add("fkge cert renew site")
def renew(site: Annotated[Path, typer.Argument(help="The site's folder.")]) -> Answer:
    """Make a new key and a request signed by the present one, which stays in use until the new kit is installed."""
    from fkge.pki.site import renew as make

    return _requested(site, make(site))


@cert.add(
    "fkge cert approve request.csr --authority authority --address clinic.example:7443",
    "fkge cert approve request.csr --authority authority --fingerprint 5c1f-0a3b-9c77-41d2-88e0-b5a6-2f19-d03e",
)
def approve(
    request: Annotated[Path, typer.Argument(help="The request that a site sent.")],
    authority: AuthorityFolder,
    days: Days = 365,
    address: Annotated[
        str | None, typer.Option(help="Where the site's node listens, HOST:PORT.", show_default="as known")
    ] = None,
    founder: Annotated[
        bool | None,
        typer.Option(
            "--founder/--later",
            help="Does it take part in agreeing on common initial rows, or join later?",
            show_default="as known, or founder",
        ),
    ] = None,
    fingerprint: Fingerprint = None,
    yes: Yes = False,
) -> Answer:
    """Issue a certificate for a request whose fingerprint was compared, and write the site's kit."""
    from fkge.pki.authority import Authority
    from fkge.pki.certificates import read_request, short_fingerprint

    opened, asked = Authority.open(authority), read_request(_read(request), str(request))
    opened.check_open(asked, _now())
    _compare(f"{asked.name} of {asked.consortium} requests a certificate for the key", asked.fingerprint, fingerprint,
             yes)  # fmt: skip
    kit = opened.approve(asked, _now(), days, address, founder)
    line = opened.holding(asked.name)[-1]
    others = sorted({known.name for known in opened.book.issued if opened.kit(known.name).exists()} - {asked.name})
    lines = [
        f"{kit}: for {asked.name}, serial {line.serial}, until {line.expires:%Y-%m-%d}. Send it: it holds no private "
        "key, and is signed.",
        f"To install it, {asked.name} compares the authority's fingerprint: {short_fingerprint(opened.fingerprint)}",
    ]
    if not opened.book.members[asked.name].address:
        lines.append(f"No --address: {asked.name} connects to others, and nobody connects to it.")
    if others:
        lines.append(f"The kits of {', '.join(others)} were rewritten, with {asked.name} in them.")
    return Answer({
        "name": asked.name, "kit": str(kit), "serial": line.serial, "expires": line.expires.isoformat(),
        "fingerprint": asked.fingerprint, "authority": opened.fingerprint,
    }, lines)  # fmt: skip


@cert.add("fkge cert install clinic.kit.json --into site", "fkge cert install revoked.pem --into site")
def install(
    file: Annotated[Path, typer.Argument(help="A kit, or a revocation list.")],
    into: Annotated[Path, typer.Option("--into", help="The site's folder.")],
    fingerprint: Fingerprint = None,
    yes: Yes = False,
) -> Answer:
    """Check a kit or a revocation list, and install it in a site's folder."""
    from fkge.node.provisioning import install as put
    from fkge.pki import certificates as certs
    from fkge.pki.kits import Kit
    from fkge.pki.site import Identity

    data = _read(file)
    if data.lstrip().startswith(b"-----BEGIN X509 CRL"):
        trust = Identity.load(into).trust
        new = trust.update(data, str(file))
        number, count = trust.revoked.number, len(trust.revoked.serials)
        effect = "is in force; a running node notices it" if new else "was in force already"
        lines = [f"{into}: list {number}, {count} revoked, {effect}"]
        return Answer({"list": number, "revoked": count, "new": new}, lines)

    def compare(kit: Kit) -> None:
        found = certs.fingerprint(certs.read_certificate(kit.authority.encode()))
        _compare(f"the kit is of {kit.consortium}, whose authority has the key", found, fingerprint, yes)

    if fingerprint is not None:  # also where the site knows its authority, and nothing would be compared
        compare(Kit.read(data, str(file)))
    done = put(data, str(file), into, _now(), compare)
    own = done.identity
    lines = [
        f"{into}: {own.name} of {own.consortium}, key {own.short_fingerprint}, until {own.expires:%Y-%m-%d}",
        f"Authority {certs.short_fingerprint(own.trust.fingerprint)}; kit {own.kit.number}, "
        f"{certs.short_fingerprint(own.kit.fingerprint)}",
        *done.notes,
        f"Next, edit {into / 'node.toml'} and {into / 'peers.toml'}, where every setting is explained.",
    ]
    return Answer({"folder": str(into), **_summary(done)}, lines)


@cert.add("fkge cert revoke clinic --authority authority", "fkge cert revoke clinic --old --authority authority")
def revoke(
    what: Annotated[str, typer.Argument(help="An owner's name, for all its certificates, or a serial.")],
    authority: AuthorityFolder,
    old: Annotated[bool, typer.Option("--old", help="All of the owner's but the latest: after a renewal.")] = False,
) -> Answer:
    """Revoke certificates, and write the next revocation list, to be sent to all sites."""
    from fkge.pki.authority import Authority
    from fkge.pki.certificates import REVOKED

    opened = Authority.open(authority)
    revoked = opened.revoke(what, _now(), old)
    path, left = opened.folder / REVOKED, {line.name for line in revoked} - opened.book.members.keys()
    lines = [
        *(f"revoked: {line.name}, serial {line.serial}" for line in revoked),
        *(f"{name} is no longer a member" for name in sorted(left)),
        f"{path}: list {opened.book.lists}. Until a site has it, it still trusts them. Send it to all sites, to run",
        "  fkge cert install revoked.pem --into SITE",
    ]
    gone = [{"name": line.name, "serial": line.serial} for line in revoked]
    return Answer({"revoked": gone, "list": opened.book.lists, "file": str(path)}, lines)


@cert.add("fkge cert show clinic.kit.json", "fkge cert show site")
def show(
    path: Annotated[Path, typer.Argument(help="A certificate, request, kit or list; a site's or authority's folder.")],
) -> Answer:
    """Describe a file or folder: its owner, its validity, its fingerprints."""
    from fkge.pki.describe import describe

    if not path.exists():
        _read(path)
    found = describe(path, _now())
    lines = []
    for heading, value in found.items():
        if isinstance(value, list):
            lines += [f"{heading}:" if value else f"{heading}: none", *(f"  {item}" for item in value)]
        else:
            lines.append(f"{heading}: {value}")
    return Answer(found, lines)


def _now() -> datetime:
    return datetime.now(UTC)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise IdentityError("unreadable", f"{file}: does not exist. Check the path") from None
    except IsADirectoryError:
        raise IdentityError("unreadable", f"{file}: is a folder. Name the file in it") from None


def _summary(done: Installed) -> dict[str, str | int | list[str]]:
    own = done.identity
    return {
        "name": own.name, "consortium": own.consortium, "fingerprint": own.fingerprint, "serial": own.serial,
        "expires": own.expires.isoformat(), "authority": own.trust.fingerprint, "kit": own.kit.number,
        "notes": list(done.notes),
    }  # fmt: skip


def _requested(folder: Path, fingerprint: str) -> Answer:
    from fkge.pki.certificates import REQUEST, short_fingerprint

    lines = [
        f"{folder / REQUEST}: send it to the authority. The private key stays here; never send it.",
        "Read this fingerprint to the authority by telephone, so that it can check that the request is yours:",
        f"  {short_fingerprint(fingerprint)}",
        f"When you receive the kit: fkge cert install KIT --into {quote(str(folder))}",
    ]
    found = {"request": str(folder / REQUEST), "fingerprint": fingerprint, "spoken": short_fingerprint(fingerprint)}
    return Answer(found, lines)


def _compare(what: str, found: str, expected: str | None, yes: bool) -> None:
    """Compare a fingerprint with the expected one, or let the person at the terminal do it; raise if they differ."""
    from fkge.pki.certificates import matches_fingerprint, short_fingerprint

    short = short_fingerprint(found)
    if expected is not None:
        if not matches_fingerprint(found, expected):
            raise IdentityError(
                "forged",
                f"{what} {short}, and not {expected}. Somebody may have replaced it in transit: have it sent again, "
                "and compare again",
            )
        return
    print(f"{what}\n  {short}", file=sys.stderr, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse("compare the fingerprint by telephone, then give it with --fingerprint (or --yes to skip that)")
    if not typer.confirm("Is it the same as the one that was read out to you?", err=True):
        raise IdentityError("forged", "the fingerprints differ, so nothing was done. Have it sent again")
