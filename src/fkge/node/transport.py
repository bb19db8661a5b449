"""Streams between nodes: gRPC over mutual TLS, one method, raw frames. Nothing here decodes a frame.

TLS is 1.3 and nothing else. gRPC's Python interface has no option for that; but TLS 1.2 needs a cipher suite that fits
the kind of certificate, ours are ECDSA, and the only suites left to it are for RSA. So an older handshake finds none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from fkge.errors import NodeError, need
from fkge.node.frames import FRAME_LIMIT, Refused
from fkge.pki.site import Identity

_METHOD, _SERVICE = "Meet", "fkge.node.Node"
_SUITES, _NONE_FITS = "GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384"
_HANDSHAKE = 10.0  # seconds
_PING, _PONG = 15_000, 10_000  # milliseconds: a stream that is half open is noticed after their sum
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", 4 * FRAME_LIMIT),  # one that is somewhat too long gets a Bye, not just a status
    ("grpc.max_send_message_length", FRAME_LIMIT),
    ("grpc.max_metadata_size", 8192),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: few bytes would become many
    ("grpc.server_handshake_timeout_ms", int(1000 * _HANDSHAKE)),
    ("grpc.max_allowed_incoming_connections", 512),  # or strangers could use up the files that a process may open
    ("grpc.keepalive_time_ms", _PING),
    ("grpc.keepalive_timeout_ms", _PONG),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),  # on the way at most; with less, a long way to a peer is a slow one
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.max_connection_idle_ms", 30_000),  # an idle connection does not hold a place
    ("grpc.enable_http_proxy", 0),
]
_ALERTS = (
    ("Hostname", "name"), ("certificate has expired", "expired"), ("certificate is not yet valid", "expired"),
    ("CERTIFICATE_VERIFY_FAILED", "stranger"), ("certificate", "stranger"), ("Peer name", "name"),
)  # fmt: skip


def library() -> Any:
    """Load gRPC, set to speak TLS 1.3 alone; it reads that setting once, when it is loaded.

    Raises:
        NodeError: gRPC was imported earlier without the TLS 1.3 setting.
    """
    if "grpc" not in sys.modules:
        os.environ[_SUITES] = _NONE_FITS
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    elif os.environ.get(_SUITES) != _NONE_FITS:
        raise NodeError(
            "gRPC was loaded before the node was, and would take TLS 1.2 too. Start the node in a process of its own "
            f"(fkge node), or with {_SUITES}={_NONE_FITS} in its environment."
        )
    need("grpc", "node", "a node")
    import grpc.aio

    return grpc


class Line:
    """A stream to a peer, opened by either side.

    Args:
        stream, channel: of gRPC; `channel` only where this side dialled.
        where: the other end's address, for the log.
        certificate: PEM, of the side that dialled; None where this side did, which gets the other's in its greeting.
    """

    def __init__(self, stream: Any, where: str, certificate: bytes | None, channel: Any = None) -> None:
        self._stream, self._channel = stream, channel
        self.where, self.certificate = where, certificate
        self.called = channel is not None  # this side dialled
        self._eof = library().aio.EOF

    async def read(self) -> bytes | None:
        """Read the next frame; None at the end of the stream."""
        data = await self._unless_over(self._stream.read())
        return None if data is self._eof else data

    async def write(self, frame: bytes) -> bool:
        """Write a frame, once flow control allows it; return False if the stream is over."""
        return await self._unless_over(self._stream.write(frame)) is not self._eof

    async def _unless_over(self, step: Awaitable[Any]) -> Any:
        """Return the result of a step; the mark of the stream's end if it fails."""
        try:
            return await step
        except Exception as error:
            if (refused := _tls_refusal(error)) is not None:
                raise refused from None
            return self._eof

    async def done(self) -> None:
        """Write nothing more. The side that was dialled ends its half by returning from its handler."""
        if self.called:
            with contextlib.suppress(Exception):  # it is over already
                await self._stream.done_writing()

    async def drain(self) -> None:
        """Wait until the other side ends the stream: gRPC drops what was not read before the end."""
        while await self.read() is not None:
            pass

    async def close(self) -> None:
        """Close the stream, if this side opened it."""
        if self.called:
            self._stream.cancel()
            await self._channel.close()


