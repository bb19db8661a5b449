"""Trials and phases of a search, made up."""

from __future__ import annotations

from typing import Any

from fkge.tune.spec import PhaseResult, TrialRow


def trial(number: int, state: Any = "complete", score: float | None = 0.5, **parameters: Any) -> TrialRow:
    return TrialRow(
        number=number, state=state, score=score, why="", epochs=3, best_epoch=2, seconds=2.0, at=number + 1.0,
        parameters=parameters, settings=parameters,
    )  # fmt: skip


def phase(*trials: TrialRow, importance: dict[str, float] | None = None) -> PhaseResult:
    best = max((t for t in trials if t.score is not None), key=lambda t: t.score or 0.0, default=None)
    return PhaseResult(
        phase="train", seconds=10.0, trials=list(trials), best=None if best is None else best.number,
        importance=importance or {},
    )  # fmt: skip
