"""What a site gets from its authority: one file, signed as a whole, with nothing secret in it but what links say."""

from __future__ import annotations

import base64
import json
import re
from datetime import datetime
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import Field, field_validator

from fkge.errors import IdentityError, SettingsError
from fkge.node.trust import LABEL, LARGEST, Trust, fingerprint, pem, public_key, read_certificate, readable, spoken
from fkge.settings import Settings

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_SIGNED = b"fkge kit 1\n"


class Member(Settings):
    """One owner of a consortium, as all know it."""

    address: str = Field("", description="host:port where its node listens; empty: it calls, and is not called")
    founder: bool = Field(True, description="it is there from the start, and does not join later")

    @field_validator("address")
    @classmethod
    def _address(cls, address: str) -> str:
        found = _ADDRESS.fullmatch(address)
        if address and not (found and 0 < int(found[2]) < 65536):
            raise ValueError("expected host:port, such as genes.example:7443")
        return address


class LinkTexts(Settings):
    """What a site and one peer have in common, in files as text, own labels in the first column."""

    same: bool = Field(False, description="equal labels are the same thing, entities and relations alike")
    entities: str | None = Field(None, description="the text of a file of pairs")
    relations: str | None = Field(None, description="the text of a file of pairs")


class Kit(Settings):
    """All that a site gets from its authority. Nothing in it is secret but what links say; nothing in it is a key."""

    kind: Literal["fkge.kit.1"] = Field("fkge.kit.1", description="what this is, and in which version")
    consortium: str = Field(min_length=1, description="its name")
    name: str = Field(description="whose kit this is")
    number: int = Field(ge=1, description="grows with every kit of an authority; a lower one does not replace a higher")
    date: datetime = Field(description="when it was made")
    members: dict[str, Member] = Field(description="by name, this site among them")
    links: dict[str, LinkTexts] = Field({}, description="by peer")
    settings: str | None = Field(None, description="the text of federation.toml, the same for all")
    authority: str = Field(description="the authority's certificate, PEM")
    certificate: str = Field(description="the site's certificate, PEM")
    revoked: str = Field(description="the revocation list at that time, PEM")

    @field_validator("members", "links")
    @classmethod
    def _names(cls, tables: dict[str, Any]) -> dict[str, Any]:
        for name in tables:  # which become names of files
            if not LABEL.fullmatch(name):
                raise ValueError(f"{name!r} cannot be an owner's name")
        return tables

    @field_validator("consortium")
    @classmethod
    def _printable(cls, consortium: str) -> str:
        if not consortium.isprintable():  # it becomes part of a comment
            raise ValueError("a consortium's name is printable")
        return consortium

    def signed_by(self, key: ec.EllipticCurvePrivateKey) -> bytes:
        """The kit as a file."""
        return signed(self.model_dump(mode="json"), key)

    @property
    def fingerprint(self) -> str:
        """Of all that it says."""
        return fingerprint(canonical(self.model_dump(mode="json")))

    @classmethod
    def read(cls, data: bytes, what: str, authority: bytes | None = None) -> Kit:
        """A kit whose signature holds: by the certificate `authority`, or else by the one in it, to be compared.

        Raises:
            IdentityError: unreadable, forged, stranger (of another authority), or its parts contradict each other
                (name).
        """

        def load() -> tuple[Kit, bytes, bytes]:
            if len(data) > LARGEST:
                raise ValueError(f"{len(data):,} bytes; {LARGEST:,} at most")
            found = json.loads(data)
            if not isinstance(found, dict) or set(found) != {"kit", "signature"}:
                raise ValueError("it lacks a kit and its signature")
            what_is_signed = _SIGNED + canonical(found["kit"])
            return cls.build(found["kit"], "kit"), what_is_signed, base64.b64decode(found["signature"], validate=True)

        try:
            kit, text, signature = readable(load, what, "a kit")
        except SettingsError as error:
            raise IdentityError("unreadable", f"{what}: is not a kit of this version of fkge ({error})") from None
        anchor = read_certificate(kit.authority.encode() if authority is None else authority, f"{what}: its authority")
        if read_certificate(kit.authority.encode(), f"{what}: its authority") != anchor:
            raise IdentityError(
                "stranger",
                f"{what}: comes from another authority ({spoken(fingerprint(_key_of(kit.authority)))}) than this "
                f"site's ({spoken(fingerprint(public_key(anchor)))}). Use the kit of your own consortium.",
            )
        try:
            public_key(anchor).verify(signature, text, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise IdentityError(
                "forged", f"{what}: its signature does not hold; it was changed on its way. Ask for it again."
            ) from None
        trust = Trust(pem(anchor), kit.revoked.encode(), what=what)
        found = trust.check(kit.certificate.encode(), read_certificate(kit.certificate.encode()).not_valid_before_utc)
        if found != kit.name or kit.name not in kit.members or kit.consortium != trust.consortium:
            raise IdentityError(
                "name",
                f"{what}: is for {kit.name} of {kit.consortium}, but holds a certificate for {found} of "
                f"{trust.consortium}, or does not list it as a member",
            )
        return kit


def signed(body: dict[str, Any], key: ec.EllipticCurvePrivateKey) -> bytes:
    """What a kit says, as a file with a signature."""
    signature = base64.b64encode(key.sign(_SIGNED + canonical(body), ec.ECDSA(SHA256()))).decode()
    return json.dumps({"kit": body, "signature": signature}, indent=1, sort_keys=True).encode() + b"\n"


def canonical(value: Any) -> bytes:
    """JSON in the one form that is signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _key_of(certificate: str) -> ec.EllipticCurvePublicKey:
    return public_key(read_certificate(certificate.encode()))
