"""What the audit log is told of everything that leaves."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest
import torch

from fkge import owner_events as reports
from fkge.errors import NodeError
from fkge.federation.egress import PUBLIC, Egress
from fkge.node.events import OwnerReported
from fkge.node.ops.audit_log import AuditLog, entries
from fkge.node.ops.logs import Log
from fkge.node.ops.records import Records
from fkge.ppat import Gradient, Received, Samples
from tests.conftest import tiny_settings


def test_entries_name_recipient_kind_protection_and_price(tmp_path: Path) -> None:
    plain = Egress(tiny_settings())
    paper = Egress.open(tmp_path, "ant", tiny_settings(translate="ppat", privacy={"mode": "paper"}))
    paper.pay_for_votes("bee", 3, queries=10, lam=0.05)
    with closing(paper), AuditLog.open(tmp_path / "audit", "ant") as audit, Log(tmp_path / "node.log") as log:
        leaving = Records("ant", ["bee"], audit, log)
        leaving.alignment("bee", "Intersect", b"hidden")
        leaving.released("bee", plain.release(Received(1), "bee", 3), 3, b"here", 1.25)
        leaving.released("bee", plain.release(Samples(1, torch.ones(2, 2)), "bee", 3), 3, b"rows", 1.25)
        leaving.released("bee", paper.release(Gradient(1, torch.ones(2, 2)), "bee", 3), 3, b"votes", 1.25)
    told = [e for e in entries(tmp_path / "audit") if e["event"] == "left"]
    assert [(e["to"], e["what"], e["bytes"], e["price"], e["session"]) for e in told] == [
        ("bee", "Intersect", 6, None, 0),
        ("bee", "Received", 4, None, 3),
        ("bee", "Samples", 4, None, 3),
        ("bee", "Gradient", 5, "votes for bee, handshake 3.0; ε 1.25 or more in all", 3),
    ]
    hidden, here, rows, votes = (e["protection"] for e in told)
    assert (hidden, here, votes) == ("private set intersection", PUBLIC, "noised votes")
    assert rows.startswith("none: ")
    bodies = (b"hidden", b"here", b"rows", b"votes")
    assert [e["digest"] for e in told] == [hashlib.sha256(body).hexdigest() for body in bodies]


def test_a_message_that_cannot_be_recorded_is_not_counted(tmp_path: Path) -> None:
    audit = AuditLog.open(tmp_path / "audit", "ant")
    audit.close()
    with Log(tmp_path / "node.log") as log:
        records = Records("ant", ["bee"], audit, log)
    before = records.metrics.render()
    with pytest.raises(NodeError, match="nothing may leave any more"):
        records.alignment("bee", "Pact", b"name")
    assert records.metrics.render() == before


def test_what_an_owner_reports_is_logged_and_counted(tmp_path: Path) -> None:
    told = [
        reports.StrayMessage(peer="bee", why="x"),
        reports.ExchangeAbandoned(peer="bee", hosting=True),
        reports.OverBudget(peer="bee", why="x"),
        reports.HostingFinished(peer="bee", queries=3),
        reports.Worked(peers=("bee",), epoch=5, epochs=2, score=0.25, best=0.5),
        reports.CheckpointDamaged(why="a sentence"),
        reports.BudgetExhausted(why="another one"),
        reports.EpochReached(epoch=6),
        reports.Concluded(),
    ]
    with AuditLog.open(tmp_path / "audit", "ant") as audit, Log(tmp_path / "node.log") as log:
        records = Records("ant", ["bee"], audit, log)
        for event in told:
            records.record(OwnerReported(event))
    _, *audited = ((e["event"], e.get("sentence")) for e in entries(tmp_path / "audit"))
    assert audited == [("checkpoint damaged", "a sentence"), ("budget", "another one"), ("concluded", None)]
    lines = [json.loads(line) for line in (tmp_path / "node.log").read_text().splitlines()]
    abandoned = [line["outcome"] for line in lines if line["event"] == "exchange abandoned"]
    assert abandoned == ["aborted", "aborted", "refused"]
    (epoch,) = (line for line in lines if line["event"] == "epoch")
    assert (epoch["epoch"], epoch["peers"], epoch["validation_mrr"]) == (5, 1, 0.25)
    assert {line["event"] for line in lines} >= {"checkpoint", "budget spent"}
    assert "sentence" not in (tmp_path / "node.log").read_text()  # which may quote a label
    assert b'outcome="finished",peer="bee"} 1.0' in records.metrics.render()
