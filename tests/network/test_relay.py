"""The relay passes on what it is given, and each of its faults is seen at both ends."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.network.relay import Relay

pytestmark = pytest.mark.long  # of the laboratory itself

PATIENCE = 30.0

Ends = tuple[socket.socket, socket.socket]


class Far:
    """A server behind a relay, and connections through it."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(PATIENCE)
        self.relay = Relay(self.listening.getsockname())
        self._made: list[socket.socket] = [self.listening]

    def connect(self) -> Ends:
        """The client's end of a new connection, and the server's."""
        client = socket.create_connection(self.relay.address, timeout=PATIENCE)
        self._made.append(client)
        server, _ = self.listening.accept()
        server.settimeout(PATIENCE)
        self._made.append(server)
        return client, server

    def close(self) -> None:
        self.relay.close()
        for made in self._made:
            made.close()


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.close()


def receive(connection: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size and (data := connection.recv(size - len(out))):
        out += data
    return bytes(out)


def receive_at(client: socket.socket, address: tuple[str, int]) -> bytes:
    """Connects and reads a byte; where the other side resets at once, either may fail."""
    client.connect(address)
    return client.recv(1)


def everything(connection: socket.socket) -> bytes:
    """All bytes to the end of a connection, which may be a reset."""
    out = bytearray()
    try:
        while data := connection.recv(65536):
            out += data
    except ConnectionError:
        pass
    return bytes(out)


def holds(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_bytes_pass_both_ways_and_so_does_the_end(far: Far) -> None:
    client, server = far.connect()
    up, down = os.urandom(3_000_000), os.urandom(1_000_000)
    sending = [threading.Thread(target=end.sendall, args=(data,)) for end, data in ((client, up), (server, down))]
    for thread in sending:
        thread.start()
    assert receive(server, len(up)) == up
    assert receive(client, len(down)) == down
    for thread in sending:
        thread.join()
    client.shutdown(socket.SHUT_WR)
    assert server.recv(1) == b""
    server.sendall(b"still open this way")
    assert receive(client, 19) == b"still open this way"
    server.close()
    assert client.recv(1) == b""
    assert (far.relay.carried("up"), far.relay.carried("down")) == (len(up), len(down) + 19)
    assert (far.relay.connections, far.relay.broken) == (1, 0)


def test_a_delay_holds_bytes_both_ways(far: Far) -> None:
    client, server = far.connect()
    far.relay.delay(0.1)
    begun = time.monotonic()
    client.sendall(b"?")
    assert receive(server, 1) == b"?"
    server.sendall(b"!")
    assert receive(client, 1) == b"!"
    assert time.monotonic() - begun >= 0.2


def test_a_cut_breaks_connections_and_refuses_new_ones(far: Far) -> None:
    client, server = far.connect()
    client.sendall(b".")
    assert receive(server, 1) == b"."
    far.relay.silence()
    client.sendall(b"never passed on")
    far.relay.wait(lambda: far.relay.held == 1)
    far.relay.cut()
    assert (far.relay.broken, far.relay.held) == (1, 0)
    for end in (client, server):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(far.relay.address, timeout=PATIENCE)
    far.relay.heal()
    client, server = far.connect()
    client.sendall(b".")
    assert receive(server, 1) == b"."


@pytest.mark.parametrize("reset", [False, True], ids=["end", "reset"])
def test_nothing_passes_in_silence_not_even_the_end(far: Far, reset: bool) -> None:
    client, server = far.connect()
    other, third = far.connect()
    far.relay.silence()
    client.sendall(b"are you there?")
    far.relay.wait(lambda: far.relay.held == 1)
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    far.relay.wait(lambda: far.relay.held == 2)
    assert far.relay.carried("up") == 0
    assert not holds(server)
    far.relay.unsilence()
    if reset:
        everything(server)
    else:
        assert everything(server) == b"are you there?"
    other.sendall(b"another connection")
    assert receive(third, 18) == b"another connection"


@pytest.mark.parametrize("after", [0, 1, 1000])
def test_a_truncated_connection_delivers_just_so_many_bytes(far: Far, after: int) -> None:
    client, server = far.connect()
    client.sendall(b"before")
    assert receive(server, 6) == b"before"
    far.relay.truncate(after, "up")
    data = os.urandom(5000)
    client.sendall(data)
    assert everything(server) == data[:after]
    assert everything(client) == b""
    far.relay.wait(lambda: far.relay.broken == 1)
    client, server = far.connect()
    client.sendall(data)
    assert receive(server, 5000) == data


def test_one_bit_is_flipped_once(far: Far) -> None:
    client, server = far.connect()
    server.sendall(b"before")
    assert receive(client, 6) == b"before"
    far.relay.flip(100, "down", bit=3)
    data = bytes(5000)
    server.sendall(data)
    changed = receive(client, 5000)
    assert [(i, b) for i, b in enumerate(changed) if b] == [(100, 8)]
    server.sendall(data)
    assert receive(client, 5000) == data


def test_a_server_that_is_not_there_resets_the_client(far: Far) -> None:
    far.listening.close()
    with socket.socket() as client:
        client.settimeout(PATIENCE)
        with pytest.raises(ConnectionResetError):
            receive_at(client, far.relay.address)


def test_a_server_may_move(far: Far) -> None:
    with socket.create_server(("127.0.0.1", 0)) as moved:
        far.relay.target = moved.getsockname()
        with socket.create_connection(far.relay.address, timeout=PATIENCE) as client:
            moved.settimeout(PATIENCE)
            server, _ = moved.accept()
            with server:
                client.sendall(b"here")
                assert receive(server, 4) == b"here"


def test_waiting_for_what_happens_here(far: Far) -> None:
    client, _ = far.connect()
    sending = threading.Thread(target=client.sendall, args=(b"x" * 100,))
    sending.start()
    far.relay.wait(lambda: far.relay.carried("up") == 100)
    sending.join()


def test_closing_twice_and_while_silent(far: Far) -> None:
    client, _ = far.connect()
    far.relay.silence()
    client.sendall(b"lost")
    far.relay.close()
    far.relay.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
