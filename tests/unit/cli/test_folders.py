"""What is half made goes again; what was there before never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.cli.folders import needs_run, whole_or_nothing
from fkge.errors import RunError


def make(folder: Path, error: BaseException) -> None:
    """Begin to, and fail."""
    with whole_or_nothing(folder):
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "file").write_text("x")
        raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("there", [False, True])
def test_what_is_half_made_goes(error: type[BaseException], there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    with pytest.raises(error):
        make(folder, error())
    assert folder.exists() is there
    assert not there or not any(folder.iterdir())


def test_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(OSError, match="full"), whole_or_nothing(tmp_path):
        raise OSError("full")
    assert (tmp_path / "mine").read_text() == "x"


def test_what_somebody_else_made_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunError):
        make(folder, RunError("is there already"))
    assert (folder / "part" / "file").exists()


def test_a_project_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("exchanges = 20\n")
    with pytest.raises(RunError, match="holds settings, but no run"):
        needs_run(tmp_path, "fkge evaluate")
    (tmp_path / "graph.safetensors").touch()
    assert needs_run(tmp_path, "fkge evaluate") == tmp_path
