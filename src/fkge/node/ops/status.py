"""The state of a node as its operator asks for it: `fkge status`, and whether it is ready (`/readyz`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass
class StatusView:
    """A node as its operator sees it; `alignments` is None until its store is open."""

    config: NodeConfig
    persistent: PersistentState
    records: Records
    peers: Mapping[str, Peer]
    membership: Membership
    life_cycle: LifeCycle
    alignments: Alignments | None = None

    @property
    def state(self) -> str:
        """The state to show: paused, unless the node stops, or that of its life cycle."""
        state = self.life_cycle.state
        return "paused" if self.membership.paused and state is not NodeState.STOPPING else str(state)

    def health(self) -> Health:
        """Return whether the owner is able to work, and with whom."""
        ready = self.membership.owner is not None and self.life_cycle.state is not NodeState.STOPPING
        here = sum(peer.here for peer in self.peers.values())
        return Health(ready, {"state": self.state, "peers": here, "of": len(self.peers)})

    async def status(self) -> Status:
        """Return the answer to `fkge status`."""
        owner, audit, federation = self.membership.owner, self.records.audit, self.config.federation
        return {
            "name": self.config.node.name, "life": self.persistent.starts, "pid": os.getpid(),
            "version": version("fkge"), "time": time.time(), "started": self.life_cycle.started, "state": self.state,
            "since": self.life_cycle.since, "epoch": None if owner is None else owner.trainer.epoch,
            "epochs": federation.total_epochs if owner is None else owner.plan.total,
            "validation_mrr": None if owner is None else owner.activity.best_score, "privacy": federation.privacy.mode,
            "spent": [] if owner is None else _spent(owner), "peers": [self._peer(p) for p in self.peers.values()],
            "audit": {"entries": audit.entries, "head": audit.head},
        }  # fmt: skip

    def _peer(self, peer: Peer) -> PeerStatus:
        name, state, members = peer.name, peer.state, self.membership
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
