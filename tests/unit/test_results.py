"""Results: written and read by the keys of their files, with errors that name the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from fkge.errors import RunError
from fkge.results import Scores

SCORES = {"mr": 3.0, "mrr": 0.5, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 1.0, "accuracy": 0.75}


def test_reads_back_what_was_written(tmp_path: Path) -> None:
    scores = Scores.model_validate(SCORES)
    scores.write(tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text()) == SCORES == scores.to_json()
    assert Scores.read(tmp_path / "scores.json", "") == scores
    assert scores["hits@10"] == scores.hits_at_10 == 1.0
    with pytest.raises(ValidationError):
        scores.mrr = 1.0  # type: ignore[misc]


def test_ignores_keys_of_later_versions_and_refuses_damaged_values(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    assert Scores.parse({**SCORES, "later": 1}, path, "").to_json() == SCORES
    with pytest.raises(RunError, match=r"scores\.json: mrr: .*the file is damaged\. Run it again\."):
        Scores.parse({**SCORES, "mrr": "high"}, path, "Run it again.")
