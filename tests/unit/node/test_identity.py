"""Identities: what holds against others' certificates, and that two TLS libraries take ours."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fkge.errors import IdentityError
from fkge.node.authority import Authority
from fkge.node.consortium import Consortium
from fkge.node.identity import KEY, REVOKED, Identity, Trust, read_key
from fkge.node.kits import Kit, Member
from fkge.node.site import provision
from fkge.node.trust import checked_name, fingerprint, fingerprint_of, is_same, spoken

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
ADDRESSES = {"clinic": "clinic.example:7443", "genes": "genes.example:7443"}


def consortium(name: str = "trial") -> Consortium:
    return Consortium(name, {owner: Member.build({"address": address}) for owner, address in ADDRESSES.items()})


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium of two; tests that change something have one of their own."""
    folder = tmp_path_factory.mktemp("trial")
    provision(consortium(), folder, NOW)
    return folder


@pytest.fixture(scope="module")
def clinic(trial: Path) -> Identity:
    return Identity.load(trial / "kits" / "clinic")


@pytest.fixture(scope="module")
def genes(trial: Path) -> Identity:
    return Identity.load(trial / "kits" / "genes")


def reason(do: Callable[[], Any]) -> str:
    with pytest.raises(IdentityError) as raised:
        do()
    assert str(raised.value), "every refusal is a sentence"
    return raised.value.reason


# -- names and fingerprints --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "clinic", "gene-bank-7", "0", "x" * 63])
def test_dns_labels_are_names(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize("name", ["", "Clinic", "-a", "a-", "a.b", "a_b", "x" * 64, "ä", "a\n", "a b", "../a", "*"])
def test_other_names_are_refused(name: str) -> None:
    assert reason(lambda: checked_name(name)) == "name"


def test_a_refused_name_comes_with_one_that_would_do() -> None:
    with pytest.raises(IdentityError, match="gene-bank would do"):
        checked_name("Gene Bank")


@settings(deadline=None)
@given(st.text(max_size=80))
def test_a_name_that_is_suggested_can_be_one(name: str) -> None:
    try:
        checked_name(name)
    except IdentityError as error:
        if str(error).endswith("would do"):
            checked_name(str(error).removesuffix(" would do").rpartition("; ")[2])


def test_a_fingerprint_can_be_given_in_any_grouping_but_not_cut_short(clinic: Identity) -> None:
    whole = clinic.fingerprint
    assert whole.startswith("sha256:")
    assert len(clinic.spoken) == 39
    for given_ in (whole, clinic.spoken, clinic.spoken.upper(), clinic.spoken.replace("-", " "), whole[7:]):
        assert is_same(whole, given_)
    assert not is_same(whole, clinic.spoken[:-1])
    assert not is_same(whole, "")
    assert not is_same(whole, spoken(fingerprint(b"another")))
    assert fingerprint_of(clinic.certificate_pem) == whole


# -- one's own ---------------------------------------------------------------------------------------


def test_an_identity_says_who_it_is(clinic: Identity, trial: Path) -> None:
    assert (clinic.name, clinic.consortium) == ("clinic", "trial")
    assert {name: member.address for name, member in clinic.members.items()} == ADDRESSES
    assert clinic.expires.tzinfo is not None
    assert timedelta(days=364) < clinic.expires - NOW < timedelta(days=366)
    assert clinic.authority_pem == (trial / "authority" / "authority.pem").read_bytes()
    clinic.check(NOW)
    assert "PRIVATE" not in repr(clinic)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    provision(consortium(), tmp_path, NOW)
    site = tmp_path / "kits" / "clinic"
    (site / KEY).chmod(mode)
    with pytest.raises(IdentityError, match="chmod 600"):
        Identity.load(site)
    (site / KEY).chmod(0o600)
    Identity.load(site)


@pytest.mark.parametrize("name", ["key.pem", "authority.pem", "consortium.json"])
def test_a_folder_that_lacks_something_says_what_and_the_way_out(tmp_path: Path, name: str) -> None:
    provision(consortium(), tmp_path, NOW)
    site = tmp_path / "kits" / "clinic"
    (site / name).unlink()
    with pytest.raises(IdentityError, match=f"no {name}.*fkge cert"):
        Identity.load(site)


def test_a_key_of_another_is_refused(tmp_path: Path) -> None:
    provision(consortium(), tmp_path, NOW)
    kits = tmp_path / "kits"
    (kits / "clinic" / KEY).write_bytes((kits / "genes" / KEY).read_bytes())
    assert reason(lambda: Identity.load(kits / "clinic")) == "name"


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / KEY).write_bytes(key)
    (tmp_path / KEY).chmod(0o600)
    with pytest.raises(IdentityError, match="not ECDSA P-256"):
        read_key(tmp_path / KEY)


