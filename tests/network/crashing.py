"""A program like ``python -m fkge`` that kills itself with SIGKILL at a given point, as the system would.

    CRASH="before Update sent 2" python crashing.py node --config node.toml

A point is a word that is called, or a message that passes: the k-th time, and right before or right after it. Nothing
else is different, and nothing is told to anybody.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fkge.cli import main
from fkge.federation import OwnerStore
from fkge.federation.codec import decode
from fkge.federation.owner import Owner
from fkge.federation.owner.job import ProductionJob
from fkge.federation.owner.workspace import Workspace
from fkge.federation.participant import Participant
from fkge.node import frames_pb2 as pb
from fkge.node.connections import ConnectionManager
from fkge.node.events import Event, EventQueue
from fkge.node.frames import MEETING
from fkge.node.ops.audit_log import AuditLog
from fkge.node.peer import MessageReceived
from fkge.node.persistence import PersistentState
from fkge.node.transport import Line
from fkge.privacy import Ledger

CALLS: dict[str, tuple[type, str]] = {
    "pay": (Ledger, "pay"),
    "leave": (Ledger, "leave"),
    "left": (AuditLog, "left"),
    "keep": (PersistentState, "save"),
    "know": (OwnerStore, "with_peers"),
    "save": (Owner, "save"),
    "improve": (Owner, "improve"),
    "finish": (Participant, "finish"),
    "conclude": (ProductionJob, "conclude"),
    "report": (Workspace, "write_results"),
}
"""Points that are functions. Between the hard link to the old checkpoint and the new one is "before save"."""

MESSAGES = (
    "Hello", "Keys", "Intersect", "Pact", "Tokens", "Signal", "Request", "Accept", "Defer", "Abort", "Update", "Ack",
    "Samples", "Gradient", "Candidate", "Received",
)  # fmt: skip
"""Points that are messages: sent is what goes to the network, heard what comes from there."""


class Fate:
    """When to die: ``before|after WHAT K``, where WHAT is a key of `CALLS`, "replace", or "MESSAGE sent|heard"."""

    def __init__(self, text: str) -> None:
        when, *what, count = text.split()
        self.text, self._before, self.what, self._left = text, when == "before", " ".join(what), int(count)
        message, _, way = self.what.partition(" ")
        known = (message in MESSAGES and way in ("sent", "heard")) or self.what in (*CALLS, "replace")
        if when not in ("before", "after") or not known:
            raise ValueError(f"no such point: {text!r}")

    @contextmanager
    def at(self, what: str | None) -> Iterator[None]:
        """Something happens within."""
        now = False
        if what == self.what:
            self._left -= 1
            now = self._left == 0
        if now and self._before:
            die()
        yield
        if now:
            die()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doom(text: str) -> None:
    """Let this process die at a point."""
    fate = Fate(text)
    if fate.what in CALLS:
        kind, name = CALLS[fate.what]
        setattr(kind, name, _struck(getattr(kind, name), fate, lambda *_: fate.what))
    elif fate.what == "replace":
        Path.replace = _struck(  # type: ignore[method-assign]
            Path.replace, fate, lambda _, to: "replace" if Path(to).name == "checkpoint.safetensors" else None
        )
    elif fate.what.endswith("sent"):
        Line.write = _struck(Line.write, fate, lambda _, frame: _named(frame, "sent"))  # type: ignore[method-assign]
    else:
        _listen(fate)


def _struck(honest: Callable[..., Any], fate: Fate, what: Callable[..., str | None]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(honest):

        @functools.wraps(honest)
        async def later(*args: Any, **kwargs: Any) -> Any:
            with fate.at(what(*args)):
                return await honest(*args, **kwargs)

        return later

    @functools.wraps(honest)
    def now(*args: Any, **kwargs: Any) -> Any:
        with fate.at(what(*args)):
            return honest(*args, **kwargs)

    return now


def _listen(fate: Fate) -> None:
    """Before: it came, and nobody has looked at it. After: all that it leads to, at once, is done."""
    read, put, check = Line.read, EventQueue.put, ConnectionManager._check

    async def reading(line: Line) -> bytes | None:
        data = await read(line)
        if data is not None and fate._before:
            with fate.at(_named(data, "heard")):
                pass
        return data

    Line.read = reading  # type: ignore[method-assign,assignment]
    if not fate._before:
        EventQueue.put = _struck(put, fate, lambda _, event: _received(event))  # type: ignore[method-assign]
        ConnectionManager._check = _struck(check, fate, lambda *_: "Hello heard")  # type: ignore[method-assign]


def _named(data: bytes, way: str) -> str | None:
    """What a frame is; messages here are small enough to be in one part."""
    frame = pb.Frame.FromString(data)
    kind = frame.WhichOneof("is")
    if kind == "hello":
        return f"Hello {way}"
    if kind != "part" or frame.part.more:
        return None
    return f"{_meeting(frame.part.body) if frame.part.channel == MEETING else _message(frame.part.body)} {way}"


def _received(event: Event) -> str | None:
    if not isinstance(event, MessageReceived):
        return None
    return f"{_meeting(event.body) if event.channel == MEETING else _message(event.body)} heard"


def _meeting(body: bytes) -> str:
    return str(pb.Meeting.FromString(body).WhichOneof("is")).capitalize()


def _message(body: bytes) -> str:
    return type(decode(body)[0]).__name__


if __name__ == "__main__":
    doom(os.environ["CRASH"])
    main()
