"""A simulation of a second to attack."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.experiment.simulation import Simulation
from tests.conftest import tiny_federation, tiny_settings


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished simulation of three owners, in which cat is refused by nobody; do not change it."""
    folder = tmp_path_factory.mktemp("simulated") / "run"
    settings = tiny_settings(initial_epochs=1, exchanges=2, epochs=1, test_every=1)
    made = Simulation.create(
        folder, tiny_federation(refuses=("ant", "bee")), settings, baselines=(), engine="in-process"
    )
    assert made.run() is not None
    return folder
