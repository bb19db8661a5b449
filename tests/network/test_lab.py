"""The laboratory's faults are real: each is seen by sockets that know nothing of it, and is gone when it ends."""

from __future__ import annotations

import datetime
import errno
import ipaddress
import os
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.capture import joined
from tests.network.lab import MARK, NAMESPACES, Host, Lab, LabError, skewed, sweep

pytestmark = pytest.mark.long  # of the laboratory itself

PATIENCE = 30.0
ESTABLISHED = 1
MARKER = b"a fact that anybody on the wire can read"
ROOT = Path(__file__).resolve().parents[2]

Pair = tuple[socket.socket, socket.socket]


def connect(client: Host, server: Host) -> Pair:
    """A TCP connection between two hosts: the client's end and the server's."""
    with server.listener() as listening:
        ours = client.socket()
        ours.settimeout(PATIENCE)
        listening.settimeout(PATIENCE)
        ours.connect(listening.getsockname())
        theirs, _ = listening.accept()
    theirs.settimeout(PATIENCE)
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that the kernel does in its own time and tells nobody."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def state(connection: socket.socket) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0]


def tries(connection: socket.socket) -> int:
    """How often in a row the kernel has sent the same bytes again."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[2]


def receive(connection: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size and (data := connection.recv(size - len(out))):
        out += data
    return bytes(out)


def transfer(sender: socket.socket, receiver: socket.socket, data: bytes) -> bytes:
    sending = threading.Thread(target=sender.sendall, args=(data,))
    sending.start()
    arrived = receive(receiver, len(data))
    sending.join()
    return arrived


def holds(connection: socket.socket) -> bool:
    """Whether there is anything to read now, be it the end."""
    return bool(select.select([connection], [], [], 0)[0])


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline()


# -- hosts -----------------------------------------------------------------------------------------


def test_hosts_have_addresses_of_their_own_and_reach_each_other(lab: Lab) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    assert clinic.address != library.address
    with library.listener() as listening:
        code = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'hello')"
        sent = clinic.python(code, library.address, str(listening.getsockname()[1]))
        listening.settimeout(PATIENCE)
        connection, (source, _) = listening.accept()
        with connection:
            assert receive(connection, 5) == b"hello"
    assert source == clinic.address
    assert sent.wait(PATIENCE) == 0


def test_a_host_is_not_this_machine(lab: Lab) -> None:
    clinic = lab.host("clinic")
    links = clinic.run(["ip", "-o", "link"]).stdout
    assert {line.split(": ")[1].split("@")[0] for line in links.splitlines()} >= {"lo", "eth0"}
    assert str(os.stat("/proc/self/ns/net").st_ino) not in clinic.run(["readlink", "/proc/self/ns/net"]).stdout
    with socket.socket() as ours, pytest.raises(OSError, match="Cannot assign"):
        ours.bind((clinic.address, 0))


def test_two_laboratories_are_apart_though_their_addresses_are_the_same(lab: Lab) -> None:
    ours = lab.host("clinic")
    with Lab("other") as other, other.host("clinic").listener() as listening, ours.listener() as at_home:
        theirs = other.host("library")
        assert listening.getsockname()[0] == ours.address
        with theirs.socket() as client:
            client.settimeout(PATIENCE)
            client.connect(listening.getsockname())
            listening.settimeout(PATIENCE)
            listening.accept()[0].close()
        at_home.setblocking(False)
        with pytest.raises(BlockingIOError):
            at_home.accept()


@pytest.mark.parametrize("name", ["clinic", "switch", "a/b", ""])
def test_a_name_that_cannot_be_is_refused(lab: Lab, name: str) -> None:
    lab.host("clinic")
    with pytest.raises(LabError, match="cannot be a host's name"):
        lab.host(name)


# -- loss and delay --------------------------------------------------------------------------------


def arrived(sender: Host, receiver: Host, count: int) -> int:
    """How many of so many datagrams arrive."""
    with sender.socket(socket.SOCK_DGRAM) as ours, receiver.socket(socket.SOCK_DGRAM) as theirs:
        theirs.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: no loss here that is not the network's
        theirs.bind((receiver.address, 0))
        total = 0
        for i in range(count):
            ours.sendto(struct.pack("I", i), theirs.getsockname())
            while holds(theirs):
                theirs.recv(4)
                total += 1
        theirs.settimeout(1)
        with suppress(TimeoutError):
            while total < count:
                theirs.recv(4)
                total += 1
        return total


@pytest.mark.parametrize("outward", [True, False], ids=["from it", "to it"])
def test_packets_are_lost_as_often_as_asked(lab: Lab, outward: bool) -> None:
    lossy, other = lab.host("lossy"), lab.host("other")
    ends = (lossy, other) if outward else (other, lossy)
    count, chance = 10_000, 0.05
    assert arrived(*ends, count) == count
    lab.loss(lossy, chance)
    lost = count - arrived(*ends, count)
    # Six standard deviations, which half and double the chance miss by as many of their own.
    assert abs(lost - count * chance) < 6 * (count * chance * (1 - chance)) ** 0.5
    lab.clear(lossy)
    assert arrived(*ends, count) == count


def test_loss_is_of_one_host_only(lab: Lab) -> None:
    lossy, ours, theirs = lab.host("lossy"), lab.host("ours"), lab.host("theirs")
    lab.loss(lossy, 0.5)
    assert arrived(ours, theirs, 1000) == 1000
    assert arrived(ours, lossy, 1000) < 1000


def test_tcp_arrives_whole_through_loss(lab: Lab) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    ours, theirs = connect(clinic, library)
    lab.loss(clinic, 0.02)
    data = os.urandom(500_000)
    with ours, theirs:
        assert transfer(ours, theirs, data) == data


def round_trip(client: socket.socket, server: socket.socket) -> float:
    begun = time.monotonic()
    client.sendall(b"?")
    assert receive(server, 1) == b"?"
    server.sendall(b"!")
    assert receive(client, 1) == b"!"
    return time.monotonic() - begun


def test_a_delay_holds_every_packet_both_ways(lab: Lab) -> None:
    far, near = lab.host("far"), lab.host("near")
    ours, theirs = connect(far, near)
    with ours, theirs:
        lab.delay(far, 0.2)
        assert round_trip(ours, theirs) >= 0.4
        assert round_trip(theirs, ours) >= 0.4
        lab.delay(far, 0.05)
        assert round_trip(ours, theirs) >= 0.1
        assert "tap1" in wiring(lab)
        lab.clear(far)
        round_trip(ours, theirs)
    assert "tap1" not in wiring(lab)


def wiring(lab: Lab) -> str:
    return subprocess.run(
        ["ip", "-n", f"{lab.name}-switch", "link", "show", "master", "lan"], capture_output=True, text=True, check=True
    ).stdout


def test_tcp_arrives_whole_through_a_delay(lab: Lab) -> None:
    far, near = lab.host("far"), lab.host("near")
    lab.delay(far, 0.01)
    data = os.urandom(3_000_000)
    ours, theirs = connect(far, near)
    with ours, theirs:
        assert transfer(ours, theirs, data) == data
        assert transfer(theirs, ours, data) == data


# -- cut and silence -------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0.0, 0.01], ids=["at once", "delayed"])
def test_a_connection_survives_a_cut(lab: Lab, delay: float) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    ours, theirs = connect(clinic, library)
    with ours, theirs:
        lab.delay(clinic, delay)
        round_trip(ours, theirs)
        lab.cut(clinic)
        theirs.sendall(b"are you there?")
        until(lambda: tries(theirs) >= 1)
        assert not holds(ours)
        assert state(ours) == state(theirs) == ESTABLISHED
        lab.heal(clinic)
        assert receive(ours, 14) == b"are you there?"


def test_a_silenced_host_leaves_half_a_connection(lab: Lab) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    with library.listener() as listening:
        code = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'.');"
            "sys.stdin.read()"
        )
        client = clinic.python(code, library.address, str(listening.getsockname()[1]))
        listening.settimeout(PATIENCE)
        theirs, _ = listening.accept()
    with theirs:
        theirs.settimeout(PATIENCE)
        assert receive(theirs, 1) == b"."
        lab.silence(clinic)
        client.kill()
        client.wait(PATIENCE)
        theirs.sendall(b"are you there?")
        until(lambda: tries(theirs) >= 1)
        assert state(theirs) == ESTABLISHED
        assert not holds(theirs)
        lab.unsilence(clinic)
        with suppress(ConnectionResetError):
            assert theirs.recv(1) == b""
        assert state(theirs) != ESTABLISHED


def test_two_hosts_can_be_silent_to_each_other_only(lab: Lab) -> None:
    clinic, library, museum = lab.host("clinic"), lab.host("library"), lab.host("museum")
    lab.silence(clinic, library)
    assert arrived(clinic, library, 10) == arrived(library, clinic, 10) == 0
    assert arrived(clinic, museum, 10) == arrived(museum, library, 10) == 10
    lab.clear(clinic)
    assert arrived(clinic, library, 10) == 10


# -- capture ---------------------------------------------------------------------------------------


def certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """A certificate for an address, good for an hour either way, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs cryptography, to make certificates")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a host")])
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - hour)
        .not_valid_after(now + hour)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, secret


