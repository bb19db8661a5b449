"""What a node must not forget when its process ends: how often it has lived, with whom it has which alignment, and how
often each peer has asked for one. A JSON file, written in one step, before whatever depends on it happens.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from fkge.privacy import Head
from fkge.trace import read_json, write_atomically


@dataclass
class Memory:
    """A node's memory; `keep` writes it.

    Attributes:
        lives: how many processes have been this node, this one included.
        begun: training has started.
        secret: what tokens are drawn from.
        pacts: by peer, the name of the alignment in hand, in hex.
        bases: by peer, a digest of what that alignment rests on.
        ledger: how far the privacy ledger had come when it was last looked at; one that is behind is not used.
        admitted: by peer, when it was let through to an intersection; see `fkge.align.Turnstile`.
    """

    path: Path
    lives: int = 0
    begun: bool = False
    secret: int = field(default_factory=lambda: secrets.randbits(64))
    pacts: dict[str, str] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    admitted: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The memory in a file, or a new one."""
        if not path.exists():
            return cls(path)
        way_out = "Put it back from a copy, or begin anew: fkge node --anew"
        keys = ("lives", "begun", "secret", "pacts", "bases", "ledger", "admitted")
        found = read_json(path, way_out, *keys)
        return cls(path, **{key: found[key] for key in keys})

    def anew(self) -> None:
        """Forget what was reached. What was spent, and who has asked how often, is not forgotten."""
        self.begun, self.secret, self.pacts, self.bases = False, secrets.randbits(64), {}, {}
        self.keep()

    def has_seen(self, head: Head | None) -> None:
        """The ledger has come so far."""
        if head is not None and head.rows >= self.ledger.get("rows", 0):
            self.ledger = asdict(head)

    def keep(self) -> None:
        """Write it down."""
        values = {key: value for key, value in asdict(self).items() if key != "path"}
        write_atomically(self.path, (json.dumps(values, indent=1) + "\n").encode())
