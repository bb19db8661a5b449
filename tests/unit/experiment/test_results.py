"""Results of simulations: typed, versioned, and read back as they were written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import RunError
from fkge.experiment.results import FILE, SimulationResult, mean_scores
from fkge.results import METRICS, OwnerReport, Scores
from tests.unit.report.made import result as made_result

GAINS = {"ant": {"strict": (0.01, 0.03)}, "bee": {"strict": (-0.01, 0.02), "held": (0.1, 0.2)}}


def scores(value: float) -> Scores:
    return Scores.model_validate(dict.fromkeys(METRICS, value))


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = made_result(GAINS)
    result.write(tmp_path / FILE)
    assert SimulationResult.load(tmp_path) == result
    assert json.loads((tmp_path / FILE).read_text())["version"] == SimulationResult.VERSION


def test_version_1_is_completed_from_the_files_beside_it(tmp_path: Path) -> None:
    result = made_result(GAINS)
    old = {k: v for k, v in result.to_json().items() if k not in ("version", "arms", "two_tracks", "policies")}
    (tmp_path / FILE).write_text(json.dumps(old))
    owners = list(result.owners)
    about = result.to_json("federation", "engine", "seed", "arms", "two_tracks") | {"owners": owners}
    (tmp_path / "simulation.json").write_text(json.dumps(about))
    (tmp_path / "owners" / owners[0]).mkdir(parents=True)
    (tmp_path / "owners" / owners[0] / "policy.toml").write_text("")
    read = SimulationResult.load(tmp_path)
    assert (read.version, read.arms, read.policies) == (SimulationResult.VERSION, result.arms, [owners[0]])
    assert read.mean == result.mean


@pytest.mark.parametrize(
    ("change", "message"),
    [({"version": 99}, r"is of version 99; this fkge reads up to 2. Update fkge"), ({"seed": "x"}, r"seed: .*damaged")],
)
def test_refuses_later_versions_and_damaged_files(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(made_result(GAINS).to_json() | change))
    with pytest.raises(RunError, match=message):
        SimulationResult.load(tmp_path)


def test_means_are_over_the_owners_that_have_a_part() -> None:
    reports = [
        OwnerReport.model_construct(test={"strict": scores(0.2), "held": scores(0.5)}),
        OwnerReport.model_construct(test={"strict": scores(0.4)}),
    ]
    means = mean_scores(reports)
    assert list(means) == ["strict", "held"]
    assert means["strict"].mrr == means["strict"]["hits@10"] == pytest.approx(0.3)
    assert means["held"].accuracy == 0.5


def test_results_are_read_without_torch() -> None:
    code = "import sys, fkge.experiment.results; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
