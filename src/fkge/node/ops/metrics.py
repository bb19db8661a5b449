"""Metrics of a node for Prometheus, and the HTTP server that shows them: /metrics, /healthz, /readyz.

Labels are the names of peers, and words that are listed beforehand, as in the log; any other text becomes "other".

Counting and the text format are `prometheus_client`'s. Its HTTP servers are not used: they run in threads of their own,
without limits on connections, time or the length of a request, and have no place for /readyz. This one serves GET and
HEAD on the node's loop, within such limits.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from fkge.errors import NodeError, need
from fkge.node.ops.logs import WORDS
from fkge.node.ops.sockets import Connections

CONNECTIONS = 32
"""At a time; more are answered with 503, and more than twice as many are closed."""

SECONDS = 5.0
"""For a request to be read and answered."""

REQUEST_BYTES = 8192


class Health(NamedTuple):
    """Whether a node is able to work, and what /readyz says about it."""

    ready: bool
    details: Mapping[str, object]


class Metrics:
    """The metrics of a node, counted from any thread. `peers` are the names that may be labels.

    `epochs` and `mrr` are metrics of `prometheus_client`, which need no check of their values.
    """

    def __init__(self, peers: Iterable[str] = ()) -> None:
        prometheus = need("prometheus_client", "node", "a node's metrics")
        self.registry = prometheus.CollectorRegistry()
        self._generate, self.content_type = prometheus.generate_latest, str(prometheus.CONTENT_TYPE_LATEST)
        counter = partial(prometheus.Counter, registry=self.registry)
        gauge = partial(prometheus.Gauge, registry=self.registry)
        self._peers_known = set(peers)
        self._states: set[str] = set()
        self._peer_counts = Counter[str]()
        self._bytes = counter("fkge_bytes_sent", "Bytes sent.", ["peer", "kind"])
        self._messages = counter("fkge_messages", "Messages.", ["peer", "kind", "direction"])
        self._refused = counter("fkge_refused", "Refusals.", ["peer", "reason"])
        self.epochs = counter("fkge_epochs", "Epochs of training that are done.")
        self._exchanges = counter("fkge_exchanges", "Exchanges that ended.", ["peer", "outcome"])
        self._peers = gauge("fkge_peers", "Peers by state.", ["state"])
        self.mrr = gauge("fkge_validation_mrr", "Best mean reciprocal rank in validation.")
        self._epsilon = gauge("fkge_epsilon_spent", "The largest ε spent; NaN: nothing has a price.")
        self.mrr.set(math.nan)
        self._epsilon.set(math.nan)
        self._state = gauge("fkge_state", "1 for the state that the node is in.", ["state"])

    def know(self, peer: str) -> None:
        """Allow the name of a new peer."""
        self._peers_known.add(peer)

    def sent(self, peer: str, kind: str, nbytes: int) -> None:
        """Count a message that was sent.

        Args:
            peer, kind: whom it was for, and its kind; nbytes: its size.
        """
        peer, kind = self._peer(peer), self._word("kind", kind)
        self._messages.labels(peer, kind, "out").inc()
        self._bytes.labels(peer, kind).inc(nbytes)

    def received(self, peer: str, kind: str) -> None:
        """Count a message that was received."""
        self._messages.labels(self._peer(peer), self._word("kind", kind), "in").inc()

    def refused(self, peer: str, reason: str) -> None:
        """Count a peer, or a message of it, that was refused."""
        self._refused.labels(self._peer(peer), self._word("reason", reason)).inc()

    def exchanged(self, peer: str, outcome: str) -> None:
        """Count an exchange that ended."""
        self._exchanges.labels(self._peer(peer), self._word("outcome", outcome)).inc()

    def peers(self, states: Mapping[str, int]) -> None:
        """Set how many peers are in which state; states that are not named have none."""
        self._peer_counts = Counter(dict.fromkeys(self._peer_counts, 0))
        for state, count in states.items():
            self._peer_counts[self._word("state", state)] += count
        for word, count in self._peer_counts.items():
            self._peers.labels(word).set(count)

    def spent(self, epsilon: float | None) -> None:
        """Set ε spent so far; None where nothing has a price, which is not the same as 0."""
        self._epsilon.set(math.nan if epsilon is None else epsilon)

    def state(self, state: str) -> None:
        """Set the state that the node is in."""
        word = self._word("state", state)
        self._states.add(word)
        for name in sorted(self._states):
            self._state.labels(name).set(name == word)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return bytes(self._generate(self.registry))

    def _peer(self, name: str) -> str:
        return name if name in self._peers_known else "other"

    def _word(self, label: str, word: str) -> str:
        return word if word in WORDS[label] else "other"


class Server(Connections):
    """An HTTP server that answers until it is closed; `serve` makes one."""

    def __init__(self, metrics: Metrics, health: Callable[[], Health]) -> None:
        super().__init__()
        self._metrics, self._health = metrics, health
        self.port = 0

    async def close(self) -> None:
        """Take no more requests, and drop those under way."""
        await self.stop_listening()
        for task in list(self.busy):
            task.cancel()
        await asyncio.gather(*self.busy, return_exceptions=True)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP request."""
        if len(self.busy) > 2 * CONNECTIONS:
            return
        async with asyncio.timeout(SECONDS):
            crowded = len(self.busy) > CONNECTIONS
            writer.write(_answer(503, b"too many at a time\n") if crowded else await self._handle(reader))
            writer.write_eof()
            while await reader.read(REQUEST_BYTES):  # or closing would lose the answer
                pass

    async def _handle(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer(431, b"the request is too long\n")
        except asyncio.IncompleteReadError:
            return b""
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _answer(400, b"this is no HTTP/1 request\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _answer(405, b"only GET and HEAD\n", allow="GET, HEAD")
        code, body, kind = self._page(words[1].split(b"?", 1)[0])
        return _answer(code, body, kind, whole=words[0] == b"GET")

    def _page(self, path: bytes) -> tuple[int, bytes, str]:
        if path == b"/metrics":
            return 200, self._metrics.render(), self._metrics.content_type
        if path == b"/healthz":
            return 200, b"alive\n", "text/plain"
        if path == b"/readyz":
            ready, told = self._health()
            body = json.dumps({"ready": ready, **told}).encode() + b"\n"
            return (200 if ready else 503), body, "application/json"
        return 404, b"/metrics, /healthz, /readyz\n", "text/plain"


async def serve(host: str, port: int, metrics: Metrics, health: Callable[[], Health]) -> Server:
    """Serve metrics and health.

    Args:
        host, port: where to listen, best on 127.0.0.1; port 0 takes any that is free, see `Server.port`.
        metrics, health: for /metrics and /readyz.

    Raises:
        NodeError: it cannot listen there.
    """
    server = Server(metrics, health)
    try:
        server.listening = await asyncio.start_server(server.accept, host, port, limit=REQUEST_BYTES)
    except OSError as error:
        raise NodeError(
            f"{host}:{port}: metrics cannot be shown here: {error.strerror or error}. Choose another port, or 0 for any"
        ) from error
    server.port = server.listening.sockets[0].getsockname()[1]
    return server


def _answer(code: int, body: bytes, kind: str = "text/plain", *, whole: bool = True, allow: str = "") -> bytes:
    head = [
        f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", f"Content-Type: {kind}", f"Content-Length: {len(body)}",
        "Cache-Control: no-store", "X-Content-Type-Options: nosniff", "Connection: close",
    ]  # fmt: skip
    if allow:
        head.append(f"Allow: {allow}")
    return "\r\n".join([*head, "", ""]).encode() + (body if whole else b"")
