"""What a run's folder holds for a report: of `fkge simulate`, finished or not, or of `fkge train`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fkge.errors import RunError
from fkge.history import History
from fkge.trace import Trace, read_json


@dataclass(frozen=True)
class Simulated:
    """A simulation's folder, read.

    Attributes:
        folder: it.
        about: what was asked for.
        settings: every setting, as a TOML text.
        result: what was found, or as much of it as there is; the keys of `Simulation.result`, and
            arms, two_tracks and policies (owners that have one).
        finished: whether that is all; running: whether a process is at it now.
        history: what happened.
    """

    folder: Path
    about: dict[str, Any]
    settings: str
    result: dict[str, Any]
    finished: bool
    running: bool
    history: History

    @property
    def shares(self) -> dict[str, dict[str, int]]:
        """By owner and peer, entities in common."""
        return {
            owner: {peer: common["entities"] for peer, common in told["shares"].items()}
            for owner, told in self.result["owners"].items()
        }

    @property
    def arm(self) -> str | None:
        """The arm worth looking at: federated, or the latest one until that begins."""
        return "federated" if "federated" in self.history.stages else None

    @property
    def clock(self) -> str:
        """Whose seconds the history counts."""
        own = self.about["engine"] in ("in-process", "ray")
        return "seconds of the engine's own clock" if own else "seconds"


@dataclass(frozen=True)
class Trained:
    """A folder of `fkge train`, read; `result` is None until it is finished."""

    folder: Path
    settings: str
    result: dict[str, Any] | None
    records: list[dict[str, Any]]


def read(run: Path) -> Simulated | Trained:
    """What `run` holds.

    Raises:
        RunError: it is not there, or is no folder that a report can be made of.
    """
    if not run.is_dir():
        raise RunError(f"{run}: no such folder. `fkge simulate FEDERATION --out {run}` makes one to report on.")
    try:
        if (run / "simulation.json").exists():
            return _simulated(run)
        if (run / "graph.safetensors").exists() and (run / "settings.toml").exists():
            return _trained(run)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{run}: cannot be read ({error}). Make it anew, or restore it from a copy.") from None
    whole = next((folder for folder in run.resolve().parents if (folder / "simulation.json").exists()), None)
    if whole is not None:
        raise RunError(f"{run}: is part of the simulation in {whole}; report on that: fkge report {whole}")
    raise RunError(f"{run}: holds no run. Reports are made of folders of `fkge simulate` and `fkge train`.")


def _simulated(run: Path) -> Simulated:
    anew = "Put it back from a copy, or make the simulation anew."
    about = read_json(run / "simulation.json", anew, "federation", "owners", "arms", "engine", "seed", "two_tracks")
    settings = (run / "settings.toml").read_text(encoding="utf-8")
    finished = (run / "results.json").exists()
    again = f"Remove it, and sum up anew: fkge simulate --resume {run}"
    result = read_json(run / "results.json", again, "mean", "owners") if finished else _so_far(run)
    policies = [owner for owner in about["owners"] if (run / "owners" / owner / "policy.toml").exists()]
    result |= {"arms": about["arms"], "two_tracks": about["two_tracks"], "policies": policies}
    return Simulated(run, about, settings, result, finished, not finished and _is_running(run), History.read(run))


def _is_running(run: Path) -> bool:
    from fkge.simulations import Simulation

    return Simulation.is_running(run)


def _so_far(run: Path) -> dict[str, Any]:
    """What an unfinished simulation has come to, in the form of a result: arms that are over, nothing compared."""
    from fkge.simulations import Simulation

    simulation = Simulation.open(run)
    about, settings = simulation.about, simulation.settings
    owners = {}
    for home in simulation.homes:
        arms = {arm: found for arm in simulation.arms if (found := home.result(arm)) is not None}
        shares = {
            peer: {"entities": len(known.common.entities), "relations": len(known.common.relations)}
            for peer, known in home.peers.items()
        }
        owners[home.name] = {"model": home.settings.train.model, "shares": shares, "arms": arms, "versus": {}}
    over = [arm for arm in simulation.arms if all(arm in owner["arms"] for owner in owners.values())]
    return {
        **{key: about[key] for key in ("federation", "engine", "seed")},
        "start": settings.start, "translate": settings.translate, "decide": settings.decide,
        "epochs": settings.total_epochs, "privacy": settings.privacy.model_dump(),
        "private_epochs": settings.private.total if about["two_tracks"] else 0,
        "seconds": sum(r["seconds"] for r in simulation.trace.read() if r["event"] == "arm over"),
        "mean": {arm: _mean(owners, arm) for arm in over}, "owners": owners,
    }  # fmt: skip


def _mean(owners: Mapping[str, Any], arm: str) -> dict[str, dict[str, float]]:
    """Means over owners of the metrics that a report shows, for each part of the test facts."""
    parts = dict.fromkeys(part for owner in owners.values() for part in owner["arms"][arm]["test"])
    means: dict[str, dict[str, float]] = {}
    for part in parts:
        found = [o["arms"][arm]["test"][part] for o in owners.values() if part in o["arms"][arm]["test"]]
        means[part] = {key: sum(f[key] for f in found) / len(found) for key in ("mrr", "hits@10", "accuracy")}
    return means


def _trained(run: Path) -> Trained:
    settings = (run / "settings.toml").read_text(encoding="utf-8")
    again = f"Put it back from a copy, or remove it and train anew: fkge train --resume --out {run}"
    result = read_json(run / "result.json", again) if (run / "result.json").exists() else None
    return Trained(run, settings, result, Trace(run / "trace.jsonl").read())
