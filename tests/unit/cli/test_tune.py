"""The command that searches: what it searches, and that a mistake costs neither time nor a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="needs the extra tune")

from fkge.cli.exit_codes import Misuse
from fkge.cli.tune import commands, is_federation
from fkge.errors import FkgeError, RunError
from fkge.settings import TrainSettings
from tests.conftest import random_graph
from tests.consortium import write_graph
from tests.unit.cli.commands import answer, typed

QUICK = ("model=DistMult", "loss=1vsall", "dim=4", "epochs=2", "validate_every=1", "device=cpu")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_graph(random_graph(), tmp_path / "graph")
    return tmp_path


def test_a_federation_is_told_from_a_graph(here: Path) -> None:
    (here / "both" / "aligned").mkdir(parents=True)
    assert [is_federation(source) for source in ("both", "any.toml", "atlas")] == [True, True, True]
    assert [is_federation(source) for source in ("graph", "graph/train.tsv", "pykeen:nations", "none")] == [False] * 4
    (here / "atlas").mkdir()
    assert not is_federation("atlas")  # a folder of one's own goes first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "of what"),
        (("graph", "--pruner", "middle"), "there are median, hyperband and none"),
        (("graph", "--resume", "old"), "leave the rest out"),
        (("--resume", "old", "--seed", "0"), "leave the rest out"),
        (("--resume", "old", "--pruner", "none"), "leave the rest out"),
        (("--resume", "old", "--set", "dim=3"), "leave the rest out"),
    ],
)
def test_words_that_do_not_go_together_are_misuse(here: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        typed(commands, *words, "--out", "out")
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    "words",
    [("nothing",), ("graph", "--minutes", "0"), ("graph", "--minutes", "nan"), ("graph", "--jobs", "0.5"),
     ("graph", "--set", "dims=3"), ("graph", "--set", "device=meta"), ("graph", "--config", "nothing.toml")],
)  # fmt: skip
def test_what_is_sure_to_fail_fails_before_there_is_a_folder(here: Path, words: tuple[str, ...]) -> None:
    if "0.5" in words:
        assert typed(commands, *words, "--out", "out").exit_code == 2
    else:
        with pytest.raises(FkgeError):
            typed(commands, *words, "--out", "out", "--quiet")
    assert not (here / "out").exists()


def test_a_search_ends_with_what_was_fixed_and_is_not_made_twice(here: Path) -> None:
    fixed = [word for setting in QUICK for word in ("--set", setting)]
    said = ("graph", "--minutes", 0.005, "--seed", 3, "--out", "out", *fixed)
    found = answer(commands, *said, "--quiet")
    assert (found["kind"], found["seed"], found["finished"]) == ("graph", 3, True)
    recipe = TrainSettings.load(Path(found["recipe"]))
    assert (recipe.model, recipe.loss, recipe.dim) == ("DistMult", "1vsall", 4)
    with pytest.raises(RunError, match="Continue it: fkge tune --resume out"):
        typed(commands, *said)
    again = answer(commands, "--resume", "out", "--quiet")
    assert again["phases"] == found["phases"]
