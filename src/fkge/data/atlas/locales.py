"""The locales: what Unicode's CLDR says of territories, languages and time zones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fkge.data.atlas.names import country, currency, language, package, script, timezone
from fkge.data.facts import Claim

SPOKEN = 1.0
"""Per cent of a territory's people that must know a language for it to be spoken there."""


def claims() -> Iterator[Claim]:
    yield from _zones()
    yield from _currencies()
    yield from _territories()
    yield from _languages()
    yield from _locales()


def _zones() -> Iterator[Claim]:
    for territory, zones in package("babel.core").get_global("territory_zones").items():
        for zone in zones:
            yield timezone(zone), "in_country", country(territory)
    for zone, group in package("babel.core").get_global("meta_zones").items():
        yield timezone(zone), "zone_group", f"zone-group:{group}"


def _currencies() -> Iterator[Claim]:
    """Those with an end are of the past; those that are no tender are funds and the like."""
    for territory, entries in package("babel.core").get_global("territory_currencies").items():
        for code, _, end, tender in entries:
            if tender:
                yield country(territory), "uses_currency" if end is None else "used_currency", currency(code)


def _territories() -> Iterator[Claim]:
    for territory, spoken in package("babel.core").get_global("territory_languages").items():
        for tag, entry in spoken.items():
            if entry["official_status"]:
                yield country(territory), "official_language", language(tag)
            if entry["population_percent"] >= SPOKEN:
                yield country(territory), "speaks", language(tag)
            if "_" in tag:
                yield language(tag), "written_in", script(tag.split("_")[1])


def _languages() -> Iterator[Claim]:
    """What a language's bare tag stands for: ``ja`` is Japanese in Japanese letters, of Japan."""
    for tag, full in package("babel.core").get_global("likely_subtags").items():
        parts = full.split("_")
        if "_" not in tag and len(parts) == 3:
            yield language(tag), "written_in", script(parts[1])
            yield language(tag), "likely_country", country(parts[2])


def _locales() -> Iterator[Claim]:
    """Languages as they are used somewhere; of a language itself, how it is written and counted in."""
    for identifier in sorted(package("babel.localedata").locale_identifiers()):
        locale, here = package("babel.core").Locale.parse(identifier), f"locale:{identifier}"
        if "_" in identifier:
            yield here, "locale_language", language(identifier)
            yield here, "locale_script", script(locale.script)
            yield here, "locale_country", country(locale.territory or "")
            yield country(locale.territory or ""), "week_starts", f"weekday:{_DAYS[locale.first_week_day]}"
        elif identifier != "root":
            yield from _writing(language(identifier), locale)


_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


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
