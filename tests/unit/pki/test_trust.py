"""Which certificates, signatures and revocation lists are refused, and that two TLS libraries accept ours."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fkge.errors import IdentityError
from fkge.node.provisioning import provision
from fkge.pki.authority import Authority
from fkge.pki.certificates import (
    KEY,
    REVOKED,
    read_key,
)
from fkge.pki.site import Identity
from fkge.pki.trust import Trust
from tests.unit.pki.sites import DAY, NOW, consortium, reason


@pytest.fixture(scope="module")
def clinic(trial: Path) -> Identity:
    return Identity.load(trial / "kits" / "clinic")


@pytest.fixture(scope="module")
def genes(trial: Path) -> Identity:
    return Identity.load(trial / "kits" / "genes")


def test_accepts_a_members_certificate_in_pem_and_der(clinic: Identity, genes: Identity) -> None:
    der = x509.load_pem_x509_certificate(genes.certificate_pem).public_bytes(Encoding.DER)
    for certificate in (genes.certificate_pem, der):
        assert clinic.trust.check(certificate, NOW) == "genes"
        assert clinic.trust.check(certificate, NOW, "genes") == "genes"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW, "clinic")) == "name"


def test_refuses_an_expired_and_an_early_certificate(clinic: Identity, genes: Identity) -> None:
    found = x509.load_pem_x509_certificate(genes.certificate_pem)
    first, last, second = found.not_valid_before_utc, found.not_valid_after_utc, timedelta(seconds=1)
    assert clinic.trust.check(genes.certificate_pem, first) == "genes"
    assert clinic.trust.check(genes.certificate_pem, last) == "genes"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, last + second)) == "expired"
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, first - second)) == "early"


def test_refuses_certificates_of_an_expired_authority(clinic: Identity) -> None:
    with pytest.raises(IdentityError, match="the authority of trial expired"):
        clinic.trust.check(clinic.certificate_pem, NOW + 4000 * DAY)


def test_refuses_a_certificate_of_another_authority_of_the_same_name(tmp_path: Path, clinic: Identity) -> None:
    other = provision(consortium(), tmp_path, NOW)["clinic"].identity
    assert reason(lambda: clinic.trust.check(other.certificate_pem, NOW)) == "stranger"
    assert reason(lambda: clinic.trust.check(other.authority_pem, NOW)) == "stranger"


def test_refuses_what_is_not_a_certificate(clinic: Identity) -> None:
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
def test_refuses_a_certificate_with_any_changed_byte(clinic: Identity, genes: Identity, data: st.DataObject) -> None:
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
def test_refuses_a_certificate_with_wrong_extensions(
    trial: Path, clinic: Identity, genes: Identity, instead: dict[str, Any]
) -> None:
    assert clinic.trust.check(signed(trial, *leaf(genes)), NOW) == "genes"
    assert reason(lambda: clinic.trust.check(signed(trial, *leaf(genes, **instead)), NOW)) == "stranger"


def test_verifies_a_signature(clinic: Identity, genes: Identity) -> None:
    signature = genes.sign(b"data")
    clinic.trust.verify(genes.certificate_pem, b"data", signature)
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"Data", signature)) == "forged"
    assert reason(lambda: clinic.trust.verify(clinic.certificate_pem, b"data", signature)) == "forged"
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"data", b"")) == "forged"
    assert reason(lambda: clinic.trust.verify(genes.certificate_pem, b"data", base64.b64encode(signature))) == "forged"


def test_refuses_an_owners_certificate_as_authority(clinic: Identity) -> None:
    assert reason(lambda: Trust(clinic.certificate_pem)) == "unreadable"
    assert os.stat(clinic.folder).st_mode & 0o777 == 0o700


# -- revocation lists -----------------------------------------------------------------------------


def revoking(folder: Path) -> tuple[Authority, Identity, Identity]:
    provision(consortium(), folder, NOW)
    return Authority.open(folder / "authority"), *(Identity.load(folder / "kits" / n) for n in ("clinic", "genes"))


def test_reloads_a_changed_revocation_list(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path)
    assert not clinic.trust.reload()
    authority.revoke("genes", NOW)
    assert clinic.trust.check(genes.certificate_pem, NOW) == "genes", "it cannot know yet"
    (clinic.folder / REVOKED).write_bytes((authority.folder / REVOKED).read_bytes())
    assert clinic.trust.reload()
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW)) == "revoked"
    assert not clinic.trust.reload(), "once is enough"
    assert reason(lambda: Identity.load(clinic.folder).trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_refuses_an_older_revocation_list(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path)
    first = (authority.folder / REVOKED).read_bytes()
    authority.revoke("genes", NOW)
    assert clinic.trust.update((authority.folder / REVOKED).read_bytes())
    assert not clinic.trust.update((authority.folder / REVOKED).read_bytes())
    assert reason(lambda: clinic.trust.update(first)) == "old"
    (clinic.folder / REVOKED).write_bytes(first)
    assert reason(clinic.trust.reload) == "old"
    assert not clinic.trust.reload(), "it is refused once for each change, not at every look"
    (clinic.folder / REVOKED).unlink()
    assert not clinic.trust.reload()
    assert reason(lambda: clinic.trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_refuses_a_forged_or_foreign_revocation_list(tmp_path: Path) -> None:
    authority, clinic, genes = revoking(tmp_path / "a")
    other, _, _ = revoking(tmp_path / "b")
    provision(consortium("elsewhere"), tmp_path / "c", NOW)
    elsewhere = Authority.open(tmp_path / "c" / "authority")
    for each in (authority, other, elsewhere):
        each.revoke("clinic", NOW)
    assert reason(lambda: clinic.trust.update((other.folder / REVOKED).read_bytes())) == "forged"
    assert reason(lambda: clinic.trust.update((elsewhere.folder / REVOKED).read_bytes())) == "stranger"
    der = bytearray(x509.load_pem_x509_crl((authority.folder / REVOKED).read_bytes()).public_bytes(Encoding.DER))
    der[-1] ^= 1
    changed = b"-----BEGIN X509 CRL-----\n" + base64.encodebytes(bytes(der)) + b"-----END X509 CRL-----\n"
    assert reason(lambda: clinic.trust.update(changed)) in ("forged", "unreadable")
    (clinic.folder / REVOKED).write_bytes(b"nothing")
    assert reason(clinic.trust.reload) == "unreadable"
    assert clinic.trust.check(genes.certificate_pem, NOW) == "genes"
    assert reason(lambda: Identity.load(clinic.folder)) == "unreadable"


# -- TLS ------------------------------------------------------------------------------------------


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


def test_openssl_accepts_the_certificates_in_tls_1_3(clinic: Identity, genes: Identity) -> None:
    assert handshake(genes, clinic, "genes") == ("genes", "clinic")


def test_openssl_refuses_another_name_and_another_authority(clinic: Identity, genes: Identity, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(genes, clinic, "clinic")
    other = provision(consortium(), tmp_path, NOW)["clinic"].identity
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(genes, other, "genes")


def test_grpc_accepts_the_certificates(clinic: Identity, genes: Identity) -> None:
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
