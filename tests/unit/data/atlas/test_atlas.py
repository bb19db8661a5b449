"""The built atlas: consistent splits, labels with their kinds, and owners that overlap."""

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
from tests.unit.data.atlas.conftest import OWNERS, Splits

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


def ends(facts: list[tuple[str, ...]]) -> set[str]:
    return {end for h, _, t in facts for end in (h, t)}


def test_splits_partition_the_facts(owners: dict[str, Splits]) -> None:
    for splits in owners.values():
        facts = [fact for part in splits.values() for fact in part]
        assert len(facts) == len(set(facts))
        assert all(part == sorted(part) for part in splits.values())
        assert ends(splits["train"]) == ends(facts)
        assert {r for _, r, _ in splits["train"]} == {r for _, r, _ in facts}
        assert len(splits["test"]) == pytest.approx(0.1 * len(facts), abs=1)
        assert len(splits["valid"]) == pytest.approx(0.1 * len(facts), abs=1)


def test_labels_start_with_their_kind(owners: dict[str, Splits]) -> None:
    for splits in owners.values():
        for label in ends([fact for part in splits.values() for fact in part]):
            kind, _, rest = label.partition(":")
            assert re.fullmatch(KINDS.get(kind, ".+"), rest), label
            assert re.fullmatch("[a-z-]+", kind), label
        assert all(re.fullmatch("[a-z_]+", r) for part in splits.values() for _, r, _ in part)


def test_has_between_4_000_triples_per_owner_and_110_000_in_all(owners: dict[str, Splits]) -> None:
    assert sum(len(splits["train"]) for splits in owners.values()) <= 110_000
    assert all(len(splits["train"]) >= 4_000 for splits in owners.values())


def test_every_owner_shares_entities_with_two_others(atlas: Path) -> None:
    federation = read_federation(atlas)
    assert tuple(federation.members) == OWNERS
    for owner in OWNERS:
        common = federation.common(owner)
        assert sum(len(side) >= 200 for side in common.values()) >= 2
        assert federation.members[owner].graph.notes == ()
        assert federation.members[owner].graph.split_seed is None


def test_description_matches_the_files(owners: dict[str, Splits], in_atlas_cache: Path) -> None:
    description = describe("atlas")
    assert tuple(description["owners"]) == OWNERS == tuple(ORIGINS)
    for owner, splits in owners.items():
        facts = [fact for part in splits.values() for fact in part]
        figures = description["owners"][owner]
        assert figures["triples"] == {name: len(part) for name, part in splits.items()}
        assert figures["entities"] == len(ends(facts))
        assert figures["relations"] == len(figures["by_relation"])
        assert figures["by_relation"] == Counter(r for _, r, _ in facts)
        assert figures["licence"]
        assert figures["attribution"]
        assert figures["pinned"] == ORIGINS[owner].version
    assert len(description["pairs"]) == 15
    for pair in description["pairs"]:
        a, b = ({fact for part in owners[owner].values() for fact in part} for owner in pair["between"])
        assert pair["entities"] == len(ends(list(a)) & ends(list(b))) == sum(pair["by_kind"].values())
        assert pair["same_facts"] == len(a & b)


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


def test_does_not_build_what_is_cached(in_atlas_cache: Path) -> None:
    before = (in_atlas_cache / "about.json").stat().st_mtime_ns
    assert build("atlas") == in_atlas_cache / "federation.toml"
    assert (in_atlas_cache / "about.json").stat().st_mtime_ns == before
    assert json.loads((in_atlas_cache / "manifest.json").read_text()).keys() >= {"about.json", "federation.toml"}


def test_opens_by_its_name(in_atlas_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_federation("atlas").name == "atlas"
