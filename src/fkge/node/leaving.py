"""All that leaves a node is written down before it goes: to whom, what, under which protection, at what price."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from fkge.federation import Released
from fkge.federation.gate import PUBLIC
from fkge.node.auditlog import AuditLog
from fkge.node.metrics import Metrics
from fkge.privacy import Unprotected

_PAID = {"Offer": "DP-SGD", "Gradient": "noised votes"}
"""What protects a message that was paid for; its price is the entry of the ledger."""

_MEETING = {
    "Keys": "none: how many keys there are",
    "Intersect": "private set intersection",
    "Pact": "public",
    "Tokens": "random bits",
}
"""What protects a message of a meeting."""


class Leaving:
    """Tells the audit log, which may refuse, and counts.

    Args:
        audit: where it is written down.
        metrics: where it is counted.
        charged: ε that is spent so far, at least; None where nothing has a price.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics, charged: Callable[[], float | None]) -> None:
        self._audit, self._metrics, self._charged = audit, metrics, charged

    def meeting(self, peer: str, what: str, body: bytes) -> None:
        """A message by which two owners find out what they share; it costs nothing."""
        self._write(peer, what, body, _MEETING[what], None, 0)

    def released(self, peer: str, released: Released, session: int, body: bytes) -> None:
        """A message of an exchange, which a gate has let go."""
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
        self._audit.left(
            to=peer, what=what, nbytes=len(body), digest=hashlib.sha256(body).hexdigest(), protection=protection,
            price=price, session=session,
        )  # fmt: skip
        self._metrics.sent(peer, what, len(body))