def test_a_capture_sees_what_is_sent_in_the_open(lab: Lab) -> None:
    clinic, library, museum = lab.host("clinic"), lab.host("library"), lab.host("museum")
    before = connect(clinic, library)
    before[0].sendall(b"before the capture")
    assert receive(before[1], 18) == b"before the capture"
    capture = lab.capture()
    ours, theirs = connect(clinic, library)
    with ours, theirs:
        assert transfer(ours, theirs, MARKER) == MARKER
        assert transfer(theirs, ours, b"and the answer") == b"and the answer"
        ends = ours.getsockname(), theirs.getsockname()
    path = capture.stop()
    with before[0], before[1]:
        assert transfer(*before, b"after the capture") == b"after the capture"
    assert path == capture.stop()
    assert [(s.source, s.destination, s.data) for s in capture.streams()] == [
        (*ends, MARKER),
        (*ends[::-1], b"and the answer"),
    ]
    assert MARKER in capture.tcp_payload()
    assert b"the capture" not in capture.tcp_payload()
    assert capture.hosts() == {clinic.address, library.address}
    assert museum.address not in capture.hosts()
    assert capture.tls_versions() == set()


def test_a_capture_puts_a_stream_together_through_loss(lab: Lab) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    lab.loss(clinic, 0.05)
    capture = lab.capture()
    ours, theirs = connect(clinic, library)
    data = os.urandom(300_000)
    with ours, theirs:
        assert transfer(ours, theirs, data) == data
    assert data in [stream.data for stream in capture.streams()]


