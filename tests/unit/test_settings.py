"""Settings: strict names, helpful refusals, and a file that reads back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import SettingsError
from fkge.settings import TrainSettings


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text('model = "RotatE"\ndim = 32\nlr = 0.1\n')
    s = TrainSettings.load(file, ["dim=64", "model=ComplEx"], model="TransE", seed=None)
    assert (s.model, s.dim, s.lr, s.seed) == ("TransE", 64, 0.1, 0)


@pytest.mark.parametrize(
    ("key", "near"), [("dims", "dim"), ("negative", "negatives"), ("optimiser", "optimizer"), ("epoch", "epochs")]
)
def test_an_unknown_key_names_its_neighbours(tmp_path: Path, key: str, near: str) -> None:
    with pytest.raises(SettingsError, match=rf"unknown key '{key}'; did you mean .*\b{near}\b"):
        TrainSettings.load(None, [f"{key}=3"])
    file = tmp_path / "b.toml"
    file.write_text(f"{key} = 3\n")
    with pytest.raises(SettingsError, match=rf"b\.toml: unknown key '{key}'"):
        TrainSettings.load(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dim=0", "dim: .*greater than or equal to 1.*got 0"),
        ("dim=many", "dim: .*integer.*size of an entity vector"),
        ("optimizer=adamw", "optimizer: .*'sgd', 'adagrad' or 'adam'"),
        ("norm=3", "norm"),
        ("dim", "expected key=value"),
    ],
)
def test_a_bad_value_names_key_value_and_meaning(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        TrainSettings.load(None, [text])


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        TrainSettings.load(tmp_path / "none.toml")
    file = tmp_path / "c.toml"
    file.write_text("dim = = 3")
    with pytest.raises(SettingsError, match=r"c\.toml: not valid TOML.*line 1"):
        TrainSettings.load(file)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    s = TrainSettings(model="TransR", dim=7, relation_dim=3, lr=3e-05, normalize=True, init=0.25)
    file = tmp_path / "d.toml"
    file.write_text(s.to_toml())
    assert TrainSettings.load(file) == s
    assert "# learning rate\nlr = 3e-05\n" in s.to_toml()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TrainSettings().dim = 3
