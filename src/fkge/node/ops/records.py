"""`Records` keeps a node's log, audit log and metrics: it records each event, and each message before it is sent.

The audit-log entry of a message is written by `Node` when `Participant` calls `on_egress`: after the message was
encoded, before it enters the event queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fkge import owner_events as reports
from fkge.errors import IdentityError
from fkge.federation import Released
from fkge.federation.egress import PUBLIC
from fkge.node.connections import PeerConnected, PeerDisconnected, PeerRefused
from fkge.node.events import Event, Notice, OwnerReported, Pause
from fkge.node.frames import FEDERATION, Refused
from fkge.node.handshake import program
from fkge.node.ops.audit_log import AuditLog
from fkge.node.ops.logs import Log
from fkge.node.ops.metrics import Metrics
from fkge.node.peer import Bucket, MessageReceived, Peer, SessionEnded
from fkge.node.state import NodeState
from fkge.node.watch import CertificateReloaded
from fkge.privacy import Unprotected

_PAID = {"Update": "DP-SGD", "Gradient": "noised votes"}
"""The protection of messages that were paid for; their price is the entry of the ledger."""

_ALIGNMENT = {
    "Keys": "none: how many keys there are", "Intersect": "private set intersection", "Pact": "public",
    "Tokens": "random bits",
}  # fmt: skip
"""The protection of messages of an alignment session."""

_OFTEN = (NodeState.TRAINING, NodeState.EXCHANGING, NodeState.RESTING)
_UNREMARKABLE = ("unspecified", "leaving", "replaced")


class Records:
    """The log, the audit log and the metrics of one node.

    The audit log raises `NodeError` for what it cannot write, which stops the node; the log loses it.

    Args:
        name: of the node.
        peers: by name; no other names may be written.
        audit, log: open for writing.
    """

    def __init__(self, name: str, peers: Mapping[str, object], audit: AuditLog, log: Log) -> None:
        self.audit, self.log = audit, log
        self.metrics = Metrics(peers)
        self._strangers = Bucket(1, 1000)  # refusals that are recorded: no stranger can fill the disk
        log.know(name, program(), *peers)
        log.listen("grpc", "asyncio")

    def know(self, peer: str) -> None:
        """Allow the name of a new peer."""
        self.log.know(peer)
        self.metrics.know(peer)

    def state(self, state: NodeState) -> None:
        """Record that the node is in another state."""
        self.metrics.state(state)
        self.log.write("debug" if state in _OFTEN else "info", "state", state=str(state))

    def certificate(self, error: IdentityError) -> None:
        """Record that the node's own certificate is not valid by its own clock: TLS will fail, and does not say why."""
        self.log.error("certificate", reason=error.reason)
        self.audit.note("certificate", reason=error.reason, sentence=str(error))

    def alignment(self, peer: str, what: str, body: bytes) -> None:
        """Record a message of an alignment before it is sent; it has no price.

        Args:
            peer: whom it is for; what, body: its kind, and its bytes.
        """
        self._leaves(peer, what, body, _ALIGNMENT[what], None, 0)

    def released(self, peer: str, released: Released, session: int, body: bytes, charged: float | None) -> None:
        """Record a message of an exchange before it is sent.

        Args:
            peer, session: whom it is for, and in which exchange.
            released: the message, as `fkge.federation.egress` has released it.
            body: its bytes.
            charged: a lower bound of the ε spent so far; None where nothing has a price.
        """
        what, price = type(released.message).__name__, None
        if isinstance(released.protection, Unprotected):
            protection = f"none: {released.protection.what}"
        elif released.protection == PUBLIC:
            protection = PUBLIC
        else:
            protection = _PAID[what]
            price = released.protection + ("" if charged is None else f"; ε {charged:.4g} or more in all")
        self._leaves(peer, what, body, protection, price, session)

    def _leaves(self, peer: str, what: str, body: bytes, protection: str, price: str | None, session: int) -> None:
        self.audit.left(peer, what, body, protection=protection, price=price, session=session)
        self.metrics.sent(peer, what, len(body))

    def record(self, event: Event) -> None:
        """Record what concerns an operator or an auditor of an event in the log, the audit log and the metrics."""
        log, audit, metrics = self.log, self.audit, self.metrics
        match event:
            case MessageReceived(peer, channel, _):
                if channel == FEDERATION:
                    metrics.received(peer.name, "message")
            case PeerConnected(peer, _, resumed):
                log.info("peer connected", peer=peer.name, resumed=resumed)
                audit.note("connected", peer=peer.name, resumed=resumed)
            case PeerDisconnected(peer, why):
                log.info("peer lost", peer=peer.name, reason=why.reason if why else "closed")
                if why is not None and why.reason not in ("replaced", "leaving"):
                    self._refused(peer, peer.name, why)
            case SessionEnded(peer, why):
                if why is not None and why.reason != "leaving":
                    self._refused(peer, peer.name, why)
            case PeerRefused(stranger, name, why):
                self._refused(stranger, name, why)
            case Notice(fields, logged, audited, level):
                if logged:
                    log.write(level, logged, **fields)
                if audited:
                    audit.note(audited, **fields)
            case OwnerReported(reports.StrayMessage() | reports.ExchangeAbandoned() | reports.OverBudget() as ended):
                outcome = "refused" if isinstance(ended, reports.OverBudget) else "aborted"
                metrics.exchanged(ended.peer, outcome)
                log.info("exchange abandoned", peer=ended.peer, outcome=outcome)
            case OwnerReported(reports.HostingFinished(peer=name)):
                metrics.exchanged(name, "finished")
            case OwnerReported(reports.Worked() as work):
                metrics.epochs.inc(work.epochs)
                metrics.spent(work.spent)
                if work.best is not None:
                    metrics.mrr.set(work.best)
                score = {} if work.score is None else {"validation_mrr": work.score}
                log.info("epoch", epoch=work.epoch, peers=len(work.peers), **score)
            case OwnerReported(reports.CheckpointDamaged(why=sentence)):
                log.error("checkpoint", reason="damaged")
                audit.note("checkpoint damaged", sentence=sentence)
            case OwnerReported(reports.BudgetExhausted(why=sentence)):
                log.warning("budget spent")
                audit.note("budget", sentence=sentence)
            case OwnerReported(reports.Concluded()):
                audit.note("concluded")
            case CertificateReloaded(number):
                log.info("certificate", number=number)
            case Pause(paused):
                audit.note("paused" if paused else "resumed")
                log.info("node paused" if paused else "node resumed")

    def _refused(self, peer: Peer | None, name: str, why: Refused) -> None:
        self.metrics.refused(name, why.reason)
        if why.reason not in _UNREMARKABLE and (self._strangers if peer is None else peer.noted).allows():
            self.log.know(name)  # the name in a certificate of the consortium is no secret
            self.log.warning("peer refused" if why.ours else "refused", peer=name, reason=why.reason)
            self.audit.note("refused", peer=name, reason=why.reason, sentence=str(why), ours=why.ours)


@contextmanager
def open_records(name: str, peers: Mapping[str, object], state: Path, echo: bool, start: int) -> Iterator[Records]:
    """Open the records in a state folder, and write down that the node starts and ends.

    Args:
        name, peers, state: of the node, its peers and its folder.
        echo: log to standard error, too.
        start: the number of this process among those that have been this node.
    """
    with AuditLog.open(state / "audit", name) as audit, Log(state / "node.log", echo=echo) as log:
        records = Records(name, peers, audit, log)
        audit.note("life", number=start, program=program())
        log.info("node started", life=start, node=name)
        try:
            yield records
        except BaseException as error:
            audit.note("end", clean=False)
            log.error("node failed", error=error)
            raise
        audit.note("end", clean=True)
        log.info("node stopped")