# -- others ------------------------------------------------------------------------------------------


def test_a_certificate_of_the_consortium_holds_in_pem_and_in_der(clinic: Identity, genes: Identity) -> None:
    der = x509.load_pem_x509_certificate(genes.certificate_pem).public_bytes(Encoding.DER)
    for certificate in (genes.certificate_pem, der):
        assert clinic.trust.check(certificate, NOW) == "genes"
        assert clinic.trust.check(certificate, NOW, "genes") == "genes"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW, "clinic")) == "name"


def test_time_has_two_ends(clinic: Identity, genes: Identity) -> None:
    found = x509.load_pem_x509_certificate(genes.certificate_pem)
    first, last, second = found.not_valid_before_utc, found.not_valid_after_utc, timedelta(seconds=1)
    assert clinic.trust.check(genes.certificate_pem, first) == "genes"
    assert clinic.trust.check(genes.certificate_pem, last) == "genes"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, last + second)) == "expired"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, first - second)) == "early"


def test_an_authority_that_expired_vouches_for_nobody(clinic: Identity) -> None:
    with pytest.raises(IdentityError, match="the authority of trial expired"):
        clinic.trust.check(clinic.certificate_pem, NOW + 4000 * DAY)


def test_a_certificate_of_another_authority_of_the_same_name_is_a_stranger(tmp_path: Path, clinic: Identity) -> None:
    other = provision(consortium(), tmp_path, NOW)["clinic"].identity
    assert reason(lambda: clinic.trust.check(other.certificate_pem, NOW)) == "stranger"
    assert reason(lambda: clinic.trust.check(other.authority_pem, NOW)) == "stranger"


def test_what_is_no_certificate_is_unreadable(clinic: Identity) -> None:
    cut = clinic.certificate_pem[: len(clinic.certificate_pem) // 2]
    for data in (
        b"",
        b"\x30\x82",
        cut,
        clinic.key_pem,
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ):
        assert reason(lambda data=data: clinic.trust.check(data, NOW)) == "unreadable"


@settings(deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_certificate_goes_through(clinic: Identity, genes: Identity, data: st.DataObject) -> None:
    der = bytearray(x509.load_pem_x509_certificate(genes.certificate_pem).public_bytes(Encoding.DER))
    place = data.draw(st.integers(0, len(der) - 1))
    der[place] ^= data.draw(st.integers(1, 255))
    assert reason(lambda: clinic.trust.check(bytes(der), NOW)) in ("unreadable", "stranger")


def signed(trial: Path, *extensions: tuple[Any, bool], common: str = "genes") -> bytes:
    """A certificate with the authority's true signature, and these extensions."""
    key = read_key(trial / "authority" / KEY)
    authority = x509.load_pem_x509_certificate((trial / "authority" / "authority.pem").read_bytes())
    made = x509.CertificateBuilder().issuer_name(authority.subject).serial_number(7)
    made = made.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)]))
    made = made.public_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    made = made.not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
    for extension, critical in extensions:
        made = made.add_extension(extension, critical)
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM)


def leaf(genes: Identity, **instead: Any) -> list[tuple[Any, bool]]:
    """The extensions of a good certificate, some of them replaced or (None) left out."""
    found = {
        e.oid._name: (e.value, e.critical) for e in x509.load_pem_x509_certificate(genes.certificate_pem).extensions
    }
    for name, value in instead.items():
        found[name] = (value, True)
    return [pair for pair in found.values() if pair[0] is not None]


SERVER, CLIENT = x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH


