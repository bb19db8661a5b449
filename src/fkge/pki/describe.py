"""Describe a file or folder of a consortium: a certificate, request, kit or revocation list, a site, an authority."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from fkge.errors import IdentityError
from fkge.pki import certificates as certs
from fkge.pki.authority import BOOK, Authority
from fkge.pki.certificates import AUTHORITY, CERTIFICATE, KIT, NEXT_KEY, REQUEST, REVOKED
from fkge.pki.kits import Kit
from fkge.pki.site import Identity
from fkge.pki.trust import Trust, read_list

Description = dict[str, str | int | list[str]]
"""Values by heading, for people and as JSON."""

_UNCHECKED = f"not checked: there is no {AUTHORITY} next to it"


def describe(path: Path, now: datetime) -> Description:
    """Describe what `path` holds. A signature is reported valid only where there is an authority to check it against.

    Raises:
        IdentityError: it is nothing of a consortium's, or damaged.
    """
    if path.is_dir():
        if (path / BOOK).exists():
            return _authority(path, now)
        if (path / KIT).exists():
            return _site(path, now)
        if (path / REQUEST).exists():
            return describe(path / REQUEST, now) | {"waits for": f"a kit: fkge cert install KIT --into {path}"}
        raise IdentityError(
            "unreadable", f"{path}: is no site's folder and no authority's; it has no {KIT} and no {BOOK}"
        )
    data = path.read_bytes()
    if data.lstrip().startswith(b"{"):
        return _kit(path, data, now)
    start = data[:4096]
    if b"PRIVATE KEY-----" in start:
        raise IdentityError(
            "unreadable",
            f"{path}: is a private key, which is never shown. Show the {CERTIFICATE} or {REQUEST} in its folder",
        )
    if b"-----BEGIN CERTIFICATE REQUEST" in start:
        return _request(path, data)
    if b"-----BEGIN X509 CRL" in start:
        return _list(path, data)
    if b"-----BEGIN CERTIFICATE" in start:
        return _certificate(path, data, now)
    raise IdentityError(
        "unreadable",
        f"{path}: is no certificate, request, kit or revocation list. Name one of these, or the folder of a site or "
        "an authority",
    )


def _authority(path: Path, now: datetime) -> Description:
    authority = Authority.open(path)
    issued = [
        f"{line.name}, serial {line.serial}, key {certs.short_fingerprint(line.fingerprint)}, "
        + (f"revoked {line.revoked:%Y-%m-%d}" if line.revoked else f"until {line.expires:%Y-%m-%d}")
        for line in authority.book.issued
    ]
    return {
        "what": "an authority's folder", "consortium": authority.consortium, **_fingerprints(authority.fingerprint),
        **_end(authority.expires, now), "members": sorted(authority.book.members),
        "revocation list": authority.book.lists, "certificates": issued,
    }  # fmt: skip


def _site(path: Path, now: datetime) -> Description:
    identity = Identity.load(path)
    found = describe(path / KIT, now) | {"what": "a site's folder"} | _checked(lambda: identity.check(now))
    found["revocation list"] = _list_summary(identity.trust)
    return found | ({"renewal": f"under way; {NEXT_KEY} waits for a kit"} if (path / NEXT_KEY).exists() else {})


def _certificate(path: Path, data: bytes, now: datetime) -> Description:
    certificate = certs.read_certificate(data, str(path))
    name = certs.name_of(certificate)
    found: Description = {
        "what": "an owner's certificate" if name else "an authority's certificate", **({"name": name} if name else {}),
        "consortium": certs.subject_text(certificate.subject, NameOID.ORGANIZATION_NAME),
        **_fingerprints(certs.fingerprint(certificate)), **_validity(certificate, now),
    }  # fmt: skip
    if not name:
        Trust(data)  # raises unless it is an authority's
        return found
    authority = path.parent / AUTHORITY
    if not authority.exists():
        return found | {"signature": _UNCHECKED}
    trust = Trust(authority.read_bytes(), file=path.parent / REVOKED)
    trust.reload()
    return found | _checked(lambda: trust.check(data, now))


def _request(path: Path, data: bytes) -> Description:
    request = certs.read_request(data, str(path))
    vouched = {"vouched for": "by a signature, to be checked against the present key"} if request.voucher else {}
    found = {"what": "a request for a certificate", "name": request.name, "consortium": request.consortium}
    return {**found, **_fingerprints(request.fingerprint), **vouched}


def _list(path: Path, data: bytes) -> Description:
    file = path.parent / AUTHORITY
    authority = certs.read_certificate(file.read_bytes(), str(file)) if file.exists() else None
    revoked = read_list(data, authority, str(path))
    return {
        "what": "a revocation list", "number": revoked.number, "date": f"{revoked.date:%Y-%m-%d %H:%M} UTC",
        "signature": _UNCHECKED if authority is None else "holds",
        "revoked serials": [certs.serial(number) for number in revoked.serials],
    }  # fmt: skip


def _kit(path: Path, data: bytes, now: datetime) -> Description:
    kit = Kit.read(data, str(path))
    certificate = certs.read_certificate(kit.certificate.encode())
    trust = Trust(kit.authority.encode(), kit.revoked.encode())
    members = [
        f"{name}, {member.address or 'connects to others'}{'' if member.founder else ', joins later'}"
        for name, member in sorted(kit.members.items())
    ]
    return {
        "what": "a kit", "name": kit.name, "consortium": kit.consortium, "number": kit.number,
        "date": f"{kit.date:%Y-%m-%d %H:%M} UTC", **_fingerprints(certs.fingerprint(certificate)),
        "authority": certs.short_fingerprint(trust.fingerprint),
        "fingerprint of the kit": certs.short_fingerprint(kit.fingerprint), **_validity(certificate, now),
        **_checked(lambda: trust.check(kit.certificate.encode(), now)), "members": members,
        "settings": "as agreed" if kit.settings else "none agreed on", "links": sorted(kit.links),
        "revocation list": _list_summary(trust),
    }  # fmt: skip


def _fingerprints(whole: str) -> dict[str, str]:
    return {"key": certs.short_fingerprint(whole), "fingerprint": whole}


def _validity(certificate: x509.Certificate, now: datetime) -> dict[str, str | int]:
    first = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    return {"serial": certs.serial(certificate), "from": first, **_end(certificate.not_valid_after_utc, now)}


def _end(last: datetime, now: datetime) -> dict[str, str | int]:
    return {"until": f"{last:%Y-%m-%d %H:%M} UTC", "days left": max(0, (last - now).days)}


def _checked(check: Callable[[], object]) -> dict[str, str]:
    try:
        check()
    except IdentityError as error:
        return {"holds": f"no ({error.reason}): {error}"}
    return {"holds": "yes"}


def _list_summary(trust: Trust) -> str:
    revoked = trust.revoked
    return f"number {revoked.number} of {revoked.date:%Y-%m-%d}, {len(revoked.serials)} revoked"
