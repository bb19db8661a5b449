"""Commands for one model: trained, continued, evaluated and asked, in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.cli.exit_codes import Misuse
from fkge.cli.models import commands
from fkge.errors import RunError, SettingsError, UnknownLabelError
from fkge.experiment.results import Specification
from fkge.experiment.training_run import Run
from fkge.graph import Graph, read_graph
from fkge.settings import TrainSettings
from tests.consortium import write_graph
from tests.unit.cli.commands import answer, typed

SMALL = TrainSettings(dim=4, batch=16, negatives=2, epochs=2, validate_every=1, device="cpu")


@pytest.fixture
def here(ring: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph."""
    monkeypatch.chdir(tmp_path)
    write_graph(ring, tmp_path / "ring")
    return tmp_path


@pytest.fixture
def run(here: Path) -> Path:
    Run.create(here / "run", read_graph("ring"), SMALL).train()
    return here / "run"


def train(*words: str) -> tuple[str, ...]:
    settings = ("dim=4", "batch=16", "negatives=2", "epochs=2", "device=cpu")
    return ("train", *words, *(word for setting in settings for word in ("--set", setting)))


def test_options_go_before_the_file_and_what_is_not_given_is_as_recommended(here: Path) -> None:
    (here / "settings.toml").write_text('model = "RotatE"\ndim = 6\nseed = 7\n')
    result = answer(commands, *train("ring", "--config", "settings.toml", "--model", "TransE", "--seed", "5"))
    settings = Run.open(here / "run").settings
    assert (settings.model, settings.dim, settings.seed) == ("TransE", 4, 5)
    assert result["epochs"] == 2
    answer(commands, "train", "ring", "--out", "other", "--set", "epochs=1", "--set", "dim=4", "--device", "cpu")
    assert Run.open(here / "other").settings.model == "ComplEx"  # no method was named


def test_a_run_is_continued_only_as_what_it_is(run: Path) -> None:
    said = typed(commands, "train", "ring", "--resume")
    assert "run: is finished; this is its result" in said.stderr
    with pytest.raises(RunError, match="was started with dim = 4, not 8"):
        typed(commands, "train", "--resume", "--set", "dim=8")
    with pytest.raises(RunError, match="Resume it"):
        typed(commands, *train("ring"))
    (run / "train.tsv").write_text("a\tb\tc\nc\tb\ta\n")
    with pytest.raises(RunError, match="another graph"):
        typed(commands, "train", "run/train.tsv", "--resume", "--split-seed", "1", "--allow-unseen")


def test_a_graph_must_be_named_and_a_simulation_is_no_run(here: Path) -> None:
    with pytest.raises(Misuse, match="which graph"):
        typed(commands, "train")
    (here / "sim").mkdir()
    spec = Specification(federation="pair", owners=["ant", "bee"], arms=["federated"], engine="in-process", seed=0,
                         two_tracks=False)  # fmt: skip
    spec.write(here / "sim" / "simulation.json")
    with pytest.raises(RunError, match="fkge simulate --resume sim"):
        typed(commands, "train", "--resume", "--out", "sim")
    for command in ("evaluate", "predict", "neighbors"):
        words = ("sim", "a") if command == "neighbors" else ("sim",)
        with pytest.raises(RunError, match="is a simulation; name the model of one of its owners"):
            typed(commands, command, *words)


def test_a_device_that_is_not_there_is_refused_before_the_graph_is_read(here: Path) -> None:
    with pytest.raises(SettingsError, match="use cpu"):
        typed(commands, "train", "nowhere", "--device", "meta")


def test_splits_are_evaluated_as_asked(run: Path) -> None:
    both = answer(commands, "evaluate", run)
    assert list(both) == ["valid", "test"]
    assert list(answer(commands, "evaluate", run, "--split", "test")) == ["test"]
    ranks = [answer(commands, "evaluate", run, "--ties", ties)["test"]["mrr"] for ties in ("optimistic", "pessimistic")]
    assert ranks[0] >= both["test"]["mrr"] >= ranks[1]
    assert answer(commands, "evaluate", run, "--raw")["test"]["mr"] >= both["test"]["mr"]
    with pytest.raises(SettingsError, match="did you mean test"):
        typed(commands, "evaluate", run, "--split", "tset")


def test_the_missing_part_is_found_and_what_is_known_left_out(run: Path, ring: Graph) -> None:
    head, relation, tail = ring.train[0]
    asked = ("--head", ring.entities[head], "--relation", ring.relations[relation], "--top", 12)
    new = answer(commands, "predict", run, *asked)
    known = answer(commands, "predict", run, *asked, "--include-known")
    assert (new["head"], new["tail"]) == (ring.entities[head], None)
    labels = [{found["label"] for found in told["answers"]} for told in (new, known)]
    assert ring.entities[tail] not in labels[0]
    assert ring.entities[tail] in labels[1]
    assert len(answer(commands, "predict", run, *asked[:4], "--top", 1)["answers"]) == 1
    with pytest.raises(UnknownLabelError, match="did you mean one"):
        typed(commands, "predict", run, "--head", ring.entities[head], "--relation", "onne")
    assert f"{ring.entities[head]}" in typed(commands, "predict", run, *asked).stdout


def test_neighbours_are_others(run: Path) -> None:
    found = answer(commands, "neighbors", run, "place03", "--top", 20)
    labels = [one["label"] for one in found["neighbors"]]
    assert "place03" not in labels
    assert len(set(labels)) == len(labels) == 11
    assert typed(commands, "neighbors", run, "place03", "--top", 0).exit_code == 2
