"""Runs in MLflow and TensorBoard: settings, scores over epochs, test metrics and files, from what a run's folder says.

Nothing has to be switched on while a run is under way: its ``trace.jsonl`` holds all there is to log, so a run can be
tracked when it is finished, while it goes on, or after it was broken off and taken up again. Tracking it once more
replaces what was there. Neither vectors nor labels leave the folder.

    mlflow        an MLflow run in the experiment ``fkge`` of the tracking address `where`; in a simulation, one beneath
                  it for each owner in each arm
    tensorboard   event files in the folder WHERE/RUN, and WHERE/RUN/ARM/OWNER in a simulation

Metrics: ``train/loss``, ``train/lr`` and ``valid/mrr`` over epochs (of a simulation ``valid/mrr`` and ``valid/best``);
``test/mrr`` and the like at the end (of a simulation ``test/PART/mrr``, and ``mean/ARM/PART/mrr`` for the whole).
A ``@`` in a metric's name is written ``_at_``, since MLflow takes none.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fkge.errors import RunError, SettingsError, TrackerError, did_you_mean, need
from fkge.history import History
from fkge.settings import read_toml
from fkge.trace import SILENT, Progress, Trace, read_json

EXPERIMENT = "fkge"
_MANY = 500  # metrics at a time; MLflow takes a thousand
_FEW = 100  # settings at a time


@dataclass
class Course:
    """What is logged of a run, or of one owner in one arm.

    Attributes:
        name: ``ARM/OWNER``; empty for the whole.
        settings: by name, ``train.dim`` for one in a section.
        curves: by metric, values by epoch.
        last: metrics at the end.
        files: worth keeping beside them.
        over: nothing more will come.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    over: bool = False

    @property
    def epoch(self) -> int:
        """The last one with a value."""
        return max((epoch for values in self.curves.values() for epoch in values), default=0)


def track(run: Path, to: str, where: str, *, progress: Progress = SILENT) -> str:
    """Log the run or simulation in the folder `run`.

    Args:
        run: made by ``fkge train`` or ``fkge simulate``.
        to: ``mlflow`` or ``tensorboard``.
        where: MLflow's tracking address, such as a server's or ``sqlite:///mlflow.db``; or a folder of event files.

    Returns:
        The id of the MLflow run, or the folder with the event files.
    """
    if to not in TRACKERS:
        raise SettingsError(f"there is no tracker {to!r}{did_you_mean(to, TRACKERS)}; there are {', '.join(TRACKERS)}")
    run = Path(run)
    return TRACKERS[to](run, list(courses(run)), where, progress)


def courses(run: Path) -> Iterator[Course]:
    """What there is to log of `run`: the whole first."""
    if not (run / "settings.toml").exists():
        raise RunError(f"{run}: is no folder of `fkge train` or `fkge simulate` (no settings.toml)")
    settings = _flat(read_toml(run / "settings.toml"))
    if (run / "simulation.json").exists():
        yield from _of_simulation(run, settings)
    else:
        yield _of_training(run, settings)


def _of_training(run: Path, settings: dict[str, Any]) -> Course:
    course = Course("", settings, files=_present(run, "settings.toml", "result.json", "trace.jsonl"))
    for record in Trace(run / "trace.jsonl").read():
        if record["event"] == "epoch":
            _note(course, record["epoch"], {"train/loss": record["loss"], "train/lr": record["lr"]})
        elif record["event"] == "validated":
            _note(course, record["epoch"], {"valid/mrr": record["mrr"]})
    result = _json(run / "result.json")
    if result is not None:
        course.over = True
        splits = {split: found for split, found in result.items() if split == "valid" or split.startswith("test")}
        course.last = _numbers(splits)
    return course


def _of_simulation(run: Path, settings: dict[str, Any]) -> Iterator[Course]:
    about, result = _json(run / "simulation.json") or {}, _json(run / "results.json", "mean")
    asked = {key: about[key] for key in ("federation", "engine", "seed")}
    whole = Course("", asked | settings, files=_present(run, "settings.toml", "results.json", "trace.jsonl"))
    if result is not None:
        whole.over, whole.last = True, _numbers({"mean": result["mean"]})
    yield whole
    stages = History.read(run).stages
    for arm in about["arms"]:
        for owner in about["owners"]:
            course = Course(f"{arm}/{owner}")
            if arm in stages and owner in stages[arm].courses:
                for test in stages[arm].courses[owner].tests:
                    _note(course, test.epoch, {"valid/mrr": test.score, "valid/best": test.best})
            folder = run / "arms" / arm / owner
            found = _json(folder / "result.json", "test")
            if found is not None:
                course.over, course.last = True, _numbers({"test": found["test"]})
            if (folder / "settings.toml").exists():
                course.settings = {"arm": arm, "owner": owner} | _flat(read_toml(folder / "settings.toml"))
            if course.curves or course.over:
                yield course


