"""The atlas as it is built: splits that hold together, names that say what they are, and owners that overlap."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fkge.data import build, describe
from fkge.data.atlas import ORIGINS
from fkge.federation.source import read_federation

OWNERS = ("gazetteer", "airports", "standards", "locales", "languages", "almanac")
KINDS = {
    "airport": "[A-Z0-9_]{4}",
    "area": "[A-Z]{2}/.+",
    "calling": "[0-9]{1,3}",
    "continent": "[A-Z]{2}",
    "country": "[A-Z]{2}",
    "currency": "[A-Z]{3}",
    "language": "[a-z]{3}",
    "letter": r"\S{1,3}",
    "place": "[A-Z]{2}/[a-z0-9-]+(,[A-Za-z0-9-]+)?",
    "script": "[A-Z][a-z]{3}",
    "subdivision": "[A-Z]{2}-[A-Z0-9]{1,3}",
    "timezone": "[A-Za-z_]+(/[A-Za-z_-]+){1,2}",
}
Splits = dict[str, list[tuple[str, ...]]]


@pytest.fixture(scope="module")
def owners(atlas: Path) -> dict[str, Splits]:
    return {
        owner: {
            split: [
                tuple(line.split("\t"))
                for line in (atlas.parent / owner / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
            ]
            for split in ("train", "valid", "test")
        }
        for owner in OWNERS
    }


def ends(facts: list[tuple[str, ...]]) -> set[str]:
    return {end for h, _, t in facts for end in (h, t)}


def test_splits(owners: dict[str, Splits]) -> None:
    for splits in owners.values():
        facts = [fact for part in splits.values() for fact in part]
        assert len(facts) == len(set(facts))
        assert all(part == sorted(part) for part in splits.values())
        assert ends(splits["train"]) == ends(facts)
        assert {r for _, r, _ in splits["train"]} == {r for _, r, _ in facts}
        assert len(splits["test"]) == pytest.approx(0.1 * len(facts), abs=1)
        assert len(splits["valid"]) == pytest.approx(0.1 * len(facts), abs=1)


def test_names_say_what_they_are(owners: dict[str, Splits]) -> None:
    for splits in owners.values():
        for label in ends([fact for part in splits.values() for fact in part]):
            kind, _, rest = label.partition(":")
            assert re.fullmatch(KINDS.get(kind, ".+"), rest), label
            assert re.fullmatch("[a-z-]+", kind), label
        assert all(re.fullmatch("[a-z_]+", r) for part in splits.values() for _, r, _ in part)


def test_size(owners: dict[str, Splits]) -> None:
    assert sum(len(splits["train"]) for splits in owners.values()) <= 110_000
    assert all(len(splits["train"]) >= 4_000 for splits in owners.values())


def test_owners_overlap(atlas: Path) -> None:
    federation = read_federation(atlas)
    assert tuple(federation.members) == OWNERS
    for owner in OWNERS:
        common = federation.common(owner)
        assert sum(len(side) >= 200 for side in common.values()) >= 2
        assert federation.members[owner].graph.notes == ()
        assert federation.members[owner].graph.split_seed is None


def test_description_is_true(owners: dict[str, Splits], in_atlas_cache: Path) -> None:
    told = describe("atlas")
    assert tuple(told["owners"]) == OWNERS == tuple(ORIGINS)
    for owner, splits in owners.items():
        facts = [fact for part in splits.values() for fact in part]
        said = told["owners"][owner]
        assert said["triples"] == {name: len(part) for name, part in splits.items()}
        assert said["entities"] == len(ends(facts))
        assert said["relations"] == len(said["by_relation"])
        assert said["by_relation"] == Counter(r for _, r, _ in facts)
        assert said["licence"]
        assert said["attribution"]
        assert said["pinned"] == ORIGINS[owner].version
    assert len(told["pairs"]) == 15
    for pair in told["pairs"]:
        a, b = ({fact for part in owners[owner].values() for fact in part} for owner in pair["between"])
        assert pair["entities"] == len(ends(list(a)) & ends(list(b))) == sum(pair["by_kind"].values())
        assert pair["same_facts"] == len(a & b)


@pytest.mark.parametrize(
    ("owner", "fact"),
    [
        ("gazetteer", ("place:FR/paris", "in_subdivision", "subdivision:FR-IDF")),
        ("gazetteer", ("country:FR", "capital", "place:FR/paris")),
        ("gazetteer", ("place:RU/moscow", "in_subdivision", "subdivision:RU-MOW")),
        ("gazetteer", ("place:US/springfield,IL", "in_subdivision", "subdivision:US-IL")),
        ("airports", ("airport:LFPG", "serves", "place:FR/paris")),
        ("airports", ("airport:EDDM", "serves", "place:DE/munich")),
        ("airports", ("airport:KSPI", "serves", "place:US/springfield,IL")),
        ("standards", ("subdivision:FR-BRE", "in_country", "country:FR")),
        ("standards", ("script:Arab", "script_kind", "script-kind:right-to-left-alphabetic")),
        ("locales", ("country:CH", "official_language", "language:roh")),
        ("locales", ("timezone:Asia/Kolkata", "in_country", "country:IN")),
        ("languages", ("country:BE", "speaks", "language:nld")),
        ("languages", ("language:isl", "uses_letter", "letter:ð")),
        ("almanac", ("country:CA", "capital", "place:CA/ottawa")),
        ("almanac", ("country:CH", "borders", "country:LI")),
    ],
)
def test_what_owners_know(owners: dict[str, Splits], owner: str, fact: tuple[str, ...]) -> None:
    assert any(fact in part for part in owners[owner].values())


def test_codes_of_geonames_are_taken_for_the_right_parts(atlas: Path) -> None:
    from fkge.data.atlas.crosswalk import part
    from fkge.data.atlas.places import called_so

    seats = {
        ("AU", "sydney"): "AU-NSW",
        ("BR", "sao-paulo"): "BR-SP",
        ("CA", "toronto"): "CA-ON",
        ("CN", "chengdu"): "CN-SC",
        ("DE", "munich"): "DE-BY",
        ("ES", "sevilla"): "ES-AN",
        ("GB", "glasgow"): "GB-SCT",
        ("IN", "mumbai"): "IN-MH",
        ("IT", "palermo"): "IT-82",
        ("JP", "sapporo"): "JP-01",
        ("US", "chicago"): "US-IL",
    }
    assert {seat: part(called_so(*seat)[0]) for seat in seats} == {s: f"subdivision:{c}" for s, c in seats.items()}


def test_towns_vote_as_the_codes_of_iso_say(atlas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where GeoNames' codes are ISO's, what the vote would have come to can be compared with them."""
    from fkge.data.atlas import crosswalk

    known = crosswalk.ISO_CODED
    monkeypatch.setattr(crosswalk, "ISO_CODED", frozenset())
    settled = crosswalk._settled.__wrapped__()
    voted = {code: name for code, name in settled.items() if code[0] in known}
    right = sum(name == f"subdivision:{'-'.join(code)}" for code, name in voted.items())
    assert len(voted) >= 60
    assert right >= 0.95 * len(voted)


@pytest.mark.long
def test_two_processes_at_once_build_the_same_bytes(atlas: Path, tmp_path: Path) -> None:
    shutil.copytree(atlas.parent.parent / "wheels", tmp_path / "wheels")
    script = "from fkge.data import build; print(build('atlas'))"
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"FKGE_CACHE": str(tmp_path), "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    files = {Path(maker.communicate()[0].strip()) for maker in makers}
    assert len(files) == 1
    made = files.pop().parent
    assert made.name == atlas.parent.name
    names = sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(atlas.parent) for p in atlas.parent.rglob("*") if p.is_file())
    assert all((made / name).read_bytes() == (atlas.parent / name).read_bytes() for name in names)


def test_what_is_there_is_taken(in_atlas_cache: Path) -> None:
    before = (in_atlas_cache / "about.json").stat().st_mtime_ns
    assert build("atlas") == in_atlas_cache / "federation.toml"
    assert (in_atlas_cache / "about.json").stat().st_mtime_ns == before
    assert json.loads((in_atlas_cache / "manifest.json").read_text()).keys() >= {"about.json", "federation.toml"}


def test_a_federation_by_name(in_atlas_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_federation("atlas").name == "atlas"
