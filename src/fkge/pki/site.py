"""Identity of a site: request a certificate, install a kit, renew; and the identity that results.

A site's folder holds four files that count, and copies for other programs:

    key.pem           the private key, mode 0600; it is made here and never leaves
    authority.pem     the authority's certificate, compared by fingerprint when it was installed: the root of all trust
    consortium.json   the kit, signed by the authority: members, this site's certificate, a revocation list
    revoked.pem       a later revocation list, if one was installed; a running node rereads it

The kit is one file, so that a new certificate comes into force in one step, together with the rest of the kit. Its key
is `key.pem`, or `key.next.pem` while a renewal is unfinished.

A known weakness: whoever can write into a site's folder can remove `revoked.pem`, and a node that starts then knows
only the kit's list. Whoever can write there can take the key, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fkge.errors import IdentityError, RunError
from fkge.files import sync_folder, write_atomically
from fkge.pki import certificates as certs
from fkge.pki.certificates import AUTHORITY, CERTIFICATE, KEY, KIT, NEXT_KEY, REQUEST, REVOKED
from fkge.pki.kits import Kit
from fkge.pki.trust import SIGNATURE_PREFIX, Trust


class Identity:
    """A site's key, certificate and trust in others, by the kit in force. Made by `load`.

    Args:
        folder, key, kit: the site's; trust: by the kit, or a later revocation list.
    """

    def __init__(self, folder: Path, key: ec.EllipticCurvePrivateKey, kit: Kit, trust: Trust) -> None:
        certificate = certs.read_certificate(kit.certificate.encode())
        self._key = key
        self.folder, self.kit, self.trust = folder, kit, trust
        self.name, self.consortium = kit.name, kit.consortium
        self.certificate_pem, self.authority_pem = certs.pem(certificate), kit.authority.encode()
        self.fingerprint = certs.fingerprint(certificate)  # of the key; the same in the request for it
        self.expires, self.serial = certificate.not_valid_after_utc, certs.serial(certificate)

    @classmethod
    def load(cls, folder: Path) -> Identity:
        """Load the identity of the site in `folder`. Whether it is valid now is not checked; `check` does that.

        Raises:
            IdentityError: something is missing, can be read by others, does not fit together, or is not signed.
        """
        for name, way_out in (
            (KEY, "Make one: fkge cert request"),
            (AUTHORITY, "Have the request approved, then: fkge cert install KIT --into FOLDER"),
            (KIT, "Install the kit again: fkge cert install KIT --into FOLDER"),
        ):
            if not (folder / name).is_file() and not (name == KEY and (folder / NEXT_KEY).is_file()):
                raise IdentityError("unreadable", f"{folder}: is not a site's folder; it has no {name}. {way_out}")
        kit = _installed_kit(folder)
        key = _key_for(folder, certs.read_certificate(kit.certificate.encode()))
        if key is None:
            raise IdentityError(
                "name",
                f"{folder}: the certificate in {KIT} is not for the key in {KEY}. Put back the key it was requested "
                "for, or request a new certificate.",
            )
        return cls(folder, certs.read_key(key), kit, _trust(folder, kit, str(folder / KIT)))

    @cached_property
    def key_pem(self) -> bytes:
        """The private key, for the TLS library and nothing else."""
        return certs.key_bytes(self._key)

    @property
    def short_fingerprint(self) -> str:
        return certs.short_fingerprint(self.fingerprint)

    def check(self, now: datetime) -> None:
        """Raise `IdentityError` unless this site's own certificate is valid now."""
        self.trust.check(self.certificate_pem, now, self.name)

    def sign(self, data: bytes) -> bytes:
        """Sign `data` for `Trust.verify`; a prefix makes the signature useless anywhere else, such as in TLS."""
        return self._key.sign(SIGNATURE_PREFIX + data, ec.ECDSA(SHA256()))


# -- requests --------------------------------------------------------------------------------------


def request(folder: Path, name: str, consortium: str) -> str:
    """Make a key and a request for a certificate; return the key's fingerprint, for the authority to compare.

    Args:
        folder: the site's; made if it does not exist.
        name, consortium: the owner's and the consortium's name.

    Raises:
        RunError: the folder has a key already.
        IdentityError: `name` cannot be an owner's.
        SettingsError: `consortium` cannot be a consortium's name.
    """
    for file in (KEY, NEXT_KEY):
        if (folder / file).exists():
            raise RunError(
                f"{folder}: has a key ({file}) already, which is not overwritten. To replace it: fkge cert renew "
                f"{folder}; for another owner, name another folder"
            )
    key = certs.new_key()
    data = certs.write_request(key, name, consortium)  # before anything is written: it checks the names
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    certs.write_key(folder / KEY, key)
    write_atomically(folder / REQUEST, data)
    return certs.fingerprint(key)


