"""Run one side of a private set intersection in a process of its own, away from the node's loop.

The library holds Python's lock while it works, some tenth of a millisecond for each key. Few keys do no harm; more of
them get a process of their own, so that a node that aligns with one peer still answers all others. The processes
exchange JSON and bytes, never pickles: the other one handles what a peer has sent.
"""

from __future__ import annotations

import asyncio
import json
import signal
import struct
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, cast

from fkge.align import PsiSettings
from fkge.align.links import Kind
from fkge.align.psi import Message, OverlapError, PsiClient, PsiHost
from fkge.errors import PeerError
from fkge.node.frames import Refused

FEW = 1000
"""Keys on both sides together that are intersected on the loop."""

_COUNTED = struct.Struct("<4xB17xI")  # of a frame of an intersection: which message, and how many keys its sender has
_WITH_COUNT = (Message.SIZE, Message.SIZED, Message.ASK, Message.ANSWER)

Role = PsiClient | PsiHost


@dataclass(frozen=True)
class Turn:
    """The result of a role's turn: the frame to send, the keys found once it has them, and why it stopped if it did."""

    frame: bytes | None
    found: list[str] | None
    refused: OverlapError | None = None


class Intersection:
    """One role in one intersection. `close` it, whatever happens.

    Args:
        asks: it is the client's role.
        items, kind: this owner's keys, and what they stand for.
        theirs: how many keys the peer has announced; it can put in neither more nor fewer.
        settings: limits of the intersection.
    """

    def __init__(self, asks: bool, items: Collection[str], theirs: int, settings: PsiSettings, kind: Kind) -> None:
        self._theirs = theirs
        self._role: Role | None = None
        self._pipe: Connection | None = None
        self._process: SpawnProcess | None = None
        self._first: bytes | None = None
        if len(items) + theirs <= FEW:
            self._role = (PsiClient if asks else PsiHost)(items, settings, kind)
            return
        context = get_context("spawn")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_main, args=(far,), name="fkge intersection", daemon=True)
        self._process.start()
        far.close()
        task = {"asks": asks, "items": list(items), "settings": settings.model_dump(), "kind": kind}
        self._first = json.dumps(task).encode()

    async def turn(self, frame: bytes | None = None) -> Turn:
        """Take the client's first turn, or answer the peer's frame.

        Raises:
            PeerError: the frame cannot be used.
            Refused: the process has died.
        """
        if frame is not None and len(frame) >= _COUNTED.size:
            message, count = _COUNTED.unpack_from(frame)
            if message in _WITH_COUNT and count != self._theirs:
                raise PeerError(f"a peer puts in {count:,} keys after it had announced {self._theirs:,}")
        if self._role is not None:
            return _turn(self._role, frame)
        try:
            answer, sends = await asyncio.get_running_loop().run_in_executor(None, self._ask, frame)
        except (EOFError, OSError):
            raise Refused("stalled", "the process of the intersection died; the two may try again") from None
        wrong, found, refused = answer
        if wrong:
            raise PeerError(wrong)
        return Turn(sends or None, found, OverlapError(*refused) if refused else None)

    def _ask(self, frame: bytes | None) -> tuple[list[Any], bytes]:
        """Send one request to the process and wait for its answer, in a thread."""
        assert self._pipe is not None
        if self._first is not None:
            self._pipe.send_bytes(self._first)
            self._first = None
        self._pipe.send_bytes(b"start" if frame is None else b"frame" + frame)
        return json.loads(self._pipe.recv_bytes()), self._pipe.recv_bytes()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()


def _turn(role: Role, frame: bytes | None) -> Turn:
    sends = cast(PsiClient, role).start() if frame is None else role.step(frame)
    return Turn(sends, role.found, role.refused)


def _main(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        task = json.loads(pipe.recv_bytes())
        role = (PsiClient if task["asks"] else PsiHost)(
            task["items"], PsiSettings.build(task["settings"]), task["kind"]
        )
        while True:
            request = pipe.recv_bytes()
            wrong, turn = "", Turn(None, None)
            try:
                turn = _turn(role, None if request == b"start" else request[5:])
            except PeerError as error:
                wrong = str(error)
            stop = turn.refused
            refused = None if stop is None else (task["kind"], stop.size, stop.minimum)
            pipe.send_bytes(json.dumps([wrong, turn.found, refused]).encode())
            pipe.send_bytes(turn.frame or b"")
    except (EOFError, OSError):  # the node has closed the pipe
        return
