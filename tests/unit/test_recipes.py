"""A recipe's name does wherever a path does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge import recipes
from fkge.errors import SettingsError
from fkge.federation import FederationSettings
from fkge.settings import TrainSettings


def test_a_name_or_a_path_names_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TrainSettings.load("rotate") == TrainSettings.load(recipes.names()["rotate"])
    assert FederationSettings.load("dbp5l").decide == "strict"
    monkeypatch.chdir(tmp_path)
    Path("rotate").write_text('model = "TransH"\n')
    assert TrainSettings.load("rotate").model == "TransH"  # what lies there comes first


def test_what_is_neither_says_what_there_is() -> None:
    with pytest.raises(
        SettingsError, match=r"no such file, and no recipe either \(there are complex.*\); did you mean rotate"
    ):
        TrainSettings.load("rotat")
    with pytest.raises(SettingsError, match=r"^rotat\.toml: no such file$"):
        TrainSettings.load("rotat.toml")
