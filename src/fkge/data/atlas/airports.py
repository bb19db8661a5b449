"""The airports: where each one is and which town it serves."""

from __future__ import annotations

from collections.abc import Iterator

from fkge.data.atlas import gazetteer
from fkge.data.atlas.names import country, package, slug, subdivision, timezone, unlisted
from fkge.data.atlas.places import find, place
from fkge.data.facts import Claim


def claims() -> Iterator[Claim]:
    """Airports with a code of IATA's: those that passengers know.

    Where an airport lies is not said of the town it serves: of a town this owner knows the country alone.
    """
    for code, entry in package("airportsdata").load("ICAO").items():
        if not entry["iata"]:
            continue
        airport, land = f"airport:{code}", entry["country"]
        listed = subdivision(land, entry["subd"])
        inside = listed or unlisted(land, entry["subd"])
        yield airport, "in_timezone", timezone(entry["tz"])
        if inside is None:
            yield airport, "in_country", country(land)
        else:
            yield airport, "in_subdivision", inside
            yield inside, "in_country", country(land)
        town = find(land, entry["city"], (entry["lat"], entry["lon"]))
        served = gazetteer.name(town) if town else place(land, entry["city"], listed)
        if slug(entry["city"]):
            yield airport, "serves", served
            yield served, "in_country", country(land)
