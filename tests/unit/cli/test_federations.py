"""Commands for federations: what options become, what is told before a run, and what is never removed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from fkge.cli.exit_codes import Misuse
from fkge.cli.federations import EngineOptions, PrivacyOptions, commands
from fkge.errors import FkgeError, RunError, SettingsError, UnknownLabelError
from fkge.experiment.simulation import Simulation
from tests.conftest import arc
from tests.consortium import write_graph
from tests.unit.cli.commands import answer, typed

SHORT = (
    "exchanges=2", "epochs=1", "initial_epochs=0", "lone_epochs=0", "train.model=TransE", "train.dim=4",
    "train.batch=32", "train.negatives=2", "train.device=cpu",
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a federation of two owners, `pair.toml`, and a simulation of it, `sim`; do not change it."""
    folder = tmp_path_factory.mktemp("federations")
    for name, first in (("ant", 0), ("bee", 20)):
        write_graph(arc(name, first), folder / name)
    (folder / "pair.toml").write_text(
        '[owners.ant]\ngraph = "ant"\n[owners.bee]\ngraph = "bee"\n[[links]]\nbetween = ["ant", "bee"]\nsame = true\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = typed(commands, *simulate("--out", "sim", "--seed", "5", "--baselines", ""))
    (folder / "stderr").write_text(done.stderr)
    assert done.exit_code == 0
    return folder


def simulate(*words: object) -> tuple[object, ...]:
    settings = (word for setting in SHORT for word in ("--set", setting))
    return "simulate", "pair.toml", "--engine", "in-process", *settings, *words


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ant", "bee", "sim"):
        shutil.copytree(made / name, tmp_path / name)
    shutil.copy(made / "pair.toml", tmp_path)
    return tmp_path


def test_only_options_that_were_given_override_a_file() -> None:
    assert PrivacyOptions().overrides == []
    assert PrivacyOptions(privacy="dp", epsilon=8.0, confidential=0.3).overrides == [
        "privacy.mode=dp",
        "privacy.epsilon=8.0",
    ]
    assert EngineOptions(engine="ray", cpus=0.0).given == {"cpus": 0.0}
    assert EngineOptions(engine="ray").given == {}


def test_owners_and_what_they_share_are_told_before_the_run(made: Path) -> None:
    said = (made / "stderr").read_text()
    assert "ant: 40 entities, 4 relations, " in said
    assert "shares 24 with bee" in said
    simulation = Simulation.open(made / "sim")
    assert (simulation.spec.seed, simulation.settings.exchanges, simulation.settings.train.dim) == (5, 2, 4)
    assert simulation.result is not None
    assert list(simulation.result.arms) == ["federated"]


def test_a_finished_simulation_is_shown_and_not_run_again(here: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (here / "sim").rglob("*.safetensors")}
    done = typed(commands, "simulate", "--resume", "sim", "--json")
    assert "sim: is finished; this is its result" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["seed"] == 5
    assert {path: path.stat().st_mtime_ns for path in (here / "sim").rglob("*.safetensors")} == before


@pytest.mark.parametrize("words", [("pair.toml",), ("--seed", "0"), ("--ratio", "0.5"), ("--privacy", "none"),
                                   ("--engine", "ray"), ("--baselines", ""), ("--confidential", "0")])  # fmt: skip
def test_a_resumed_simulation_takes_nothing_else(here: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(Misuse, match="--resume takes everything from its folder"):
        typed(commands, "simulate", "--resume", "sim", *words)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ((), RunError, "Continue it"),
        (("--out", "x", "--set", "exchange=3"), SettingsError, "did you mean exchanges"),
        (("--out", "x", "--baselines", "independent, contrl"), FkgeError, "did you mean control"),
        (("--out", "x", "--privacy", "dp"), SettingsError, "epsilon"),
        (("--out", "x", "--cpus", "1"), FkgeError, "cpus"),
        (("--out", "x", "--set", "train.device=meta"), SettingsError, "use cpu"),
    ],
)
def test_what_is_sure_to_fail_fails_before_there_is_a_folder(
    here: Path, words: tuple[str, ...], error: type[FkgeError], message: str
) -> None:
    with pytest.raises(error, match=message):
        typed(commands, *simulate(*(words or ("--out", "sim"))), "--quiet")
    assert not (here / "x").exists()


def test_the_papers_privacy_brings_the_papers_translation_unless_another_was_asked_for(here: Path) -> None:
    game = [word for setting in ("steps=2", "candidates=1", "hidden=4") for word in ("--set", f"ppat.{setting}")]
    answer(commands, *simulate("--out", "paper", "--privacy", "paper", "--quiet", "--baselines", "", *game))
    assert Simulation.open(here / "paper").settings.translate == "ppat"
    with pytest.raises(SettingsError):
        typed(commands, *simulate("--out", "other", "--privacy", "paper", "--translate", "frame"))


def test_some_triples_can_be_kept_for_an_experiment(here: Path) -> None:
    answer(commands, *simulate("--out", "kept", "--confidential", "0.3", "--quiet", "--baselines", ""))
    policies = [owner.two_tracks for owner in Simulation.open(here / "kept").owners]
    assert policies == [True, True]


def test_a_demo_removes_no_other_simulation(here: Path) -> None:
    for words, message in (
        (("--fresh",), "which is no demo; choose another --out"),
        ((), "choose another --out, or --fresh to start again"),
    ):
        with pytest.raises(RunError, match=message):
            typed(commands, "demo", "--out", "sim", *words)
    with pytest.raises(UnknownLabelError, match="did you mean atlas"):
        typed(commands, "demo", "atlsa", "--fresh", "--out", "sim")
    assert Simulation.open(here / "sim").result is not None


def test_an_audit_leaves_the_signal_as_it_was(here: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = answer(commands, "audit", "sim", "--only", " canaries , non-interference", "--quick", "--quiet")
    assert list(found["sections"]) == ["canaries", "non-interference"]
    with pytest.raises(SettingsError, match="did you mean canaries"):
        typed(commands, "audit", "sim", "--only", "canary")
    with pytest.raises(RunError, match="holds no simulation"):
        typed(commands, "audit", "ant")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_project_is_written_and_says_what_comes_next(here: Path) -> None:
    done = typed(commands, "new", "project")
    assert "fkge simulate" in done.stdout
    with pytest.raises(RunError, match="exists already"):
        typed(commands, "new", "project")
