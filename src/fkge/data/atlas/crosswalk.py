"""Which subdivision of ISO 3166-2 a code of GeoNames stands for.

GeoNames numbers a country's parts in its own way and the package does not name them. In four countries the codes are
ISO's. Elsewhere towns vote: each for the subdivision of the nearest airport, whose names can be looked up. A code is
settled if most of its towns agree and no other code has more votes for the same part. All airports of the package are
asked, whatever the federation makes of them; what comes of it is what the parts are called, and nothing else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

from fkge.data.atlas.names import package, slug, subdivision
from fkge.data.atlas.places import Town, kilometres, towns

ISO_CODED = frozenset(("BE", "CH", "GB", "US"))
"""Countries whose parts GeoNames calls by ISO's codes."""

AGREEMENT = 0.6
"""Share of a code's votes that settles it."""

NEAR = 50.0
"""Kilometres within which a town asks for an airport."""


def part(town: Town) -> str | None:
    """``subdivision:FR-IDF`` that a town is in; ``area:GR/ESYE42`` if its code is not settled, None if it has none."""
    if town.admin1 in ("", "00"):
        return None
    return _settled().get((town.country, town.admin1)) or f"area:{town.country}/{town.admin1}"


def listed(town: Town) -> str | None:
    """The same, if it is one of ISO's."""
    found = part(town)
    return found if found and found.startswith("subdivision:") else None


@cache
def _settled() -> dict[tuple[str, str], str]:
    codes = {(town.country, town.admin1) for town in towns()}
    settled = {code: f"subdivision:{'-'.join(code)}" for code in codes if code[0] in ISO_CODED}
    settled |= _cities()
    votes = {code: count for code, count in _votes().items() if code not in settled}
    most: dict[str, int] = defaultdict(int)
    for count in votes.values():
        for name, number in count.items():
            most[name] = max(most[name], number)
    for code, count in sorted(votes.items()):
        name, number = min(count.items(), key=lambda item: (-item[1], item[0]))
        taken = name in settled.values()
        if not taken and number == most[name] and number >= AGREEMENT * count.total():
            settled[code] = name
    return settled


def _cities() -> dict[tuple[str, str], str]:
    """Codes whose largest town is a subdivision by itself, as Moscow is."""
    cities = {
        (item.country_code, slug(item.name)): f"subdivision:{item.code}"
        for item in package("pycountry").subdivisions
        if not item.parent_code and "city" in item.type.lower() and "county right" not in item.type.lower()
    }
    seats: dict[tuple[str, str], Town] = {}
    for town in towns():
        seats.setdefault((town.country, town.admin1), town)
    found: dict[tuple[str, str], str] = {}
    for code, town in seats.items():
        names = {cities[key] for spelling in town.spellings if (key := (town.country, spelling)) in cities}
        if len(names) == 1 and not names & set(found.values()):
            found[code] = names.pop()
    return found


def _votes() -> dict[tuple[str, str], Counter[str]]:
    """For each code, the subdivisions of the airports nearest to its towns."""
    grid = defaultdict(list)
    for airport in package("airportsdata").load("ICAO").values():
        name = subdivision(airport["country"], airport["subd"]) if airport["subd"] else None
        if name:
            where = (airport["lat"], airport["lon"])
            grid[airport["country"], round(where[0]), round(where[1])].append((where, name))
    votes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for town in towns():
        if town.country in ISO_CODED:
            continue
        row, column = round(town.where[0]), round(town.where[1])
        around = [(row + i, column + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        airports = (entry for cell in around for entry in grid.get((town.country, *cell), ()))
        distance, name = min(((kilometres(where, town.where), name) for where, name in airports), default=(NEAR, ""))
        if distance < NEAR:
            votes[town.country, town.admin1][name] += 1
    return votes
