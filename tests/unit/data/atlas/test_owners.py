"""The owners of the atlas: facts they hold, how letters are read, and what they say without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.data.atlas.owners import languages, letters
from fkge.errors import DataError
from tests.unit.data.atlas.conftest import Splits


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
def test_owners_hold_known_facts(owners: dict[str, Splits], owner: str, fact: tuple[str, ...]) -> None:
    assert any(fact in part for part in owners[owner].values())


def test_reads_letters_of_an_alphabet() -> None:
    pytest.importorskip("babel", reason="needs babel: pip install 'fkge[atlas]'")
    assert letters("A B {Ch} É é ɓ {ɔ̃̀}") == sorted({"é", "ɓ", "ɔ̃̀"})


def test_languages_without_a_network_name_the_missing_wheel(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(DataError, match=r"gflanguages-0\.7\.11-py3-none-any\.whl cannot be downloaded .* pip download"):
        list(languages())
