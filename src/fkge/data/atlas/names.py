"""Labels of the atlas: public codes where there are some, else a plain spelling of the name.

The codes are those of ISO 3166, 639, 4217 and 15924 as pycountry lists them, and time zones by their present name in
CLDR. They give equal things equal labels in all owners, and carry no facts about them.
"""

from __future__ import annotations

import gettext
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from fkge.errors import need

# Letters that Unicode does not decompose into a plain one and a mark.
_PLAIN = str.maketrans(
    {"ı": "i", "ə": "a", "ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ß": "ss", "ħ": "h"}
)
_QUOTES = re.compile("['’‘ʻʼ`´]")
_GAPS = re.compile(r"[^a-z0-9]+")

_GENERIC = frozenset(
    re.split(
        r"\s+",
        "province provincia region state oblast prefecture county department departamento governorate district of the "
        "and autonomous okrug krai republic city municipality parish division territory changwat",
    )
)
"""Words for kinds of subdivisions, which do not distinguish two."""

_ENDINGS = frozenset(("aya", "iy", "skaya", "skiy", "kaya", "kiy", "ski", "sky", "skij", "g", "e", "s"))
"""Endings that a name may lack: Irkutsk is Irkutskaya oblast'."""

_TRANSLATIONS = ("en", "de", "es", "fr", "id", "it", "nl", "sv")
"""Languages whose names of subdivisions are looked up too; languages that decline names would mislead."""

# English names that neither ISO 3166-2 nor its translations have, for subdivisions with many facts: name, then code.
_EXONYMS = {
    "AT": "carinthia 2, styria 6, upper-austria 4",
    "BE": "flanders VLG",
    "CN": "inner-mongolia NM",
    "DE": "saxony SN",
    "DK": "north-denmark 81, south-denmark 83, zealand 85",
    "ES": "canary-islands CN, islas-baleares IB",
    "FR": "brittany BRE, corsica 20R, normandy NOR",
    "GR": "crete M, north-aegean K, peloponnese J, south-aegean L, thessaly E, west-greece G",
    "ID": (
        "central-java JT, east-java JI, east-kalimantan KI, east-nusa-tenggara NT, north-maluku MU, "
        "north-sulawesi SA, north-sumatra SU, riau-islands KR, south-kalimantan KS, south-sulawesi SN, "
        "south-sumatra SS, southeast-sulawesi SG, west-papua PB"
    ),
    "IT": "sicily 82, tuscany 52",
    "NL": "north-brabant NB, north-holland NH, south-holland ZH",
    "RU": "khanty-mansia KHM, moscow-oblast MOS, sakha-republic SA",
    "SA": "eastern-province 04",
    "UA": "crimea 43",
    "ZA": "orange-free-state FS",
}


def package(module: str) -> Any:
    """Import one of the packages that the atlas is made from."""
    return need(module, "atlas", "the embedded federation 'atlas'")


def slug(text: str) -> str:
    """Return a name in lower case without marks, gaps as hyphens: ``Saint-Étienne`` becomes ``saint-etienne``."""
    letters = unicodedata.normalize("NFKD", _QUOTES.sub("", text.lower()))
    plain = "".join(c for c in letters if not unicodedata.combining(c)).lower().translate(_PLAIN)
    return _GAPS.sub("-", plain).strip("-")


def country(code: str) -> str | None:
    """Return ``country:FR`` for ISO 3166-1's two or three letters, or Kosovo's XK."""
    found = _countries().get(code.upper())
    return f"country:{found}" if found else None


@cache
def _countries() -> dict[str, str]:
    listed = {key: c.alpha_2 for c in package("pycountry").countries for key in (c.alpha_2, c.alpha_3)}
    return {**listed, "XK": "XK", "XKX": "XK", "UNK": "XK"}


def language(code: str) -> str | None:
    """Return ``language:fra`` for a code of ISO 639 (``fr``, ``fra``, ``fre``) or a tag that starts with one."""
    found = _languages().get(re.split("[-_]", code.strip())[0])
    return f"language:{found}" if found else None


@cache
def _languages() -> dict[str, str]:
    listed = package("pycountry").languages
    keys = ("alpha_3", "alpha_2", "bibliographic")
    return {code: item.alpha_3 for item in listed for key in keys if (code := getattr(item, key, None))}


