"""A long cable: a program that holds every Ethernet frame between a host and the switch for a given time.

One end is the host's link, by a packet socket; the other is a TAP device that takes the link's place on the bridge.
Frames keep their order and their bytes, so whatever runs over them (TCP, TLS) is unchanged, only later. It runs in the
switch's namespace and ends with its standard input:

    wire.py PORT TAP SECONDS      says "ready" when the TAP is there; told "go", it listens to the port and says "on"
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
ETH_P_ALL = 0x0003
PACKET_OUTGOING = 4
BUFFER = 16 << 20
LONGEST = 65535


class Direction:
    """Frames on their way, each with the time at which it may go on."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._frames: deque[tuple[float, bytes]] = deque()

    def take(self, frame: bytes) -> None:
        self._frames.append((time.monotonic() + self._seconds, frame))

    def due(self) -> list[bytes]:
        now, out = time.monotonic(), []
        while self._frames and self._frames[0][0] <= now:
            out.append(self._frames.popleft()[1])
        return out

    @property
    def next(self) -> float | None:
        return self._frames[0][0] if self._frames else None


def open_tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def open_port(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(socket.SOL_SOCKET, 33, BUFFER)  # SO_RCVBUFFORCE
    port.setsockopt(socket.SOL_SOCKET, 32, BUFFER)  # SO_SNDBUFFORCE
    port.setblocking(False)
    port.bind((name, ETH_P_ALL))
    return port


def hold(port: socket.socket, tap: int, seconds: float) -> None:
    """Forwards both ways until standard input ends. A link that is down loses frames, as a link does."""
    outward, inward = Direction(seconds), Direction(seconds)
    while True:
        waiting = [moment for moment in (outward.next, inward.next) if moment is not None]
        pause = max(0.0, min(waiting) - time.monotonic()) if waiting else None
        readable, _, _ = select.select([port, tap, sys.stdin], [], [], pause)
        if sys.stdin in readable:
            return
        if port in readable:
            with suppress(OSError):  # nothing more, or the link went down
                while True:
                    frame, address = port.recvfrom(LONGEST)
                    if address[2] != PACKET_OUTGOING:
                        outward.take(frame)
        if tap in readable:
            with suppress(OSError):
                while True:
                    inward.take(os.read(tap, LONGEST))
        for frame in outward.due():
            with suppress(OSError):
                os.write(tap, frame)
        for frame in inward.due():
            with suppress(OSError):
                port.send(frame)


def main(port: str, tap: str, seconds: str) -> None:
    descriptor = open_tap(tap)
    print("ready", flush=True)
    if sys.stdin.readline() != "go\n":
        return
    with open_port(port) as opened:
        print("on", flush=True)
        hold(opened, descriptor, float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
