"""The rules that other owners' certificates are checked against: the authority's certificate and a revocation list.

`cryptography` checks signatures and parses lists. Its chain verification (`x509.verification.PolicyBuilder`) is not
used: it applies the rules of the public web, knows no revocation lists, and reports every failure alike, where a node
has to tell a stranger from an expired, an early, a revoked and a misnamed certificate. The chain here is one
certificate long, so what is left to check by hand is small. Nothing in this module reads a private key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from fkge.errors import IdentityError
from fkge.files import stamp, write_atomically
from fkge.pki import certificates as certs
from fkge.pki.certificates import MAX_BYTES

SIGNATURE_PREFIX = b"fkge signature 1\n"
"""Starts everything a node signs, so that such a signature cannot pass for one made in TLS or for a kit."""

USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""Extended key usages of an owner's certificate."""

_KNOWN_EXTENSIONS = (
    ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE, ExtensionOID.EXTENDED_KEY_USAGE,
    ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
)  # fmt: skip


@dataclass(frozen=True)
class RevocationList:
    """The serials an authority has revoked. Made by `read_list`."""

    number: int  # grows by one with every list of an authority
    date: datetime
    serials: Mapping[int, datetime]  # with the time of each revocation
    pem: bytes = field(repr=False)  # the list as it was signed


def read_list(data: bytes, authority: x509.Certificate | None, source: str = "the revocation list") -> RevocationList:
    """Parse a revocation list and check its signature.

    Args:
        data: the list, PEM.
        authority: the certificate it must be signed by; None leaves the signature unchecked.
        source: where the list came from, for messages.

    Raises:
        IdentityError: unreadable, stranger (of another authority), or forged.
    """
    with certs.parsing(source, "a revocation list in PEM"):
        if len(data) > MAX_BYTES:
            raise ValueError(f"{len(data):,} bytes; {MAX_BYTES:,} at most")
        found = x509.load_pem_x509_crl(data)
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        serials = {entry.serial_number: entry.revocation_date_utc for entry in found}
        is_signed = authority is None or found.is_signature_valid(certs.public_key(authority))
        revoked = RevocationList(number, found.last_update_utc, serials, certs.pem(found))
    if authority is not None and found.issuer != authority.subject:
        raise IdentityError(
            "stranger",
            f"{source}: comes from another authority ({found.issuer.rfc4514_string()}) than this consortium's "
            f"({authority.subject.rfc4514_string()}). Use your own authority's list.",
        )
    if not is_signed:
        raise IdentityError(
            "forged", f"{source}: its signature is not the authority's; it was altered in transit. Ask for it again."
        )
    return revoked


