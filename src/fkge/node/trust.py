"""Whom a node believes: names, fingerprints, the authority's certificate, and the rules that others' are held against.

Keys are ECDSA P-256, certificates X.509 v3 with the owner's name as their one DNS name, revocation lists X.509, too, so
that other programs can read them. Nothing here reads a private key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

from fkge.errors import IdentityError
from fkge.trace import write_atomically

LARGEST = 64 * 2**20
"""Bytes of a kit or a list at most."""

SIGNATURE = b"fkge signature 1\n"
"""Begins what a node signs, so that a signature made for one purpose is none for another."""

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""An owner's name."""

USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
"""What an owner's certificate is for."""

Read = TypeVar("Read")
_UNREADABLE = (
    ValueError, TypeError, KeyError, RecursionError, UnsupportedAlgorithm, CryptographyDeprecationWarning,
    x509.InvalidVersion, x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""What comes of data that are damaged, or made to be odd."""


def checked_name(name: str) -> str:
    """An owner's name, if it can be one on the wire."""
    if not LABEL.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:63].strip("-")
        raise IdentityError(
            "name",
            f"{name!r} cannot be an owner's name on the wire: it has 1 to 63 of a-z, 0-9 and -, and no - at either end"
            + (f"; {near} would do" if near else ""),
        )
    return name


# -- fingerprints ----------------------------------------------------------------------------------


def fingerprint(key: ec.EllipticCurvePublicKey | bytes) -> str:
    """``sha256:`` and 64 hexadecimal digits, of a public key, or of bytes.

    A request, and every certificate for its key, have the fingerprint of that key.
    """
    data = key if isinstance(key, bytes) else key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "sha256:" + hashlib.sha256(data).hexdigest()


def fingerprint_of(certificate: bytes) -> str:
    """The fingerprint of the key in a certificate (PEM or DER)."""
    return fingerprint(public_key(read_certificate(certificate)))


def spoken(print_: str) -> str:
    """A fingerprint to read aloud: its first 128 bits, which nobody can aim at, in eight groups."""
    digits = print_.removeprefix("sha256:")
    return "-".join(digits[i : i + 4] for i in range(0, 32, 4))


def is_same(print_: str, given: str) -> bool:
    """Whether what a person gives is this fingerprint, whole or as spoken, however it is grouped."""
    digits = re.sub(r"[\s:.-]", "", given.strip().lower().removeprefix("sha256"))
    return len(digits) >= 32 and print_.removeprefix("sha256:").startswith(digits)


# -- certificates ----------------------------------------------------------------------------------


def read_certificate(data: bytes, what: str = "the certificate") -> x509.Certificate:
    """A certificate in PEM or DER, with an ECDSA P-256 key in it."""

    def load() -> x509.Certificate:
        begins = data.lstrip().startswith(b"-----BEGIN")
        found = x509.load_pem_x509_certificate(data) if begins else x509.load_der_x509_certificate(data)
        public_key(found)
        if found.serial_number <= 0:
            raise ValueError("its serial is not positive")
        _ = found.extensions, found.subject, found.issuer  # which are parsed only when asked for
        return found

    return readable(load, what, "a certificate in PEM or DER")


def readable(load: Callable[[], Read], what: str, kind: str) -> Read:
    """What `load` gives; if it cannot, one sentence that says what is not of its `kind`."""
    try:
        return load()
    except _UNREADABLE as error:
        raise IdentityError("unreadable", f"{what}: is not {kind} ({_short(error)})") from None


