"""Runs that version 0.1.0 wrote: they open, they say the same, and those that were stopped half-way go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fkge as library
from tests.compat.conftest import Command, answers, assert_says_again

OWNERS = ("ant", "bee")


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# -- finished ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [*answers("evaluate"), *answers("predict"), *answers("neighbors"), *answers("ledger", about="runs")],
)
@pytest.mark.usefixtures("old")
def test_a_model_and_a_ledger_say_what_they_said(words: list[str], said: Any, fkge: Command) -> None:
    assert_says_again(fkge(*words, "--json"), said)


@pytest.mark.usefixtures("old")
def test_a_finished_simulation_says_what_it_said(fkge: Command) -> None:
    expected = read("runs/simulated/results.json")
    assert_says_again(fkge("simulate", "--resume", "runs/simulated", "--json", "-q"), expected)
    result = library.open("runs/simulated")
    assert isinstance(result, library.Result)
    assert_says_again(result.raw, expected)
    assert list(result) == list(OWNERS)


@pytest.mark.usefixtures("old")
def test_a_trained_model_says_what_it_said(fkge: Command) -> None:
    expected = read("runs/trained/result.json")
    model = library.open("runs/trained")
    assert isinstance(model, library.Trained)
    assert_says_again(model.result, expected)
    assert_says_again(fkge("train", "--resume", "--out", "runs/trained", "--json", "-q"), expected)


@pytest.mark.usefixtures("old")
def test_reports_show_the_metrics(fkge: Command) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fkge[figures]'")
    fkge("report", "runs/simulated", "--json")
    page = Path("runs/simulated/report.html").read_text()
    for name, owner in read("runs/simulated/results.json")["owners"].items():
        assert name in page
        for arm in ("control", "federated"):
            assert f"{owner['arms'][arm]['test']['strict']['mrr']:.3f}".lstrip("0") in page
    fkge("report", "runs/trained")
    mrr = read("runs/trained/result.json")["test"]["mrr"]
    assert f"{mrr:.3f}".lstrip("0") in Path("runs/trained/report.html").read_text()


@pytest.mark.usefixtures("old")
def test_vectors_are_exported_as_they_are(fkge: Command) -> None:
    fkge("export", "runs/simulated", "--owner", "bee", "--to", "safetensors", "--out", "bee.safetensors", "-q")
    kept, vectors = load_file("runs/simulated/arms/federated/bee/model.safetensors"), load_file("bee.safetensors")
    assert len(vectors) == len(kept)
    for table in kept.values():
        assert any(torch.equal(table, other) for other in vectors.values())
    fkge("export", "runs/trained", "--to", "numpy", "--out", "trained.npz", "-q")


@pytest.mark.usefixtures("old")
def test_vectors_are_scored_again_as_they_were(fkge: Command) -> None:
    """Without its results, a finished simulation scores what its checkpoints hold: negatives are the same ones, too."""
    run = Path("runs/simulated")
    expected = read(run / "results.json")["owners"]
    for path in (run / "results.json", *run.glob("arms/control/*/result.json")):
        path.unlink()
    result = fkge("simulate", "--resume", run, "--json", "-q")
    for name in OWNERS:
        assert_says_again(result["owners"][name]["arms"]["control"], expected[name]["arms"]["control"])
        assert_says_again(result["owners"][name]["versus"], expected[name]["versus"])


# -- stopped half-way --------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "said"), answers("train", about="stopped"))
@pytest.mark.usefixtures("old")
def test_a_stopped_training_goes_on_to_its_end(words: list[str], said: Any, fkge: Command) -> None:
    before = lines("runs/stopped-training/trace.jsonl")
    result = fkge(*words, "--json")
    after = lines("runs/stopped-training/trace.jsonl")
    assert after[: len(before)] == before  # what was done is not done again
    assert [record["epoch"] for record in after if record["event"] == "epoch"] == list(range(1, said["epochs"] + 1))
    assert_says_again(result, said, closely=0.1)  # to the bit on the machine where it was stopped


@pytest.mark.parametrize(("words", "said"), answers("simulate", about="stopped"))
@pytest.mark.usefixtures("old")
def test_a_stopped_simulation_goes_on_to_its_end(words: list[str], said: Any, fkge: Command) -> None:
    run = Path("runs/stopped-simulation")
    control = {name: read(run / "arms" / "control" / name / "result.json") for name in OWNERS}
    seen = (run / "trace.jsonl").read_text()
    result = fkge(*words, "--json")
    assert (run / "trace.jsonl").read_text().startswith(seen)
    for name in OWNERS:
        now, then = result["owners"][name]["arms"], said["owners"][name]["arms"]
        assert_says_again(now["control"], control[name])
        for key in ("epochs", "handshakes", "sent"):
            assert_says_again(now["federated"][key], then["federated"][key], closely=0.02)
        assert_says_again(now["federated"]["test"], then["federated"]["test"], closely=0.2)
        fkge("ledger", "verify", run / "arms" / "federated" / name / "ledger.sqlite", "--json")
    assert isinstance(library.open(run), library.Result)
