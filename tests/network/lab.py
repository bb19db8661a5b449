"""A network laboratory: hosts with addresses of their own on this machine, and the faults that real networks have.

Every host is a Linux network namespace; one more is the switch, a bridge to which all hosts are wired. Nothing shows in
the machine's own network, so any number of laboratories can be open at once, all with the same addresses. It needs to
be root on Linux, and `lacking` says what else. Processes see nothing unusual: it is the kernel's own TCP, over links
that lose, delay or swallow packets.

    with Lab("test") as lab:
        clinic, library = lab.host("clinic"), lab.host("library")
        clinic.popen([sys.executable, "-m", "http.server", "--bind", clinic.address])
        lab.loss(library, 0.05)

All packets pass the switch, and faults are done there: a host that sends into silence is not told, as it would be by a
filter of its own. Only IP is lost or silenced; the hosts still find each other's Ethernet addresses.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.network.capture import Capture

MARK = "fkgelab"
"""What the names of all our namespaces and mounts begin with; then come the process and a number."""

BADGE = "FKGE_LAB_HOST"
"""In the environment of every process on a host: the host's namespace, which it may not have entered yet."""

NETWORK = "10.77.0"
NAMESPACES = Path("/run/netns")
WIRE = Path(__file__).with_name("wire.py")
LATE = Path(__file__).with_name("late")
CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
OFFLOADS = (0x17, 0x1F, 0x25, 0x24, 0x2C)
"""Of ethtool: transmit checksums, TCP and UDP segmentation, generic segmentation, generic receive."""

TOOLS = {"ip": "iproute2", "iptables-restore": "iptables", "nsenter": "util-linux"}
Socket = socket.socket
_numbers = itertools.count()


class LabError(RuntimeError):
    """A command of the laboratory failed."""


def lacking() -> str | None:
    """Why there can be no laboratory here; none if there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs to be root on Linux, to make network namespaces"
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            return f"needs `{tool}`: apt-get install {package}"
    if not Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        return "needs a kernel whose bridges ask iptables: modprobe br_netfilter"
    probe = f"{MARK}-{os.getpid()}-{next(_numbers)}-probe"
    tried = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return f"needs to make network namespaces: {tried.stderr.strip()}" if tried.returncode else None


def skewed(command: Sequence[str], seconds: float) -> list[str]:
    """The command, to be run with a clock that is so many seconds ahead (or behind, below 0).

    What the process takes for the time of day is shifted, in Python, OpenSSL and gRPC alike. The clocks that only go
    forward are not, so its timeouts last as long as ever. It is the same process, not a child of another: signals
    reach it. Python must not be told to ignore its environment (``-I``, ``-E``), or `time.sleep` fails; see `late`.
    """
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("needs libfaketime, to shift a process's clock: apt-get install faketime")
    settings = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+.3f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(LATE), os.environ.get("PYTHONPATH")])),
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), *command]


@dataclass(eq=False)
class Host:
    """A machine of the laboratory, with an address of its own. Made by `Lab.host`."""

    name: str
    address: str
    namespace: str
    number: int
    lost: float = 0.0
    silent: set[str] = field(default_factory=set)
    """The addresses it neither reaches nor hears; that of the whole network stands for all."""
    cable: subprocess.Popen[str] | None = None
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def port(self) -> str:
        """Its link at the switch."""
        return f"port{self.number}"

    def command(self, command: Sequence[str]) -> list[str]:
        """The command, to be run on this host. It becomes the process; there is none in between."""
        return ["nsenter", f"--net={NAMESPACES / self.namespace}", "--", *command]

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a command here. It ends with the laboratory, if not before."""
        options["env"] = {**(options.get("env") or os.environ), BADGE: self.namespace}
        process = subprocess.Popen(self.command(command), **options)
        self.started.append(process)
        return process

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command here to its end; by default its output is kept as text, and a failure raises."""
        options = {"check": True, "capture_output": True, "text": True, **options}
        return subprocess.run(self.command(command), **options)

    def python(self, code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Starts Python with this code here; its input and output are pipes of text, line by line."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **options}
        return self.popen([sys.executable, "-u", "-c", code, *arguments], **options)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within this, sockets that the calling thread makes are this host's, and stay so."""
        with _in_namespace(self.namespace):
            yield

    def socket(self, kind: int = socket.SOCK_STREAM) -> Socket:
        """An IPv4 socket of this host, for use in this process."""
        with self.inside():
            return socket.socket(socket.AF_INET, kind)

    def listener(self, port: int = 0) -> Socket:
        """A TCP socket that listens at this host's address."""
        listening = self.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self.address, port))
        listening.listen()
        return listening


