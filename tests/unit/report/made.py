"""Histories and results made up for the tests of figures, words and pages."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from fkge.experiment.history import History
from fkge.experiment.results import SimulationResult

SCORES = {"mr": 9.0, "mrr": 0.3, "hits@1": 0.2, "hits@3": 0.4, "hits@10": 0.5, "accuracy": 0.9}


def records(
    owners: Sequence[str], rounds: int = 3, *, arms: Sequence[str] = ("control", "federated"), seed: int = 0
) -> list[dict[str, Any]]:
    """What a run of `rounds` exchanges writes into its trace: translations, work, tests of which some are better."""
    rng = random.Random(seed)
    out: list[dict[str, Any]] = []
    for arm in arms:
        out.append({"event": "arm", "arm": arm, "time": 1e9, "epochs": 2 * rounds, "owners": list(owners)})
        for owner in owners:
            now, best = 0.0, 0.0
            for i in range(rounds):
                peers = [p for p in owners if p != owner][:2] if arm != "control" else []
                about = {"arm": arm, "owner": owner}
                for peer in peers:
                    out.append({"event": "hosting", **about, "peer": peer, "t": now})
                    out.append({"event": "translated", **about, "peer": peer, "t": now + rng.random()})
                since, until = now + 1, now + 1 + 3 * rng.random()
                score = rng.random()
                better, best = score > best, max(score, best)
                out.append({
                    "event": "work", **about, "t": until, "since": since, "initial": i == 0, "peers": peers,
                    "epoch": 2 * i + 2, "score": score, "best": best, "improved": better, "backtracked": not better,
                    "sent": 100 * i, "spent": 0.5 * i if peers else None,
                })  # fmt: skip
                out.append({"event": "state", **about, "t": until, "state": "sleep"})
                now = until + rng.random()
            out.append({"event": "concluded", "arm": arm, "owner": owner, "t": now})
        out.append({"event": "arm over", "arm": arm, "seconds": 1.5})
    return out


def history(owners: Sequence[str], rounds: int = 3, **options: Any) -> History:
    return History.of(records(owners, rounds, **options))


def versus(low: float, high: float) -> dict[str, Any]:
    """A comparison whose interval is (low, high)."""
    found = {"difference": (low + high) / 2, "low": low, "high": high, "p": 0.01 if low > 0 or high < 0 else 0.4}
    return {"mrr": found, "hits@10": dict(found)}


def result(
    gains: Mapping[str, Mapping[str, tuple[float, float]]],
    *,
    arms: Sequence[str] = ("control", "federated"),
    triples: int = 500,
    mode: str = "none",
    **more: Any,
) -> SimulationResult:
    """A simulation's result.

    Args:
        gains: by owner and part of its test facts, the interval of its gain over every other arm.
    """
    parts = list(dict.fromkeys(part for of in gains.values() for part in of))
    owners = {}
    for owner, of in gains.items():
        owners[owner] = {
            "model": "TransE", "entities": 40, "relations": 4, "triples": 105,
            "shares": {p: {"entities": 20, "relations": 4} for p in gains if p != owner},
            "arms": {arm: _arm(arm, list(of), triples, mode) for arm in arms},
            "versus": {arm: {part: versus(*of[part]) for part in of} for arm in arms if arm != "federated"},
        }  # fmt: skip
    mean = {arm: dict.fromkeys(parts, SCORES) for arm in arms}
    made = {
        "federation": "made", "engine": "processes", "seed": 7, "start": "together", "translate": "frame",
        "decide": "all", "epochs": 20, "private_epochs": 0, "seconds": 61.0, "mean": mean, "owners": owners,
        "privacy": {"mode": mode, "epsilon": 8.0 if mode != "none" else None, "delta": 1e-5, "ledger": None},
        "arms": list(arms), "two_tracks": mode == "dp", "policies": [],
    } | more  # fmt: skip
    return SimulationResult.model_validate({"version": SimulationResult.VERSION, **made})


def _arm(arm: str, parts: Sequence[str], triples: int, mode: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "valid": SCORES, "test": {part: SCORES | {"triples": triples} for part in parts}, "epochs": 20,
        "best_score": 0.3, "best_epoch": 18, "tests": 5, "stale": 1, "rounds": 3, "pending": 0, "accepted": 2,
        "backtracked": 1, "price": {}, "handshakes": {"x": 3} if arm == "federated" else {},
        "seconds": {"train": 2.0, "translate": 0.5, "test": 0.25}, "sent": {"x": 2000} if arm == "federated" else {},
    }  # fmt: skip
    if arm == "federated":
        unit = {"dp": ("triple", "add or remove"), "paper": ("row of the host's aligned vectors", "replace")}.get(mode)
        spent = {"epsilon": 7.5, "pld": 7.5, "rdp": 8.1, "paper": 12.0 if mode == "paper" else None, "count": 40}
        budgets = [
            {"unit": u, "relation": r, "delta": 1e-5, "epsilon": 8.0, "spent": spent, "left": 0.5}
            for u, r in ([unit] if unit else [])
        ]
        told["privacy"] = {
            "mode": mode, "budgets": budgets, "uncovered": "timing",
            "unprotected": [{"what": "rows", "peer": "x", "messages": 3, "nbytes": 900, "protection": "none"}],
        }  # fmt: skip
    return told
