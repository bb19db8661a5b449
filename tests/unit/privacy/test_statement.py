"""The statement of a ledger as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from fkge.privacy import describe
from tests.unit.privacy.ledgers import open_ledger, steps, votes


def test_describe_returns_json_with_unit_and_relation_of_each_figure(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.pay("a", steps(100), peer="bee")
        ledger.pay("b", votes(29), peer="cat")
        ledger.leave("a", "bee", 1000)
        ledger.leave("a", "cat", 1000)
        told = json.loads(json.dumps(describe(ledger).to_json(), allow_nan=False))
        assert told["head"] == ledger.head.to_json()
    row, triple = told["budgets"]
    assert (row["unit"], row["relation"], row["delta"], row["epsilon"]) == ("row", "replace", 1e-5, 2.0)
    assert f"{row['spent']['pld']:.2f} {row['spent']['rdp']:.2f} {row['spent']['paper']:.2f}" == "1.43 1.54 2.73"
    assert triple["spent"]["paper"] is None
    assert triple["left"] == 4.0 - triple["spent"]["epsilon"]
    assert told["paid_not_left"] == 1
    columns = ("mechanism", "peer", "paid", "paid_count", "left", "nbytes")
    assert {tuple(entry[name] for name in columns) for entry in told["entries"]} == {
        ("gaussian", "bee", 1, 100, 1, 1000), ("gaussian", "cat", 0, 0, 1, 1000), ("laplace votes", "cat", 1, 29, 0, 0),
    }  # fmt: skip