class Lab:
    """A switch, and the hosts on it. Whatever it made is gone when it closes, also after a failure.

    What a dead process left behind is removed by the next laboratory: the names tell whose it was.
    """

    def __init__(self, prefix: str = "lab") -> None:
        sweep()
        self.name = f"{MARK}-{os.getpid()}-{next(_numbers)}-{prefix}"
        self._switch = f"{self.name}-switch"
        self._hosts: dict[str, Host] = {}
        self._close = ExitStack()
        try:
            self._make_switch()
        except BaseException:
            self._close.close()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process on the hosts and removes everything. Closing twice is allowed."""
        self._close.close()
        self._hosts.clear()

    def host(self, name: str) -> Host:
        """A new host, on the network."""
        if name in self._hosts or not re.fullmatch(r"[a-z0-9_]{1,40}", name) or name == "switch":
            raise LabError(f"{name!r} cannot be a host's name, or is one already: small letters and digits")
        number = len(self._hosts) + 1
        host = Host(name, f"{NETWORK}.{number}", f"{self.name}-{name}", number)
        self._add_namespace(host.namespace)
        self._close.callback(_stop_all, host)
        _ip(
            f"link add {host.port} type veth peer name eth0 netns {host.namespace}",
            f"link set {host.port} master lan up",
            namespace=self._switch,
        )
        _ip("link set lo up", f"address add {host.address}/24 dev eth0", "link set eth0 up", namespace=host.namespace)
        with host.inside():
            _whole_packets("eth0")
        self._hosts[name] = host
        return host

    # -- faults ------------------------------------------------------------------------------------

    def loss(self, host: Host, probability: float) -> None:
        """Each packet to the host, and each from it, is lost with this probability."""
        host.lost = probability
        self._filter()

    def delay(self, host: Host, seconds: float) -> None:
        """Each packet to the host, and each from it, is held for so long: a round trip takes twice as much more.

        Packets on their way when a delay begins, changes or ends may be lost.
        """
        self._unplug(host)
        if seconds <= 0:
            return
        tap = f"tap{host.number}"
        host.cable = subprocess.Popen(
            [*_within(self._switch), sys.executable, "-I", str(WIRE), host.port, tap, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect(host, "ready")
        _ip(f"link set {host.port} nomaster", f"link set {tap} master lan up", namespace=self._switch)
        assert host.cable.stdin is not None
        host.cable.stdin.write("go\n")
        host.cable.stdin.flush()
        self._expect(host, "on")

    def cut(self, host: Host) -> None:
        """Pulls the host's cable. Its connections notice nothing until they give up."""
        _ip(f"link set {host.port} down", namespace=self._switch)

    def heal(self, host: Host) -> None:
        """Puts the cable back."""
        _ip(f"link set {host.port} up", namespace=self._switch)

    def silence(self, host: Host, peer: Host | None = None) -> None:
        """Swallows all packets to and from the host, or only those between it and one peer. Nobody is told.

        No end of a connection gets through either: a process that dies now leaves its peers with half a connection.
        """
        host.silent.add(peer.address if peer else f"{NETWORK}.0/24")
        self._filter()

    def unsilence(self, host: Host) -> None:
        """Ends all the host's silences."""
        host.silent.clear()
        self._filter()

    def clear(self, host: Host) -> None:
        """Ends all faults of the host."""
        host.lost = 0.0
        self.unsilence(host)
        self._unplug(host)
        self.heal(host)

    # -- what tests need besides -------------------------------------------------------------------

    def small_disk(self, path: Path, size: int) -> Path:
        """A disk of so many bytes (whole pages of 4 KiB), mounted at the path, which is made if it is not there."""
        path.mkdir(parents=True, exist_ok=True)
        options = f"size={size},mode=0755"
        command = ["mount", "-t", "tmpfs", "-o", options, self.name, str(path)]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"needs to mount a small disk: {mounted.stderr.strip()}")
        self._close.callback(_unmount, str(path))
        return path

    def capture(self) -> Capture:
        """Records all frames from now on; see `Capture`. The file goes with the laboratory.

        Of a delayed host it sees what has left the cable, or is about to enter it.
        """
        if shutil.which("tshark") is None or shutil.which("dumpcap") is None:
            pytest.skip("needs `tshark` and its `dumpcap`, to capture packets: apt-get install tshark")
        folder = Path(self._close.enter_context(tempfile.TemporaryDirectory(prefix=MARK)))
        sender = self._close.enter_context(self._frame_socket())
        capture = Capture(_within(self._switch), "lan", folder / "lan.pcap", lambda token: _send_frame(sender, token))
        self._close.callback(capture.close)
        return capture

    # -- within ------------------------------------------------------------------------------------

    def _make_switch(self) -> None:
        self._add_namespace(self._switch)
        _ip("link add lan type bridge mcast_snooping 0", "link set lan up", namespace=self._switch)

    def _add_namespace(self, name: str) -> None:
        self._close.callback(_remove_namespace, name)
        _run("ip", "netns", "add", name)
        settings = (
            "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6"
        )
        _run(*_within(name), "sh", "-c", f"[ ! -e /proc/sys/net/ipv6 ] || {{ {settings}; }}")
        _run(*_within(name), "sh", "-c", "echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables")

    def _filter(self) -> None:
        """What the switch drops, for all hosts at once and in one step."""
        rules = []
        for host in self._hosts.values():
            for other in sorted(host.silent):
                rules += [f"-A FORWARD -s {host.address} -d {other} -j DROP"]
                rules += [f"-A FORWARD -s {other} -d {host.address} -j DROP"]
            if host.lost:
                chance = f"-m statistic --mode random --probability {host.lost:.6f} -j DROP"
                rules += [f"-A FORWARD -s {host.address} {chance}", f"-A FORWARD -d {host.address} {chance}"]
        table = "\n".join(["*filter", ":FORWARD ACCEPT [0:0]", *rules, "COMMIT", ""])
        _run(*_within(self._switch), "iptables-restore", given=table)

    def _expect(self, host: Host, word: str) -> None:
        assert host.cable is not None
        assert host.cable.stdout is not None
        if host.cable.stdout.readline() != f"{word}\n":
            raise LabError(f"the delaying cable of {host.name} did not come to say {word!r}")

    def _unplug(self, host: Host) -> None:
        if host.cable is None:
            return
        _stop(host.cable)
        host.cable = None
        _ip(f"link set {host.port} master lan", namespace=self._switch)

    def _frame_socket(self) -> socket.socket:
        with _in_namespace(self._switch):
            frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            frames.bind(("lan", 0))
            return frames