def renew(folder: Path) -> str:
    """Make a new key and a request that the present key signs; return the new key's fingerprint.

    The present key and certificate stay in use until the kit for the new one is installed.

    Raises:
        RunError: a renewal is unfinished.
        IdentityError: as `Identity.load`.
    """
    identity = Identity.load(folder)
    _finish_renewal(folder)
    if (folder / NEXT_KEY).exists():
        raise RunError(
            f"{folder}: a renewal is under way; have {REQUEST} approved and install the kit. To start over, remove "
            f"{NEXT_KEY}"
        )
    key = certs.new_key()
    voucher = identity.sign(certs.voucher_text(key.public_key()))
    certs.write_key(folder / NEXT_KEY, key)
    write_atomically(folder / REQUEST, certs.write_request(key, identity.name, identity.consortium, voucher))
    return certs.fingerprint(key)


# -- kits ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckedKit:
    """A kit that may be installed in a site's folder. Made by `check_kit`; `install` puts it in force."""

    folder: Path
    kit: Kit
    previous: Kit | None  # the kit that it replaces; None if there is none, or it is damaged
    _data: bytes
    _revoked: bytes

    def install(self) -> Identity:
        """Put the kit in force and return the site's identity.

        The kit is written after the authority and the list it depends on, and takes effect when it is: an
        interruption leaves the previous one in force, or a renewal that `Identity.load` understands.
        """
        if not (self.folder / AUTHORITY).is_file():
            write_atomically(self.folder / AUTHORITY, self.kit.authority.encode())
        write_atomically(self.folder / REVOKED, self._revoked)
        write_atomically(self.folder / KIT, self._data)
        _finish_renewal(self.folder)
        write_atomically(self.folder / CERTIFICATE, self.kit.certificate.encode())
        if not (self.folder / NEXT_KEY).exists():  # else a renewal's request is still to be approved
            (self.folder / REQUEST).unlink(missing_ok=True)
        return Identity.load(self.folder)


def check_kit(data: bytes, source: str, folder: Path, now: datetime, compare: Callable[[Kit], None]) -> CheckedKit:
    """Check that a kit may be installed in a site's folder. Changes nothing.

    Args:
        data: the kit.
        source: where it came from, for messages.
        folder: the site's.
        now: the time, aware.
        compare: called if the site knows no authority yet, with a kit signed by the certificate in it; it must raise
            unless a person confirms that this is the consortium's authority.

    Raises:
        IdentityError: the kit is forged, of another authority, for another key, older than the one installed, or its
            certificate is not valid now.
    """
    keys = [certs.read_key(folder / file) for file in (KEY, NEXT_KEY) if (folder / file).is_file()]
    if not keys:
        raise IdentityError(
            "unreadable",
            f"{folder}: is not a site's folder; it has no {KEY}. Name the folder where `fkge cert request` made it.",
        )
    authority = (folder / AUTHORITY).read_bytes() if (folder / AUTHORITY).is_file() else None
    kit = Kit.read(data, source, authority)
    certificate = certs.read_certificate(kit.certificate.encode())
    if _key_for(folder, certificate) is None:
        present = " or ".join(certs.short_fingerprint(key) for key in keys)
        raise IdentityError(
            "name",
            f"{source}: is for {kit.name}'s key {certs.short_fingerprint(certificate)}, and "
            f"{folder} holds {present}. Install it where its request was made.",
        )
    trust = _trust(folder, kit, source)
    trust.check(kit.certificate.encode(), now, kit.name)
    previous = None
    if authority is not None and (folder / KIT).is_file():
        with suppress(IdentityError):  # a damaged kit is replaced
            previous = _installed_kit(folder)
    if previous is not None and previous.number > kit.number:
        raise IdentityError(
            "old",
            f"{source}: is number {kit.number} of {kit.date:%Y-%m-%d}, and number {previous.number} of "
            f"{previous.date:%Y-%m-%d} is installed. Ask for the latest.",
        )
    if authority is None:
        compare(kit)
    return CheckedKit(folder, kit, previous, data, trust.revoked.pem)


def _installed_kit(folder: Path) -> Kit:
    return Kit.read((folder / KIT).read_bytes(), str(folder / KIT), (folder / AUTHORITY).read_bytes())


def _trust(folder: Path, kit: Kit, source: str) -> Trust:
    """Return the rules of a kit, with the list in the folder unless the kit, being newer, holds a later one."""
    trust = Trust(kit.authority.encode(), kit.revoked.encode(), file=folder / REVOKED, source=source)
    try:
        trust.reload()
    except IdentityError as error:
        if error.reason != "old":
            raise
    return trust


def _key_for(folder: Path, certificate: x509.Certificate) -> Path | None:
    """Return the file in `folder` with the key of a certificate, if there is one."""
    held, wanted = (folder / name for name in (KEY, NEXT_KEY)), certs.fingerprint(certificate)
    return next((path for path in held if path.exists() and certs.fingerprint(certs.read_key(path)) == wanted), None)


def _finish_renewal(folder: Path) -> None:
    """Make the next key the present one if the kit in force is for it."""
    if _key_for(folder, certs.read_certificate(_installed_kit(folder).certificate.encode())) == folder / NEXT_KEY:
        (folder / NEXT_KEY).replace(folder / KEY)
        sync_folder(folder)
