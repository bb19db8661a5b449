"""The state folder of a node: who holds it, the owner's store in it, and `node.json`, which outlives every process.

`node.json` is replaced in one step, and always before whatever depends on it happens.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from fkge.errors import NodeError, RunError
from fkge.federation import OwnerStore, create_store
from fkge.federation.owner import seed_of
from fkge.federation.owner.job import LABEL
from fkge.federation.owner.workspace import Workspace
from fkge.files import FileLock, read_json, write_atomically
from fkge.node.settings import NodeConfig
from fkge.privacy import Head

_KEYS = ("lives", "begun", "secret", "pacts", "bases", "ledger", "admitted")


@dataclass
class PersistentState:
    """A node's state between processes; `save` writes it. The file has older names for some attributes."""

    path: Path
    starts: int = 0  # how often the node was started, this time included (`lives` in the file)
    begun: bool = False  # training has started
    secret: int = field(default_factory=lambda: secrets.randbits(64))  # what tokens are drawn from
    alignments: dict[str, str] = field(default_factory=dict)  # by peer, the id of the current one, in hex (`pacts`)
    bases: dict[str, str] = field(default_factory=dict)  # by peer, a digest of what that alignment was made from
    ledger: Head | None = None  # how far it had come when it was last read; a ledger that is behind is not used
    admitted: dict[str, list[float]] = field(default_factory=dict)  # by peer; see `fkge.align.RateLimiter`

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the state from a file, or begin a new one.

        Raises:
            RunError: the file is damaged.
        """
        if not path.exists():
            return cls(path)
        advice = "Restore it from a copy, or start over: fkge node --anew"
        found = read_json(path, advice, *_KEYS)
        lives, begun, secret, pacts, bases, ledger, admitted = (found[key] for key in _KEYS)
        try:
            head = Head(**ledger) if ledger else None
        except (TypeError, ValueError) as error:
            raise RunError(f"{path}: is damaged: {error}. {advice}") from None
        return cls(path, lives, begun, secret, pacts, bases, head, admitted)

    def reset(self) -> None:
        """Discard training state and alignments for `--anew`; the ledger and the record of admissions are kept."""
        self.begun, self.secret, self.alignments, self.bases = False, secrets.randbits(64), {}, {}
        self.save()

    def saw_ledger(self, head: Head | None) -> None:
        """Remember how far the ledger has come, unless it was seen further already."""
        if head is not None and (self.ledger is None or head.rows >= self.ledger.rows):
            self.ledger = head

    def save(self) -> None:
        """Write the file."""
        ledger = asdict(self.ledger) if self.ledger else {}
        values = (self.starts, self.begun, self.secret, self.alignments, self.bases, ledger, self.admitted)
        write_atomically(self.path, (json.dumps(dict(zip(_KEYS, values, strict=True)), indent=1) + "\n").encode())


def lock(folder: Path) -> FileLock:
    """Hold a state folder, which is made if it does not exist, so that no other process is this node at the same time.

    Raises:
        NodeError: another process holds it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    busy = NodeError(f"{folder}: another process is this node; stop it (fkge stop), or wait for it")
    return FileLock(folder / "node.lock", timeout=0, error=busy)


def workspace(config: NodeConfig) -> Workspace:
    """Return the folder in which the owner's training is kept."""
    return Workspace(config.state / "arms" / LABEL / config.node.name)


def open_store(config: NodeConfig, secret: int) -> OwnerStore:
    """Open the owner's store, or create it from its graph, with the secret that tokens are drawn from.

    Raises:
        RunError: the graph, or how the owner trains, is another than when the store was created.
    """
    node, member, folder = config.node, config.member(), config.state / "owners" / config.node.name
    if not (folder / "peers.safetensors").exists():
        secret = seed_of(node.seed, node.name, "tokens") if node.rehearsal else secret
        return create_store(config.state, node.name, member, config.federation, node.seed, secret)
    store = OwnerStore.open(folder)
    if changed := store.changed(member, config.federation, node.seed):
        raise RunError(
            f"{config.state}: {' and '.join(changed)} changed since this node began, so it cannot continue from "
            "there. Undo that, or start over: fkge node --anew; what was spent stays in the ledger"
        )
    return replace(store, settings=config.federation)


def put_aside(config: NodeConfig, persistent: PersistentState) -> None:
    """Move away what a node has reached. Ledger, audit log and how often peers have asked stay."""
    state, number = config.state, 1
    while (aside := state / f"before-{number}").exists():
        number += 1
    store = state / "owners" / config.node.name
    if (store / "peers.safetensors").exists():
        persistent.saw_ledger(workspace(config).ledger_head())
    persistent.reset()
    for name in ("owners", "arms"):
        if (state / name).exists():
            aside.mkdir(exist_ok=True)
            shutil.move(state / name, aside / name)
