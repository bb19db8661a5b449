"""Commands for an owner's privacy ledger."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from fkge.cli.federations import ledger as app
from fkge.privacy import ADD_OR_REMOVE, Budget, Ledger


def test_shows_and_verifies_the_ledger_in_a_folder(tmp_path: Path) -> None:
    budget = Budget("triple", ADD_OR_REMOVE, 4.0, 1e-5)
    with Ledger.open(tmp_path / "ledger.sqlite", graph="ant", budgets=[budget]) as made:
        head = made.head
    shown = json.loads(CliRunner().invoke(app, ["show", str(tmp_path), "--json"]).stdout)
    assert (shown["graph"], shown["budgets"][0]["left"]) == ("ant", 4.0)
    verified = json.loads(CliRunner().invoke(app, ["verify", str(tmp_path), "--json"]).stdout)
    assert verified == {"ledger": str(tmp_path), "sound": True, "head": head.to_json()}
    assert "sound, 2 entries" in CliRunner().invoke(app, ["verify", str(tmp_path)]).stdout


def test_refuses_a_folder_without_a_ledger(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["show", str(tmp_path)])
    assert "holds no ledger" in str(result.exception)
