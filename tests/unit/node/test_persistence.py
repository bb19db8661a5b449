"""The state that outlives a node's processes: files of older versions open, and one process holds a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fkge.errors import NodeError, RunError
from fkge.node.persistence import PersistentState, lock
from fkge.privacy import Head

OLD = {
    "lives": 3, "begun": True, "secret": 2**63, "pacts": {"bee": "00" * 16}, "bases": {"bee": "11" * 16},
    "ledger": {"rows": 4, "notes": 1, "chain": "ab" * 32, "seal": "cd" * 32}, "admitted": {"bee": [1.5]},
}  # fmt: skip


def test_opens_the_file_of_an_older_version_and_writes_the_same_keys(tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text(json.dumps(OLD))
    state = PersistentState.open(path)
    assert (state.starts, state.begun, state.alignments) == (3, True, {"bee": "00" * 16})
    assert state.ledger == Head(4, 1, "ab" * 32, "cd" * 32)
    state.save()
    assert json.loads(path.read_text()) == OLD


def test_a_new_state_has_no_ledger_and_a_secret_of_its_own(tmp_path: Path) -> None:
    one, other = (PersistentState.open(tmp_path / name) for name in ("one.json", "other.json"))
    assert one.secret != other.secret
    one.save()
    assert json.loads((tmp_path / "one.json").read_text())["ledger"] == {}
    assert PersistentState.open(tmp_path / "one.json") == one


def test_reset_keeps_what_was_spent_and_how_often_peers_asked(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(json.dumps(OLD))
    state = PersistentState.open(tmp_path / "node.json")
    state.reset()
    again = PersistentState.open(tmp_path / "node.json")
    assert (again.begun, again.alignments, again.bases) == (False, {}, {})
    assert (again.ledger, again.admitted) == (Head(4, 1, "ab" * 32, "cd" * 32), {"bee": [1.5]})
    assert again.secret != 2**63


def test_remembers_the_ledger_at_its_furthest(tmp_path: Path) -> None:
    state = PersistentState(tmp_path / "node.json")
    for head in (None, Head(2), Head(1), Head(2, 5)):
        state.saw_ledger(head)
    assert state.ledger == Head(2, 5)


@pytest.mark.parametrize("values", [{"lives": 3}, OLD | {"ledger": {"rows": -1}}, OLD | {"ledger": {"lines": 1}}])
def test_refuses_a_damaged_file(tmp_path: Path, values: dict[str, object]) -> None:
    (tmp_path / "node.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match="start over"):
        PersistentState.open(tmp_path / "node.json")


def test_one_process_holds_a_state_folder(tmp_path: Path) -> None:
    with lock(tmp_path / "state"), pytest.raises(NodeError, match="another process is this node"):
        lock(tmp_path / "state").__enter__()
