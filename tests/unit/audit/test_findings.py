"""Findings and reports convert to JSON, with figures beside the other fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module

from fkge.audit import attack_names
from fkge.audit.findings import AuditReport, Finding, Verdict


@dataclass(frozen=True)
class Figure:
    value: float


def test_a_report_is_json_and_broken_by_one_broken_claim() -> None:
    sound = Finding("claim", Verdict.HOLDS, "owner", "0.5", {"auc": Figure(0.5)})
    broken = Finding("claim", Verdict.BROKEN, "owner", "1", {"by_owner": {"ant": (1, 2)}}, seconds=2.0)
    report = AuditReport("run", "circle", "ant", "bee", {"mode": "none"}, False, {"one": sound})
    assert not report.broken
    told = json.loads(
        json.dumps(AuditReport("run", "circle", "ant", "bee", {}, True, {"a": sound, "b": broken}).to_json())
    )
    assert told["broken"]
    assert told["sections"]["a"] == {
        "claim": "claim", "verdict": "holds", "on": "owner", "result": "0.5", "seconds": 0.0, "auc": {"value": 0.5}
    }  # fmt: skip
    assert told["sections"]["b"]["by_owner"] == {"ant": [1, 2]}


def test_every_module_of_attacks_is_an_attack() -> None:
    modules = [import_module(f"fkge.audit.attacks.{name.replace('-', '_')}") for name in attack_names()]
    assert len(modules) >= 6
    assert all(callable(module.attack) for module in modules)
