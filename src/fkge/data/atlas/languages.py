"""The languages: scripts, letters and countries of the languages that Google Fonts serves."""

from __future__ import annotations

import re
import unicodedata
import zipfile
from collections.abc import Iterator

from fkge.data.atlas.names import country, language, script, slug
from fkge.data.facts import Claim
from fkge.data.wheels import Wheel
from fkge.trace import SILENT, Progress

# A wheel and not a requirement: it needs a newer protobuf than private set intersection allows.
WHEEL = Wheel(
    "gflanguages",
    "0.7.11",
    "gflanguages-0.7.11-py3-none-any.whl",
    "17173d48d77db0d6d37e81537f54cc45a87faf6d45cf754f6316b9b2adb59f6c",
)

LETTERS = 3
"""Code points of a letter, at most: marks are written behind what carries them."""

# Scripts of so many signs that a list of them says little about a language.
_LARGE = frozenset(
    [
        "Bamu",
        "Egyp",
        "Ethi",
        "Hang",
        "Hani",
        "Hans",
        "Hant",
        "Jpan",
        "Kits",
        "Kore",
        "Linb",
        "Nshu",
        "Tang",
        "Xsux",
        "Yiii",
    ]
)


def claims(progress: Progress = SILENT) -> Iterator[Claim]:
    """What the package's text files say; the package itself is not installed."""
    data = zipfile.Path(WHEEL.fetch(progress), "gflanguages/data/")
    for text in _texts(data / "languages"):
        yield from _language(text)
    for text in _texts(data / "scripts"):
        for family in _values(text, "family"):
            yield script(_values(text, "id")[0]), "script_family", f"script-family:{slug(family)}"
    for text in _texts(data / "regions"):
        for group in _values(text, "region_group"):
            yield country(_values(text, "id")[0]), "in_region", f"region:{slug(group)}"


def _texts(folder: zipfile.Path) -> Iterator[str]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        yield file.read_text(encoding="utf-8")


def _language(text: str) -> Iterator[Claim]:
    codes, scripts = _values(text, "language"), _values(text, "script")
    tongue = language(codes[0]) if codes else None
    for written in scripts:
        yield tongue, "written_in", script(written)
    for region in _values(text, "region"):
        yield country(region), "speaks", tongue
    if _LARGE.isdisjoint(scripts):
        for base in _values(text, "base"):
            for letter in letters(base):
                yield tongue, "uses_letter", f"letter:{letter}"


def letters(base: str) -> list[str]:
    """The letters of an alphabet in small ones, without the plain Latin ones that most share."""
    small = {unicodedata.normalize("NFKC", sign.strip("{}").lower()) for sign in base.replace("\\", "").split()}
    return sorted(x for x in small if 0 < len(x) <= LETTERS and " " not in x and not re.fullmatch("[a-z]+", x))


def _values(text: str, key: str) -> list[str]:
    """What a message says under `key`, as often as it says it."""
    return re.findall(rf'^\s*{key}: "((?:[^"\\]|\\.)*)"', text, re.MULTILINE)