@pytest.mark.parametrize(
    "instead",
    [
        {"basicConstraints": x509.BasicConstraints(ca=True, path_length=None)},
        {"basicConstraints": None},
        {"extendedKeyUsage": x509.ExtendedKeyUsage([SERVER])},
        {"extendedKeyUsage": x509.ExtendedKeyUsage([CLIENT])},
        {"extendedKeyUsage": None},
        {"keyUsage": None},
        {"subjectAltName": None},
        {"subjectAltName": x509.SubjectAlternativeName([x509.DNSName("genes"), x509.DNSName("clinic")])},
        {"subjectAltName": x509.SubjectAlternativeName([x509.DNSName("*")])},
        {"subjectAltName": x509.SubjectAlternativeName([x509.DNSName("clinic")])},
        {"nameConstraints": x509.NameConstraints([x509.DNSName("clinic")], None)},
    ],
    ids=str,
)
def test_a_certificate_that_is_no_owners_is_refused_whoever_signed_it(
    trial: Path, clinic: Identity, genes: Identity, instead: dict[str, Any]
) -> None:
    assert clinic.trust.check(signed(trial, *leaf(genes)), NOW) == "genes"
    assert reason(lambda: clinic.trust.check(signed(trial, *leaf(genes, **instead)), NOW)) == "stranger"


# -- signatures --------------------------------------------------------------------------------------


def test_a_signature_is_its_owners_over_its_data(clinic: Identity, genes: Identity) -> None:
    signature = genes.sign(b"data")
    clinic.trust.verify(genes.certificate_pem, b"data", signature)
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"Data", signature)) == "forged"
    assert reason(lambda: clinic.trust.verify(clinic.certificate_pem, b"data", signature)) == "forged"
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"data", b"")) == "forged"
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"data", base64.b64encode(signature))) == "forged"


# -- revocation --------------------------------------------------------------------------------------


def revoking(folder: Path) -> tuple[Authority, Identity, Identity]:
    provision(consortium(), folder, NOW)
    return Authority.open(folder / "authority"), *(Identity.load(folder / "kits" / n) for n in ("clinic", "genes"))


def test_a_running_node_sees_a_list_that_is_put_there(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path)
    assert not clinic.trust.reload()
    authority.revoke("genes", NOW)
    assert clinic.trust.check(genes.certificate_pem, NOW) == "genes", "it cannot know yet"
    (clinic.folder / REVOKED).write_bytes((authority.folder / REVOKED).read_bytes())
    assert clinic.trust.reload()
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW)) == "revoked"
    assert not clinic.trust.reload(), "once is enough"
    assert reason(lambda: Identity.load(clinic.folder).trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_a_list_does_not_go_back(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path)
    first = (authority.folder / REVOKED).read_bytes()
    authority.revoke("genes", NOW)
    assert clinic.trust.take((authority.folder / REVOKED).read_bytes())
    assert not clinic.trust.take((authority.folder / REVOKED).read_bytes())
    assert reason(lambda: clinic.trust.take(first)) == "old"
    (clinic.folder / REVOKED).write_bytes(first)
    assert reason(clinic.trust.reload) == "old"
    assert not clinic.trust.reload(), "it is refused once for each change, not at every look"
    (clinic.folder / REVOKED).unlink()
    assert not clinic.trust.reload()
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_a_list_of_another_authority_or_a_changed_one_is_refused(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path / "a")
    other, _, _ = revoking(tmp_path / "b")
    provision(consortium("elsewhere"), tmp_path / "c", NOW)
    elsewhere = Authority.open(tmp_path / "c" / "authority")
    for each in (authority, other, elsewhere):
        each.revoke("clinic", NOW)
    assert reason(lambda: clinic.trust.take((other.folder / REVOKED).read_bytes())) == "forged"
    assert reason(lambda: clinic.trust.take((elsewhere.folder / REVOKED).read_bytes())) == "stranger"
    der = bytearray(x509.load_pem_x509_crl((authority.folder / REVOKED).read_bytes()).public_bytes(Encoding.DER))
    der[-1] ^= 1
    changed = b"-----BEGIN X509 CRL-----\n" + base64.encodebytes(bytes(der)) + b"-----END X509 CRL-----\n"
    assert reason(lambda: clinic.trust.take(changed)) in ("forged", "unreadable")
    (clinic.folder / REVOKED).write_bytes(b"nothing")
    assert reason(clinic.trust.reload) == "unreadable"
    assert clinic.trust.check(genes.certificate_pem, NOW) == "genes"
    assert reason(lambda: Identity.load(clinic.folder)) == "unreadable"


# -- kits --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data())
def test_no_changed_byte_of_a_kit_goes_unseen(clinic: Identity, data: st.DataObject) -> None:
    whole = (clinic.folder / "consortium.json").read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    try:
        found = Kit.read(changed, "kit", clinic.authority_pem)
    except IdentityError:
        return
    assert found == clinic.kit, "a change that changes nothing, such as of blanks"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"kit": 1, "signature": ""}',
        b'{"kit": {}, "signature": 1}',
        b"[" * 100_000,
        b"\xff",
    ],
    ids=lambda data: str(data[:20]),
)
def test_what_is_no_kit_is_unreadable(data: bytes) -> None:
    assert reason(lambda: Kit.read(data, "kit")) == "unreadable"


