"""Commands for an owner's privacy ledger: show, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fkge.cli import tables
from fkge.cli.options import Commands
from fkge.cli.tables import Answer
from fkge.errors import RunError

ledger = Commands(help="What was released about an owner's graph, and how much more may be.")

LedgerFile = Annotated[
    Path, typer.Argument(help="An owner's privacy ledger, such as RUN/arms/federated/OWNER/ledger.sqlite.")
]


def _file(path: Path) -> Path:
    """Return a ledger's file, which may be given by its folder."""
    if path.is_dir():
        path = path / "ledger.sqlite"
        if not path.exists():
            raise RunError(f"{path.parent}: holds no ledger; an owner's is RUN/arms/ARM/OWNER/ledger.sqlite")
    return path


@ledger.add("fkge ledger show runs/private/arms/federated/gazetteer/ledger.sqlite")
def show(path: LedgerFile) -> Answer:
    """Verify a ledger, then show its budgets, what was spent of them, on whom, and what left without protection."""
    from fkge.privacy import Ledger, describe

    with Ledger.open(_file(path)) as opened:
        statement = describe(opened)
    return Answer(statement.to_json(), tables.ledger_tables(statement))


@ledger.add("fkge ledger verify runs/private/arms/federated/gazetteer/ledger.sqlite --json")
def verify(path: LedgerFile) -> Answer:
    """Check that nobody changed a ledger or put an older one in its place; exit code 23 and one sentence if so."""
    from fkge.privacy import Ledger

    with Ledger.open(_file(path)) as opened:
        head = opened.head
    sound = f"{path}: sound, {head.rows:,} entries and {head.notes:,} notes; head {head.seal}"
    return Answer({"ledger": str(path), "sound": True, "head": head.to_json()}, [sound])
