"""Which part of the contract is held every time, and which where there is more time."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of an engine whose processes take seconds to start, the one run that most tests look at is enough."""
    for item in items:
        if "[ray]" in item.name and "together" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)
