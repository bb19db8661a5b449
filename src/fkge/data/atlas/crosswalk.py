"""The subdivision of ISO 3166-2 that a code of GeoNames stands for.

GeoNames numbers a country's subdivisions in its own way and the package does not name them. In four countries the codes
are ISO's. Elsewhere a majority vote decides: each town votes for the subdivision of the nearest airport, whose name can
be looked up. A code is assigned if most of its towns agree and no other code has more votes for the same subdivision.
All airports of the package vote, also those that are no part of the federation; only labels depend on the result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache

from fkge.data.atlas.names import package, slug, subdivision
from fkge.data.atlas.places import Town, kilometres, towns

ISO_CODED = frozenset(("BE", "CH", "GB", "US"))
"""Countries whose subdivisions have ISO's codes in GeoNames."""

AGREEMENT = 0.6
"""Share of a code's votes that assigns it."""

NEAR = 50.0
"""Greatest distance in kilometres from a town to the airport it votes for."""


def subdivision_of(town: Town) -> str | None:
    """Return a town's ``subdivision:FR-IDF``; ``area:GR/ESYE42`` if its code is not assigned, None if it has none."""
    if town.admin1 in ("", "00"):
        return None
    return assigned_subdivisions().get((town.country, town.admin1)) or f"area:{town.country}/{town.admin1}"


def iso_subdivision(town: Town) -> str | None:
    """Return a town's subdivision if it is one of ISO's."""
    found = subdivision_of(town)
    return found if found and found.startswith("subdivision:") else None


@cache
def assigned_subdivisions() -> dict[tuple[str, str], str]:
    codes = {(town.country, town.admin1) for town in towns()}
    assigned = {code: f"subdivision:{'-'.join(code)}" for code in codes if code[0] in ISO_CODED}
    assigned |= _cities()
    votes = {code: count for code, count in _votes().items() if code not in assigned}
    most = Counter[str]()
    for count in votes.values():
        most |= count  # the greater of both, by name
    for code, count in sorted(votes.items()):
        name, number = min(count.items(), key=lambda item: (-item[1], item[0]))
        taken = name in assigned.values()
        if not taken and number == most[name] and number >= AGREEMENT * count.total():
            assigned[code] = name
    return assigned


def _cities() -> dict[tuple[str, str], str]:
    """Return codes whose largest town is a subdivision of its own, as Moscow is."""
    cities = {
        (item.country_code, slug(item.name)): f"subdivision:{item.code}"
        for item in package("pycountry").subdivisions
        if not item.parent_code and "city" in item.type.lower() and "county right" not in item.type.lower()
    }
    largest: dict[tuple[str, str], Town] = {}
    for town in towns():
        largest.setdefault((town.country, town.admin1), town)
    found: dict[tuple[str, str], str] = {}
    for code, town in largest.items():
        names = {cities[key] for spelling in town.spellings if (key := (town.country, spelling)) in cities}
        if len(names) == 1 and not names & set(found.values()):
            found[code] = names.pop()
    return found


def _votes() -> dict[tuple[str, str], Counter[str]]:
    """Count, for each code, the subdivisions of the airports nearest to its towns."""
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
