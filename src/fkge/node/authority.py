"""A consortium's authority: it says whose key is whose, for how long, and from when on no longer.

A folder on one person's machine, which no node needs while it runs:

    key.pem            the authority's key; who has it can be anybody
    authority.pem      its certificate, which every site holds
    book.json          who belongs to the consortium, what was issued to whom, and what of it was revoked
    issued/SERIAL.pem  every certificate
    revoked.pem        the latest revocation list, to be sent to all sites
    kits/NAME.kit.json the latest kit of every site, made anew whenever something in it changes
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import Field

from fkge.errors import IdentityError, RunError, did_you_mean
from fkge.node.consortium import Consortium, Pair, checked_consortium
from fkge.node.identity import AUTHORITY, KEY, REVOKED, new_key, read_key, write_key
from fkge.node.kits import Kit, Member
from fkge.node.requests import Request, subject_of, vouched
from fkge.node.trust import (
    USES,
    Trust,
    check_time,
    fingerprint,
    pem,
    public_key,
    read_certificate,
    read_list,
    serial,
    spoken,
)
from fkge.settings import Settings
from fkge.trace import sync_folder, write_atomically

DAYS, DAYS_OF_AN_AUTHORITY = 365, 3650
"""How long a certificate holds unless somebody says otherwise."""

_SKEW = timedelta(minutes=5)
"""By how much clocks may differ: a new certificate holds since that long ago."""


class Issued(Settings):
    """A line of the book."""

    serial: str = Field(description="hexadecimal; the name of its file")
    name: str = Field(description="whose")
    fingerprint: str = Field(description="of the key")
    expires: datetime = Field(description="when it ends")
    revoked: datetime | None = Field(None, description="when it was revoked")


class _Book(Settings):
    kind: Literal["fkge.book.1"] = Field("fkge.book.1", description="what this is, and in which version")
    kits: int = Field(0, ge=0, description="number of the latest kits")
    lists: int = Field(0, ge=0, description="number of the latest revocation list")
    members: dict[str, Member] = Field({}, description="by name")
    links: tuple[Pair, ...] = Field((), description="what pairs of members have in common")
    settings: str | None = Field(None, description="the text of the federation settings")
    issued: tuple[Issued, ...] = Field((), description="all certificates, oldest first")


class Authority:
    """The authority in a folder. Made by `create` or `open`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = read_key(folder / KEY)
        self._certificate = read_certificate((folder / AUTHORITY).read_bytes(), str(folder / AUTHORITY))
        if fingerprint(self._key.public_key()) != fingerprint(public_key(self._certificate)):
            raise IdentityError("name", f"{folder}: {KEY} is not the key of {AUTHORITY}. Put the right one back.")
        self.consortium = Trust(pem(self._certificate)).consortium
        self.fingerprint = fingerprint(self._key.public_key())
        self.expires = self._certificate.not_valid_after_utc
        self._book = self._read_book()

    @classmethod
    def create(cls, folder: Path, consortium: str, now: datetime, days: int = DAYS_OF_AN_AUTHORITY) -> Authority:
        """A new authority, in a folder that is new or empty."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder}: is there already; name a folder that is not, or is empty")
        checked_consortium(consortium)
        half = folder.with_name(folder.name + ".part")  # so that there is never half an authority
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700, parents=True)
        key, name = new_key(), subject_of("authority", consortium)
        made = _certificate(name, name, key.public_key(), now - _SKEW, now + timedelta(days=days))
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        made = made.add_extension(_usage(authority=True), critical=True)
        (half / "issued").mkdir()
        (half / "kits").mkdir()
        write_key(half / KEY, key)
        write_atomically(half / AUTHORITY, pem(made.sign(key, SHA256())))
        authority = cls(half)
        with authority._changing():
            authority._change(lists=authority._write_list((), now))
        half.rename(folder)
        sync_folder(folder.absolute().parent)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """The authority in `folder`.

        Raises:
            IdentityError: there is none, or others can read its key.
        """
        for name in (KEY, AUTHORITY, "book.json"):
            if not (folder / name).is_file():
                meant = f"; did you mean {folder / 'authority'}?" if (folder / "authority" / KEY).is_file() else ""
                raise IdentityError(
                    "unreadable",
                    f"{folder}: is not an authority's folder; it has no {name}"
                    f"{meant or '. Make one: fkge cert authority'}",
                )
        return cls(folder)

    @property
    def members(self) -> dict[str, Member]:
        """By name."""
        return dict(self._book.members)

    @property
    def issued(self) -> tuple[Issued, ...]:
        """All certificates, oldest first."""
        return self._book.issued

    @property
    def list_number(self) -> int:
        """Of the latest revocation list."""
        return self._book.lists

    def holding(self, name: str) -> list[Issued]:
        """What was issued to `name` and not revoked, oldest first."""
        return [line for line in self._book.issued if line.name == name and line.revoked is None]

    # -- what it does --------------------------------------------------------------------------------

    def check_same(self, consortium: str) -> None:
        """Raise `IdentityError` (stranger) if this is another consortium's authority."""
        if consortium != self.consortium:
            raise IdentityError(
                "stranger",
                f"{self.folder}: is the authority of {self.consortium}, not of {consortium}. Name its own folder.",
            )

    def agree(self, consortium: Consortium, now: datetime) -> None:
        """Take over who belongs to the consortium and what the members agreed on; kits are made anew."""
        self.check_same(consortium.name)
        self._check_time(now)
        with self._changing():
            self._change(members=consortium.members, links=consortium.links, settings=consortium.settings)
            self._write_kits(now)

    def approve(
        self,
        request: Request,
        now: datetime,
        days: int = DAYS,
        address: str | None = None,
        founder: bool | None = None,
        refresh: bool = True,
    ) -> Path:
        """Issue a certificate for the key in a request. Returns the site's kit; all others' are made anew, too.

        That the key is that owner's, people have to make sure of, by its fingerprint.

        Args:
            address: where the owner's node listens, if not as the authority knows already.
            founder: whether it is there from the start, if not as the authority knows already.
            refresh: whether kits are made anew; without, `agree` has to follow.

        Raises:
            IdentityError: the name is another key's, the consortium is another, or the authority has expired.
        """
        with self._changing():
            self.check_open(request, now)
            member = self._book.members.get(request.name) or Member.build({})
            given = {key: value for key, value in (("address", address), ("founder", founder)) if value is not None}
            member = Member.build(member.model_dump() | given, request.name)
            certificate = self._issue(request, now, days)
            line = Issued(
                serial=serial(certificate),
                name=request.name,
                fingerprint=request.fingerprint,
                expires=certificate.not_valid_after_utc,
                revoked=None,
            )
            write_atomically(self._issued(line), pem(certificate))
            self._change(members={**self._book.members, request.name: member}, issued=(*self._book.issued, line))
            if refresh:
                self._write_kits(now)
        return self.kit(request.name)

    def revoke(self, what: str, now: datetime, old: bool = False) -> list[Issued]:
        """Revoke certificates and write a new list. Kits are made anew.

        Args:
            what: an owner's name, for all of its certificates, after which it is no member any more; or a serial.
            old: of an owner, all certificates but the latest.

        Returns:
            Those that were revoked.
        """
        self._check_time(now)
        with self._changing():
            by_name = self.holding(what)
            chosen = by_name[: len(by_name) - old] or [
                line for line in self._book.issued if line.serial == what.lower()
            ]
            fresh = [line for line in chosen if line.revoked is None]
            if not fresh:
                self._nothing_to_revoke(what, bool(by_name), bool(chosen))
            lines = tuple(
                line.model_copy(update={"revoked": now}) if line in fresh else line for line in self._book.issued
            )
            gone = {line.name for line in fresh} - {line.name for line in lines if line.revoked is None}
            members = {name: member for name, member in self._book.members.items() if name not in gone}
            self._change(lists=self._write_list(lines, now), issued=lines, members=members)
            self._write_kits(now)
        return fresh

    def kit(self, name: str) -> Path:
        """Where the latest kit of a site is."""
        return self.folder / "kits" / f"{name}.kit.json"

    # -- parts of the above --------------------------------------------------------------------------

    def _check_time(self, now: datetime) -> None:
        way_out = "Make a new one (fkge cert authority), and have all sites request anew."
        check_time(self._certificate, now, f"{self.folder}: the authority of {self.consortium}", way_out)

    def check_open(self, request: Request, now: datetime) -> None:
        """Raise `IdentityError` if a request cannot be approved, whatever people say.

        It is for another consortium, its key was revoked, its name is held with another key that does not vouch for
        this one, or the authority itself has expired.
        """
        if request.consortium != self.consortium:
            raise IdentityError(
                "stranger",
                f"the request is for {request.consortium or 'no consortium'}, and {self.folder} is the authority of "
                f"{self.consortium}. Send it to the other, or request anew with --consortium '{self.consortium}'.",
            )
        self._check_time(now)
        held = self.holding(request.name)
        same = [line for line in self._book.issued if line.fingerprint == request.fingerprint]
        if same and all(line.revoked for line in same):
            raise IdentityError(
                "revoked",
                f"the key {spoken(request.fingerprint)} of {same[-1].name} was revoked, and does not come back. Make a "
                "new key in another folder: fkge cert request",
            )
        if not held or any(line.fingerprint == request.fingerprint for line in held):
            return
        trust = Trust(pem(self._certificate))
        for line in held:
            try:
                trust.verify(self._issued(line).read_bytes(), vouched(request.key), request.voucher)
                return
            except IdentityError:
                continue
        forged = "; the present key did not sign this one" if request.voucher else ""
        raise IdentityError(
            "name",
            f"the name {request.name} is taken, by the key {spoken(held[-1].fingerprint)}{forged}. Its owner renews "
            "with `fkge cert renew`; if that key is lost, first: fkge cert revoke "
            f"{request.name} --authority {self.folder}",
        )

    def _issue(self, request: Request, now: datetime, days: int) -> x509.Certificate:
        first = max(now - _SKEW, self._certificate.not_valid_before_utc)
        last = min(now + timedelta(days=days), self._certificate.not_valid_after_utc)
        subject = subject_of(request.name, self.consortium)
        made = _certificate(subject, self._certificate.subject, request.key, first, last)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(_usage(authority=False), critical=True)
        made = made.add_extension(x509.ExtendedKeyUsage(USES), critical=False)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(request.name)]), critical=False)
        own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        return made.sign(self._key, SHA256())

    def _nothing_to_revoke(self, what: str, holds: bool, was: bool) -> None:
        if holds:
            raise IdentityError("name", f"{what} has one certificate only; without --old, that one is revoked")
        if was or any(line.name == what for line in self._book.issued):
            raise IdentityError("revoked", f"{what}: is revoked already; {self.folder / REVOKED} says so")
        known = {line.name for line in self._book.issued} | {line.serial for line in self._book.issued}
        raise IdentityError("name", f"{self.folder}: issued nothing to {what!r}{did_you_mean(what, known)}")

    def _write_list(self, lines: tuple[Issued, ...], now: datetime) -> int:
        """Write the next revocation list, and return its number.

        It holds as long as the authority does: a list is replaced, it does not run out.
        """
        number = self._book.lists + 1
        made = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject).last_update(_whole(now))
        made = made.next_update(self._certificate.not_valid_after_utc)
        for line in lines:
            if line.revoked is not None:
                entry = x509.RevokedCertificateBuilder().serial_number(int(line.serial, 16))
                made = made.add_revoked_certificate(entry.revocation_date(_whole(line.revoked)).build())
        own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        made = made.add_extension(x509.CRLNumber(number), critical=False)
        write_atomically(self.folder / REVOKED, pem(made.sign(self._key, SHA256())))
        return number

    def _write_kits(self, now: datetime) -> None:
        """Make the kits of all members that have a certificate; take away those of others."""
        self._change(kits=self._book.kits + 1)
        agreed = Consortium(self.consortium, self._book.members, self._book.links, self._book.settings)
        revoked = (self.folder / REVOKED).read_bytes()
        read_list(revoked, self._certificate, str(self.folder / REVOKED))
        for name in {line.name for line in self._book.issued}:
            held = self.holding(name)
            if not held or name not in agreed.members:
                self.kit(name).unlink(missing_ok=True)
                continue
            kit = Kit(
                kind="fkge.kit.1",
                consortium=self.consortium,
                name=name,
                number=self._book.kits,
                date=_whole(now),
                members=agreed.members,
                links={peer: links for peer, links in agreed.links_of(name).items() if peer in agreed.members},
                settings=agreed.settings,
                authority=pem(self._certificate).decode(),
                certificate=self._issued(held[-1]).read_text(encoding="ascii"),
                revoked=revoked.decode(),
            )
            write_atomically(self.kit(name), kit.signed_by(self._key))

    def _issued(self, line: Issued) -> Path:
        return self.folder / "issued" / f"{line.serial}.pem"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One at a time, from what the book says now."""
        with (self.folder / "book.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._book = self._read_book()
            yield

    def _change(self, **changes: Any) -> None:
        self._book = self._book.model_copy(update=changes)
        text = self._book.model_dump_json(indent=1) + "\n"
        write_atomically(self.folder / "book.json", text.encode())

    def _read_book(self) -> _Book:
        path = self.folder / "book.json"
        if not path.exists():
            return _Book.build({})
        try:
            return _Book.model_validate_json(path.read_bytes())
        except ValueError as error:
            raise IdentityError(
                "unreadable", f"{path}: is damaged ({str(error).splitlines()[0]}). Put it back from a copy."
            ) from None


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, first: datetime, last: datetime
) -> x509.CertificateBuilder:
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(_whole(first)).not_valid_after(_whole(last))
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(authority: bool) -> x509.KeyUsage:
    """Of a key that signs: for an authority certificates, lists and kits, for an owner what it says."""
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _whole(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
