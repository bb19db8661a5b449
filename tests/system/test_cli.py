"""The command line as a person uses it: real processes, real signals, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fkge.graph import Graph

FAST = ["--set", "dim=16", "--set", "batch=32", "--set", "negatives=8", "--set", "lr=0.05", "--set", "device=cpu"]


def fkge(*words: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "fkge", *map(str, words)], cwd=cwd, text=True, capture_output=True, timeout=300,
        env={**os.environ, "COLUMNS": "200"}, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def last_json(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def write_tsv(graph: Graph, folder: Path) -> Path:
    folder.mkdir()
    for name, triples in graph.splits.items():
        rows = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}" for h, r, t in triples.tolist()]
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def data(ring: Graph, tmp_path: Path) -> Path:
    return write_tsv(ring, tmp_path / "ring")


def test_train_evaluate_predict_neighbors(data: Path, tmp_path: Path) -> None:
    done = fkge(
        "train", data, "--model", "RotatE", "--out", "run", *FAST, "--set", "epochs=300", "--json", cwd=tmp_path
    )
    result = last_json(done)
    keys = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"}
    assert set(result["valid"]) == set(result["test"]) == keys  # type: ignore[call-overload]
    assert result["test"]["mrr"] > 0.5, result  # type: ignore[index]  # a ring is a rotation
    assert "validated" in (tmp_path / "run" / "trace.jsonl").read_text()

    again = last_json(fkge("evaluate", "run", "--json", cwd=tmp_path))
    assert again == {"valid": result["valid"], "test": result["test"]}
    table = fkge("evaluate", "run", "--categories", "--type-constraint", "--raw", cwd=tmp_path).stdout
    assert "1-1" in table
    assert "hits@10" in table

    answers = last_json(
        fkge(
            "predict",
            "run",
            "--head",
            "place03",
            "--relation",
            "two",
            "--top",
            "3",
            "--include-known",
            "--json",
            cwd=tmp_path,
        )
    )
    assert "place05" in [a["label"] for a in answers["answers"]]  # type: ignore[index,attr-defined]
    assert (
        "place05"
        in fkge("predict", "run", "--tail", "place07", "--relation", "two", "--include-known", cwd=tmp_path).stdout
    )
    near = last_json(fkge("neighbors", "run", "place03", "--top", "4", "--json", cwd=tmp_path))
    assert len(near["neighbors"]) == 4  # type: ignore[arg-type]


def test_same_seed_same_bits(data: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fkge("train", data, "--out", name, "--seed", seed, *FAST, "--set", "epochs=5", "--quiet", cwd=tmp_path)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_finished_run_is_shown_and_not_run_again(data: Path, tmp_path: Path) -> None:
    first = last_json(fkge("train", data, "--out", "run", *FAST, "--set", "epochs=2", "--json", cwd=tmp_path))
    before = {file: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    again = fkge("train", "--resume", "--out", "run", "--json", cwd=tmp_path)
    assert last_json(again) == first
    assert "run: is finished; this is its result" in again.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before


LONG = [*FAST, "--set", "epochs=4000", "--set", "validate_every=400", "--set", "patience=0"]


def start(data: Path, out: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fkge", "train", *words, "--out", str(out)], cwd=data.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for_epochs(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until the trace shows that training is under way."""
    trace, deadline = out / "trace.jsonl", time.monotonic() + 120
    while not trace.exists() or trace.read_bytes().count(b'"epoch"') < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        os.sched_yield()


@pytest.mark.long
def test_killed_again_and_again_it_ends_in_the_same_bits(data: Path, tmp_path: Path) -> None:
    fkge("train", data, "--out", "whole", *LONG, cwd=tmp_path)
    whole = {name: (tmp_path / "whole" / name).read_bytes() for name in ("model.safetensors", "trace.jsonl")}
    out = tmp_path / "killed"
    words: tuple[str, ...] = (str(data), *LONG)
    for kill_after in (50, 1200, 2500):
        process = start(data, out, *words)
        wait_for_epochs(out, kill_after, process)
        process.kill()
        process.communicate()
        words = ("--resume",)
    fkge("train", "--resume", "--out", out, cwd=tmp_path)
    assert {name: (out / name).read_bytes() for name in whole} == whole
    assert not (out / "checkpoint.safetensors").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_interrupted_politely_nothing_is_lost(number: signal.Signals, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start(data, out, str(data), *LONG)
    wait_for_epochs(out, 100, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing is lost. Resume with: fkge train --resume" in err
    seen = (out / "trace.jsonl").read_text()
    result = last_json(fkge("train", "--resume", "--out", out, "--json", cwd=tmp_path))
    assert result["epochs"] == 4000
    assert (out / "trace.jsonl").read_text().startswith(seen)
