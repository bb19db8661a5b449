"""The authority of a consortium: it certifies whose key is whose, for how long, and revokes certificates.

It is a folder on one person's machine; no node needs it while it runs:

    key.pem            the authority's key; whoever has it can impersonate every member
    authority.pem      its certificate, which every site holds
    book.json          members, issued and revoked certificates
    issued/SERIAL.pem  every certificate
    revoked.pem        the latest revocation list, to be sent to all sites
    kits/NAME.kit.json the latest kit of every site, rewritten whenever something in it changes
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import Field

from fkge.errors import IdentityError, RunError, did_you_mean
from fkge.files import FileLock, sync_folder, write_atomically
from fkge.pki import certificates as certs
from fkge.pki.certificates import AUTHORITY, KEY, REVOKED
from fkge.pki.kits import Consortium, Kit, Member, Pair, signed
from fkge.pki.trust import USES, Trust, read_list
from fkge.settings import Settings

DAYS, AUTHORITY_DAYS = 365, 3650
"""Default validity of an owner's certificate and of an authority's."""

_SKEW = timedelta(minutes=5)
"""A new certificate is valid from this long ago on, since the clocks of two sites may differ."""

BOOK = "book.json"


class Issued(Settings):
    """One certificate that the authority issued."""

    serial: str = Field(description="hexadecimal; the name of its file")
    name: str = Field(description="the owner it was issued to")
    fingerprint: str = Field(description="of the key")
    expires: datetime = Field(description="when it ends")
    revoked: datetime | None = Field(None, description="when it was revoked")


class Book(Settings):
    """The records of an authority: its members, and every certificate that it issued."""

    kind: Literal["fkge.book.1"] = Field("fkge.book.1", description="what this is, and in which version")
    kits: int = Field(0, ge=0, description="number of the latest kits")
    lists: int = Field(0, ge=0, description="number of the latest revocation list")
    members: dict[str, Member] = Field({}, description="by name")
    links: tuple[Pair, ...] = Field((), description="the links between pairs of members")
    settings: str | None = Field(None, description="the text of the federation settings")
    issued: tuple[Issued, ...] = Field((), description="all certificates, oldest first")


class Authority:
    """The authority in a folder: issues and revokes certificates, and writes kits. Made by `create` or `open`.

    Every change runs under a lock and from the book as it is on disk, so that two people can work with one folder.

    Raises:
        IdentityError: the key does not fit the certificate.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = certs.read_key(folder / KEY)
        self._certificate = certs.read_certificate((folder / AUTHORITY).read_bytes(), str(folder / AUTHORITY))
        if certs.fingerprint(self._key) != certs.fingerprint(self._certificate):
            raise IdentityError("name", f"{folder}: {KEY} is not the key of {AUTHORITY}. Put the right one back.")
        self._trust = Trust(certs.pem(self._certificate))
        self.consortium, self.fingerprint = self._trust.consortium, self._trust.fingerprint
        self.expires = self._certificate.not_valid_after_utc
        self.book = self._read_book()  # as it was when this was opened, or last changed it

    @classmethod
    def create(cls, folder: Path, consortium: str, now: datetime, days: int = AUTHORITY_DAYS) -> Authority:
        """Make an authority.

        Args:
            folder: a new or empty folder.
            consortium: the consortium's name.
            now: the time, aware.
            days: for how long its certificate is valid.

        Raises:
            RunError: the folder is not empty.
            SettingsError: `consortium` cannot be a consortium's name.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(f"{folder}: exists already; name a new or an empty folder")
        certs.checked_consortium(consortium)
        half = folder.with_name(folder.name + ".part")  # renamed when complete: there is never half an authority
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(mode=0o700, parents=True)
        key, name = certs.new_key(), certs.subject("authority", consortium)
        made = _certificate(name, name, key.public_key(), now - _SKEW, now + timedelta(days=days), is_authority=True)
        (half / "issued").mkdir()
        (half / "kits").mkdir()
        certs.write_key(half / KEY, key)
        write_atomically(half / AUTHORITY, certs.pem(made.sign(key, SHA256())))
        authority = cls(half)
        with authority._changing():
            authority._change(lists=authority._write_list((), now))
        half.rename(folder)
        sync_folder(folder.absolute().parent)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Authority:
        """Open the authority in `folder`.

        Raises:
            IdentityError: there is none, or others can read its key.
        """
        for name in (KEY, AUTHORITY, BOOK):
            if not (folder / name).is_file():
                within = folder / "authority"
                meant = f"; did you mean {within}?" if (within / KEY).is_file() else ". Make one: fkge cert authority"
                raise IdentityError("unreadable", f"{folder}: is not an authority's folder; it has no {name}{meant}")
        return cls(folder)

    def holding(self, name: str) -> list[Issued]:
        """Return the certificates of `name` that are not revoked, oldest first."""
        return [line for line in self.book.issued if line.name == name and line.revoked is None]

    def check_same(self, consortium: str) -> None:
        """Raise `IdentityError` (stranger) if this is another consortium's authority."""
        if consortium != self.consortium:
            raise IdentityError(
                "stranger",
                f"{self.folder}: is the authority of {self.consortium}, not of {consortium}. Name its own folder.",
            )

    def agree(self, consortium: Consortium, now: datetime) -> None:
        """Set the members and what they agreed on, and rewrite all kits.

        Raises:
            IdentityError: stranger (it is another consortium), or the authority is not valid now.
        """
        self.check_same(consortium.name)
        self._check_time(now)
        with self._changing():
            self._change(members=consortium.members, links=consortium.links, settings=consortium.settings)
            self._write_kits(now)

    def approve(
        self,
        request: certs.Request,
        now: datetime,
        days: int = DAYS,
        address: str | None = None,
        founder: bool | None = None,
        refresh: bool = True,
    ) -> Path:
        """Issue a certificate for the key in a request, and return the path of the site's kit.

        The caller has made sure that the key is that owner's, by its fingerprint.

        Args:
            request: the request.
            now: the time, aware.
            days: for how long the certificate is valid; no longer than the authority's.
            address: where the owner's node listens; None: as the authority knows already.
            founder: whether it takes part in agreeing on common initial rows; None: as the authority knows already.
            refresh: whether all kits are rewritten; if not, `agree` has to follow.

        Raises:
            IdentityError: as `check_open`.
        """
        with self._changing():
            self.check_open(request, now)
            member = self.book.members.get(request.name) or Member.build({})
            given = {key: value for key, value in (("address", address), ("founder", founder)) if value is not None}
            member = Member.build(member.model_dump() | given, request.name)
            certificate = self._issue(request, now, days)
            line = Issued(
                serial=certs.serial(certificate), name=request.name, fingerprint=request.fingerprint,
                expires=certificate.not_valid_after_utc, revoked=None,
            )  # fmt: skip
            write_atomically(self._issued(line), certs.pem(certificate))
            self._change(members={**self.book.members, request.name: member}, issued=(*self.book.issued, line))
            if refresh:
                self._write_kits(now)
        return self.kit(request.name)

    def revoke(self, what: str, now: datetime, old: bool = False) -> list[Issued]:
        """Revoke certificates, write the next revocation list and rewrite all kits; return what was revoked.

        An owner without a valid certificate is no longer a member.

        Args:
            what: an owner's name, for all of its certificates; or a serial.
            now: the time, aware.
            old: of an owner's certificates, revoke all but the latest.

        Raises:
            IdentityError: there is nothing to revoke by that name, or the authority is not valid now.
        """
        self._check_time(now)
        with self._changing():
            by_name = self.holding(what)
            issued = self.book.issued
            chosen = by_name[: len(by_name) - old] or [line for line in issued if line.serial == what.lower()]
            fresh = [line for line in chosen if line.revoked is None]
            if not fresh:
                self._nothing_to_revoke(what, bool(by_name), bool(chosen))
            lines = tuple(line.model_copy(update={"revoked": now}) if line in fresh else line for line in issued)
            gone = {line.name for line in fresh} - {line.name for line in lines if line.revoked is None}
            members = {name: member for name, member in self.book.members.items() if name not in gone}
            self._change(lists=self._write_list(lines, now), issued=lines, members=members)
            self._write_kits(now)
        return fresh

    def kit(self, name: str) -> Path:
        """Return the path of a site's latest kit."""
        return self.folder / "kits" / f"{name}.kit.json"

    def _check_time(self, now: datetime) -> None:
        way_out = "Make a new one (fkge cert authority), and have all sites request again."
        certs.check_time(self._certificate, now, f"{self.folder}: the authority of {self.consortium}", way_out)

    def check_open(self, request: certs.Request, now: datetime) -> None:
        """Check that a request can be approved, apart from comparing its fingerprint.

        Raises:
            IdentityError: stranger (for another consortium), revoked (the key was), name (another key holds the name
                and has not signed this one), or the authority is not valid now.
        """
        if request.consortium != self.consortium:
            raise IdentityError(
                "stranger",
                f"the request is for {request.consortium or 'no consortium'}, and {self.folder} is the authority of "
                f"{self.consortium}. Send it to the other, or request again with --consortium '{self.consortium}'.",
            )
        self._check_time(now)
        held = self.holding(request.name)
        same = [line for line in self.book.issued if line.fingerprint == request.fingerprint]
        if same and all(line.revoked for line in same):
            raise IdentityError(
                "revoked",
                f"the key {certs.short_fingerprint(request.key)} of {same[-1].name} was revoked, and is not certified "
                "again. Make a new key in another folder: fkge cert request",
            )
        if not held or any(line.fingerprint == request.fingerprint for line in held):
            return
        for line in held:
            with suppress(IdentityError):
                self._trust.verify(self._issued(line).read_bytes(), certs.voucher_text(request.key), request.voucher)
                return
        forged = "; the present key did not sign this one" if request.voucher else ""
        raise IdentityError(
            "name",
            f"the name {request.name} is taken, by the key {certs.short_fingerprint(held[-1].fingerprint)}{forged}. "
            "Its owner renews with `fkge cert renew`; if that key is lost, first: fkge cert revoke "
            f"{request.name} --authority {self.folder}",
        )

    def _issue(self, request: certs.Request, now: datetime, days: int) -> x509.Certificate:
        first = max(now - _SKEW, self._certificate.not_valid_before_utc)
        last = min(now + timedelta(days=days), self._certificate.not_valid_after_utc)
        owner = certs.subject(request.name, self.consortium)
        made = _certificate(owner, self._certificate.subject, request.key, first, last, is_authority=False)
        made = made.add_extension(x509.ExtendedKeyUsage(USES), critical=False)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(request.name)]), critical=False)
        return made.add_extension(self._key_identifier(), critical=False).sign(self._key, SHA256())

    def _key_identifier(self) -> x509.AuthorityKeyIdentifier:
        own = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)

    def _nothing_to_revoke(self, what: str, holds: bool, was: bool) -> None:
        if holds:
            raise IdentityError("name", f"{what} has one certificate only; to revoke that one, leave out --old")
        known = {key for line in self.book.issued for key in (line.name, line.serial)}
        if was or what in known:
            raise IdentityError("revoked", f"{what}: is revoked already, in {self.folder / REVOKED}")
        raise IdentityError("name", f"{self.folder}: has issued nothing to {what!r}{did_you_mean(what, known)}")

    def _write_list(self, lines: tuple[Issued, ...], now: datetime) -> int:
        """Write the next revocation list, and return its number.

        It is valid as long as the authority: a site keeps to its list until it gets a later one.
        """
        number = self.book.lists + 1
        made = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject).last_update(_whole(now))
        made = made.next_update(self._certificate.not_valid_after_utc)
        for line in lines:
            if line.revoked is not None:
                entry = x509.RevokedCertificateBuilder().serial_number(int(line.serial, 16))
                made = made.add_revoked_certificate(entry.revocation_date(_whole(line.revoked)).build())
        made = made.add_extension(self._key_identifier(), critical=False)
        made = made.add_extension(x509.CRLNumber(number), critical=False)
        write_atomically(self.folder / REVOKED, certs.pem(made.sign(self._key, SHA256())))
        return number

    def _write_kits(self, now: datetime) -> None:
        """Rewrite the kits of all members that have a certificate; remove those of others."""
        self._change(kits=self.book.kits + 1)
        agreed = Consortium(self.consortium, self.book.members, self.book.links, self.book.settings)
        revoked = (self.folder / REVOKED).read_bytes()
        read_list(revoked, self._certificate, str(self.folder / REVOKED))
        for name in {line.name for line in self.book.issued}:
            held = self.holding(name)
            if not held or name not in agreed.members:
                self.kit(name).unlink(missing_ok=True)
                continue
            links = {peer: links for peer, links in agreed.links_of(name).items() if peer in agreed.members}
            kit = Kit(
                kind="fkge.kit.1", consortium=self.consortium, name=name, number=self.book.kits, date=_whole(now),
                members=agreed.members, links=links, settings=agreed.settings, revoked=revoked.decode(),
                authority=certs.pem(self._certificate).decode(),
                certificate=self._issued(held[-1]).read_text(encoding="ascii"),
            )  # fmt: skip
            write_atomically(self.kit(name), signed(kit.model_dump(mode="json"), self._key))

    def _issued(self, line: Issued) -> Path:
        return self.folder / "issued" / f"{line.serial}.pem"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock on the book, and start from what it says now."""
        with FileLock(self.folder / "book.lock"):
            self.book = self._read_book()
            yield

    def _change(self, **changes: Any) -> None:
        self.book = self.book.model_copy(update=changes)
        text = self.book.model_dump_json(indent=1) + "\n"
        write_atomically(self.folder / BOOK, text.encode())

    def _read_book(self) -> Book:
        path = self.folder / BOOK
        if not path.exists():
            return Book.build({})
        try:
            return Book.model_validate_json(path.read_bytes())
        except ValueError as error:
            what = str(error).splitlines()[0]
            raise IdentityError("unreadable", f"{path}: is damaged ({what}). Restore it from a copy.") from None


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    first: datetime,
    last: datetime,
    is_authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(_whole(first)).not_valid_after(_whole(last))
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return made.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _whole(time: datetime) -> datetime:
    return time.astimezone(UTC).replace(microsecond=0)