# -- TLS ---------------------------------------------------------------------------------------------


def context(own: Identity, side: ssl._SSLMethod) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(cadata=own.authority_pem.decode())
    made.load_cert_chain(own.folder / "certificate.pem", own.folder / KEY)
    return made


def handshake(server: Identity, client: Identity, called: str) -> tuple[str, str]:
    """Who each side met; raises what the client's side raises."""
    met: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            try:
                with context(server, ssl.PROTOCOL_TLS_SERVER).wrap_socket(accepted, server_side=True) as tls:
                    met.append(server.trust.check(tls.getpeercert(binary_form=True) or b"", NOW))
                    tls.sendall(b"x")
            except OSError:
                accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            plain = socket.create_connection(listening.getsockname())
            with context(client, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain, server_hostname=called) as tls:
                assert tls.version() == "TLSv1.3"
                if tls.recv(1) != b"x":
                    raise ConnectionError("the server hung up")
                return client.trust.check(tls.getpeercert(binary_form=True) or b"", NOW, called), met[0]
        finally:
            thread.join()


def test_two_identities_shake_hands_under_tls_1_3(clinic: Identity, genes: Identity) -> None:
    assert handshake(genes, clinic, "genes") == ("genes", "clinic")


def test_tls_refuses_another_name_and_another_authority(clinic: Identity, genes: Identity, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(genes, clinic, "clinic")
    other = provision(consortium(), tmp_path, NOW)["clinic"].identity
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(genes, other, "genes")


def test_grpc_takes_the_certificates(clinic: Identity, genes: Identity) -> None:
    grpc = pytest.importorskip("grpc", reason="needs grpcio: pip install 'fkge[node]'")

    async def call() -> tuple[bytes, bytes]:
        async def answer(request: bytes, context: Any) -> bytes:
            seen = context.auth_context()["x509_pem_cert"][0]
            return genes.trust.check(seen, NOW).encode() + b" called"

        handlers = {"Hello": grpc.unary_unary_rpc_method_handler(answer)}
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fkge.Test", handlers),))
        pair = ((genes.key_pem, genes.certificate_pem),)
        port = server.add_secure_port(
            "127.0.0.1:0", grpc.ssl_server_credentials(pair, genes.authority_pem, require_client_auth=True)
        )
        await server.start()
        try:
            answers = []
            for own, called in (((clinic.key_pem, clinic.certificate_pem), "genes"), ((None, None), "genes")):
                credentials = grpc.ssl_channel_credentials(clinic.authority_pem, *own)
                options = [("grpc.ssl_target_name_override", called)]
                async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
                    try:
                        answers.append(await channel.unary_unary("/fkge.Test/Hello")(b"", timeout=30))
                    except grpc.aio.AioRpcError as error:
                        answers.append(error.code().name.encode())
            return answers[0], answers[1]
        finally:
            await server.stop(None)

    assert asyncio.run(call()) == (b"clinic called", b"UNAVAILABLE")


def test_a_trust_needs_an_authority(clinic: Identity) -> None:
    assert reason(lambda: Trust(clinic.certificate_pem)) == "unreadable"
    assert os.stat(clinic.folder).st_mode & 0o777 == 0o700
