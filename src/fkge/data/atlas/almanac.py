"""The almanac: an encyclopaedia's records of countries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fkge.data.atlas import gazetteer
from fkge.data.atlas.names import calling_code, country, currency, language, slug, subdivision, timezone, unlisted
from fkge.data.atlas.places import find, place
from fkge.data.facts import Claim


def claims() -> Iterator[Claim]:
    """Read from the package's JSON files, each of which is a country."""
    from importlib.metadata import distribution

    data = Path(str(distribution("countryinfo").locate_file("countryinfo"))) / "data"
    for file in sorted(data.glob("*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        code = entry.get("ISO", {}).get("alpha2", "").upper()
        if country(code):
            yield from _country(code, entry)


def _country(code: str, entry: dict[str, Any]) -> Iterator[Claim]:
    here = country(code)
    for neighbour in entry.get("borders") or ():
        yield here, "borders", country(neighbour)
    for money in entry.get("currencies") or ():
        yield here, "uses_currency", currency(money)
    for spoken in entry.get("languages") or ():
        yield here, "speaks", language(spoken)
    for prefix in entry.get("callingCodes") or ():
        yield here, "calling_code", calling_code(str(prefix))
    for zone in entry.get("timezoneNames") or ():
        yield timezone(zone), "in_country", here
    for offset in entry.get("timezones") or ():
        yield here, "utc_offset", f"offset:{offset.replace('−', '-')}"
    for name in entry.get("provinces") or ():
        yield subdivision(code, name) or unlisted(code, name), "in_country", here
    yield here, "capital", _capital(code, entry)
    if region := slug(entry.get("region") or ""):
        yield here, "in_region", f"region:{region}"
        if part := slug(entry.get("subregion") or ""):
            yield here, "in_subregion", f"subregion:{part}"
            yield f"subregion:{part}", "in_region", f"region:{region}"


def _capital(code: str, entry: dict[str, Any]) -> str | None:
    name, where = entry.get("capital"), entry.get("capital_latlng")
    if not isinstance(name, str):
        return None
    town = find(code, name, tuple(where)) if where else None
    return gazetteer.name(town) if town else place(code, name)
