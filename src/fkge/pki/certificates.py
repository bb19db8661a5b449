"""Names, fingerprints, keys, certificates and requests of a consortium, as files.

Keys are ECDSA P-256, certificates X.509 v3 with the owner's name as their one DNS name, requests PKCS #10, so that
other programs can read them. A request for a new key of a known name carries a voucher: a signature of the new key by
the present one. `cryptography` parses, builds and signs; this module adds the consortium's own rules and turns what
the library raises into an `IdentityError`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import AttributeOID, NameOID

from fkge.errors import IdentityError, SettingsError
from fkge.files import write_atomically

KEY, NEXT_KEY, AUTHORITY, KIT = "key.pem", "key.next.pem", "authority.pem", "consortium.json"
CERTIFICATE, REVOKED, REQUEST = "certificate.pem", "revoked.pem", "request.csr"
"""Names of files in the folder of a site or an authority."""

MAX_BYTES = 64 * 2**20
"""Size limit of a kit or a revocation list."""

OWNER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_PARSE_ERRORS = (
    ValueError, TypeError, KeyError, RecursionError, UnsupportedAlgorithm, CryptographyDeprecationWarning,
    x509.InvalidVersion, x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType,
)  # fmt: skip
"""What `cryptography` and `json` raise on damaged or hostile data."""


@contextmanager
def parsing(source: str, kind: str) -> Iterator[None]:
    """Report errors while parsing as `IdentityError` (unreadable): `source` is not of the `kind` it should be."""
    try:
        yield
    except _PARSE_ERRORS as error:
        first = (str(error) or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")
        raise IdentityError("unreadable", f"{source}: is not {kind} ({first})") from None


# -- names -----------------------------------------------------------------------------------------


def checked_name(name: str) -> str:
    """Return `name` if it can be an owner's (a DNS label); raise `IdentityError` (name) with a suggestion if not."""
    if not OWNER_NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower())[:63].strip("-")
        raise IdentityError(
            "name",
            f"{name!r} cannot be an owner's name: use 1 to 63 of a-z, 0-9 and -, with no - at either end"
            + (f"; {near} would do" if near else ""),
        )
    return name


def checked_consortium(name: str) -> str:
    """Return `name` if it can be a consortium's (it fits into a certificate); raise `SettingsError` if not."""
    if not 1 <= len(name.strip()) == len(name) <= 64 or not name.isprintable():
        raise SettingsError(
            f"{name!r} cannot be a consortium's name: use 1 to 64 printable characters, with no blanks around them"
        )
    return name


