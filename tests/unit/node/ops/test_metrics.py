"""Metrics: counted rightly, served to whoever asks politely, and to nobody else."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra node")

from fkge.errors import NodeError
from fkge.node.ops import metrics as served
from fkge.node.ops.metrics import Metrics, Server, serve


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    found = metrics.registry.get_sample_value(name, labels)
    return None if found is None else float(found)


def test_everything_is_counted_under_its_name() -> None:
    m = Metrics(["genes", "shop"])
    assert math.isnan(value(m, "fkge_epsilon_spent") or 0.0)  # no price is not the price 0
    assert math.isnan(value(m, "fkge_validation_mrr") or 0.0)
    m.sent("genes", "Update", 100)
    m.sent("genes", "Update", 50)
    m.received("genes", "Ack")
    m.refused("shop", "budget")
    m.epochs.inc()
    m.epochs.inc(4)
    m.exchanged("genes", "finished")
    m.peers({"connected": 2, "away": 1})
    m.peers({"connected": 3})
    m.mrr.set(0.25)
    m.spent(1.5)
    m.state("training")
    m.state("resting")
    assert value(m, "fkge_bytes_sent_total", peer="genes", kind="Update") == 150
    assert value(m, "fkge_messages_total", peer="genes", kind="Update", direction="out") == 2
    assert value(m, "fkge_messages_total", peer="genes", kind="Ack", direction="in") == 1
    assert value(m, "fkge_refused_total", peer="shop", reason="budget") == 1
    assert value(m, "fkge_epochs_total") == 5
    assert value(m, "fkge_exchanges_total", peer="genes", outcome="finished") == 1
    assert value(m, "fkge_peers", state="connected") == 3
    assert value(m, "fkge_peers", state="away") == 0
    assert value(m, "fkge_validation_mrr") == 0.25
    assert value(m, "fkge_epsilon_spent") == 1.5
    assert value(m, "fkge_state", state="training") == 0
    assert value(m, "fkge_state", state="resting") == 1
    m.spent(None)
    assert math.isnan(value(m, "fkge_epsilon_spent") or 0.0)


def test_no_label_is_one_that_nobody_listed() -> None:
    m = Metrics(["genes"])
    m.sent("mallory", "aspirin", 1)
    m.received("aspirin", "Tokens")
    m.refused("genes", "aspirin")
    m.exchanged("genes", "aspirin")
    m.peers({"aspirin": 1, "warfarin": 1})
    m.state("aspirin")
    text = m.render()
    assert b"aspirin" not in text
    assert b"mallory" not in text
    assert value(m, "fkge_messages_total", peer="other", kind="Tokens", direction="in") == 1
    assert value(m, "fkge_peers", state="other") == 2


def test_two_nodes_in_one_process_count_apart() -> None:
    first, second = Metrics(), Metrics()
    first.epochs.inc()
    assert (value(first, "fkge_epochs_total"), value(second, "fkge_epochs_total")) == (1, 0)


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def serving(use: Callable[[Server], Awaitable[None]], health: Any = lambda: (True, {})) -> None:
    async def run() -> None:
        m = Metrics(["genes"])
        m.sent("genes", "Update", 100)
        server = await serve("127.0.0.1", 0, m, health)
        try:
            await use(server)
        finally:
            await server.close()

    asyncio.run(run())


def test_pages() -> None:
    state: dict[str, Any] = {"ready": False}

    async def use(server: Server) -> None:
        head, body = (await ask(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        assert b'fkge_bytes_sent_total{kind="Update",peer="genes"} 100.0' in body
        assert f"Content-Length: {len(body)}".encode() in head
        again, none = (await ask(server.port, b"HEAD /metrics HTTP/1.0\r\n\r\n")).split(b"\r\n\r\n", 1)
        assert (again, none) == (head, b"")
        assert (await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nalive\n")
        answer = await ask(server.port, b"GET /readyz?verbose HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.endswith(b'{"ready": false, "waits for": ["genes"]}\n')
        state["ready"] = True
        assert (await ask(server.port, b"GET /readyz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    serving(use, lambda: (True, {}) if state["ready"] else (False, {"waits for": ["genes"]}))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET /etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../x HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 100_000, 431),
    ],
)
def test_anything_else_is_refused(request_: bytes, code: int) -> None:
    async def use(server: Server) -> None:
        assert (await ask(server.port, request_)).startswith(f"HTTP/1.1 {code} ".encode())
        assert (await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"alive\n")

    serving(use)


def test_a_client_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "SECONDS", 0.05)

    async def use(server: Server) -> None:
        assert await ask(server.port, b"GET /metr") == b""

    serving(use)


def test_only_so_many_are_served_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "CONNECTIONS", 2)

    async def use(server: Server) -> None:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        assert (await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        reader, writer = held[0]
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"alive\n")
        for _, writer in held:
            writer.close()
            await writer.wait_closed()

    serving(use)


def test_closing_drops_who_is_connected() -> None:
    async def use(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n")  # so that the server has met the first one too
        await server.close()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)

    serving(use)


def test_a_taken_port_is_said_so() -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(NodeError, match=f"127.0.0.1:{port}: metrics cannot be shown here"):
                await serve("127.0.0.1", port, Metrics(), lambda: (True, {}))

    asyncio.run(run())
