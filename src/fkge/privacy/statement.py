"""A ledger told for people and programs: every ε with its unit, relation, δ and what it does not cover."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from fkge.privacy.ledger import Ledger

UNCOVERED = (
    "what left unprotected; when something was sent, to whom and how large it was; that a message was refused; "
    "floating-point noise (Mironov 2012)"
)


def describe(ledger: Ledger) -> dict[str, Any]:
    """The whole ledger as a JSON object; an infinite ε is None.

    Keys: graph, ledger (path), head, budgets, entries (by mechanism and peer), paid_not_left, unprotected, uncovered.
    """
    budgets = []
    for budget in ledger.budgets:
        spent = ledger.spent(budget)
        budgets.append(
            {
                "unit": budget.unit,
                "relation": budget.relation,
                "delta": budget.delta,
                "epsilon": _finite(budget.epsilon),
                "spent": {
                    "epsilon": _finite(spent.epsilon),
                    "pld": _finite(spent.pld),
                    "rdp": _finite(spent.rdp),
                    "paper": spent.paper,
                    "count": spent.count,
                },
                "left": _finite(spent.left),
            }
        )
    entries = ledger.entries()
    paid = {entry.key: entry.release for entry in entries if entry.kind == "paid"}
    gone = {entry.key for entry in entries if entry.kind == "left"}
    sums: dict[tuple[str, str, str], Counter[str]] = {}
    for entry in entries:
        release = paid.get(entry.key)
        if release is not None and entry.kind in ("paid", "left"):
            line = sums.setdefault((release.mechanism, release.unit, entry.peer or ""), Counter())
            line[entry.kind] += 1
            line["paid_count" if entry.kind == "paid" else "nbytes"] += (
                release.count if entry.kind == "paid" else entry.nbytes or 0
            )
    return {
        "graph": ledger.graph,
        "ledger": str(ledger.path),
        "head": ledger.head.to_json(),
        "budgets": budgets,
        "entries": [
            {
                "mechanism": mechanism,
                "unit": unit,
                "peer": peer or None,
                **{name: line[name] for name in ("paid", "paid_count", "left", "nbytes")},
            }
            for (mechanism, unit, peer), line in sorted(sums.items())
        ],
        "paid_not_left": len(paid.keys() - gone),
        "unprotected": [
            {"what": what, "peer": peer, "messages": tally.notes, "nbytes": tally.nbytes, "protection": "none"}
            for (what, peer), tally in sorted(ledger.unprotected.items())
        ],
        "uncovered": UNCOVERED,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
