"""`EgressLog` writes an audit-log entry for every message before it is queued for sending: recipient, kind,
protection and price.
"""

from __future__ import annotations

from collections.abc import Callable

from fkge.federation import Released
from fkge.federation.egress import PUBLIC
from fkge.node.ops.audit_log import AuditLog
from fkge.node.ops.metrics import Metrics
from fkge.privacy import Unprotected

_PAID = {"Update": "DP-SGD", "Gradient": "noised votes"}
"""The protection of messages that were paid for; their price is the entry of the ledger."""

_ALIGNMENT = {
    "Keys": "none: how many keys there are", "Intersect": "private set intersection", "Pact": "public",
    "Tokens": "random bits",
}  # fmt: skip
"""The protection of messages of an alignment session."""


class EgressLog:
    """Record each outgoing message in the audit log, which may refuse it (`NodeError`), and count it.

    `charged` returns a lower bound of the ε spent so far; None where nothing has a price.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics, charged: Callable[[], float | None]) -> None:
        self._audit, self._metrics, self._charged = audit, metrics, charged

    def alignment(self, peer: str, what: str, body: bytes) -> None:
        """Record a message by which two owners find out what they share; it has no price."""
        self._write(peer, what, body, _ALIGNMENT[what], None, 0)

    def released(self, peer: str, released: Released, session: int, body: bytes) -> None:
        """Record a message of an exchange, which `fkge.federation.egress` has released."""
        what, price = type(released.message).__name__, None
        if isinstance(released.protection, Unprotected):
            protection = f"none: {released.protection.what}"
        elif released.protection == PUBLIC:
            protection = PUBLIC
        else:
            protection, charged = _PAID[what], self._charged()
            price = released.protection + ("" if charged is None else f"; ε {charged:.4g} or more in all")
        self._write(peer, what, body, protection, price, session)

    def _write(self, peer: str, what: str, body: bytes, protection: str, price: str | None, session: int) -> None:
        self._audit.left(peer, what, body, protection=protection, price=price, session=session)
        self._metrics.sent(peer, what, len(body))