@given(data=st.binary(min_size=1, max_size=60), cuts=st.lists(st.tuples(st.integers(0, 59), st.integers(1, 60))))
def test_pieces_sent_again_are_in_a_stream_once(data: bytes, cuts: list[tuple[int, int]]) -> None:
    first = 7
    pieces = {first + i: data[i : i + 4] for i in range(0, len(data), 4)}
    for place, size in cuts:
        piece = data[place : place + size]
        if len(piece) > len(pieces.get(first + place, b"")):
            pieces[first + place] = piece
    assert joined(pieces) == data


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_capture_tells_the_version_of_tls_and_sees_nothing_within(
    lab: Lab, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    clinic, library = lab.host("clinic"), lab.host("library")
    chain, key = certificate(tmp_path, library.address)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(chain))
    server.load_cert_chain(chain, key)
    server.minimum_version = server.maximum_version = version
    capture = lab.capture()
    ours, theirs = connect(clinic, library)
    wrapped: list[ssl.SSLSocket] = []
    answering = threading.Thread(target=lambda: wrapped.append(server.wrap_socket(theirs, server_side=True)))
    answering.start()
    with client.wrap_socket(ours, server_hostname=library.address) as secret:
        answering.join()
        with wrapped[0]:
            assert transfer(secret, wrapped[0], MARKER) == MARKER
    assert capture.tls_versions() == {version.name.replace("_", ".")}
    assert len(capture.tcp_payload()) > len(MARKER)
    assert MARKER not in capture.tcp_payload()


# -- clocks and disks ------------------------------------------------------------------------------

TIMES = """
import threading, time
begun = time.monotonic()
condition = threading.Condition()
with condition:
    condition.wait(0.2)
threading.Event().wait(0.1)
time.sleep(0.1)
print(time.time(), begun, time.monotonic())
"""

TLS_CLIENT = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as raw:
    try:
        with context.wrap_socket(raw, server_hostname=sys.argv[1]):
            print("trusted")
    except ssl.SSLCertVerificationError as error:
        print(error.verify_message)
"""

GRPC_CLIENT = """
import sys, grpc
trust = grpc.ssl_channel_credentials(open(sys.argv[2], "rb").read())
with grpc.secure_channel(sys.argv[1], trust) as channel:
    try:
        print(channel.unary_unary("/lab/hello")(b"", timeout=20, wait_for_ready=False).decode())
    except grpc.RpcError as error:
        print(error.code().name)