def sweep() -> None:
    """Removes what laboratories of dead processes left behind: their namespaces, what runs in them, their mounts."""
    names = sorted(path.name for path in NAMESPACES.iterdir()) if NAMESPACES.is_dir() else []
    for name in filter(_is_stale, names):
        _remove_namespace(name)
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, place, kind, *_ = line.split(" ")
        if kind == "tmpfs" and _is_stale(source):
            _unmount(place.encode().decode("unicode_escape"))


def _is_stale(name: str) -> bool:
    match = re.match(rf"{MARK}-(\d+)-", name)
    return match is not None and not Path(f"/proc/{match[1]}").exists()


def _remove_namespace(name: str) -> None:
    """Ends whatever runs in a namespace, and removes it. That it is not there is no mistake."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in {*map(int, listed.stdout.split()), *_badged(name)} - {os.getpid()}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _badged(namespace: str) -> Iterator[int]:
    """The processes that were started for a namespace, and theirs."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{BADGE}={namespace}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _unmount(place: str) -> None:
    subprocess.run(["umount", "--lazy", place], capture_output=True)


def _within(namespace: str) -> list[str]:
    return ["nsenter", f"--net={NAMESPACES / namespace}", "--"]


def _run(*command: str, given: str | None = None) -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")


def _ip(*commands: str, namespace: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", given="\n".join(commands) + "\n")


def _stop(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _stop_all(host: Host) -> None:
    for process in (*host.started, *filter(None, [host.cable])):
        _stop(process)


@contextmanager
def _in_namespace(name: str) -> Iterator[None]:
    """Moves the calling thread, and no other, into a namespace and back."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")

    with open("/proc/thread-self/ns/net") as home, open(NAMESPACES / name) as there:
        enter(there.fileno())
        try:
            yield
        finally:
            enter(home.fileno())


def _whole_packets(link: str) -> None:
    """Has the kernel do checksums and segments itself, so that every frame on the link is complete as it is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for offload in OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", offload, 0))
            with suppress(OSError):  # kernels differ in what they can turn off
                fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP8x", link.encode(), ctypes.addressof(value)))


def _send_frame(frames: socket.socket, token: bytes) -> None:
    """A frame to nobody, of the type that is kept for experiments."""
    with suppress(OSError):
        frames.send(b"\x02" + b"\x00" * 5 + b"\x02" + b"\x00" * 4 + b"\x01" + b"\x88\xb5" + token.ljust(46, b"\x00"))