def _tls_refusal(error: Exception) -> Refused | None:
    """Translate a failed TLS handshake into a refusal; None for other errors."""
    details = str(getattr(error, "details", lambda: "")() or "")
    if not any(word in details for word in ("handshake", "Peer name", "verification check")):
        return None
    reason = next((reason for text, reason in _ALERTS if text in details), "stranger")
    return Refused(reason, f"TLS: {details.strip()[:300]}", ours=reason != "stranger")


class Transport:
    """Listen for streams, of which so many may be open `at_once`, and open them.

    `identity` returns the current one, for each connection, so that a new certificate takes effect.
    """

    def __init__(self, identity: Callable[[], Identity], at_once: int = 256) -> None:
        self._grpc = library()
        self._identity, self._at_once = identity, at_once
        self._server: Any = None
        self._accepting: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, accept: Callable[[Line], Awaitable[None]]) -> int:
        """Listen for streams, and return the port.

        Args:
            host, port: where; port 0 takes any that is free.
            accept: called for each stream, which ends when it returns.

        Raises:
            NodeError: the port is taken, or gRPC would accept TLS 1.2.
        """
        grpc = self._grpc

        async def meet(_: Any, context: Any) -> None:
            certificate = context.auth_context().get("x509_pem_cert", [b""])[0]
            line = Line(context, str(context.peer()), bytes(certificate))
            # gRPC cancels this method when the other side is gone; `accept` then reads the end of the stream.
            accepted = asyncio.ensure_future(accept(line))
            self._accepting.add(accepted)
            accepted.add_done_callback(self._accepting.discard)
            await asyncio.wait((accepted,))

        methods = {_METHOD: grpc.stream_stream_rpc_method_handler(meet)}
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=self._at_once)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        try:
            at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            bound = int(self._server.add_secure_port(at, self._server_credentials()))
        except RuntimeError:
            bound = 0
        if not bound:
            raise NodeError(
                f"cannot listen on {host}:{port}: the port is taken, or the address is not this machine's. "
                "Change listen in node.toml, or stop the process that holds it."
            )
        await self._server.start()
        if await _takes_tls_1_2(host, bound):
            await self.close()
            raise NodeError("this gRPC takes TLS 1.2, which a node must not; install the version that fkge asks for")
        return bound

    def _server_credentials(self) -> Any:
        grpc, current = self._grpc, self._identity()

        def configuration(identity: Identity) -> Any:
            return grpc.ssl_server_certificate_configuration(
                [(identity.key_pem, identity.certificate_pem)], identity.authority_pem
            )

        def fetch() -> Any:
            nonlocal current
            if (now := self._identity()) is current:
                return None
            current = now
            return configuration(now)

        return grpc.dynamic_ssl_server_credentials(configuration(current), fetch, require_client_authentication=True)

    async def call(self, address: str, name: str) -> Line:
        """Open a stream to the node of that name; whether it succeeds shows in the first read or write."""
        grpc, identity = self._grpc, self._identity()
        credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.secure_channel(address, credentials, options=options)
        return Line(channel.stream_stream(f"/{_SERVICE}/{_METHOD}")(), address, None, channel)

    async def close(self) -> None:
        """Stop listening, and end all streams."""
        if self._server is not None:
            await self._server.stop(grace=1.0)
            for accepted in self._accepting:
                accepted.cancel()
            await asyncio.gather(*self._accepting, return_exceptions=True)


async def _takes_tls_1_2(host: str, port: int) -> bool:
    """Return whether the node's own port answers a handshake of TLS 1.2 with one of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    where = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        async with asyncio.timeout(_HANDSHAKE):
            reader, writer = await asyncio.open_connection(where, port)
            try:
                writer.write(outgoing.read())
                return await reader.read(1) == b"\x16"  # a record of a handshake; an alert, or nothing, is a refusal
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
