"""Log runs to MLflow and TensorBoard: settings, scores over epochs, test metrics and files, from a run's folder.

Nothing has to be switched on while a run is running: its ``trace.jsonl`` holds everything there is to log, so a run can
be logged when it is finished, while it runs, or after it was interrupted and resumed. Logging it again replaces what
was there. Neither vectors nor labels leave the folder.

    mlflow        an MLflow run in the experiment ``fkge`` of the tracking address `where`; of a simulation, a child run
                  for each owner in each arm
    tensorboard   event files in the folder WHERE/RUN, and WHERE/RUN/ARM/OWNER of a simulation

Metrics: ``train/loss``, ``train/lr`` and ``valid/mrr`` over epochs (of a simulation ``valid/mrr`` and ``valid/best``);
``test/mrr`` and the like at the end (of a simulation ``test/PART/mrr``, and ``mean/ARM/PART/mrr`` for the whole).
A ``@`` in a metric's name is written ``_at_``, since MLflow does not accept it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fkge.errors import RunError, SettingsError, TrackerError, did_you_mean, need
from fkge.experiment.history import History
from fkge.experiment.results import FILE, SPECIFICATION, SimulationResult, Specification
from fkge.experiment.trace_events import TrainingEpoch, TrainingValidated, read_events
from fkge.progress import SILENT, Progress
from fkge.results import RESULT, OwnerReport, TrainingResult
from fkge.settings import read_toml

EXPERIMENT = "fkge"
_METRICS_PER_BATCH = 500  # MLflow accepts a thousand
_PARAMS_PER_BATCH = 100
_MOST_RUNS = 50_000  # that MLflow finds at once
_WAY_OUT = "Restore it from a copy."

Settings = dict[str, object]


@dataclass
class LoggedRun:
    """The data to log of a run, or of one owner in one arm of a simulation.

    Attributes:
        name: ``ARM/OWNER``; empty for the whole.
        settings: by name; ``train.dim`` is ``dim`` in the section ``train``.
        curves: values by metric and epoch; last: metrics at the end.
        finished: nothing more will be added.
    """

    name: str
    settings: Settings = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    finished: bool = False

    def values(self) -> Iterator[tuple[str, float, int]]:
        """All metrics as (name, value, epoch), curves in order; those at the end have the last epoch with a value."""
        for name, curve in self.curves.items():
            yield from ((name, value, epoch) for epoch, value in sorted(curve.items()))
        last = max((epoch for curve in self.curves.values() for epoch in curve), default=0)
        yield from ((name, value, last) for name, value in self.last.items())

    def add(self, epoch: int, **values: float) -> None:
        """Add values of an epoch; of an epoch that was done twice, because the run was interrupted, the last count."""
        for name, value in values.items():
            self.curves.setdefault(name.replace("_", "/"), {})[epoch] = value


def track(run: Path, to: str, where: str, *, progress: Progress = SILENT) -> str:
    """Log the run or simulation in the folder `run`.

    Args:
        run: made by ``fkge train`` or ``fkge simulate``.
        to: ``mlflow`` or ``tensorboard``.
        where: MLflow's tracking address, such as a server's or ``sqlite:///mlflow.db``; or a folder of event files.
        progress: receives the progress.

    Returns:
        The id of the MLflow run, or the folder with the event files.

    Raises:
        SettingsError: there is no such tracker.
        RunError: the folder holds no run, or is damaged.
        TrackerError: MLflow cannot log to `where`.
    """
    if to not in TRACKERS:
        raise SettingsError(f"there is no tracker {to!r}{did_you_mean(to, TRACKERS)}; there are {', '.join(TRACKERS)}")
    run = Path(run)
    return TRACKERS[to](run, list(logged_runs(run)), where, progress)


def logged_runs(run: Path) -> Iterator[LoggedRun]:
    """Yield the data to log of the folder `run`: the whole first.

    Raises:
        RunError: it holds no run, or is damaged.
    """
    if not (run / "settings.toml").exists():
        raise RunError(f"{run}: is no folder of `fkge train` or `fkge simulate` (no settings.toml)")
    settings = _flat(read_toml(run / "settings.toml"))
    if (run / SPECIFICATION).exists():
        yield from _of_simulation(run, settings)
    else:
        yield _of_training(run, settings)


def _of_training(run: Path, settings: Settings) -> LoggedRun:
    logged = LoggedRun("", settings, files=_present(run, "settings.toml", RESULT, "trace.jsonl"))
    for event in read_events(run):
        match event:
            case TrainingEpoch():
                logged.add(event.epoch, train_loss=event.loss, train_lr=event.lr)
            case TrainingValidated():
                logged.add(event.epoch, valid_mrr=event.mrr)
    if (result := TrainingResult.load(run)) is not None:
        logged.finished, logged.last = True, _numbers(result.to_json("valid", "test"))
    return logged


def _of_simulation(run: Path, settings: Settings) -> Iterator[LoggedRun]:
    spec = Specification.load(run)
    asked = spec.to_json("federation", "engine", "seed")
    whole = LoggedRun("", asked | settings, files=_present(run, "settings.toml", FILE, "trace.jsonl"))
    if (run / FILE).exists():
        whole.finished, whole.last = True, _numbers(SimulationResult.load(run).to_json("mean"))
    yield whole
    stages = History.read(run).stages
    for arm in spec.arms:
        for owner in spec.owners:
            logged = LoggedRun(f"{arm}/{owner}")
            if arm in stages and owner in stages[arm].courses:
                for test in stages[arm].courses[owner].tests:
                    logged.add(test.epoch, valid_mrr=test.score, valid_best=test.best)
            folder = run / "arms" / arm / owner
            if (folder / RESULT).exists():
                report = OwnerReport.read(folder / RESULT, _WAY_OUT)
                logged.finished, logged.last = True, _numbers(report.to_json("test"))
            if (folder / "settings.toml").exists():
                logged.settings = {"arm": arm, "owner": owner} | _flat(read_toml(folder / "settings.toml"))
            if logged.curves or logged.finished:
                yield logged


def _flat(values: Mapping[str, object], before: str = "", separator: str = ".") -> Settings:
    """Values of nested dicts, by the path to them."""
    out: Settings = {}
    for key, value in values.items():
        out |= _flat(value, before + key + separator, separator) if isinstance(value, dict) else {before + key: value}
    return out


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {
        name.replace("@", "_at_"): float(value)
        for name, value in _flat(values, separator="/").items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _present(run: Path, *names: str) -> list[Path]:
    return [run / name for name in names if (run / name).exists()]


# -- MLflow ----------------------------------------------------------------------------------------


def _mlflow(run: Path, found: list[LoggedRun], where: str, progress: Progress) -> str:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report usage to its vendor
    mlflow = need("mlflow", "mlflow", "logging to MLflow")
    try:
        client = mlflow.MlflowClient(tracking_uri=where)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        key = client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
        parent, tags = "", {"fkge.run": hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:32]}
        before = client.search_runs([key], f"tags.`fkge.run` = '{tags['fkge.run']}'", max_results=_MOST_RUNS)
        with progress.task("logging to MLflow", len(found), "runs") as task:
            for logged in found:
                made = client.create_run(key, run_name=logged.name or run.resolve().name, tags=tags).info.run_id
                parent = tags.setdefault("mlflow.parentRunId", made)
                _log(mlflow, client, made, logged)
                task.advance(1)
        for old in before:
            client.delete_run(old.info.run_id)
        return parent
    except mlflow.exceptions.MlflowException as error:
        why = str(error).splitlines()[0]
        raise TrackerError(f"MLflow cannot log to {where}: {why}") from None


def _log(mlflow: Any, client: Any, key: str, logged: LoggedRun) -> None:
    entities = mlflow.entities
    stamp = client.get_run(key).info.start_time
    params = [entities.Param(name, str(value)) for name, value in logged.settings.items()]
    metrics = [entities.Metric(name, value, stamp, epoch) for name, value, epoch in logged.values()]
    for start in range(0, len(params), _PARAMS_PER_BATCH):
        client.log_batch(key, params=params[start : start + _PARAMS_PER_BATCH])
    for start in range(0, len(metrics), _METRICS_PER_BATCH):
        client.log_batch(key, metrics=metrics[start : start + _METRICS_PER_BATCH])
    for path in logged.files:
        client.log_artifact(key, str(path))
    if logged.finished:
        client.set_terminated(key)


# -- TensorBoard -----------------------------------------------------------------------------------

_SUFFIX = ".fkge"


def _tensorboard(run: Path, found: list[LoggedRun], where: str, progress: Progress) -> str:
    need("tensorboard", "tensorboard", "logging to TensorBoard")
    from torch.utils.tensorboard import SummaryWriter

    top = Path(where) / run.resolve().name
    for old in top.rglob(f"events.out.tfevents.*{_SUFFIX}"):
        old.unlink()
    with progress.task("writing event files", len(found), "files") as task:
        for logged in found:
            with SummaryWriter(str(top / logged.name), filename_suffix=_SUFFIX) as writer:
                rows = "".join(f"| {name} | {value} |\n" for name, value in logged.settings.items())
                writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
                for name, value, epoch in logged.values():
                    writer.add_scalar(name, value, epoch)
            task.advance(1)
    return str(top)


TRACKERS: dict[str, Callable[[Path, list[LoggedRun], str, Progress], str]] = {
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