"""

DAYS = 24 * 3600


@pytest.mark.parametrize("shift", [0, 2 * DAYS, -2 * DAYS, 90])
def test_a_clock_is_shifted_and_timeouts_last_as_long_as_ever(lab: Lab, shift: int) -> None:
    done = lab.host("late").run(skewed([sys.executable, "-c", TIMES], shift), timeout=PATIENCE)
    after = time.time()
    shown, begun, ended = map(float, done.stdout.split())
    assert after - PATIENCE < shown - shift <= after + 1
    assert abs(time.monotonic() - ended) < PATIENCE
    assert ended - begun >= 0.4


def test_signals_reach_a_process_with_a_shifted_clock(lab: Lab) -> None:
    code = "import os; print(os.getpid()); input()"
    process = lab.host("late").popen(skewed([sys.executable, "-uc", code], 60), stdin=-1, stdout=-1, text=True)
    assert int(said(process)) == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0, "trusted"), (2 * DAYS, "certificate has expired"), (-2 * DAYS, "certificate is not yet valid")],
)
def test_tls_goes_by_the_shifted_clock(lab: Lab, shift: int, verdict: str, tmp_path: Path) -> None:
    late, library = lab.host("late"), lab.host("library")
    chain, key = certificate(tmp_path, library.address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with library.listener() as listening:
        command = [sys.executable, "-c", TLS_CLIENT, library.address, str(listening.getsockname()[1]), str(chain)]
        client = late.popen(skewed(command, shift), stdout=subprocess.PIPE, text=True)
        listening.settimeout(PATIENCE)
        connection, _ = listening.accept()
        try:
            with context.wrap_socket(connection, server_side=True) as answered:
                answered.recv(1)
        except (ssl.SSLError, ConnectionError):
            assert verdict != "trusted"
        assert client.communicate(timeout=PATIENCE)[0].strip() == verdict


@pytest.mark.parametrize(("shift", "verdict"), [(0, "hello"), (2 * DAYS, "UNAVAILABLE")])
def test_grpc_goes_by_the_shifted_clock(lab: Lab, shift: int, verdict: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs grpcio: pip install fkge[node]")
    late, library = lab.host("late"), lab.host("library")
    chain, key = certificate(tmp_path, library.address)
    serve = (
        "import sys, grpc\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "server = grpc.server(ThreadPoolExecutor(1))\n"
        "answer = grpc.unary_unary_rpc_method_handler(lambda request, context: b'hello')\n"
        "server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler('lab', {'hello': answer})])\n"
        "pair = [(open(sys.argv[3], 'rb').read(), open(sys.argv[2], 'rb').read())]\n"
        "print(server.add_secure_port(sys.argv[1] + ':0', grpc.ssl_server_credentials(pair)))\n"
        "server.start(); sys.stdin.read()\n"
    )
    server = library.python(serve, library.address, str(chain), str(key))
    port = int(said(server))
    command = [sys.executable, "-c", GRPC_CLIENT, f"{library.address}:{port}", str(chain)]
    assert late.run(skewed(command, shift), timeout=PATIENCE).stdout.strip() == verdict


def test_a_small_disk_is_soon_full(lab: Lab, tmp_path: Path) -> None:
    disk = lab.small_disk(tmp_path / "disk", 64 * 1024)
    (disk / "fits").write_bytes(b"x" * 32 * 1024)
    with pytest.raises(OSError, match="No space left") as caught, (disk / "does not").open("wb") as file:
        file.write(b"x" * 64 * 1024)
    assert caught.value.errno == errno.ENOSPC
    code = "import pathlib, sys; print(pathlib.Path(sys.argv[1]).stat().st_size)"
    assert lab.host("clinic").python(code, str(disk / "fits")).communicate()[0] == "32768\n"


# -- afterwards ------------------------------------------------------------------------------------


def remains(name: str) -> list[str]:
    """What is left of a laboratory: its namespaces and mounts."""
    spaces = [path.name for path in NAMESPACES.iterdir() if path.name.startswith(name)]
    return spaces + [line for line in Path("/proc/self/mounts").read_text().splitlines() if line.startswith(name)]


def test_nothing_is_left_after_a_failure(lab: Lab, tmp_path: Path) -> None:
    def fail() -> None:
        with Lab("failing") as failing:
            host = failing.host("clinic")
            names.append(failing.name)
            started.append(host.python("import sys; sys.stdin.read()"))
            started.append(host.popen(["sh", "-c", "sleep 600 & echo; wait"], stdout=subprocess.PIPE, text=True))
            assert said(started[-1]) == "\n"
            failing.delay(host, 0.01)
            assert host.cable is not None
            started.append(host.cable)
            failing.small_disk(tmp_path / "disk", 4096)
            failing.capture()
            assert len(remains(failing.name)) == 3
            raise ZeroDivisionError

    names: list[str] = []
    started: list[subprocess.Popen[str]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 3
    assert remains(names[0]) == []


def test_what_a_killed_process_left_is_swept_up(lab: Lab, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.network.lab import Lab\n"
        "lab = Lab('killed'); host = lab.host('clinic'); lab.small_disk(Path(sys.argv[1]), 4096)\n"
        "print(lab.name, host.popen(['sleep', '600']).pid, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a disk")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as other:
        name, pid = said(other).split()
        assert name.startswith(MARK)
        sweep()
        assert len(remains(name)) == 3
        other.kill()
    sweep()
    assert remains(name) == []
    until(lambda: not is_running(int(pid)))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
