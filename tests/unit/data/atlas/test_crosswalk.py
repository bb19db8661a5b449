"""Codes of GeoNames mapped to subdivisions of ISO 3166-2."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.data.atlas import crosswalk
from fkge.data.atlas.crosswalk import subdivision_of
from fkge.data.atlas.places import named


def test_maps_codes_of_geonames_to_subdivisions(atlas: Path) -> None:
    largest = {
        ("AU", "sydney"): "AU-NSW",
        ("BR", "sao-paulo"): "BR-SP",
        ("CA", "toronto"): "CA-ON",
        ("CN", "chengdu"): "CN-SC",
        ("DE", "munich"): "DE-BY",
        ("ES", "sevilla"): "ES-AN",
        ("GB", "glasgow"): "GB-SCT",
        ("IN", "mumbai"): "IN-MH",
        ("IT", "palermo"): "IT-82",
        ("JP", "sapporo"): "JP-01",
        ("US", "chicago"): "US-IL",
    }
    assert {town: subdivision_of(named(*town)[0]) for town in largest} == {
        s: f"subdivision:{c}" for s, c in largest.items()
    }


def test_votes_of_towns_agree_with_iso_codes(atlas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where GeoNames' codes are ISO's, what the vote would have come to can be compared with them."""
    known = crosswalk.ISO_CODED
    monkeypatch.setattr(crosswalk, "ISO_CODED", frozenset())
    settled = crosswalk.assigned_subdivisions.__wrapped__()
    voted = {code: name for code, name in settled.items() if code[0] in known}
    right = sum(name == f"subdivision:{'-'.join(code)}" for code, name in voted.items())
    assert len(voted) >= 60
    assert right >= 0.95 * len(voted)
