"""The content of a ledger in words: every ε with its unit, relation and δ, and what it does not cover."""

from __future__ import annotations

import math
from collections import Counter

from fkge.privacy.ledger import Ledger
from fkge.results import BudgetAccount, LedgerStatement, Payments, Unprotected

UNCOVERED = (
    "what left unprotected; when something was sent, to whom and how large it was; that a message was refused; "
    "floating-point noise (Mironov 2012)"
)


def describe(ledger: Ledger) -> LedgerStatement:
    """Return the whole ledger; an infinite ε is None."""
    budgets = []
    for budget in ledger.budgets:
        spent = {name: _finite(value) for name, value in vars(ledger.spent(budget)).items()}
        about = {**vars(budget), "epsilon": _finite(budget.epsilon), "left": spent.pop("left"), "spent": spent}
        budgets.append(BudgetAccount.model_validate(about))
    entries = ledger.entries()
    paid = {entry.key: entry.release for entry in entries if entry.kind == "paid"}
    gone = {entry.key for entry in entries if entry.kind == "left"}
    sums: dict[tuple[str, str, str], Counter[str]] = {}
    for entry in entries:
        release = paid.get(entry.key)
        if release is not None and entry.kind in ("paid", "left"):
            about_release = release.mechanism, release.unit, entry.peer or ""
            line = sums.setdefault(about_release, Counter(paid=0, paid_count=0, left=0, nbytes=0))
            amount = {"paid_count": release.count} if entry.kind == "paid" else {"nbytes": entry.nbytes or 0}
            line.update({entry.kind: 1, **amount})
    return LedgerStatement(
        graph=ledger.graph,
        ledger=str(ledger.path),
        head=ledger.head.to_json(),
        budgets=budgets,
        entries=[
            Payments.model_validate({"mechanism": mechanism, "unit": unit, "peer": peer or None, **line})
            for (mechanism, unit, peer), line in sorted(sums.items())
        ],
        paid_not_left=len(paid.keys() - gone),
        unprotected=[
            Unprotected(what=what, peer=peer, messages=tally.notes, nbytes=tally.nbytes, protection="none")
            for (what, peer), tally in sorted(ledger.unprotected.items())
        ],
        uncovered=UNCOVERED,
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
