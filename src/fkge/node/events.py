"""The one event queue of a node, and the events that no other module owns.

Streams, the training thread, timers, watched files and the operator put events, which are frozen dataclasses defined by
the module that emits them. The service takes them one at a time, on the loop. No part of a node calls the service.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, dataclass_transform

from fkge.node import frames_pb2 as pb
from fkge.owner_events import OwnerEvent


@dataclass_transform(frozen_default=True)
class Event:
    """Something that happened; every subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


Emit = Callable[[Event], None]
"""How a part of a node reports an event: `EventQueue.put`, or a list's `append` in a test."""


class Failed(Event):
    """Something unforeseen went wrong: the node stops, and resumes from what it has saved when it is started again."""

    error: BaseException


class AlignmentMessage(Event):
    """An alignment message, or tokens, for a peer; recorded before it is sent. `kind`: for the audit log."""

    peer: str
    message: pb.Meeting
    kind: str


class Misbehaved(Event):
    """A peer has sent something that is not allowed, or does not fit: the stream to it ends."""

    peer: str
    reason: str
    why: str


class Notice(Event):
    """Something to write down that no part of the node acts on."""

    fields: Mapping[str, object]  # of the log's line and of the audit log's entry
    log: str = ""  # the event of the log, if it is to be written there
    audit: str = ""  # the event of the audit log; none if empty
    level: str = "info"  # of the line in the log


class MessageReady(Event):
    """A message of the owner's for a peer; it is in the audit log already."""

    peer: str
    body: bytes


class ControlSent(Event):
    """The owner has answered a peer with a small message, of which a peer can provoke any number."""

    peer: str


class OwnerReported(Event):
    """What the owner reports about its work."""

    event: OwnerEvent


class JoinDue(Event):
    """The owner has finished its work, or its vectors were moved: peers may join, and messages be delivered."""


class Stop(Event):
    """The operator, or a signal, stops the node."""


class Pause(Event):
    """The operator pauses training, or resumes it."""

    paused: bool


class EventQueue:
    """Events in the order in which they were put, handled one at a time in the thread of the loop.

    There is no task that waits for events: who puts one from the loop has it handled before `put` returns, so a message
    and its answer take no extra turn of the loop. An event that is put while another is handled comes after it, and one
    that is put by another thread is handled in the loop's next turn.

    Args:
        handle: called with each event; must not raise.
    """

    def __init__(self, handle: Emit) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._events: deque[Event] = deque()  # appended to by any thread, taken from by the loop's alone
        self._handling = False

    def put(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.drain)
        else:
            self.drain()

    def drain(self) -> None:
        """Handle all events that are there; the outermost call does it."""
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._handling = False

    def after(self, seconds: float, event: Event) -> asyncio.TimerHandle:
        """Put `event` in so many seconds, unless the timer is cancelled before."""
        return self._loop.call_later(seconds, self.put, event)


def supervised(work: Coroutine[Any, Any, None], name: str, emit: Emit) -> asyncio.Task[None]:
    """Start a task; what goes wrong in it is emitted as `Failed`.

    Args:
        work, name: what to run, and the task's name.
        emit: receives `Failed`.
    """

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            emit(Failed(error))

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(done)
    return task