def _short(error: Exception) -> str:
    """The first sentence of what a library says."""
    return (str(error) or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")


def public_key(holder: x509.Certificate | x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    key = holder.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not ECDSA P-256")
    return key


def word(name: x509.Name, part: x509.ObjectIdentifier) -> str:
    """The one text of that kind in a distinguished name; empty if there is none, or more."""
    found = name.get_attributes_for_oid(part)
    return str(found[0].value) if len(found) == 1 else ""


def pem(certificate: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def name_of(certificate: x509.Certificate) -> str:
    """The owner that a certificate is for: its one DNS name. Empty if it has none, or several."""
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName)
        if len(found) == len(list(names)) == 1 and LABEL.fullmatch(found[0]):
            return found[0]
    return ""


def serial(certificate: x509.Certificate | int) -> str:
    """A serial number as people see it."""
    number = certificate if isinstance(certificate, int) else certificate.serial_number
    return f"{number:x}"


def check_time(certificate: x509.Certificate, now: datetime, what: str, way_out: str) -> None:
    """Raise `IdentityError` (expired, early) unless `now` lies within a certificate's time."""
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise IdentityError("expired", f"{what} expired on {last:%Y-%m-%d %H:%M} UTC. {way_out}")
    if now < first:
        raise IdentityError(
            "early",
            f"{what} is valid from {first:%Y-%m-%d %H:%M} UTC on, and here it is {now.astimezone(UTC):%Y-%m-%d %H:%M} "
            "UTC. Set the clock right, or wait.",
        )


# -- trust -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RevocationList:
    """Serials that no longer hold. Made by `read_list`.

    Attributes:
        number: grows by one with every list of an authority.
        date: when it was made.
        serials: which certificates, and since when.
        pem: the list as it was signed.
    """

    number: int
    date: datetime
    serials: Mapping[int, datetime]
    pem: bytes = field(repr=False)


def read_list(data: bytes, authority: x509.Certificate, what: str = "the revocation list") -> RevocationList:
    """A revocation list (PEM) that this authority signed.

    Raises:
        IdentityError: unreadable, or stranger or forged.
    """

    def load() -> tuple[x509.Name, bool, RevocationList]:
        if len(data) > LARGEST:
            raise ValueError(f"{len(data):,} bytes; {LARGEST:,} at most")
        found = x509.load_pem_x509_crl(data)
        number = found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
        serials = {entry.serial_number: entry.revocation_date_utc for entry in found}
        read = RevocationList(number, found.last_update_utc, serials, pem(found))
        return found.issuer, found.is_signature_valid(public_key(authority)), read

    issuer, signed, read = readable(load, what, "a revocation list in PEM")
    if issuer != authority.subject:
        raise IdentityError(
            "stranger",
            f"{what}: comes from another authority ({issuer.rfc4514_string()}) than this consortium's "
            f"({authority.subject.rfc4514_string()}). Use your own authority's list.",
        )
    if not signed:
        raise IdentityError(
            "forged", f"{what}: its signature is not the authority's; it was changed on its way. Ask for it again."
        )
    return read


class Trust:
    """What a node holds against others' certificates: the authority's certificate and the latest revocation list.

    Args:
        authority: its certificate.
        revoked: a revocation list; without one, nothing is revoked.
        file: where later lists are put.
        what: what the list came in, for messages.
    """

    def __init__(
        self, authority: bytes, revoked: bytes | None = None, file: Path | None = None, what: str = "the kit"
    ) -> None:
        self._authority = read_certificate(authority, "the authority's certificate")
        self._key = public_key(self._authority)
        self.consortium = _consortium_of(self._authority)
        """Its name."""
        self.fingerprint = fingerprint(self._key)
        """Of the authority."""
        self._list = RevocationList(0, datetime.min.replace(tzinfo=UTC), {}, b"")
        if revoked is not None:
            self._list = read_list(revoked, self._authority, f"{what}: its revocation list")
        self._file = file
        self._seen: tuple[int, int] | None = None

    @property
    def revoked(self) -> RevocationList:
        """The list in hand."""
        return self._list

    def check(self, certificate: bytes, now: datetime, name: str | None = None) -> str:
        """The name of the owner that a certificate (PEM or DER) is for, if it holds now.

        Args:
            now: the time, aware.
            name: who it should be for.

        Raises:
            IdentityError: unreadable, stranger (not signed by the authority as an owner's), expired, early, revoked,
                or name (for another owner).
        """
        found = read_certificate(certificate)
        owner = self._owner(found)
        what = f"{owner}'s certificate"
        check_time(self._authority, now, f"the authority of {self.consortium}", "The consortium needs a new one.")
        check_time(found, now, what, f"Renew it at {owner}: fkge cert renew.")
        if (since := self._list.serials.get(found.serial_number)) is not None:
            raise IdentityError(
                "revoked",
                f"{what} (serial {serial(found)}) was revoked on {since:%Y-%m-%d}, says list {self._list.number}. "
                "Ask the authority; a new one needs a new request.",
            )
        if name is not None and owner != name:
            raise IdentityError(
                "name", f"the certificate is {owner}'s, not {name}'s. Compare addresses and names in peers.toml."
            )
        return owner

    def _owner(self, certificate: x509.Certificate) -> str:
        """Whose certificate this is, if the authority made it out to an owner."""
        try:
            certificate.verify_directly_issued_by(self._authority)
        except (ValueError, TypeError, InvalidSignature):
            raise IdentityError(
                "stranger",
                f"a certificate for {word(certificate.subject, NameOID.COMMON_NAME) or 'nobody'} was not signed by the "
                f"authority of {self.consortium} ({spoken(self.fingerprint)}). Is it of another consortium?",
            ) from None
        name = name_of(certificate)
        if not name or not _is_leaf(certificate) or word(certificate.subject, NameOID.COMMON_NAME) != name:
            raise IdentityError(
                "stranger", f"the certificate with serial {serial(certificate)} is not made out to an owner's node"
            )
        return name

    def verify(self, certificate: bytes, data: bytes, signature: bytes) -> None:
        """Raise `IdentityError` (forged) unless `Identity.sign` made this signature with the certificate's key.

        Whether the certificate holds is not asked; `check` asks.
        """
        found = read_certificate(certificate)
        try:
            public_key(found).verify(signature, SIGNATURE + data, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise IdentityError("forged", f"a signature is not that of {name_of(found) or 'the key in hand'}") from None

    def take(self, data: bytes, what: str = "the revocation list") -> bool:
        """Put a later list in force, and in its place in the folder. False if it is the one in hand.

        Raises:
            IdentityError: as `read_list`, or old (its number is lower than that of the list in hand). Then the list in
                hand stays.
        """
        if not self._put_in_force(read_list(data, self._authority, what), what):
            return False
        if self._file is not None:
            write_atomically(self._file, self._list.pem)
            self._seen = _stamp(self._file)
        return True

    def reload(self) -> bool:
        """Read the folder's revocation list anew if its file changed. True if a later one is in force now.

        Raises:
            IdentityError: as `take`; once for each change of the file. The list in hand stays, as it does where the
                file is gone.
        """
        if self._file is None or (stamp := _stamp(self._file)) is None or stamp == self._seen:
            return False
        self._seen, what = stamp, str(self._file)
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return False
        return self._put_in_force(read_list(data, self._authority, what), what)

    def _put_in_force(self, new: RevocationList, what: str) -> bool:
        if (new.number, new.serials) == (self._list.number, self._list.serials):
            return False
        if new.number <= self._list.number:
            raise IdentityError(
                "old",
                f"{what}: is list {new.number}, and list {self._list.number} is in force. Lists do not go back; ask "
                "the authority for its latest.",
            )
        self._list = new
        return True


@contextmanager
def suppressed_if_old() -> Iterator[None]:
    """Go on if a revocation list is refused for being older than the one in hand."""
    try:
        yield
    except IdentityError as error:
        if error.reason != "old":
            raise


def _consortium_of(authority: x509.Certificate) -> str:
    """The consortium's name, if this is an authority's certificate."""
    name = word(authority.subject, NameOID.ORGANIZATION_NAME)
    try:
        authority.verify_directly_issued_by(authority)
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
        held = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca and usage.key_cert_sign
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        held = False
    if not held or not name:
        raise IdentityError("unreadable", "the authority's certificate: is not one of an authority of fkge")
    return name


def _is_leaf(certificate: x509.Certificate) -> bool:
    """Whether a certificate is fit for both ends of a connection, and for nothing above that."""
    known = (
        ExtensionOID.BASIC_CONSTRAINTS, ExtensionOID.KEY_USAGE, ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ExtensionOID.SUBJECT_KEY_IDENTIFIER,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
    )  # fmt: skip
    extensions = certificate.extensions
    if any(e.critical and e.oid not in known for e in extensions):
        return False
    try:
        constraints = extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return not constraints.ca and usage.digital_signature and not usage.key_cert_sign and all(u in uses for u in USES)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size
