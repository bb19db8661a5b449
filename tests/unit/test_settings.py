"""Settings: strict names, helpful refusals, and a file that reads back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from fkge.errors import SettingsError
from fkge.federation.settings import FederationSettings
from fkge.settings import Settings, TrainSettings


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


# -- sections --------------------------------------------------------------------------------------


class Outer(Settings):
    speed: int = Field(3, ge=1, description="how fast")
    train: TrainSettings = Field(TrainSettings(), description="how it trains")


def test_a_section_is_a_table_and_later_sources_win_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "e.toml"
    file.write_text('speed = 5\n[train]\nmodel = "RotatE"\ndim = 32\n')
    s = Outer.load(file, ["train.dim=64", "speed=7", "train.lr=0.5"])
    assert (s.speed, s.train.model, s.train.dim, s.train.lr) == (7, "RotatE", 64, 0.5)
    assert Outer.load(None, ["train.dim=9"]).train == TrainSettings(dim=9)
    assert Outer.load(None, train=TrainSettings(dim=5)).train.dim == 5
    assert Outer.sections() == {"train": TrainSettings}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.dims=3", "unknown key 'dims'; did you mean .*dim"),
        ("dim=3", "unknown key 'dim'; did you mean train.dim"),
        ("trian.dim=3", "no section 'trian'; did you mean train"),
        ("speed.dim=3", "no section 'speed'"),
        ("train.train.dim=3", "no section 'train.train'"),
        ("train.dim=0", r"\[train\]: dim: .*greater than or equal to 1.*got 0.*size of an entity vector"),
        ("train.=3", "unknown key ''"),
        ("train=3", "train"),
    ],
)
def test_a_bad_key_in_a_section_is_named_with_its_place(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Outer.load(None, [text])


def test_a_bad_file_with_sections(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text("[train]\ndimm = 3\n")
    with pytest.raises(SettingsError, match=r"f\.toml: \[train\]: unknown key 'dimm'; did you mean dim"):
        Outer.load(file)
    file.write_text("[trains]\ndim = 3\n")
    with pytest.raises(SettingsError, match=r"f\.toml: unknown key 'trains'; did you mean train"):
        Outer.load(file)
    file.write_text("train = 3\n")
    with pytest.raises(SettingsError, match=r"f\.toml: train"):
        Outer.load(file)
    with pytest.raises(SettingsError):
        Outer.load(file, ["train.dim=3"])


def test_loading_changes_nothing_of_what_it_was_given(tmp_path: Path) -> None:
    given = {"speed": 4, "train": {"dim": 6}}
    assert Outer.build(given).train.dim == 6
    assert given == {"speed": 4, "train": {"dim": 6}}


def test_sections_that_are_written_read_back(tmp_path: Path) -> None:
    s = FederationSettings.load(
        None, ["translate=ppat+refine", "train.dim=16", "ppat.lam=0", "epochs=5", "share=entities"]
    )
    file = tmp_path / "g.toml"
    file.write_text(s.to_toml())
    assert FederationSettings.load(file) == s
    text = s.to_toml()
    assert (
        text.index("\nepochs = 5\n") < text.index("\n[train]\n") < text.index("\ndim = 16\n") < text.index("\n[ppat]\n")
    )
    with pytest.raises(ValueError, match="frozen"):
        s.train.dim = 3
