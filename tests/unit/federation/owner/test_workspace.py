"""The folder of an owner's training: checkpoints that survive damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.federation.owner import Owner
from fkge.federation.owner.workspace import Workspace
from tests.unit.federation.pairs import TWO, federation_settings, numbers, same


def test_resumes_from_the_last_checkpoint(tmp_path: Path) -> None:
    workspace, owner = Workspace(tmp_path / "ant"), Owner("a", TWO["a"], federation_settings())
    again = Owner("a", TWO["a"], federation_settings())
    assert not workspace.resume(again)
    owner.improve(initial=True)
    workspace.save(owner)
    assert workspace.resume(again)
    assert same(numbers(owner), numbers(again))
    assert workspace.repair() is None
    assert not workspace.finished


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    workspace, owner = Workspace(tmp_path), Owner("a", TWO["a"], federation_settings())
    workspace.save(owner)
    before = numbers(owner)
    owner.improve(initial=True)
    workspace.save(owner)
    workspace.checkpoint.write_bytes(workspace.checkpoint.read_bytes()[:-9])
    problem = workspace.repair()
    assert problem is not None
    again = Owner("a", TWO["a"], federation_settings())
    assert not workspace.resume(again)
    assert same(numbers(again), before)


def test_refuses_two_damaged_checkpoints(tmp_path: Path) -> None:
    workspace, owner = Workspace(tmp_path), Owner("a", TWO["a"], federation_settings())
    for _ in range(2):
        workspace.save(owner)
    for file in tmp_path.iterdir():
        file.unlink()
        file.write_bytes(b"damaged")
    with pytest.raises(RunError, match="both checkpoints are damaged"):
        workspace.repair()
