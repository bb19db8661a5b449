"""Read what a report needs from the folder of a run: of `fkge simulate`, finished or not, or of `fkge train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fkge.errors import RunError
from fkge.experiment.history import History
from fkge.experiment.results import FILE, SimulationResult
from fkge.experiment.trace_events import TrainingValidated, read_events
from fkge.results import TrainingResult


@dataclass(frozen=True)
class SimulationRun:
    """The folder of a simulation.

    Attributes:
        settings: every setting, as TOML text.
        result: what was found, or as much of it as there is.
        finished: whether that is all; running: whether a process works on it now.
    """

    folder: Path
    settings: str
    result: SimulationResult
    finished: bool
    running: bool
    history: History

    @property
    def shares(self) -> dict[str, dict[str, int]]:
        """Entities in common, by owner and peer."""
        return {
            name: {peer: common.entities for peer, common in owner.shares.items()}
            for name, owner in self.result.owners.items()
        }

    @property
    def arm(self) -> str | None:
        """The arm whose state is shown: federated, or None (the latest one) until that begins."""
        return "federated" if "federated" in self.history.stages else None

    @property
    def clock(self) -> str:
        """The clock of the history's times, as the label of an axis."""
        return clock_of(self.result.engine)


@dataclass(frozen=True)
class TrainingRun:
    """The folder of `fkge train`: its settings as TOML text, its result once finished, validations from its trace."""

    folder: Path
    settings: str
    result: TrainingResult | None
    validations: list[TrainingValidated]


def clock_of(engine: str) -> str:
    """Return the clock of an engine's trace, as the label of an axis."""
    return "seconds of the engine's own clock" if engine in ("in-process", "ray") else "seconds"


def read(run: Path) -> SimulationRun | TrainingRun:
    """Read the folder of a run.

    Raises:
        RunError: there is no such folder, or no report can be made of it.
    """
    if not run.is_dir():
        raise RunError(f"{run}: no such folder. `fkge simulate FEDERATION --out {run}` makes one to report on.")
    try:
        if (run / "simulation.json").exists():
            return _simulation(run)
        if (run / "graph.safetensors").exists() and (run / "settings.toml").exists():
            return _training(run)
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{run}: cannot be read ({error}). Create it again, or restore it from a copy.") from None
    whole = next((folder for folder in run.resolve().parents if (folder / "simulation.json").exists()), None)
    if whole is not None:
        raise RunError(f"{run}: is part of the simulation in {whole}; report on that: fkge report {whole}")
    raise RunError(f"{run}: holds no run. Reports are made of folders of `fkge simulate` and `fkge train`.")


def _simulation(run: Path) -> SimulationRun:
    from fkge.experiment.simulation import Simulation  # imports torch

    settings = (run / "settings.toml").read_text(encoding="utf-8")
    finished = (run / FILE).exists()
    result = SimulationResult.load(run) if finished else Simulation.open(run).summary()
    running = not finished and Simulation.is_running(run)
    return SimulationRun(run, settings, result, finished, running, History.read(run))


def _training(run: Path) -> TrainingRun:
    settings = (run / "settings.toml").read_text(encoding="utf-8")
    validations = [event for event in read_events(run) if isinstance(event, TrainingValidated)]
    return TrainingRun(run, settings, TrainingResult.load(run), validations)
