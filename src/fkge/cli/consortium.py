"""Commands for a consortium's identities: provision; cert authority, request, approve, install, renew, revoke, show."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from fkge.cli import tables
from fkge.cli.exits import Misuse
from fkge.cli.nodes import NODE
from fkge.cli.options import AsJson, example
from fkge.errors import IdentityError, need

commands = typer.Typer()
cert = typer.Typer(help="Keys and certificates of a consortium's nodes.", no_args_is_help=True)

AuthorityFolder = Annotated[Path, typer.Option("--authority", help="The authority's folder.")]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="How long certificates hold.")]
Fingerprint = Annotated[
    str | None, typer.Option(help="What it must be, as the other side read it out; then nothing is asked.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Take it uncompared: only where it cannot have been exchanged.")]


@commands.command(rich_help_panel=NODE, epilog=example("fkge provision consortium.toml --out trial"))
def provision(
    plan: Annotated[Path, typer.Argument(help="A TOML file: the consortium's name and its members.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make, or to go on with.")] = Path("consortium"),
    days: Days = 365,
    as_json: AsJson = False,
) -> None:
    """Make an authority and a ready folder for every member, all keys included: for a trial, or where all trust you.

    Run it again after a change to the file: members that came get a folder, and all kits are made anew.
    """
    _needs_cryptography()
    from fkge.node.authority import Authority
    from fkge.node.consortium import Consortium
    from fkge.node.site import provision as make
    from fkge.node.trust import spoken

    agreed = Consortium.read(plan)
    made = make(agreed, out, _now(), days)
    authority = Authority.open(out / "authority")
    elsewhere = {name: authority.holding(name)[-1].expires for name in agreed.members if name not in made}
    left = sorted({line.name for line in authority.issued if line.revoked is None} - agreed.members.keys())
    sites = {name: {"folder": str(out / "kits" / name), **_told(done)} for name, done in made.items()}
    told = {
        "consortium": authority.consortium,
        "authority": spoken(authority.fingerprint),
        "sites": sites,
        "elsewhere": {
            name: {"kit": str(authority.kit(name)), "expires": end.isoformat()} for name, end in elsewhere.items()
        },
        "left": left,
    }
    tables.answer(
        told,
        as_json,
        lambda: [
            f"{authority.consortium}: authority {spoken(authority.fingerprint)} in {out / 'authority'}",
            *(f"{out / 'kits' / name}: {name}, key {done.identity.spoken}, until {done.identity.expires:%Y-%m-%d}"
              for name, done in made.items()),
            *(note for done in made.values() for note in done.notes),
            *(f"{name} has its key elsewhere, and a certificate until {end:%Y-%m-%d}, which it renews itself: send it "
              f"{authority.kit(name)}" for name, end in elsewhere.items()),
            *(f"{name} is named no more, and has a certificate still: fkge cert revoke {name} --authority "
              f"{_path(out / 'authority')}" for name in left),
            *([
                f"You have had {len(made)} private keys in hand: whoever has this folder can be any of these members. "
                "Give each its own over a safe way, delete it here, and keep authority/ where nobody else can read it.",
                "Keys that never leave their owners: fkge cert request, at each site.",
            ] if made else []),
        ],
    )  # fmt: skip


@cert.command(
    epilog=example(
        "fkge cert authority --name heart-study --out authority",
        "fkge cert authority --members consortium.toml --out authority",
    )
)
def authority(
    out: Annotated[Path, typer.Option("--out", help="The authority's folder.")],
    name: Annotated[str | None, typer.Option(help="The consortium's name.", show_default="as --members says")] = None,
    members: Annotated[
        Path | None,
        typer.Option(help="A TOML file with the members' addresses; for an authority that is there, its new list."),
    ] = None,
    days: Days = 3650,
    as_json: AsJson = False,
) -> None:
    """Make the authority of a consortium: the key that says whose key is whose."""
    _needs_cryptography()
    from fkge.node.authority import Authority
    from fkge.node.consortium import Consortium
    from fkge.node.trust import spoken

    agreed = None if members is None else Consortium.read(members)
    chosen = name or (agreed.name if agreed else None)
    if chosen is None:
        raise Misuse("which consortium? fkge cert authority --name CONSORTIUM (or --members FILE)")
    if agreed is not None and agreed.name != chosen:
        raise Misuse(f"--name {chosen} and {members}, which is of {agreed.name}; leave --name out")
    there = agreed is not None and (out / "book.json").exists()
    made = Authority.open(out) if there else Authority.create(out, chosen, _now(), days)
    if agreed is not None:
        made.agree(agreed, _now())
    told = {"consortium": chosen, "fingerprint": made.fingerprint, "spoken": spoken(made.fingerprint)}
    _answer(told | {"folder": str(out), "expires": made.expires.isoformat()}, as_json, [
        f"{out}: the authority of {chosen}, until {made.expires:%Y-%m-%d}",
        f"  {spoken(made.fingerprint)}",
        "Tell this fingerprint to every member by telephone, or on paper. Keep the folder off the network, and a copy.",
        *(["Kits were made anew: send each site its own."] if there else []),
    ])  # fmt: skip


@cert.command(epilog=example("fkge cert request --name clinic --consortium heart-study --out site"))
def request(
    name: Annotated[str, typer.Option(help="The owner's name: small letters, digits and hyphens.")],
    consortium: Annotated[str, typer.Option(help="The consortium's name, as its authority writes it.")],
    out: Annotated[Path, typer.Option("--out", help="The site's folder.")],
    as_json: AsJson = False,
) -> None:
    """Make a key, which stays in the folder, and a request for a certificate, to be sent to the authority."""
    _needs_cryptography()
    from fkge.node.site import request as make

    _requested(out, make(out, name, consortium), as_json)


@cert.command(epilog=example("fkge cert renew site"))
def renew(
    site: Annotated[Path, typer.Argument(help="The site's folder.")],
    as_json: AsJson = False,
) -> None:
    """Make a new key and a request that the present one vouches for. The present one is in use until the kit comes."""
    _needs_cryptography()
    from fkge.node.site import renew as make

    _requested(site, make(site), as_json)


@cert.command(
    epilog=example(
        "fkge cert approve request.csr --authority authority --address clinic.example:7443",
        "fkge cert approve request.csr --authority authority --fingerprint 5c1f-0a3b-9c77-41d2-88e0-b5a6-2f19-d03e",
    )
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
        typer.Option("--founder/--later", help="Is it there from the start?", show_default="as known, or founder"),
    ] = None,
    fingerprint: Fingerprint = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Issue a certificate for a request whose fingerprint was compared, and write the site's kit."""
    _needs_cryptography()
    from fkge.node.authority import Authority
    from fkge.node.requests import read_request
    from fkge.node.trust import spoken

    opened, asked = Authority.open(authority), read_request(_read(request), str(request))
    opened.check_open(asked, _now())
    _compare(f"{asked.name} of {asked.consortium} asks, with the key", asked.fingerprint, fingerprint, yes)
    kit = opened.approve(asked, _now(), days, address, founder)
    line = opened.holding(asked.name)[-1]
    told = {"name": asked.name, "kit": str(kit), "serial": line.serial, "expires": line.expires.isoformat(),
            "fingerprint": asked.fingerprint, "authority": opened.fingerprint}  # fmt: skip
    others = sorted({known.name for known in opened.issued if opened.kit(known.name).exists()} - {asked.name})
    _answer(told, as_json, [
        f"{kit}: for {asked.name}, serial {line.serial}, until {line.expires:%Y-%m-%d}. Send it: it holds no "
        "key, and is signed.",
        f"To install it, {asked.name} compares the authority's fingerprint: {spoken(opened.fingerprint)}",
        *([] if opened.members[asked.name].address else [f"No --address: {asked.name} calls others, nobody calls it."]),
        *([f"Kits of {', '.join(others)} were made anew, with {asked.name} in them."] if others else []),
    ])  # fmt: skip


