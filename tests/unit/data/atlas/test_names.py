"""Labels: public codes, and one spelling for all ways to write a name."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

pycountry = pytest.importorskip("pycountry", reason="needs pycountry: pip install 'fkge[atlas]'")
pytest.importorskip("babel", reason="needs babel: pip install 'fkge[atlas]'")

from fkge.data.atlas import names  # noqa: E402
from fkge.data.atlas.names import slug  # noqa: E402


@given(st.text())
def test_a_slug_is_plain(text: str) -> None:
    assert re.fullmatch("([a-z0-9]+(-[a-z0-9]+)*)?", slug(text))


@given(st.text())
def test_a_slug_of_a_slug_is_itself(text: str) -> None:
    assert slug(slug(text)) == slug(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x24F)))
def test_how_a_letter_is_encoded_does_not_matter(text: str) -> None:
    assert slug(unicodedata.normalize("NFD", text)) == slug(unicodedata.normalize("NFC", text))


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1), st.sampled_from([" ", "-", " - ", "_"])
)
def test_case_and_gaps_do_not_matter(word: str, gap: str) -> None:
    assert slug(f" {word.upper()}{gap}{word.lower()} ") == f"{word.lower()}-{word.lower()}"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Saint-Étienne", "saint-etienne"),
        ("Łódź", "lodz"),
        ("Reykjavík", "reykjavik"),
        ("İstanbul", "istanbul"),
        ("Vava‘u", "vavau"),
        ("Tromsø", "tromso"),
        ("Straße", "strasse"),
        ("Москва", ""),
    ],
)
def test_slug_of_letters_with_marks(text: str, plain: str) -> None:
    assert slug(text) == plain


def test_labels_of_codes() -> None:
    assert names.country("FRA") == names.country("fr") == "country:FR"
    assert names.country("XK") == "country:XK"
    assert names.country("EU") is None
    assert names.language("fre") == names.language("fr_BE") == names.language("fr-CA") == "language:fra"
    assert names.language("und_Latn") == "language:und"
    assert names.language("zz") is None
    assert names.timezone("Asia/Calcutta") == names.timezone("Asia/Kolkata") == "timezone:Asia/Kolkata"
    assert names.timezone("Etc/GMT+1") is None
    assert names.calling_code("+33") == "calling:33"
    assert names.calling_code("+1-809 and 1-829") == names.calling_code("1684") == "calling:1"
    assert names.calling_code("") is None
    assert names.script("Latn") == "script:Latn"
    assert names.script("latin") is None
    assert names.currency("") is None


@pytest.mark.parametrize(
    ("country", "name", "code"),
    [
        ("FR", "Bretagne", "FR-BRE"),
        ("FR", "Brittany", "FR-BRE"),
        ("CN", "Sichuan", "CN-SC"),
        ("CN", "Xinjiang", "CN-XJ"),
        ("RU", "Irkutsk", "RU-IRK"),
        ("RU", "Irkutskaya Oblast", "RU-IRK"),
        ("SE", "Vaesterbotten", "SE-AC"),
        ("SE", "Skane", "SE-M"),
        ("AR", "Buenos-Aires", "AR-B"),
        ("BD", "Dhaka", "BD-C"),  # the division, not the district within it
        ("PG", "Morobe Province", "PG-MPL"),
        ("AT", "Styria", "AT-6"),
        ("US", "Virgin Islands", "US-VI"),
    ],
)
def test_finds_a_subdivision_by_any_spelling(country: str, name: str, code: str) -> None:
    assert names.subdivision(country, name) == f"subdivision:{code}"


@pytest.mark.parametrize(("country", "name"), [("RU", "Sakha"), ("FR", ""), ("FR", "Province"), ("ZZ", "Anywhere")])
def test_finds_no_subdivision_for_an_ambiguous_name(country: str, name: str) -> None:
    assert names.subdivision(country, name) is None


def test_finds_each_subdivision_by_its_own_name() -> None:
    """Where several are called the same, it is the one of the first order, or none."""
    codes = {item.code: item for item in pycountry.subdivisions}
    settled = 0
    for item in codes.values():
        found = names.subdivision(item.country_code, item.name)
        if found is None:
            continue
        settled += 1
        code = found.partition(":")[2]
        assert code in (item.code, item.parent_code) or slug(codes[code].name) == slug(item.name), (item.code, code)
    assert settled >= 0.99 * len(codes)
