"""How the atlas's owners name things: public codes where there are some, else a plain spelling of the name.

The codes are those of ISO 3166, 639, 4217 and 15924 as pycountry lists them, and time zones as CLDR settles them.
They make equal things equal between owners, and say nothing about them.
"""

from __future__ import annotations

import gettext
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeAlias

from fkge.errors import need

# Letters that Unicode does not take for a plain one with a mark.
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
"""Words that say what kind of subdivision it is, and do not tell two apart."""

_ENDINGS = frozenset(("aya", "iy", "skaya", "skiy", "kaya", "kiy", "ski", "sky", "skij", "g", "e", "s"))
"""What a name may lack: Irkutsk is Irkutskaya oblast'."""

_TRANSLATIONS = ("en", "de", "es", "fr", "id", "it", "nl", "sv")
"""Languages whose names of subdivisions are looked up too; those that decline names would mislead."""

# English names that neither ISO 3166-2 nor its translations have, for parts with many facts.
_EXONYMS = dict(
    line.split()
    for line in """
    AT/carinthia AT-2
    AT/styria AT-6
    AT/upper-austria AT-4
    BE/flanders BE-VLG
    CN/inner-mongolia CN-NM
    DE/saxony DE-SN
    DK/north-denmark DK-81
    DK/south-denmark DK-83
    DK/zealand DK-85
    ES/canary-islands ES-CN
    ES/islas-baleares ES-IB
    FR/brittany FR-BRE
    FR/corsica FR-20R
    FR/normandy FR-NOR
    GR/crete GR-M
    GR/north-aegean GR-K
    GR/peloponnese GR-J
    GR/south-aegean GR-L
    GR/thessaly GR-E
    GR/west-greece GR-G
    ID/central-java ID-JT
    ID/east-java ID-JI
    ID/east-kalimantan ID-KI
    ID/east-nusa-tenggara ID-NT
    ID/north-maluku ID-MU
    ID/north-sulawesi ID-SA
    ID/north-sumatra ID-SU
    ID/riau-islands ID-KR
    ID/south-kalimantan ID-KS
    ID/south-sulawesi ID-SN
    ID/south-sumatra ID-SS
    ID/southeast-sulawesi ID-SG
    ID/west-papua ID-PB
    IT/sicily IT-82
    IT/tuscany IT-52
    NL/north-brabant NL-NB
    NL/north-holland NL-NH
    NL/south-holland NL-ZH
    RU/khanty-mansia RU-KHM
    RU/moscow-oblast RU-MOS
    RU/sakha-republic RU-SA
    SA/eastern-province SA-04
    UA/crimea UA-43
    ZA/orange-free-state ZA-FS
    """.strip().splitlines()
)


def package(module: str) -> Any:
    """One of the packages that the atlas is made from."""
    return need(module, "atlas", "the embedded federation 'atlas'")


def slug(text: str) -> str:
    """A name in small letters without marks, gaps as hyphens: ``Saint-Étienne`` is ``saint-etienne``."""
    letters = unicodedata.normalize("NFKD", _QUOTES.sub("", text.lower()))
    plain = "".join(c for c in letters if not unicodedata.combining(c)).lower().translate(_PLAIN)
    return _GAPS.sub("-", plain).strip("-")


def country(code: str) -> str | None:
    """``country:FR`` of ISO 3166-1's two or three letters, or Kosovo's XK."""
    found = _countries().get(code.upper())
    return f"country:{found}" if found else None


@cache
def _countries() -> dict[str, str]:
    listed = {key: c.alpha_2 for c in package("pycountry").countries for key in (c.alpha_2, c.alpha_3)}
    return {**listed, "XK": "XK", "XKX": "XK", "UNK": "XK"}


def language(code: str) -> str | None:
    """``language:fra`` of a code of ISO 639 (``fr``, ``fra``, ``fre``) or a tag that begins with one (``fr_BE``)."""
    found = _languages().get(re.split("[-_]", code.strip())[0])
    return f"language:{found}" if found else None


@cache
def _languages() -> dict[str, str]:
    codes = {}
    for item in package("pycountry").languages:
        for key in ("alpha_3", "alpha_2", "bibliographic"):
            if code := getattr(item, key, None):
                codes[code] = item.alpha_3
    return codes


def currency(code: str) -> str | None:
    """``currency:EUR`` of ISO 4217's letters."""
    return f"currency:{code.upper()}" if re.fullmatch("[A-Za-z]{3}", code) else None


def script(code: str | None) -> str | None:
    """``script:Latn`` of ISO 15924's letters."""
    return f"script:{code}" if code and re.fullmatch("[A-Z][a-z]{3}", code) else None


def timezone(name: str) -> str | None:
    """``timezone:Europe/Paris``, an old name replaced by the present one; offsets from UTC are not zones."""
    name = package("babel.core").get_global("zone_aliases").get(name, name)
    return f"timezone:{name}" if "/" in name and not name.startswith("Etc/") else None


def calling_code(text: str) -> str | None:
    """``calling:33`` of a country's telephone prefix; area codes behind it are left out."""
    digits = re.sub(r"\D", "", re.split(" and |,|-(?=1)", text)[0])[:3]
    return f"calling:{'1' if digits.startswith('1') else digits}" if digits else None


def subdivision(country_code: str, name: str) -> str | None:
    """``subdivision:FR-BRE`` of a country's part by its name in any Latin spelling; None if that is not enough."""
    found = _subdivision(country_code, slug(name))
    return f"subdivision:{found}" if found else None


def unlisted(country_code: str, name: str) -> str | None:
    """A country's part that ISO 3166-2 does not list under that name: ``area:GR/south-aegean``."""
    return f"area:{country_code}/{slug(name)}" if slug(name) else None


@cache
def _subdivision(country_code: str, name: str) -> str | None:
    if found := _EXONYMS.get(f"{country_code}/{name}"):
        return found
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
    """The one code, or the only one of the first order where there are more."""
    if len(codes) > 1:
        codes = {code: top for code, top in codes.items() if top}
    return next(iter(codes)) if len(codes) == 1 else None


def _folded(name: str) -> str:
    """Both ways to write a letter with two dots are one: vaesterbotten, vasterbotten."""
    return name.replace("ae", "a").replace("oe", "o").replace("ue", "u")


Spellings: TypeAlias = dict[str, dict[str, dict[str, bool]]]
"""Country → spelling → codes, and whether each is of the first order."""


@cache
def _subdivisions() -> tuple[Spellings, Spellings]:
    """Spellings in ISO 3166-2 itself, and in translations of it."""
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
    """Names of subdivisions in other languages."""
    for code in _TRANSLATIONS:
        yield gettext.translation("iso3166-2", package("pycountry").LOCALES_DIR, languages=[code])
