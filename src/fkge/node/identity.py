"""Who a node is: a key that never leaves, and the authority's word for it.

A site's folder holds four files that count, and copies for other programs:

    key.pem           the private key; nobody but its user may read it (0600)
    authority.pem     the authority's certificate, compared by fingerprint when it was put here: all trust begins there
    consortium.json   the kit, signed by the authority: members, this site's certificate, a revocation list
    revoked.pem       a later revocation list, if one came; a running node reads it anew

The kit is one file, so that a new certificate comes into force in one step, together with all else that is in it. The
key that fits it is `key.pem`, or `key.next.pem` while a rotation is half-way.

A known weakness: who can write into a site's folder can take away `revoked.pem`, and a node that starts then knows of
no more than the kit's list. Who can write there can take the key, too.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fkge.errors import IdentityError
from fkge.node.kits import Kit as Kit
from fkge.node.kits import Member as Member
from fkge.node.trust import (
    SIGNATURE,
    fingerprint,
    pem,
    public_key,
    read_certificate,
    readable,
    serial,
    spoken,
    suppressed_if_old,
)
from fkge.node.trust import Trust as Trust
from fkge.trace import sync_folder

KEY, NEXT_KEY, AUTHORITY, KIT = "key.pem", "key.next.pem", "authority.pem", "consortium.json"
CERTIFICATE, REVOKED, REQUEST = "certificate.pem", "revoked.pem", "request.csr"
"""Files of a site."""


# -- keys ------------------------------------------------------------------------------------------


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key, which nobody but its user can read at any time."""
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A private key that nobody but its user can read."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise IdentityError(
            "unreadable",
            f"{path}: others on this machine can read it (mode {mode:04o}). chmod 600 it; if somebody may have, renew "
            "it (fkge cert renew) and have the old certificate revoked.",
        )

    def load() -> ec.EllipticCurvePrivateKey:
        key = load_pem_private_key(path.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("it is not ECDSA P-256")
        return key

    return readable(load, str(path), "a private key in PEM")


def key_for(folder: Path, certificate: x509.Certificate) -> Path | None:
    """The file in `folder` that holds the key of a certificate, if one does."""
    for path in (folder / KEY, folder / NEXT_KEY):
        if path.exists() and fingerprint(read_key(path).public_key()) == fingerprint(public_key(certificate)):
            return path
    return None


# -- a node's own ----------------------------------------------------------------------------------


class Identity:
    """A node's own key and certificate, and what it believes of others. Made by `load`."""

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, kit: Kit, trust: Trust) -> None:
        self._key = key
        self._certificate = read_certificate(kit.certificate.encode())
        self.folder = folder
        self.kit = kit
        self.trust = trust
        self.name = kit.name
        self.consortium = kit.consortium
        self.certificate_pem = pem(self._certificate)
        self.authority_pem = kit.authority.encode()
        self.fingerprint = fingerprint(public_key(self._certificate))
        """Of its key: the same in the request and in all certificates for it; `spoken` is for reading it aloud."""
        self.expires = self._certificate.not_valid_after_utc
        self.serial = serial(self._certificate)

    @classmethod
    def load(cls, folder: Path) -> Identity:
        """The identity of the site in `folder`. Whether it holds now is not asked; `check` asks.

        Raises:
            IdentityError: something is missing, can be read by others, does not fit together, or is not signed.
        """
        for name, way_out in (
            (KEY, "Make one: fkge cert request"),
            (AUTHORITY, "Have the request approved, then: fkge cert install KIT --into FOLDER"),
            (KIT, "Put the kit there again: fkge cert install KIT --into FOLDER"),
        ):
            if not (folder / name).is_file() and not (name == KEY and (folder / NEXT_KEY).is_file()):
                raise IdentityError("unreadable", f"{folder}: is not a site's folder; it has no {name}. {way_out}")
        authority = (folder / AUTHORITY).read_bytes()
        kit = Kit.read((folder / KIT).read_bytes(), str(folder / KIT), authority)
        fitting = key_for(folder, read_certificate(kit.certificate.encode()))
        if fitting is None:
            raise IdentityError(
                "name",
                f"{folder}: the certificate in {KIT} is not for the key in {KEY}. Put back the key that asked for it, "
                "or request a new certificate.",
            )
        trust = Trust(authority, kit.revoked.encode(), file=folder / REVOKED, what=str(folder / KIT))
        with suppressed_if_old():  # a kit that came after the list has a later one in it
            trust.reload()
        return cls(folder, read_key(fitting), kit, trust)

    @cached_property
    def key_pem(self) -> bytes:
        """The private key. It goes into the TLS library, and nowhere else."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def spoken(self) -> str:
        """The fingerprint, to read aloud."""
        return spoken(self.fingerprint)

    @property
    def members(self) -> dict[str, Member]:
        """All owners of the consortium, as the kit says."""
        return self.kit.members

    def check(self, now: datetime) -> None:
        """Raise `IdentityError` unless this node's own certificate holds now."""
        self.trust.check(self.certificate_pem, now, self.name)

    def sign(self, data: bytes) -> bytes:
        """A signature of `data` that `Trust.verify` takes, and that is of no use for anything else, such as TLS."""
        return self._key.sign(SIGNATURE + data, ec.ECDSA(SHA256()))

    def __repr__(self) -> str:
        return f"Identity({self.name!r} of {self.consortium!r}, {self.spoken})"
