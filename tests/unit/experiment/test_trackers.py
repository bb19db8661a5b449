"""Runs in MLflow and TensorBoard, read back with MLflow and TensorBoard."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import FkgeError, MissingLibraryError, RunError, TrackerError
from fkge.experiment.simulation import Simulation
from fkge.experiment.trackers import logged_runs, track
from fkge.experiment.training_run import Run
from fkge.settings import TrainSettings
from fkge.trace import Trace
from tests.conftest import OWNERS, random_graph, tiny_federation, tiny_settings

# MLflow's and TensorBoard's dependencies warn of their own affairs.
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = TrainSettings(dim=6, batch=50, negatives=4, epochs=4, validate_every=2, device="cpu")
ARMS = ("control", "federated", "fede")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and a finished simulation."""
    folder = tmp_path_factory.mktemp("tracked")
    Run.create(folder / "run", random_graph(), SMALL).train()
    made = Simulation.create(
        folder / "simulation", tiny_federation(OWNERS[:2]), tiny_settings(exchanges=4), engine="in-process",
        baselines=("control", "fede"),
    )  # fmt: skip
    made.run()
    return folder


def expected(folder: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """What a simulation's own files say: by ARM/OWNER and metric, (epoch, value)."""
    simulation = Simulation.open(folder)
    result = simulation.result
    assert result is not None
    out: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for arm in ARMS:
        for owner in OWNERS[:2]:
            tests = [
                r for r in simulation.trace.read()
                if r["event"] == "work" and (r["arm"], r["owner"]) == (arm, owner) and r["score"] is not None
            ]  # fmt: skip
            mine = out[f"{arm}/{owner}"] = {}
            if tests:
                mine["valid/mrr"] = [(r["epoch"], r["score"]) for r in tests]
                mine["valid/best"] = [(r["epoch"], r["best"]) for r in tests]
            last = tests[-1]["epoch"] if tests else 0
            for part, scores in result.owners[owner].arms[arm].test.items():
                for metric, value in scores.to_json().items():
                    mine[f"test/{part}/{metric.replace('@', '_at_')}"] = [(last, value)]
    return out


# -- TensorBoard -----------------------------------------------------------------------------------


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Scalars that TensorBoard finds in the event files of `folder` itself."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator(
        str(folder), size_guidance={"scalars": 0}
    )
    reader.Reload()
    return {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


def test_a_run_in_tensorboard(folders: Path, tmp_path: Path) -> None:
    top = Path(track(folders / "run", "tensorboard", str(tmp_path / "events")))
    assert top == tmp_path / "events" / "run"
    got, run = events(top), Run.open(folders / "run")
    trace = run.trace.read()
    assert len(got["train/loss"]) == 4
    assert got["train/loss"] == [(r["epoch"], pytest.approx(r["loss"])) for r in trace if r["event"] == "epoch"]
    assert got["valid/mrr"][:2] == [(r["epoch"], pytest.approx(r["mrr"])) for r in trace if r["event"] == "validated"]
    assert run.result is not None
    assert got["test/hits_at_10"] == [(4, pytest.approx(run.result.splits["test"].hits_at_10))]


def test_a_simulation_in_tensorboard(folders: Path, tmp_path: Path) -> None:
    wanted = expected(folders / "simulation")
    assert len(wanted["control/ant"]["valid/mrr"]) > 1
    for _ in range(2):  # once more replaces
        top = Path(track(folders / "simulation", "tensorboard", str(tmp_path)))
        for name, metrics in wanted.items():
            got = events(top / name)
            assert set(got) == set(metrics)
            for metric, values in metrics.items():
                assert got[metric] == [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in values]
    result = Simulation.open(folders / "simulation").result
    assert result is not None
    assert events(top)["mean/federated/strict/mrr"][0][1] == pytest.approx(result.mean["federated"]["strict"].mrr)


# -- MLflow ----------------------------------------------------------------------------------------


def test_both_in_mlflow(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # where it puts files, with a database for a store
    where = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(tracking_uri=where)
    track(folders / "simulation", "mlflow", where)
    key = track(folders / "simulation", "mlflow", where)  # replaces
    alone = track(folders / "run", "mlflow", where)
    experiment = client.get_experiment_by_name("fkge").experiment_id
    runs = {r.info.run_name: r for r in client.search_runs([experiment])}
    wanted = expected(folders / "simulation")
    assert set(runs) == {"simulation", "run", *wanted}
    assert len(client.search_runs([experiment])) == len(wanted) + 2
    assert (runs["simulation"].info.run_id, runs["run"].info.run_id) == (key, alone)
    assert {r.info.status for r in runs.values()} == {"FINISHED"}

    def history(name: str, metric: str) -> list[tuple[int, float]]:
        found = client.get_metric_history(runs[name].info.run_id, metric)
        return sorted((m.step, m.value) for m in found)

    for name, metrics in wanted.items():
        assert runs[name].data.tags["mlflow.parentRunId"] == key
        assert set(runs[name].data.metrics) == set(metrics)
        for metric, values in metrics.items():
            assert history(name, metric) == [(epoch, pytest.approx(value)) for epoch, value in values]
    assert runs["simulation"].data.params["train.dim"] == "8"
    assert runs["simulation"].data.params["engine"] == "in-process"
    assert runs["control/bee"].data.params["dim"] == "8"
    assert runs["run"].data.params["optimizer"] == "adam"
    trace = Run.open(folders / "run").trace.read()
    losses = [(r["epoch"], pytest.approx(r["loss"])) for r in trace if r["event"] == "epoch"]
    assert history("run", "train/loss") == losses
    files = {name: {f.path for f in client.list_artifacts(runs[name].info.run_id)} for name in ("run", "simulation")}
    assert files["run"] == {"settings.toml", "result.json", "trace.jsonl"}
    assert files["simulation"] == {"settings.toml", "results.json", "trace.jsonl"}
    with pytest.raises(TrackerError, match="MLflow cannot log to"):
        track(folders / "run", "mlflow", "nonsense://nowhere")


# -- what there is to log --------------------------------------------------------------------------


def test_an_unfinished_run(folders: Path, tmp_path: Path) -> None:
    shutil.copytree(folders / "run", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    trace = Trace(tmp_path / "run" / "trace.jsonl")
    trace.keep(trace.read()[:2])
    (logged,) = logged_runs(tmp_path / "run")
    assert (logged.finished, logged.last, logged.name) == (False, {}, "")
    assert max(epoch for *_, epoch in logged.values()) == 2
    assert list(logged.curves["train/loss"]) == [1, 2]
    assert {p.name for p in logged.files} == {"settings.toml", "trace.jsonl"}


def test_repeated_epochs_count_once(folders: Path, tmp_path: Path) -> None:
    """A simulation that was interrupted after its last checkpoint writes some epochs again when it is resumed."""
    shutil.copytree(folders / "simulation", tmp_path / "simulation")
    trace = Trace(tmp_path / "simulation" / "trace.jsonl")
    work = [r for r in trace.read() if r["event"] == "work" and r["score"] is not None and r["arm"] == "control"]
    first = next(r for r in work if r["owner"] == "ant")
    begin = next(r for r in trace.read() if r["event"] == "arm" and r["arm"] == "control")
    again = {**first, "score": 0.125}
    trace.write(**begin)
    trace.write(**again)
    before, after = ({c.name: c for c in logged_runs(folder / "simulation")} for folder in (folders, tmp_path))
    assert after["control/ant"].curves["valid/mrr"] == before["control/ant"].curves["valid/mrr"] | {
        first["epoch"]: 0.125
    }
    assert after["control/bee"].curves == before["control/bee"].curves


def test_mistakes(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FkgeError, match="there is no tracker 'tensorbord'; did you mean tensorboard"):
        track(folders / "run", "tensorbord", str(tmp_path))
    with pytest.raises(RunError, match=r"no folder of .* \(no settings\.toml\)"):
        track(tmp_path, "tensorboard", str(tmp_path))

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("fkge.errors.importlib.import_module", missing)
    for name in ("mlflow", "tensorboard"):
        with pytest.raises(MissingLibraryError, match=rf"needs {name}, .* 'fkge\[{name}\]'"):
            track(folders / "run", name, str(tmp_path))
    assert not list(tmp_path.iterdir())
