"""Streams over real sockets: TLS 1.3 between members, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.errors import NodeError
from fkge.node.frames import Refused
from fkge.node.transport import Line, Transport, library
from fkge.pki.site import Identity
from tests.consortium import members

Welcome = Callable[[Line], Awaitable[None]]


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    return members(tmp_path_factory.mktemp("members"), "ant", "bee")


@asynccontextmanager
async def listening(identity: Identity, welcome: Welcome, host: str = "127.0.0.1") -> AsyncIterator[str]:
    transport = Transport(lambda: identity)
    port = await transport.listen(host, 0, welcome)
    try:
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    finally:
        await transport.close()


async def echo(line: Line) -> None:
    while (frame := await line.read()) is not None:
        await line.write(frame)


async def nothing(line: Line) -> None:
    await line.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_frames_pass_both_ways_and_the_caller_is_known(identities: dict[str, Identity], host: str) -> None:
    if host == "::1":
        try:
            socket.create_server((host, 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 on this machine")
    seen = []

    async def welcome(line: Line) -> None:
        seen.append(line.certificate)
        await echo(line)

    async def call() -> None:
        async with listening(identities["ant"], welcome, host) as address:
            line = await Transport(lambda: identities["bee"]).call(address, "ant")
            for frame in (b"", b"x" * (1 << 20)):
                assert await line.write(frame)
                assert await line.read() == frame
            await line.done()
            assert await line.read() is None
            await line.close()

    asyncio.run(call())
    assert seen == [identities["bee"].certificate_pem]


def versions(address: str, identity: Identity, most: ssl.TLSVersion) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, most
    context.load_cert_chain(identity.folder / "certificate.pem", identity.folder / "key.pem")
    context.set_alpn_protocols(["h2"])
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), 20) as plain, context.wrap_socket(plain) as secure:
            return str(secure.version()) if secure.recv(9) else "closed"
    except OSError:
        return "refused"


def test_tls_1_2_finds_nobody(identities: dict[str, Identity]) -> None:
    async def call() -> list[str]:
        async with listening(identities["ant"], nothing) as address:
            return [
                await asyncio.to_thread(versions, address, identities["bee"], most)
                for most in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
            ]

    assert asyncio.run(call()) == ["refused", "TLSv1.3"]


@pytest.mark.parametrize(("before", "told"), [("import grpc", True), ("", False)])
def test_a_process_that_has_loaded_grpc_is_told_rather_than_downgraded(before: str, told: bool) -> None:
    code = f"{before}\nfrom fkge.node.transport import library\nlibrary()"
    plain = {key: value for key, value in os.environ.items() if key != "GRPC_SSL_CIPHER_SUITES"}
    done = subprocess.run([sys.executable, "-c", code], env=plain, text=True, capture_output=True)
    assert ("would take TLS 1.2 too" in done.stderr) is told
    assert (done.returncode == 1) is told


def test_a_node_that_would_take_tls_1_2_does_not_listen(identities: dict[str, Identity]) -> None:
    code = (
        "import asyncio, os, sys, grpc\nfrom pathlib import Path\nfrom fkge.node.transport import Transport\n"
        "from fkge.pki.site import Identity\n"
        "os.environ['GRPC_SSL_CIPHER_SUITES'] = 'ECDHE-RSA-AES256-GCM-SHA384'\n"
        "own = Identity.load(Path(sys.argv[1]))\n"
        "async def main(): await Transport(lambda: own).listen('127.0.0.1', 0, None)\nasyncio.run(main())"
    )
    plain = {key: value for key, value in os.environ.items() if key != "GRPC_SSL_CIPHER_SUITES"}
    command = [sys.executable, "-c", code, str(identities["ant"].folder)]
    done = subprocess.run(command, env=plain, text=True, capture_output=True)
    assert "this gRPC takes TLS 1.2" in done.stderr


def test_who_answers_must_be_who_was_called(identities: dict[str, Identity]) -> None:
    async def call() -> None:
        async with listening(identities["ant"], echo) as address:
            line = await Transport(lambda: identities["bee"]).call(address, "cat")
            try:
                await line.write(b"x")
                await line.read()
            finally:
                await line.close()

    with pytest.raises(Refused) as refused:
        asyncio.run(call())
    assert refused.value.reason == "name"


def test_another_consortiums_member_is_a_stranger(identities: dict[str, Identity], tmp_path: Path) -> None:
    other = members(tmp_path, "bee")["bee"]

    async def call() -> Any:
        async with listening(identities["ant"], echo) as address:
            line = await Transport(lambda: other).call(address, "ant")
            try:
                assert not await line.write(b"x")
                return await line.read()
            finally:
                await line.close()

    with pytest.raises(Refused) as refused:
        asyncio.run(call())
    assert refused.value.reason == "stranger"


def test_a_port_that_is_taken(identities: dict[str, Identity]) -> None:
    async def twice() -> None:
        async with listening(identities["ant"], echo) as address:
            await Transport(lambda: identities["ant"]).listen("127.0.0.1", int(address.rsplit(":", 1)[1]), echo)

    with pytest.raises(NodeError, match=r"cannot listen on 127\.0\.0\.1"):
        asyncio.run(twice())


def test_a_caller_that_vanishes_is_a_stream_that_ends_and_no_more(identities: dict[str, Identity]) -> None:
    """gRPC cancels what serves it. The node's own work must not be: it has to note what happened."""

    async def call() -> str:
        came, ended = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def welcome(line: Line) -> None:
            try:
                await line.read()
                came.set()
                while await line.read() is not None:
                    pass
                await asyncio.sleep(0.05)  # the work that is left to do
                ended.set_result("in order")
            except asyncio.CancelledError:
                ended.set_result("cancelled")

        async with listening(identities["ant"], welcome) as address:
            line = await Transport(lambda: identities["bee"]).call(address, "ant")
            await line.write(b"x")
            await came.wait()
            await line.close()
            return str(await ended)

    assert asyncio.run(call()) == "in order"


def test_compressed_frames_are_not_taken(identities: dict[str, Identity]) -> None:
    """A million zeros are a thousand bytes on the way: nobody may make a node unpack them."""
    heard = []

    async def welcome(line: Line) -> None:
        heard.append(await line.read())

    async def call() -> None:
        grpc, bee = library(), identities["bee"]
        async with listening(identities["ant"], welcome) as address:
            credentials = grpc.ssl_channel_credentials(bee.authority_pem, bee.key_pem, bee.certificate_pem)
            async with grpc.aio.secure_channel(
                address, credentials, options=[("grpc.ssl_target_name_override", "ant")],
                compression=grpc.Compression.Gzip,
            ) as channel:  # fmt: skip
                stream = channel.stream_stream("/fkge.node.Node/Meet")()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stream.write(bytes(1 << 20))
                    await stream.read()
                assert await stream.code() != grpc.StatusCode.OK

    asyncio.run(call())
    assert heard in ([], [None])
