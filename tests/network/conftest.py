"""A laboratory for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.lab import Lab, lacking


@pytest.fixture(scope="session")
def _possible() -> str | None:
    return lacking()


@pytest.fixture
def lab(_possible: str | None) -> Iterator[Lab]:
    """An empty laboratory; skips where there can be none."""
    if _possible:
        pytest.skip(_possible)
    with Lab("test") as made:
        yield made
