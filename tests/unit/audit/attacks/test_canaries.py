"""The audit of noise: nothing is claimed without any, votes hold their claim, and a tenth of their noise does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fkge.audit.attacks.canaries import CONFIDENCE, TENTH, attack
from fkge.audit.findings import Finding, Verdict
from fkge.audit.subject import Subject, opened
from fkge.experiment.simulation import Simulation
from fkge.ppat import host
from tests.conftest import OWNERS, tiny_federation, tiny_settings

SHORT: dict[str, Any] = {"initial_epochs": 1, "exchanges": 2, "epochs": 1, "test_every": 1}


@contextmanager
def finished(folder: Path, **settings: Any) -> Iterator[Subject]:
    made = Simulation.create(
        folder / "run", tiny_federation(OWNERS[:2]), tiny_settings(**SHORT, **settings), baselines=(),
        engine="in-process",
    )  # fmt: skip
    assert made.run() is not None
    with opened(folder / "run", quick=True) as subject:
        yield subject


def test_without_noise_nothing_is_claimed(simulated: Path) -> None:
    with opened(simulated, quick=True) as subject:
        found = attack(subject)
    assert (found.verdict, found.on, found.figures) == (Verdict.OPEN, "nothing", {"mode": "none"})


def figures(found: Finding) -> Any:
    return json.loads(json.dumps(found.to_json(), allow_nan=False))


def test_votes_hold_their_claim_and_a_tenth_of_the_noise_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with finished(tmp_path, translate="ppat", privacy={"mode": "paper"}) as subject:
        honest = attack(subject)
        quiet = host.noisy_labels
        monkeypatch.setattr(host, "noisy_labels", lambda votes, of, lam, noise: quiet(votes, of, 20 * lam, noise))
        careless = attack(subject)
    assert honest.verdict is Verdict.HOLDS
    told = figures(honest)
    assert [audit["noise_share"] for audit in told["audits"]] == [1.0, TENTH]
    assert told["tenth_caught"]
    assert told["confidence"] == CONFIDENCE
    assert told["epsilon"] >= 2.0
    assert told["queries"] & (told["queries"] - 1) == 0
    assert "a tenth of the noise would have been caught: yes" in honest.result
    assert careless.verdict is Verdict.BROKEN
