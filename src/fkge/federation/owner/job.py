"""`Job`: the interface by which engines and nodes open, configure and conclude an owner, without knowing which
experiment or node it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fkge.federation.owner.finish import finish, write_report
from fkge.federation.owner.store import OwnerStore
from fkge.federation.owner.training import Owner, Plan
from fkge.federation.owner.workspace import Workspace
from fkge.federation.protocol import ProtocolConfig
from fkge.owner_events import Emit
from fkge.privacy import Head

LABEL = "federated"
"""Names the training in ledgers and folders; as in experiments, so that what a rehearsal writes can be compared."""


class Job(Protocol):
    """The interface by which a driver opens, configures and concludes an owner.

    Attributes:
        workspace: where it keeps checkpoints and results.
    """

    @property
    def workspace(self) -> Workspace: ...

    def open(self, *, late: bool = False, secret: int | None = None, ledger: Head | None = None) -> tuple[Owner, bool]:
        """Return the owner, fresh or from its checkpoint, and whether it has trained.

        Args:
            late, secret, ledger: see `OwnerStore.open_owner`.
        """

    def protocol_config(self) -> ProtocolConfig:
        """Return the configuration of the owner's protocol."""

    def conclude(self, owner: Owner, emit: Emit, stop: Callable[[], bool], serve: bool = False) -> bool:
        """Finish the training and write its results; see `fkge.federation.owner.finish.finish`."""


@dataclass(frozen=True)
class ProductionJob:
    """The job of an owner in production: it federates with the peers that its store knows.

    Attributes:
        store: the owner's data.
        workspace: where it keeps checkpoints and results.
        plan: the epochs that it spends.
    """

    store: OwnerStore
    workspace: Workspace
    plan: Plan

    def open(self, *, late: bool = False, secret: int | None = None, ledger: Head | None = None) -> tuple[Owner, bool]:
        return self.store.open_owner(self.workspace, self.plan, late=late, secret=secret, ledger=ledger, label=LABEL)

    def protocol_config(self) -> ProtocolConfig:
        return self.store.protocol_config()

    def conclude(self, owner: Owner, emit: Emit, stop: Callable[[], bool], serve: bool = False) -> bool:
        write = partial(write_report, self.store, self.workspace)
        return finish(self.store, owner, emit, stop, decide=self.store.graph.valid, write=write, serve=serve)