def subject(name: str, consortium: str) -> x509.Name:
    """Return the distinguished name of an owner."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def subject_text(name: x509.Name, attribute: x509.ObjectIdentifier) -> str:
    """Return the one value of `attribute` in a distinguished name; empty if there is none, or several."""
    found = name.get_attributes_for_oid(attribute)
    return str(found[0].value) if len(found) == 1 else ""


# -- fingerprints ----------------------------------------------------------------------------------


Fingerprinted = ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey | x509.Certificate | bytes


def fingerprint(of: Fingerprinted) -> str:
    """Return ``sha256:`` and 64 hexadecimal digits of a key, of the key in a certificate, or of bytes.

    A key, the request for it and every certificate for it share one fingerprint.
    """
    if isinstance(of, x509.Certificate):
        of = public_key(of)
    elif isinstance(of, ec.EllipticCurvePrivateKey):
        of = of.public_key()
    data = of if isinstance(of, bytes) else of.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return "sha256:" + hashlib.sha256(data).hexdigest()


def short_fingerprint(of: str | Fingerprinted) -> str:
    """Return the first 128 bits of a fingerprint in eight groups, for people to compare; too many bits to collide."""
    digits = (of if isinstance(of, str) else fingerprint(of)).removeprefix("sha256:")
    return "-".join(digits[i : i + 4] for i in range(0, 32, 4))


def matches_fingerprint(whole: str, given: str) -> bool:
    """Return whether what a person typed is this fingerprint, whole or short, in any grouping."""
    digits = re.sub(r"[\s:.-]", "", given.strip().lower().removeprefix("sha256"))
    return len(digits) >= 32 and whole.removeprefix("sha256:").startswith(digits)


# -- keys ------------------------------------------------------------------------------------------


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, unencrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key atomically, with mode 0600 from the first byte on."""
    write_atomically(path, key_bytes(key), private=True)


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a private key.

    Raises:
        IdentityError: unreadable: it is no ECDSA P-256 key, or other users of the machine can read its file.
    """
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise IdentityError(
            "unreadable",
            f"{path}: others on this machine can read it (mode {mode:04o}). chmod 600 it; if somebody may have, renew "
            "it (fkge cert renew) and have the old certificate revoked.",
        )
    with parsing(str(path), "a private key in PEM"):
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("it is not ECDSA P-256")
    return key


# -- certificates ----------------------------------------------------------------------------------


def read_certificate(data: bytes, source: str = "the certificate") -> x509.Certificate:
    """Parse a certificate (PEM or DER) with an ECDSA P-256 key; raise `IdentityError` (unreadable) if it is none."""
    with parsing(source, "a certificate in PEM or DER"):
        is_pem = data.lstrip().startswith(b"-----BEGIN")
        found = x509.load_pem_x509_certificate(data) if is_pem else x509.load_der_x509_certificate(data)
        public_key(found)
        if found.serial_number <= 0:
            raise ValueError("its serial is not positive")
        _ = found.extensions, found.subject, found.issuer  # parsed lazily: errors must show here
    return found


def public_key(holder: x509.Certificate | x509.CertificateSigningRequest) -> ec.EllipticCurvePublicKey:
    key = holder.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("its key is not ECDSA P-256")
    return key


def pem(document: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList) -> bytes:
    return document.public_bytes(Encoding.PEM)


def name_of(certificate: x509.Certificate) -> str:
    """Return the owner a certificate is for: its one DNS name. Empty if it has none, or several names."""
    with suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = names.get_values_for_type(x509.DNSName)
        if len(found) == len(list(names)) == 1 and OWNER_NAME.fullmatch(found[0]):
            return found[0]
    return ""


def serial(certificate: x509.Certificate | int) -> str:
    """Return a serial number in hexadecimal, as the command line shows it."""
    return f"{certificate if isinstance(certificate, int) else certificate.serial_number:x}"


def check_time(certificate: x509.Certificate, now: datetime, what: str, way_out: str) -> None:
    """Check that `now` lies within a certificate's validity.

    Args:
        certificate: the certificate.
        now: the time, aware.
        what, way_out: what the certificate is, and what to do if it has expired, for the message.

    Raises:
        IdentityError: expired, or early.
    """
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        raise IdentityError("expired", f"{what} expired on {last:%Y-%m-%d %H:%M} UTC. {way_out}")
    if now < first:
        raise IdentityError(
            "early",
            f"{what} is valid from {first:%Y-%m-%d %H:%M} UTC on, and here it is {now.astimezone(UTC):%Y-%m-%d %H:%M} "
            "UTC. Set the clock right, or wait.",
        )


# -- requests --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A site's request for a certificate, whose own signature was checked. Made by `read_request`."""

    name: str
    consortium: str
    key: ec.EllipticCurvePublicKey
    voucher: bytes  # the new key, signed with the name's present one; empty in a first request

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


def voucher_text(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return what a site signs with its present key when it requests a certificate for a new one."""
    return b"fkge renewal 1\n" + fingerprint(key).encode()


def write_request(key: ec.EllipticCurvePrivateKey, name: str, consortium: str, voucher: bytes = b"") -> bytes:
    """Make a request for a certificate, PKCS #10 in PEM.

    Args:
        key: the key to be certified.
        name, consortium: the owner's and the consortium's name.
        voucher: the present key's signature of `voucher_text`; empty in a first request.
    """
    whose = subject(checked_name(name), checked_consortium(consortium))
    made = x509.CertificateSigningRequestBuilder().subject_name(whose)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    if voucher:
        made = made.add_attribute(AttributeOID.UNSTRUCTURED_NAME, base64.b64encode(voucher))
    return pem(made.sign(key, SHA256()))


def read_request(data: bytes, source: str) -> Request:
    """Parse a request and check its signature.

    Raises:
        IdentityError: unreadable, forged, or name (it cannot be an owner's).
    """
    with parsing(source, "a request in PEM, as `fkge cert request` makes them"):
        found = x509.load_pem_x509_csr(data)
        name = subject_text(found.subject, NameOID.COMMON_NAME)
        consortium = subject_text(found.subject, NameOID.ORGANIZATION_NAME)
        voucher = b""
        with suppress(x509.AttributeNotFound):
            voucher = found.attributes.get_attribute_for_oid(AttributeOID.UNSTRUCTURED_NAME).value
        request = Request(name, consortium, public_key(found), base64.b64decode(voucher, validate=True))
        is_signed = found.is_signature_valid
    if not is_signed:
        raise IdentityError("forged", f"{source}: is not signed with its own key; it was altered in transit")
    checked_name(request.name)
    return request
