"""Folders of the wrong kind are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.cli.run_folders import require_run
from fkge.errors import RunError


def test_a_project_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("exchanges = 20\n")
    with pytest.raises(RunError, match="holds settings, but no run"):
        require_run(tmp_path, "fkge evaluate")
    (tmp_path / "graph.safetensors").touch()
    assert require_run(tmp_path, "fkge evaluate") == tmp_path
