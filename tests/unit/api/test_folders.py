"""Temporary folders and interruptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fkge
from fkge.errors import RunError
from fkge.graph import Graph
from tests.unit.api.scripts import QUICK, SMALL, interrupting, owners


def test_temporary_folder_is_removed_with_the_model(ring: Graph) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    folder = model.folder
    assert (folder / "result.json").exists()
    assert model.neighbors("place03")
    del model
    assert not folder.exists()


def test_interrupted_temporary_training_recommends_out(ring: Graph, monkeypatch: Any) -> None:
    with (
        interrupting(monkeypatch, "training TransE", 2),
        pytest.raises(KeyboardInterrupt, match=r"temporary folder.*Set out="),
    ):
        fkge.train(ring, **SMALL)


def test_folder_is_removed_if_creation_is_interrupted(tmp_path: Path, monkeypatch: Any) -> None:
    federation = fkge.Federation(owners())
    made: list[str] = []

    def interrupted(*given: object) -> None:
        made.extend(p.name for p in tmp_path.iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fkge.experiment.owners.Masks.save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            federation.simulate(tmp_path / "run", **QUICK)
    assert made == ["run"]
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("years of work")
    with pytest.raises(RunError, match="exists already"):
        federation.simulate(tmp_path / "mine", **QUICK)
    assert (tmp_path / "mine" / "thesis.doc").exists()
