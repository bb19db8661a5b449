"""What a file or a folder of a consortium is, in words: a certificate, a request, a kit, a revocation list, a site."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from fkge.errors import IdentityError
from fkge.node.authority import Authority
from fkge.node.identity import AUTHORITY, CERTIFICATE, KIT, NEXT_KEY, REQUEST, REVOKED, Identity
from fkge.node.kits import Kit
from fkge.node.requests import read_request
from fkge.node.trust import (
    Trust,
    fingerprint,
    name_of,
    public_key,
    read_certificate,
    read_list,
    readable,
    serial,
    spoken,
    word,
)


def describe(path: Path, now: datetime) -> dict[str, Any]:
    """What is there, by heading. Says of a signature that it holds only where there is what to check it against.

    Raises:
        IdentityError: it is nothing of a consortium's, or damaged.
    """
    if path.is_dir():
        return _folder(path, now)
    data = path.read_bytes()
    if data.lstrip().startswith(b"{"):
        return _kit(path, data, now)
    for begins, tell in _KINDS.items():
        if begins in data[:4096]:
            return tell(path, data, now)
    raise IdentityError(
        "unreadable",
        f"{path}: is no certificate, request, kit or revocation list. Name one of these, or the folder of a site or "
        "an authority",
    )


def _folder(path: Path, now: datetime) -> dict[str, Any]:
    if (path / "book.json").exists():
        return _authority(path, now)
    if (path / KIT).exists():
        return _site(path, now)
    if (path / REQUEST).exists():
        return describe(path / REQUEST, now) | {"waits for": "a kit: fkge cert install KIT --into " + str(path)}
    raise IdentityError(
        "unreadable", f"{path}: is no site's folder and no authority's; it has no {KIT} and no book.json"
    )


def _authority(path: Path, now: datetime) -> dict[str, Any]:
    authority = Authority.open(path)
    issued = [
        f"{line.name}, serial {line.serial}, key {spoken(line.fingerprint)}, "
        + (f"revoked {line.revoked:%Y-%m-%d}" if line.revoked else f"until {line.expires:%Y-%m-%d}")
        for line in authority.issued
    ]
    return {
        "what": "an authority's folder", "consortium": authority.consortium, **_prints(authority.fingerprint),
        **_ends(authority.expires, now), "members": sorted(authority.members), "revocation list": authority.list_number,
        "certificates": issued,
    }  # fmt: skip


def _site(path: Path, now: datetime) -> dict[str, Any]:
    identity = Identity.load(path)
    told = describe(path / KIT, now) | {"what": "a site's folder"}
    told |= _holds(lambda: identity.check(now))
    told["revocation list"] = _numbered(identity.trust)
    return told | ({"renewal": f"under way; {NEXT_KEY} waits for a kit"} if (path / NEXT_KEY).exists() else {})


def _certificate(path: Path, data: bytes, now: datetime) -> dict[str, Any]:
    found = read_certificate(data, str(path))
    name = name_of(found)
    told = {
        "what": "an owner's certificate" if name else "an authority's certificate",
        **({"name": name} if name else {}), "consortium": word(found.subject, NameOID.ORGANIZATION_NAME),
        **_prints(fingerprint(public_key(found))), "serial": serial(found),
        "from": f"{found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC", **_ends(found.not_valid_after_utc, now),
    }  # fmt: skip
    if not name:
        Trust(data)  # which it can be the beginning of
        return told
    authority = path.parent / AUTHORITY
    if not authority.exists():
        return told | {"signature": f"not checked: there is no {AUTHORITY} beside it"}
    trust = Trust(authority.read_bytes(), file=path.parent / REVOKED)
    trust.reload()
    return told | _holds(lambda: trust.check(data, now))


def _request(path: Path, data: bytes, now: datetime) -> dict[str, Any]:
    request = read_request(data, str(path))
    vouched = {"vouched for": "by the present key, says the request"} if request.voucher else {}
    return {
        "what": "a request for a certificate", "name": request.name, "consortium": request.consortium,
        **_prints(request.fingerprint), **vouched,
    }  # fmt: skip


def _list(path: Path, data: bytes, now: datetime) -> dict[str, Any]:
    authority = path.parent / AUTHORITY
    if authority.exists():
        found = read_list(data, read_certificate(authority.read_bytes(), str(authority)), str(path))
        number, date, serials, signature = found.number, found.date, list(found.serials), "holds"
    else:

        def load() -> tuple[int, datetime, list[int]]:
            crl = x509.load_pem_x509_crl(data)
            number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            return number, crl.last_update_utc, [entry.serial_number for entry in crl]

        number, date, serials = readable(load, str(path), "a revocation list in PEM")
        signature = f"not checked: there is no {AUTHORITY} beside it"
    return {
        "what": "a revocation list", "number": number, "date": f"{date:%Y-%m-%d %H:%M} UTC", "signature": signature,
        "revoked serials": [serial(number) for number in serials],
    }  # fmt: skip


def _kit(path: Path, data: bytes, now: datetime) -> dict[str, Any]:
    kit = Kit.read(data, str(path))
    certificate = read_certificate(kit.certificate.encode())
    trust = Trust(kit.authority.encode(), kit.revoked.encode())
    return {
        "what": "a kit", "name": kit.name, "consortium": kit.consortium, "number": kit.number,
        "date": f"{kit.date:%Y-%m-%d %H:%M} UTC", **_prints(fingerprint(public_key(certificate))),
        "authority": spoken(trust.fingerprint), "fingerprint of the kit": spoken(kit.fingerprint),
        "serial": serial(certificate), "from": f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
        **_ends(certificate.not_valid_after_utc, now),
        **_holds(lambda: trust.check(kit.certificate.encode(), now)),
        "members": [
            f"{name}, {member.address or 'calls others'}{'' if member.founder else ', joins later'}"
            for name, member in sorted(kit.members.items())
        ],
        "settings": "as agreed" if kit.settings else "none agreed on", "links": sorted(kit.links),
        "revocation list": _numbered(trust),
    }  # fmt: skip


def _key(path: Path, data: bytes, now: datetime) -> dict[str, Any]:
    raise IdentityError(
        "unreadable",
        f"{path}: is a private key, which is shown to nobody. Show the {CERTIFICATE} or {REQUEST} beside it",
    )


_KINDS: dict[bytes, Callable[[Path, bytes, datetime], dict[str, Any]]] = {
    b"PRIVATE KEY-----": _key,
    b"-----BEGIN CERTIFICATE REQUEST": _request,
    b"-----BEGIN X509 CRL": _list,
    b"-----BEGIN CERTIFICATE": _certificate,
}


def _prints(whole: str) -> dict[str, str]:
    return {"key": spoken(whole), "fingerprint": whole}


def _ends(last: datetime, now: datetime) -> dict[str, Any]:
    return {"until": f"{last:%Y-%m-%d %H:%M} UTC", "days left": max(0, (last - now).days)}


def _holds(check: Callable[[], object]) -> dict[str, str]:
    try:
        check()
    except IdentityError as error:
        return {"holds": f"no ({error.reason}): {error}"}
    return {"holds": "yes"}


def _numbered(trust: Trust) -> str:
    found = trust.revoked
    return f"number {found.number} of {found.date:%Y-%m-%d}, {len(found.serials)} revoked"