@cert.command(
    epilog=example("fkge cert install clinic.kit.json --into site", "fkge cert install revoked.pem --into site")
)
def install(
    file: Annotated[Path, typer.Argument(help="A kit, or a revocation list.")],
    into: Annotated[Path, typer.Option("--into", help="The site's folder.")],
    fingerprint: Fingerprint = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Check a kit or a revocation list, and put it in its place in a site's folder."""
    _needs_cryptography()
    from fkge.node.identity import Identity
    from fkge.node.kits import Kit
    from fkge.node.site import install as put
    from fkge.node.trust import fingerprint_of, spoken

    data = _read(file)
    if data.lstrip().startswith(b"-----BEGIN X509 CRL"):
        trust = Identity.load(into).trust
        new = trust.take(data, str(file))
        state = {"list": trust.revoked.number, "revoked": len(trust.revoked.serials), "new": new}
        words = "is in force; a running node sees it by itself" if new else "was in force already"
        _answer(state, as_json, [f"{into}: list {trust.revoked.number}, {len(trust.revoked.serials)} revoked, {words}"])
        return

    def compare(kit: Kit) -> None:
        found = fingerprint_of(kit.authority.encode())
        _compare(f"the kit is of {kit.consortium}, whose authority has the key", found, fingerprint, yes)

    if fingerprint is not None:  # also where the site knows its authority, and would not ask
        compare(Kit.read(data, str(file)))
    done = put(data, str(file), into, _now(), compare)
    own = done.identity
    _answer({"folder": str(into), **_told(done)}, as_json, [
        f"{into}: {own.name} of {own.consortium}, key {own.spoken}, until {own.expires:%Y-%m-%d}",
        f"Authority {spoken(own.trust.fingerprint)}; kit {own.kit.number}, {spoken(own.kit.fingerprint)}",
        *done.notes,
        f"Go on with {into / 'node.toml'} and {into / 'peers.toml'}, where every setting is explained.",
    ])  # fmt: skip


@cert.command(
    epilog=example(
        "fkge cert revoke clinic --authority authority", "fkge cert revoke clinic --old --authority authority"
    )
)
def revoke(
    what: Annotated[str, typer.Argument(help="An owner's name, for all its certificates, or a serial.")],
    authority: AuthorityFolder,
    old: Annotated[bool, typer.Option("--old", help="All of the owner's but the latest: after a renewal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Revoke certificates, and write the next revocation list, to be sent to all sites."""
    _needs_cryptography()
    from fkge.node.authority import Authority

    opened = Authority.open(authority)
    gone = opened.revoke(what, _now(), old)
    path = opened.folder / "revoked.pem"
    told = {"revoked": [{"name": line.name, "serial": line.serial} for line in gone], "list": opened.list_number}
    out = sorted({line.name for line in gone} - opened.members.keys())
    _answer(told | {"file": str(path)}, as_json, [
        *(f"revoked: {line.name}, serial {line.serial}" for line in gone),
        *(f"{name} is no member any more" for name in out),
        f"{path}: list {opened.list_number}. Until a site has it, it goes on to trust: send it to all, who run",
        "  fkge cert install revoked.pem --into SITE",
    ])  # fmt: skip


@cert.command(epilog=example("fkge cert show clinic.kit.json", "fkge cert show site"))
def show(
    path: Annotated[Path, typer.Argument(help="A certificate, request, kit or list; a site's or authority's folder.")],
    as_json: AsJson = False,
) -> None:
    """Say what a file or folder is: whose, how long it holds, its fingerprints."""
    _needs_cryptography()
    from fkge.node.describe import describe

    if not path.exists():
        _read(path)
    told = describe(path, _now())
    _answer(told, as_json, _headed(told))


# -- parts of the above ------------------------------------------------------------------------------


def _needs_cryptography() -> None:
    need("cryptography", "node", "working with keys and certificates")


def _now() -> datetime:
    return datetime.now(UTC)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise IdentityError("unreadable", f"{file}: does not exist. Check the path") from None
    except IsADirectoryError:
        raise IdentityError("unreadable", f"{file}: is a folder. Name the file in it") from None


def _path(path: Path) -> str:
    return quote(str(path))


def _answer(told: Mapping[str, Any], as_json: bool, lines: Iterable[str]) -> None:
    tables.answer(told, as_json, lambda: lines)


def _headed(told: Mapping[str, Any]) -> Iterable[str]:
    for heading, value in told.items():
        if isinstance(value, list):
            yield f"{heading}: {'none' if not value else ''}".rstrip()
            yield from (f"  {item}" for item in value)
        else:
            yield f"{heading}: {value}"


def _told(done: Any) -> dict[str, Any]:
    own = done.identity
    return {
        "name": own.name, "consortium": own.consortium, "fingerprint": own.fingerprint, "serial": own.serial,
        "expires": own.expires.isoformat(), "authority": own.trust.fingerprint, "kit": own.kit.number,
        "notes": list(done.notes),
    }  # fmt: skip


def _requested(folder: Path, found: str, as_json: bool) -> None:
    from fkge.node.identity import REQUEST
    from fkge.node.trust import spoken

    told = {"request": str(folder / REQUEST), "fingerprint": found, "spoken": spoken(found)}
    _answer(told, as_json, [
        f"{folder / REQUEST}: send it to the authority. The key stays here; nobody asks for it.",
        "Read this out to the authority by telephone, so that it knows that the request is yours:",
        f"  {spoken(found)}",
        f"When the kit comes: fkge cert install KIT --into {_path(folder)}",
    ])  # fmt: skip


def _compare(what: str, found: str, expected: str | None, yes: bool) -> None:
    """Have a fingerprint compared: with one that was given, or by a person."""
    from fkge.node.trust import is_same, spoken

    if expected is not None:
        if not is_same(found, expected):
            raise IdentityError(
                "forged",
                f"{what} {spoken(found)}, and not {expected}. Somebody may have exchanged it on its way: have it sent "
                "again, and compare again",
            )
        return
    print(f"{what}\n  {spoken(found)}", file=sys.stderr, flush=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misuse("compare the fingerprint by telephone, then give it with --fingerprint (or --yes to go without)")
    if not typer.confirm("Is it the same as the one that was read out to you?", err=True):
        raise IdentityError("forged", "the fingerprints differ, so nothing was done. Have it sent again")
