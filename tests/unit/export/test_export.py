"""Export of a run or an owner: formats, targets and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fkge.errors
from fkge.errors import ExportError, FkgeError, MissingLibraryError, RunError
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.export import FORMATS, export, locate
from fkge.export.files import frame_of
from tests.conftest import OWNERS, tiny_federation, tiny_settings


def test_formats_are_files_or_folders_and_replace_what_was_there(run: Run, tmp_path: Path) -> None:
    for name in FORMATS:
        to = tmp_path / "out" / name
        assert export(run.folder, to, name) == to
        assert to.is_dir() == (name in ("parquet", "pykeen"))
        assert export(run.folder, to, name) == to  # replaced
    assert not list((tmp_path / "out").rglob("*.part"))


def test_refuses_unknown_formats_runs_and_targets(run: Run, tmp_path: Path) -> None:
    with pytest.raises(FkgeError, match="there is no format 'parket'; did you mean parquet"):
        export(run.folder, tmp_path / "v", "parket")
    with pytest.raises(RunError, match="is no simulation and has no owners"):
        export(run.folder, tmp_path / "v", "numpy", owner="ant")
    with pytest.raises(RunError, match="no run folder"):
        export(tmp_path / "nowhere", tmp_path / "v", "numpy")
    (tmp_path / "file").write_text("mine")
    for name in ("parquet", "pykeen"):
        with pytest.raises(ExportError, match="is a file"):
            export(run.folder, tmp_path / "file", name)
    for name in ("numpy", "safetensors", "word2vec"):
        with pytest.raises(ExportError, match="is a folder"):
            export(run.folder, run.folder, name)
    assert (tmp_path / "file").read_text() == "mine"


def test_names_the_library_that_is_missing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(fkge.errors.importlib, "import_module", missing)
    with pytest.raises(MissingLibraryError, match=r"Parquet needs pyarrow, .* pip install 'fkge\[export\]'"):
        export(run.folder, tmp_path / "v", "parquet")
    with pytest.raises(MissingLibraryError, match=r"pip install 'fkge\[pandas\]'"):
        frame_of(run.load("cpu"), run.graph)


def test_exports_an_owner_of_a_simulation(tmp_path: Path) -> None:
    simulation = Simulation.create(
        tmp_path / "sim", tiny_federation(OWNERS[:2]), tiny_settings(exchanges=2), engine="in-process"
    )
    with pytest.raises(RunError, match="ant has not finished federated"):
        locate(tmp_path / "sim", "ant")
    simulation.run()
    for arm in ("federated", "control"):
        with np.load(export(tmp_path / "sim", tmp_path / arm, "numpy", owner="bee", arm=arm)) as got:
            expected = Run.open(tmp_path / "sim" / "arms" / arm / "bee").load("cpu")["entity"]
            np.testing.assert_array_equal(got["entity"], expected)
    with pytest.raises(RunError, match="name one of its owners: ant, bee"):
        locate(tmp_path / "sim")
    with pytest.raises(FkgeError, match="no owner 'be'; did you mean bee"):
        locate(tmp_path / "sim", "be")
    with pytest.raises(FkgeError, match="no arm 'controll'; did you mean control"):
        locate(tmp_path / "sim", "bee", "controll")
