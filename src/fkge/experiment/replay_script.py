"""Replay script: the order in which an owner of a simulation received messages, relative to its own work.

How a federation ends depends on who was asked when, which on real machines is never the same twice. A simulation under
a virtual clock has one order, and its recordings (`fkge.federation.recording`) hold it. A node that follows the script
of its owner's recording takes in what really arrives over the wire, in that order; so a federation of nodes can be
compared with the simulation bit by bit. For rehearsals and tests.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Literal

from fkge.errors import RunError
from fkge.federation.recording import read_recording

Step = Literal["begin", "deliver", "wake", "finish"]


class ReplayScript:
    """The script of a recording, and the messages that have arrived for it; a `fkge.node.driver.DeliveryOrder`.

    Raises:
        RunError: a peer joins or is lost in the recording.
    """

    def __init__(self, path: Path) -> None:
        self._steps: deque[tuple[Step, str]] = deque()
        for record, _ in read_recording(path):
            match record["what"]:
                case "begin" | "finish" as step:
                    self._steps.append((step, ""))
                case "heard":
                    self._steps.append(("deliver", record["peer"]))
                case "event":
                    if record["kind"] != "Wake":
                        raise RunError(f"{path}: a peer is lost or joins in it; a replay needs a run without that")
                    self._steps.append(("wake", ""))
        self._waiting: dict[str, deque[bytes]] = {}

    @property
    def over(self) -> bool:
        """Whether it was followed to the end."""
        return not self._steps

    def arrived(self, peer: str, body: bytes) -> None:
        """Take in a message; it is delivered when its time has come."""
        self._waiting.setdefault(peer, deque()).append(body)

    def following(self, finished: bool) -> tuple[Step, str, bytes] | None:
        """Take the next step; None if what it needs is not there yet.

        Args:
            finished: the owner's work is over.
        """
        if not self._steps:
            return None
        step, peer = self._steps[0]
        if (step == "finish" and not finished) or (step == "deliver" and not self._waiting.get(peer)):
            return None
        self._steps.popleft()
        return step, peer, self._waiting[peer].popleft() if step == "deliver" else b""
