"""A site's request for a certificate (PKCS #10): made where the key is, read where the authority is.

A request for a new key of an old name carries a voucher, by which the present key says that the new one is its own.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import AttributeOID, NameOID

from fkge.errors import IdentityError
from fkge.node.consortium import checked_consortium
from fkge.node.trust import checked_name, fingerprint, pem, public_key, readable, word

_RENEWAL = b"fkge renewal 1\n"


@dataclass(frozen=True)
class Request:
    """A site asks for a certificate. Made by `read_request`; its own signature holds.

    Attributes:
        name: whose.
        consortium: of which.
        key: the public key.
        voucher: a signature with the name's present key over the new one; empty in a first request.
    """

    name: str
    consortium: str
    key: ec.EllipticCurvePublicKey
    voucher: bytes

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key)


def vouched(key: ec.EllipticCurvePublicKey) -> bytes:
    """What a site signs with its present key when it asks for a certificate for a new one."""
    return _RENEWAL + fingerprint(key).encode()


def write_request(key: ec.EllipticCurvePrivateKey, name: str, consortium: str, voucher: bytes = b"") -> bytes:
    """A request (PKCS #10, PEM) for a certificate."""
    subject = subject_of(checked_name(name), checked_consortium(consortium))
    made = x509.CertificateSigningRequestBuilder().subject_name(subject)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    if voucher:
        made = made.add_attribute(AttributeOID.UNSTRUCTURED_NAME, base64.b64encode(voucher))
    return pem(made.sign(key, SHA256()))


def read_request(data: bytes, what: str) -> Request:
    """The request in a file.

    Raises:
        IdentityError: unreadable, forged, or for a name that cannot be one.
    """

    def load() -> tuple[bool, Request]:
        found = x509.load_pem_x509_csr(data)
        name, consortium = (word(found.subject, part) for part in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME))
        try:
            voucher = found.attributes.get_attribute_for_oid(AttributeOID.UNSTRUCTURED_NAME).value
        except x509.AttributeNotFound:
            voucher = b""
        read = Request(name, consortium, public_key(found), base64.b64decode(voucher, validate=True))
        return found.is_signature_valid, read

    signed, request = readable(load, what, "a request in PEM, as `fkge cert request` makes them")
    if not signed:
        raise IdentityError("forged", f"{what}: was not signed with its own key; it was changed on its way")
    checked_name(request.name)
    return request


def subject_of(name: str, consortium: str) -> x509.Name:
    """The distinguished name of an owner."""
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, consortium), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