def currency(code: str) -> str | None:
    """Return ``currency:EUR`` for ISO 4217's letters."""
    return f"currency:{code.upper()}" if re.fullmatch("[A-Za-z]{3}", code) else None


def script(code: str | None) -> str | None:
    """Return ``script:Latn`` for ISO 15924's letters."""
    return f"script:{code}" if code and re.fullmatch("[A-Z][a-z]{3}", code) else None


def timezone(name: str) -> str | None:
    """Return ``timezone:Europe/Paris``, an old name replaced by the present one; offsets from UTC are not zones."""
    name = package("babel.core").get_global("zone_aliases").get(name, name)
    return f"timezone:{name}" if "/" in name and not name.startswith("Etc/") else None


def calling_code(text: str) -> str | None:
    """Return ``calling:33`` for a country's telephone prefix; area codes behind it are left out."""
    digits = re.sub(r"\D", "", re.split(" and |,|-(?=1)", text)[0])[:3]
    return f"calling:{'1' if digits.startswith('1') else digits}" if digits else None


def subdivision(country_code: str, name: str) -> str | None:
    """Return ``subdivision:FR-BRE`` for a name in any Latin spelling; None if the name is not enough."""
    found = _subdivision(country_code, slug(name))
    return f"subdivision:{found}" if found else None


def unlisted(country_code: str, name: str) -> str | None:
    """Return ``area:GR/south-aegean``, for a subdivision that ISO 3166-2 does not list under that name."""
    return f"area:{country_code}/{slug(name)}" if slug(name) else None


@cache
def _subdivision(country_code: str, name: str) -> str | None:
    exonyms = dict(entry.split() for entry in _EXONYMS.get(country_code, "").split(", ") if entry)
    if name in exonyms:
        return f"{country_code}-{exonyms[name]}"
    words = [word for word in _folded(name).split("-") if word not in _GENERIC]
    tiers = [spellings.get(country_code, {}) for spellings in _subdivisions()]
    for spellings in tiers:
        for key in (name, "-".join(words)):
            if found := _only(spellings.get(key, {})):
                return found
    for same in (str.__eq__, _shortened) if words else ():
        for spellings in tiers:
            hits = [
                codes
                for key, codes in spellings.items()
                if all(any(same(word, part) for part in key.split("-")) for word in words)
            ]
            if hits:
                return _only({code: top for codes in hits for code, top in codes.items()})
    return None


def _shortened(word: str, part: str) -> bool:
    return word == part or (len(word) > 3 and part.startswith(word) and part[len(word) :] in _ENDINGS)


def _only(codes: dict[str, bool]) -> str | None:
    """Return the one code, or the only top-level one if there are several."""
    if len(codes) > 1:
        codes = {code: top for code, top in codes.items() if top}
    return next(iter(codes)) if len(codes) == 1 else None


def _folded(name: str) -> str:
    """Return a name with both spellings of an umlaut made equal: vaesterbotten, vasterbotten."""
    return name.replace("ae", "a").replace("oe", "o").replace("ue", "u")


Spellings: TypeAlias = dict[str, dict[str, dict[str, bool]]]
"""Country → spelling → codes, and whether each is top-level."""


@cache
def _subdivisions() -> tuple[Spellings, Spellings]:
    """Return the spellings in ISO 3166-2 itself, and in translations of it."""
    catalogues = list(_catalogues())
    own: Spellings = {}
    translated: Spellings = {}
    for item in package("pycountry").subdivisions:
        name = item.name
        for spellings, texts in (
            (own, {name, name.split(" [")[0], name.split(" (")[0], name.split(",")[0]}),
            (translated, {catalogue.gettext(name) for catalogue in catalogues}),
        ):
            keys = {slug(text) for text in texts} - {""}
            for key in keys | {_folded(key) for key in keys}:
                spellings.setdefault(item.country_code, {}).setdefault(key, {})[item.code] = not item.parent_code
    return own, translated


def _catalogues() -> Iterator[gettext.NullTranslations]:
    """Yield the names of subdivisions in other languages."""
    for code in _TRANSLATIONS:
        yield gettext.translation("iso3166-2", package("pycountry").LOCALES_DIR, languages=[code])
