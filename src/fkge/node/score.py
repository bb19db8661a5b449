"""An order to follow: what an owner of a simulation heard, and when, relative to its own work.

How a federation ends depends on who was asked when, which on real machines is never the same twice. A simulation under
a virtual clock has one order; its tapes (`fkge.engines.tape`) hold it. A node that follows the score of its owner's
tape takes in what really comes over the wire, in that order: so a federation of nodes can be compared with the
simulation, bit by bit. For rehearsals and tests.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from fkge.engines.tape import read_tape
from fkge.errors import RunError


class Score:
    """A score, and what has come of it.

    Attributes:
        over: it was played to the end.
    """

    def __init__(self, path: Path) -> None:
        self._items: deque[tuple[str, str]] = deque()
        for record, _ in read_tape(path):
            match record["what"]:
                case "begin" | "finish":
                    self._items.append((record["what"], ""))
                case "heard":
                    self._items.append(("heard", record["peer"]))
                case "event":
                    if record["kind"] != "Wake":
                        raise RunError(f"{path}: somebody is lost or joins in it; a score needs a quiet run")
                    self._items.append(("wake", ""))
        self._waiting: dict[str, deque[bytes]] = {}

    @property
    def over(self) -> bool:
        return not self._items

    def came(self, peer: str, body: bytes) -> None:
        """A message is there; it is heard when its time has come."""
        self._waiting.setdefault(peer, deque()).append(body)

    def following(self, finished: bool) -> tuple[str, str, bytes] | None:
        """What to do next: begin, heard (from whom, what), wake or finish; None if it is not there yet.

        Args:
            finished: the owner's work is over.
        """
        if not self._items:
            return None
        what, peer = self._items[0]
        if what == "finish" and not finished:
            return None
        if what == "heard" and not self._waiting.get(peer):
            return None
        self._items.popleft()
        return what, peer, self._waiting[peer].popleft() if what == "heard" else b""
