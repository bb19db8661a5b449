"""A program like ``python -m fkge`` that kills itself with SIGKILL at a given point, as the system would.

    CRASH="before Offer sent 2" python crashing.py node --config node.toml

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
from fkge.engines.station import Station
from fkge.federation import Home
from fkge.federation.codec import decode
from fkge.federation.owner import Owner
from fkge.node import frames_pb2 as pb
from fkge.node.auditlog import AuditLog
from fkge.node.door import Door
from fkge.node.frames import FEDERATION, MEETING
from fkge.node.memory import Memory
from fkge.node.node import Node
from fkge.node.transport import Line
from fkge.privacy import Ledger

CALLS: dict[str, tuple[type, str]] = {
    "pay": (Ledger, "pay"),
    "leave": (Ledger, "leave"),
    "left": (AuditLog, "left"),
    "keep": (Memory, "keep"),
    "know": (Home, "knowing"),
    "save": (Owner, "save"),
    "improve": (Owner, "improve"),
    "finish": (Station, "finish"),
    "conclude": (Home, "conclude"),
    "report": (Home, "report"),
}
"""Points that are functions. Between the hard link to the old checkpoint and the new one is "before save"."""

MESSAGES = (
    "Hello", "Keys", "Intersect", "Pact", "Tokens", "Signal", "Request", "Accept", "Defer", "Abort", "Offer", "Thanks",
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
    read, heard, check = Line.read, Node.heard, Door._check

    async def reading(line: Line) -> bytes | None:
        data = await read(line)
        if data is not None and fate._before:
            with fate.at(_named(data, "heard")):
                pass
        return data

    Line.read = reading  # type: ignore[method-assign,assignment]
    if not fate._before:
        names = {MEETING: _meeting, FEDERATION: _message}
        Node.heard = _struck(heard, fate, lambda _, peer, channel, body: f"{names[channel](body)} heard")  # type: ignore[method-assign]
        Door._check = _struck(check, fate, lambda *_: "Hello heard")  # type: ignore[method-assign]


def _named(data: bytes, way: str) -> str | None:
    """What a frame is; messages here are small enough to be in one part."""
    frame = pb.Frame.FromString(data)
    kind = frame.WhichOneof("is")
    if kind == "hello":
        return f"Hello {way}"
    if kind != "part" or frame.part.more:
        return None
    return f"{_meeting(frame.part.body) if frame.part.channel == MEETING else _message(frame.part.body)} {way}"


def _meeting(body: bytes) -> str:
    return str(pb.Meeting.FromString(body).WhichOneof("is")).capitalize()


def _message(body: bytes) -> str:
    return type(decode(body)[0]).__name__


if __name__ == "__main__":
    doom(os.environ["CRASH"])
    main()
