"""Replay of a recording: an owner sends the same, byte by byte, or the first difference is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fkge.errors import RunError
from fkge.experiment.engines import InProcess
from fkge.experiment.simulation import Simulation
from tests.conftest import COMPLEX, OWNERS, EventLog, tiny_federation, tiny_settings
from tests.replay import replay


@pytest.mark.parametrize("train", [{}, COMPLEX], ids=["TransE", "ComplEx"])
def test_an_owner_sends_the_same_again_and_another_seed_differs(train: dict[str, Any], tmp_path: Path) -> None:
    def simulation(name: str, seed: int) -> Simulation:
        settings = tiny_settings(exchanges=2, train=train)
        return Simulation.create(tmp_path / name, tiny_federation(OWNERS[:2]), settings, seed=seed, baselines=())

    made = simulation("run", 1)
    assert InProcess(made.owners, EventLog(), recordings=tmp_path).run(made.arm("federated"))
    same, other = (simulation(f"seed {seed}", seed) for seed in (1, 2))
    found = replay(same.owners[0], same.arm("federated"), tmp_path / "ant.tape")
    assert found.same
    assert found.nbytes > found.messages > 3
    different = replay(other.owners[0], other.arm("federated"), tmp_path / "ant.tape").difference
    assert different is not None
    assert different.got != different.expected
    with pytest.raises(RunError, match="holds a checkpoint"):
        replay(made.owners[0], made.arm("federated"), tmp_path / "ant.tape")
