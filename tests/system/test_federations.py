"""A real federation gains what its page says it gains: five DBpedias, shortened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[2] / "src" / "fkge" / "recipes" / "federations"


@pytest.mark.long
def test_five_dbpedias_gain_from_each_other_and_nothing_from_mixed_up_rows(shared_data: Path, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "fkge", "simulate", str(shared_data / "dbp5l"), "--out", str(tmp_path / "run"),
        "--config", str(RECIPES / "dbp5l.toml"), "--set", "initial_epochs=0", "--set", "exchanges=12",
        "--baselines", "control,permuted", "--json", "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    mean = json.loads(done.stdout.splitlines()[-1])["mean"]
    for part, gain in (("strict", 0.03), ("held", 0.15)):
        assert mean["federated"][part]["mrr"] > mean["control"][part]["mrr"] + gain
        assert mean["permuted"][part]["mrr"] < mean["control"][part]["mrr"]
