"""A role of a private set intersection, away from the node's loop.

The library holds Python's lock while it works, some tenth of a millisecond for each key. A few keys do no harm; more of
them get a process of their own, so that a node with one peer to align with goes on to answer all others.
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
from typing import Any

from fkge.align import PsiSettings
from fkge.align.links import Kind
from fkge.align.psi import Message, OverlapError, PsiClient, PsiHost
from fkge.errors import PeerError
from fkge.node.frames import Refused

FEW = 1000
"""Keys on both sides together that are dealt with at once."""

_COUNTED = struct.Struct("<4xB17xI")  # of a frame of an intersection: which message, and how many keys its sender has
_WITH_COUNT = (Message.SIZE, Message.SIZED, Message.ASK, Message.ANSWER)


@dataclass(frozen=True)
class Said:
    """What a role says next, what it has found, once it has, and why it stopped, if it did."""

    frame: bytes | None
    found: list[str] | None
    refused: OverlapError | None = None


class _Here:
    """The role in this process."""

    def __init__(self, asks: bool, items: Collection[str], settings: PsiSettings, kind: Kind) -> None:
        self._role: PsiClient | PsiHost = (PsiClient if asks else PsiHost)(items, settings, kind)

    def turn(self, frame: bytes | None) -> Said:
        """The first turn of who asks (None), or the answer to a frame."""
        role = self._role
        if frame is None:
            assert isinstance(role, PsiClient)
            said: bytes | None = role.start()
        else:
            said = role.step(frame)
        return Said(said, role.found, role.refused)


class Intersection:
    """One role in one run. `close` it, whatever happens.

    Args:
        asks: it is the client's.
        items: this owner's keys.
        theirs: how many the peer has said to have; it can put in neither more nor fewer.
        settings: its limits; kind: what the items stand for.
    """

    def __init__(self, asks: bool, items: Collection[str], theirs: int, settings: PsiSettings, kind: Kind) -> None:
        self._theirs = theirs
        self._here = _Here(asks, items, settings, kind) if len(items) + theirs <= FEW else None
        self._pipe: Connection | None = None
        self._process: Any = None
        self._first: bytes | None = None
        if self._here is None:
            context = get_context("spawn")
            self._pipe, far = context.Pipe()
            self._process = context.Process(target=_main, args=(far,), name="fkge intersection", daemon=True)
            self._process.start()
            far.close()
            about = {"asks": asks, "items": list(items), "settings": settings.model_dump(), "kind": kind}
            self._first = json.dumps(about).encode()

    async def turn(self, frame: bytes | None = None) -> Said:
        """The first turn of who asks, or the answer to the peer's frame.

        Raises:
            PeerError: the frame cannot be used.
        """
        if frame is not None:
            self._check_count(frame)
        if self._here is not None:
            return self._here.turn(frame)
        try:
            said, rest = await asyncio.get_running_loop().run_in_executor(None, self._ask, frame)
        except (EOFError, OSError):
            raise Refused("stalled", "the process of the intersection died; the two may try again") from None
        if "wrong" in said:
            raise PeerError(said["wrong"])
        refused = OverlapError(*said["refused"]) if said["refused"] else None
        return Said(rest if said["speaks"] else None, said["found"], refused)

    def _check_count(self, frame: bytes) -> None:
        """What a frame says of the peer's set must be what the peer has announced."""
        if len(frame) >= _COUNTED.size:
            message, count = _COUNTED.unpack_from(frame)
            if message in _WITH_COUNT and count != self._theirs:
                raise PeerError(f"a peer puts in {count:,} keys after it had announced {self._theirs:,}")

    def _ask(self, frame: bytes | None) -> tuple[dict[str, Any], bytes]:
        """Say one thing to the process, and wait for its answer; neither is for the loop."""
        assert self._pipe is not None
        if self._first is not None:
            self._pipe.send_bytes(self._first)
            self._first = None
        self._pipe.send_bytes(b"start" if frame is None else b"frame" + frame)
        return json.loads(self._pipe.recv_bytes()), self._pipe.recv_bytes()

    def close(self) -> None:
        """Let go of it."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            assert self._pipe is not None
            self._pipe.close()


def _main(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        about = json.loads(pipe.recv_bytes())
        role = _Here(about["asks"], about["items"], PsiSettings.build(about["settings"]), about["kind"])
        while True:
            said = pipe.recv_bytes()
            answer, rest = _answer(role, None if said == b"start" else said[5:], about["kind"])
            pipe.send_bytes(json.dumps(answer).encode())
            pipe.send_bytes(rest)
    except (EOFError, OSError):  # the node has let go
        return


def _answer(role: _Here, frame: bytes | None, kind: Kind) -> tuple[dict[str, Any], bytes]:
    try:
        said = role.turn(frame)
    except PeerError as error:
        return {"wrong": str(error)}, b""
    stopped = said.refused and (kind, said.refused.size, said.refused.minimum)
    return {"speaks": said.frame is not None, "found": said.found, "refused": stopped}, said.frame or b""
