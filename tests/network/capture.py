"""What went over the wire: a capture of all frames on a laboratory's bridge, and questions to ask of it.

The frames are recorded by `dumpcap` and read by `tshark`, programs that know nothing of ours. A capture that may have
missed a frame is worth nothing to a test that looks for what must not be there, so `stop` makes sure that the last
frame before it has been recorded, and raises if any was lost.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

BUFFER_MIB = 64
PATIENCE = 30.0
"""Seconds within which the recorder must have written a frame down."""

VERSIONS = {0x0300: "SSLv3", 0x0301: "TLSv1", 0x0302: "TLSv1.1", 0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}


class CaptureError(RuntimeError):
    """The capture did not start, or it is not complete."""


@dataclass(frozen=True)
class Stream:
    """One direction of a TCP connection: its bytes in their order, each once, however often it was sent."""

    source: tuple[str, int]
    destination: tuple[str, int]
    data: bytes


class Capture:
    """All frames on a link, from the moment this is made until `stop`.

    `command` runs a program where the link is; `send_frame` puts a frame on it.
    """

    def __init__(self, command: list[str], link: str, path: Path, send_frame: Callable[[bytes], None]) -> None:
        self.path = path
        self._send_frame = send_frame
        self._said = path.with_suffix(".log")
        with self._said.open("wb") as log:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [*command, "dumpcap", "-q", "-P", "-B", str(BUFFER_MIB), "-i", link, "-w", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._flush("start")

    def stop(self) -> Path:
        """Ends the capture and gives its file. A second time, only the file."""
        if self._process is None:
            return self.path
        self._flush("stop")
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)
        self._process = None
        said = self._said.read_text()
        counts = re.search(r"received/dropped on interface '.*': (\d+)/(\d+)", said)
        if counts is None:
            raise CaptureError(f"dumpcap did not say what it saw: {said.strip()}")
        if int(counts[2]):
            raise CaptureError(f"the capture lost {counts[2]} frames of {counts[1]}: send less at once")
        return self.path

    def close(self) -> None:
        """Ends the capture without a word, whatever its state."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def streams(self) -> list[Stream]:
        """Every direction of every TCP connection, put together by sequence number."""
        pieces: dict[tuple[str, str, str, str, str], dict[int, bytes]] = {}
        names = ("tcp.stream", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "tcp.seq", "tcp.payload")
        for *flow, sequence, payload in self._fields("tcp.len > 0 and not icmp", *names):
            stream, source, source_port, destination, destination_port = flow
            known = pieces.setdefault((stream, source, source_port, destination, destination_port), {})
            data = bytes.fromhex(payload)
            if len(data) > len(known.get(int(sequence), b"")):
                known[int(sequence)] = data
        return [
            Stream((source, int(source_port)), (destination, int(destination_port)), joined(known))
            for (_, source, source_port, destination, destination_port), known in pieces.items()
        ]

    def tcp_payload(self) -> bytes:
        """The bytes of all TCP connections, both ways, one stream after the other."""
        return b"".join(stream.data for stream in self.streams())

    def tls_versions(self) -> set[str]:
        """The versions that servers chose in their TLS handshakes, whatever the port: ``{"TLSv1.3"}``."""
        chosen = set()
        names = ("tls.handshake.version", "tls.handshake.extensions.supported_version")
        for legacy, extension in self._fields("tls.handshake.type == 2", *names, more=("-d", "tcp.port==1-65535,tls")):
            for version in (extension or legacy).split(","):
                chosen.add(VERSIONS.get(int(version, 16), version))
        return chosen

    def hosts(self) -> set[str]:
        """The addresses that sent or were sent an IP packet."""
        return {address for row in self._fields("ip and not icmp", "ip.src", "ip.dst") for address in row}

    def _fields(self, only: str, *names: str, more: tuple[str, ...] = ()) -> Iterator[list[str]]:
        command = ["tshark", "-n", "-r", str(self.stop()), "-Y", only, "-T", "fields", "-E", "separator=/t"]
        command += ["-o", "tcp.desegment_tcp_streams:true", *more]
        for name in names:
            command += ["-e", name]
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as reading:
            assert reading.stdout is not None
            assert reading.stderr is not None
            for line in reading.stdout:
                yield line.rstrip("\n").split("\t")
            said = reading.stderr.read()
        if reading.returncode:
            raise CaptureError(f"tshark cannot read {self.path}: {said.strip()}")

    def _flush(self, word: str) -> None:
        """Sends frames of our own until one of them is in the file: then all before it are, too.

        While the recorder is starting it sees none, so there is more than one.
        """
        assert self._process is not None
        token = f"{word}-{secrets.token_hex(12)}".encode()
        deadline = time.monotonic() + PATIENCE
        while not (self.path.exists() and token in _tail(self.path)):
            if self._process.poll() is not None:
                raise CaptureError(f"dumpcap ended: {self._said.read_text().strip()}")
            if time.monotonic() > deadline:
                raise CaptureError(
                    f"dumpcap wrote nothing down within {PATIENCE:g} s: {self._said.read_text().strip()}"
                )
            self._send_frame(token)
            time.sleep(0.02)


def joined(pieces: dict[int, bytes]) -> bytes:
    """The pieces of a stream, each at its place; what was sent again, in other pieces, is not there twice."""
    out = bytearray()
    reached: int | None = None
    for place in sorted(pieces):
        data = pieces[place]
        known = 0 if reached is None else max(0, reached - place)
        out += data[known:]
        reached = max(reached or 0, place + len(data))
    return bytes(out)


def _tail(path: Path, length: int = 1 << 20) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - length))
        return file.read()
