"""A finished simulation for the tests of the Python interface."""

from __future__ import annotations

import pytest

import fkge
from tests.unit.api.scripts import QUICK, owners


@pytest.fixture(scope="package")
def result() -> fkge.Result:
    return fkge.Federation(owners(), name="circle").simulate(seed=3, baselines=("independent", "control"), **QUICK)
