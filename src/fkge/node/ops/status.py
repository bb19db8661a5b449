"""What an operator asks a node: `fkge status`, and whether it is ready (`/readyz`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import version

from fkge.federation.owner import Owner
from fkge.node.alignment import Alignments
from fkge.node.membership import Membership
from fkge.node.ops.control import PeerStatus, Spent, Status
from fkge.node.ops.metrics import Health
from fkge.node.ops.records import Records
from fkge.node.peer import Peer
from fkge.node.persistence import PersistentState
from fkge.node.settings import NodeConfig
from fkge.node.state import LifeCycle, NodeState
from fkge.privacy import describe

_NOTHING = "nothing in common: see same, entities and relations in peers.toml, on both sides"


class StatusView:
    """A node as its operator sees it.

    Args:
        config: of the node.
        persistent: its state between processes.
        records: its audit log.
        peers: all that it knows; a view that changes.
        membership: the peers that take part, and the owner.
        life_cycle: where it is in it.

    Attributes:
        alignments: what it shares with each peer; None until its store is open.
    """

    def __init__(
        self,
        config: NodeConfig,
        persistent: PersistentState,
        records: Records,
        peers: Mapping[str, Peer],
        membership: Membership,
        life_cycle: LifeCycle,
    ) -> None:
        self._config, self._persistent, self._records = config, persistent, records
        self._peers, self._membership, self._life_cycle = peers, membership, life_cycle
        self.alignments: Alignments | None = None

    @property
    def state(self) -> str:
        """The state to show: paused, unless the node stops, or that of its life cycle."""
        state = self._life_cycle.state
        return "paused" if self._membership.paused and state is not NodeState.STOPPING else str(state)

    def health(self) -> Health:
        """Whether the owner is able to work, and with whom."""
        ready = self._membership.owner is not None and self._life_cycle.state is not NodeState.STOPPING
        here = sum(peer.here for peer in self._peers.values())
        return Health(ready, {"state": self.state, "peers": here, "of": len(self._peers)})

    async def status(self, _: object) -> Status:
        """The answer to `fkge status`."""
        owner, audit, federation = self._membership.owner, self._records.audit, self._config.federation
        return {
            "name": self._config.node.name, "life": self._persistent.starts, "pid": os.getpid(),
            "version": version("fkge"), "time": time.time(), "started": self._life_cycle.started, "state": self.state,
            "since": self._life_cycle.since, "epoch": None if owner is None else owner.trainer.epoch,
            "epochs": federation.total_epochs if owner is None else owner.plan.total,
            "validation_mrr": None if owner is None else owner.activity.best_score, "privacy": federation.privacy.mode,
            "spent": [] if owner is None else _spent(owner), "peers": [self._peer(p) for p in self._peers.values()],
            "audit": {"entries": audit.entries, "head": audit.head},
        }  # fmt: skip

    def _peer(self, peer: Peer) -> PeerStatus:
        name, state, members = peer.name, peer.state, self._membership
        if peer.here:
            state = "joined" if name in members.joined else "connected" if name in members.aligned else "aligning"
        known = None if self.alignments is None else self.alignments.store.peers.get(name)
        return {
            "name": name, "state": state, "since": peer.since, "shared": None if known is None else len(known.common),
            "exchanges": peer.exchanges, "bytes_in": peer.bytes_in, "bytes_out": peer.bytes_out,
            "heard": peer.last_heard if peer.bytes_in else None,
            "reason": peer.sentence or peer.reason or (_NOTHING if known is not None and not known.common else None),
        }  # fmt: skip


def _spent(owner: Owner) -> list[Spent]:
    ledger = owner.egress.ledger
    return [
        {"unit": b.unit, "relation": b.relation, "epsilon": b.epsilon, "spent": b.spent.epsilon, "delta": b.delta}
        for b in ([] if ledger is None else describe(ledger).budgets)
    ]