class Trust:
    """Checks other owners' certificates against an authority's certificate and its latest revocation list.

    Args:
        authority: the authority's certificate.
        revoked: a revocation list; without one, nothing is revoked.
        file: where later lists are stored.
        source: what the list came in, for messages.
    """

    def __init__(
        self, authority: bytes, revoked: bytes | None = None, file: Path | None = None, source: str = "the kit"
    ) -> None:
        self._authority = certs.read_certificate(authority, "the authority's certificate")
        self.consortium = _consortium_of(self._authority)
        self.fingerprint = certs.fingerprint(self._authority)
        self.revoked = RevocationList(0, datetime.min.replace(tzinfo=UTC), {}, b"")  # the list in force
        if revoked is not None:
            self.revoked = read_list(revoked, self._authority, f"{source}: its revocation list")
        self._file = file
        self._seen: tuple[int, int, int] | None = None

    def check(self, certificate: bytes, now: datetime, name: str | None = None) -> str:
        """Check that a certificate is valid now, and return the owner it is for.

        Args:
            certificate: the certificate, PEM or DER.
            now: the time, aware.
            name: the owner it must be for; None for any.

        Raises:
            IdentityError: unreadable, stranger (the authority did not issue it to an owner), expired, early, revoked,
                or name (it is for another owner).
        """
        found = certs.read_certificate(certificate)
        owner = self._owner(found)
        what = f"{owner}'s certificate"
        certs.check_time(self._authority, now, f"the authority of {self.consortium}", "The consortium needs a new one.")
        certs.check_time(found, now, what, f"Renew it at {owner}: fkge cert renew.")
        if (since := self.revoked.serials.get(found.serial_number)) is not None:
            raise IdentityError(
                "revoked",
                f"{what} (serial {certs.serial(found)}) was revoked on {since:%Y-%m-%d}, by list "
                f"{self.revoked.number}. Ask the authority; a new one needs a new request.",
            )
        if name is not None and owner != name:
            raise IdentityError(
                "name", f"the certificate is {owner}'s, not {name}'s. Compare addresses and names in peers.toml."
            )
        return owner

    def _owner(self, certificate: x509.Certificate) -> str:
        """Return the owner the authority issued a certificate to; raise `IdentityError` (stranger) if to none."""
        try:
            certificate.verify_directly_issued_by(self._authority)
        except (ValueError, TypeError, InvalidSignature):
            raise IdentityError(
                "stranger",
                f"a certificate for {certs.subject_text(certificate.subject, NameOID.COMMON_NAME) or 'nobody'} was not "
                f"signed by the authority of {self.consortium} ({certs.short_fingerprint(self.fingerprint)}). Is it of "
                "another consortium?",
            ) from None
        name, common_name = certs.name_of(certificate), certs.subject_text(certificate.subject, NameOID.COMMON_NAME)
        if not name or not _is_leaf(certificate) or common_name != name:
            raise IdentityError(
                "stranger", f"the certificate with serial {certs.serial(certificate)} is not issued to an owner's node"
            )
        return name

    def verify(self, certificate: bytes, data: bytes, signature: bytes) -> None:
        """Check that `Identity.sign` made a signature; `check` checks whether the certificate is valid.

        Args:
            certificate: of the site that signed, PEM or DER; data, signature: what was signed, and the signature.

        Raises:
            IdentityError: forged.
        """
        found = certs.read_certificate(certificate)
        try:
            certs.public_key(found).verify(signature, SIGNATURE_PREFIX + data, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise IdentityError(
                "forged", f"a signature was not made with the key of {certs.name_of(found) or 'the certificate'}"
            ) from None

    def update(self, data: bytes, source: str = "the revocation list") -> bool:
        """Put a later revocation list in force and store it; return False if it is the one in force already.

        Raises:
            IdentityError: as `read_list`, or old (its number is lower than that of the list in force, which stays).
        """
        if not self._put_in_force(read_list(data, self._authority, source), source):
            return False
        if self._file is not None:
            write_atomically(self._file, self.revoked.pem)
            self._seen = stamp(self._file)
        return True

    def reload(self) -> bool:
        """Read the stored revocation list if its file changed; return True if a later one is in force now.

        Raises:
            IdentityError: as `update`; once for each change of the file. The list in force stays, as it does if the
                file is removed.
        """
        if self._file is None or (seen := stamp(self._file)) is None or seen == self._seen:
            return False
        self._seen, source = seen, str(self._file)
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return False
        return self._put_in_force(read_list(data, self._authority, source), source)

    def _put_in_force(self, new: RevocationList, source: str) -> bool:
        if (new.number, new.serials) == (self.revoked.number, self.revoked.serials):
            return False
        if new.number <= self.revoked.number:
            raise IdentityError(
                "old",
                f"{source}: is list {new.number}, and list {self.revoked.number} is in force. An older list does not "
                "replace a later one; ask the authority for its latest.",
            )
        self.revoked = new
        return True


def _consortium_of(authority: x509.Certificate) -> str:
    """Return the consortium's name; raise `IdentityError` if this is not an authority's certificate."""
    name = certs.subject_text(authority.subject, NameOID.ORGANIZATION_NAME)
    try:
        authority.verify_directly_issued_by(authority)
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
        is_ca = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca and usage.key_cert_sign
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        is_ca = False
    if not is_ca or not name:
        raise IdentityError("unreadable", "the authority's certificate: is not one of an authority of fkge")
    return name


def _is_leaf(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is for both ends of a connection, and cannot issue others."""
    extensions = certificate.extensions
    if any(e.critical and e.oid not in _KNOWN_EXTENSIONS for e in extensions):
        return False
    try:
        constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return not constraints.ca and usage.digital_signature and not usage.key_cert_sign and all(u in uses for u in USES)