def _note(course: Course, epoch: int, values: Mapping[str, float]) -> None:
    """One epoch's values; what was done twice, because a run broke off in between, counts as done last."""
    for name, value in values.items():
        course.curves.setdefault(name, {})[epoch] = float(value)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Sections' keys with the section's name in front."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
    return out


def _numbers(values: Mapping[str, Any], before: str = "") -> dict[str, float]:
    """Numbers of nested dicts, by the way to them."""
    out: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            out |= _numbers(value, f"{before}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            out[before + key.replace("@", "_at_")] = float(value)
    return out


def _json(path: Path, *keys: str) -> dict[str, Any] | None:
    return read_json(path, "Put it back from a copy.", *keys) if path.exists() else None


def _present(run: Path, *names: str) -> list[Path]:
    return [run / name for name in names if (run / name).exists()]


# -- MLflow ----------------------------------------------------------------------------------------


def _mlflow(run: Path, found: list[Course], where: str, progress: Progress) -> str:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers of its use
    mlflow = need("mlflow", "mlflow", "logging to MLflow")
    try:
        return _to_mlflow(mlflow, run, found, where, progress)
    except mlflow.exceptions.MlflowException as error:
        why = str(error).splitlines()[0]
        raise TrackerError(f"MLflow cannot log to {where}: {why}") from None


def _to_mlflow(mlflow: Any, run: Path, found: list[Course], where: str, progress: Progress) -> str:
    client = mlflow.MlflowClient(tracking_uri=where)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    key = client.create_experiment(EXPERIMENT) if experiment is None else experiment.experiment_id
    mark = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:32]
    before = [r.info.run_id for r in _runs(client, key, mark)]
    parent = ""
    with progress.task("logging to MLflow", len(found), "runs") as task:
        for course in found:
            tags = {"fkge.run": mark} | ({"mlflow.parentRunId": parent} if parent else {})
            made = client.create_run(key, run_name=course.name or run.resolve().name, tags=tags).info.run_id
            parent = parent or made
            _log(mlflow, client, made, course)
            task.advance(1)
    for old in before:
        client.delete_run(old)
    return parent


def _runs(client: Any, experiment: str, mark: str) -> Iterator[Any]:
    """Runs that were logged from one folder before."""
    token = None
    while True:
        page = client.search_runs([experiment], f"tags.`fkge.run` = '{mark}'", page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _log(mlflow: Any, client: Any, key: str, course: Course) -> None:
    entities = mlflow.entities
    stamp = client.get_run(key).info.start_time
    params = [entities.Param(name, str(value)) for name, value in course.settings.items()]
    values = [(name, value, epoch) for name, curve in course.curves.items() for epoch, value in sorted(curve.items())]
    values += [(name, value, course.epoch) for name, value in course.last.items()]
    metrics = [entities.Metric(name, value, stamp, epoch) for name, value, epoch in values]
    for start in range(0, len(params), _FEW):
        client.log_batch(key, params=params[start : start + _FEW])
    for start in range(0, len(metrics), _MANY):
        client.log_batch(key, metrics=metrics[start : start + _MANY])
    for path in course.files:
        client.log_artifact(key, str(path))
    if course.over:
        client.set_terminated(key)


# -- TensorBoard -----------------------------------------------------------------------------------

_OURS = ".fkge"


def _tensorboard(run: Path, found: list[Course], where: str, progress: Progress) -> str:
    need("tensorboard", "tensorboard", "logging to TensorBoard")
    from torch.utils.tensorboard import SummaryWriter

    top = Path(where) / run.resolve().name
    for old in top.rglob(f"events.out.tfevents.*{_OURS}"):
        old.unlink()
    with progress.task("writing event files", len(found), "files") as task:
        for course in found:
            with SummaryWriter(str(top / course.name), filename_suffix=_OURS) as writer:
                rows = "".join(f"| {name} | {value} |\n" for name, value in course.settings.items())
                writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
                for name, curve in course.curves.items():
                    for epoch, value in sorted(curve.items()):
                        writer.add_scalar(name, value, epoch)
                for name, value in course.last.items():
                    writer.add_scalar(name, value, course.epoch)
            task.advance(1)
    return str(top)


TRACKERS: dict[str, Callable[[Path, list[Course], str, Progress], str]] = {
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
}
