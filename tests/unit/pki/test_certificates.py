"""Names, fingerprints, keys and requests."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fkge.errors import IdentityError
from fkge.pki.certificates import (
    KEY,
    REQUEST,
    checked_name,
    fingerprint,
    matches_fingerprint,
    read_certificate,
    read_key,
    read_request,
    short_fingerprint,
)
from fkge.pki.site import Identity, request
from tests.unit.pki.sites import reason


@pytest.mark.parametrize("name", ["a", "clinic", "gene-bank-7", "0", "x" * 63])
def test_accepts_dns_labels_as_names(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "Clinic", "-a", "a-", "a.b", "a_b", "x" * 64, "ä", "a\n", "a b", "../a", "*"])
def test_refuses_other_names(name: str) -> None:
    assert reason(lambda: checked_name(name)) == "name"


def test_suggests_a_name_instead_of_a_refused_one() -> None:
    with pytest.raises(IdentityError, match="gene-bank would do"):
        checked_name("Gene Bank")


@settings(deadline=None)
@given(st.text(max_size=80))
def test_a_suggested_name_is_accepted(name: str) -> None:
    try:
        checked_name(name)
    except IdentityError as error:
        if str(error).endswith("would do"):
            checked_name(str(error).removesuffix(" would do").rpartition("; ")[2])


def test_matches_a_fingerprint_in_any_grouping_but_not_cut_short(clinic: Identity) -> None:
    whole = clinic.fingerprint
    assert whole.startswith("sha256:")
    assert len(clinic.short_fingerprint) == 39
    for given_ in (
        whole,
        clinic.short_fingerprint,
        clinic.short_fingerprint.upper(),
        clinic.short_fingerprint.replace("-", " "),
        whole[7:],
    ):
        assert matches_fingerprint(whole, given_)
    assert not matches_fingerprint(whole, clinic.short_fingerprint[:-1])
    assert not matches_fingerprint(whole, "")
    assert not matches_fingerprint(whole, short_fingerprint(fingerprint(b"another")))
    assert fingerprint(read_certificate(clinic.certificate_pem)) == whole


def test_refuses_an_rsa_key(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / KEY).write_bytes(key)
    (tmp_path / KEY).chmod(0o600)
    with pytest.raises(IdentityError, match="not ECDSA P-256"):
        read_key(tmp_path / KEY)


def test_refuses_a_request_with_a_changed_name(tmp_path: Path) -> None:
    request(tmp_path / "site", "clinic", "trial")
    csr = x509.load_pem_x509_csr((tmp_path / "site" / REQUEST).read_bytes())
    der = csr.public_bytes(Encoding.DER).replace(b"clinic", b"clinik")
    armoured = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE REQUEST-----\n"
    )
    assert reason(lambda: read_request(armoured, "request")) == "forged"
