"""``fkge simulate`` as a person uses it: real processes, real signals, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fkge.cli import main
from fkge.experiment.simulation import Simulation
from fkge.graph import Graph
from fkge.owner_events import EpochReached, TraceEvent
from tests.conftest import OWNERS, kept, tiny_federation

SMALL = {
    "initial_epochs": 4, "exchanges": 4, "epochs": 2, "test_every": 2, "train.dim": 8, "train.batch": 32,
    "train.negatives": 4, "train.lr": 0.05, "train.device": "cpu",
}  # fmt: skip
METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"}


def words(**changes: object) -> list[str]:
    return [word for key, value in (SMALL | changes).items() for word in ("--set", f"{key}={value}")]


def command(*said: object) -> list[str]:
    return [sys.executable, "-m", "fkge", "simulate", *map(str, said)]


def simulate(*said: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*said), cwd=cwd, text=True, capture_output=True, timeout=300, env={**os.environ, "COLUMNS": "200"},
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def write(graph: Graph, folder: Path) -> None:
    folder.mkdir()
    for name, triples in graph.splits.items():
        rows = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}" for h, r, t in triples.tolist()]
        (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with circle.toml, pair.toml and their owners' graphs."""
    folder = tmp_path_factory.mktemp("simulate")
    for name, graph in tiny_federation().graphs.items():
        write(graph, folder / name)
    for file, names in (("circle.toml", OWNERS), ("pair.toml", OWNERS[:2])):
        owners = "".join(f'[owners.{name}]\ngraph = "{name}"\n' for name in names)
        pairs = [(a, b) for a in names for b in names if a < b]
        links = "".join(f'[[links]]\nbetween = ["{a}", "{b}"]\nsame = true\n' for a, b in pairs)
        (folder / file).write_text(owners + links)
    return folder


def test_one_object_or_tables(here: Path) -> None:
    asked = ("circle.toml", "--out", "run", "--engine", "in-process", "--baselines", "control, permuted,fede")
    done = simulate(*asked, *words(), "--ratio", "0.5", "--json", cwd=here)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    arms = ["control", "permuted", "federated", "fede"]
    assert (result["federation"], result["engine"], result["start"]) == ("circle", "in-process", "together")
    assert (result["epochs"], result["seed"], result["translate"], result["decide"]) == (12, 0, "frame", "all")
    assert list(result["mean"]) == arms
    assert all(set(result["mean"][arm][part]) == METRICS for arm in arms for part in ("strict", "held"))
    assert list(result["owners"]) == list(OWNERS)
    for owner in result["owners"].values():
        assert all(shared == {"entities": 10, "relations": 2} for shared in owner["shares"].values())
        assert list(owner["arms"]) == arms
        for got in owner["arms"].values():
            assert set(got["valid"]) == METRICS
            assert set(got["test"]) == {"strict", "held"}
            assert set(got["test"]["strict"]) == METRICS | {"triples"}
            assert set(got["seconds"]) == {"train", "translate", "test"}
            assert got["epochs"] == result["epochs"]
            ledger = {"best_score", "best_epoch", "tests", "rounds", "accepted", "backtracked", "handshakes", "sent"}
            assert ledger <= set(got)
        assert set(owner["versus"]) == {"control", "permuted", "fede"}
        assert set(owner["versus"]["control"]["strict"]["mrr"]) == {"difference", "low", "high", "p"}
    assert "ant: 40 entities, 4 relations, 105 facts; shares 24 with bee" in done.stderr

    tables = simulate("--resume", "run", cwd=here)  # it is over; what it found is shown
    assert "circle: facts that nobody else holds" in tables.stdout
    assert "circle: facts that a partner holds" in tables.stdout
    assert "gain over control, 95%" in tables.stdout
    assert all(word in tables.stdout for word in (*OWNERS, *arms, "mean"))
    said = simulate("circle.toml", "--out", "run", cwd=here, code=13).stderr
    assert "run: exists already. Continue it: fkge simulate --resume run" in said


@pytest.mark.parametrize(
    ("said", "expected", "code"),
    [
        (["circle.toml", "--baselines", "contrl"], "unified; did you mean control", 12),
        (["circle.toml", "--engine", "in-proces"], "there is no engine 'in-proces'; did you mean in-process", 12),
        (["circle.toml", "--translate", "ppta"], "'frame', 'procrustes', 'ppat' or 'ppat+refine' (got 'ppta')", 12),
        (["circle.toml", "--set", "train.dims=3"], "did you mean dim", 12),
        (["circle.toml", "--set", "train.model=TranseE"], "did you mean TransE", 14),
        (["circle.toml", "--ratio", "0"], "ratio: Input should be greater than 0", 12),
        ([], "which federation?", 2),
        (["--resume", "nowhere"], "nowhere: holds no simulation", 13),
        (["circle.toml", "--resume", "run"], "leave FEDERATION and settings out", 2),
        (["--resume", "run", "--set", "exchanges=3"], "leave FEDERATION and settings out", 2),
        (["--resume", "run", "--seed", "1"], "leave FEDERATION and settings out", 2),
        (["--resume", "run", "--baselines", "fede"], "leave FEDERATION and settings out", 2),
        (["--resume", "run", "--engine", "in-process"], "leave FEDERATION and settings out", 2),
        (["circle.toml", "--set", "train.epochs=9"], "train.epochs is for `fkge train`; in a federation say", 12),
        (["triangle.toml"], "triangle.toml: no such file", 12),
    ],
)
def test_mistakes_get_one_line_and_a_number(
    said: list[str],
    expected: str,
    code: int,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["fkge", "simulate", *said, "--out", "x", "--quiet"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    err = capsys.readouterr().err
    assert expected in err
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) == 1
    assert not (here / "x").exists()


# -- signals ---------------------------------------------------------------------------------------


def until(what: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        os.sched_yield()


def works(out: Path) -> list[dict[str, Any]]:
    trace = out / "trace.jsonl"
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [json.loads(line) for line in lines if line.startswith('{"event": "work"') and line.endswith("}")]


def children(pid: int) -> list[int]:
    """Processes that `pid` started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_and_interrupted_it_can_always_go_on(here: Path) -> None:
    out = here / "broken"
    options = words(exchanges=78, **{"train.negatives": 64})
    said: tuple[object, ...] = ("pair.toml", "--out", out, "--baselines", "control", *options)

    # The starting process dies; the owners' processes notice, keep what they have and leave. Who comes next waits.
    with subprocess.Popen(command(*said), cwd=here, text=True, stderr=subprocess.PIPE) as process:
        until(lambda: len(works(out)) > 10, process)
        started = children(process.pid)
        assert len(started) >= 2
        process.kill()
    before = {(w["arm"], w["owner"]): w["epoch"] for w in works(out)}
    seen = len(works(out))

    # Asked politely, it stops where it can go on.
    with subprocess.Popen(command("--resume", out), cwd=here, text=True, stderr=subprocess.PIPE) as process:
        until(lambda: any(w["arm"] == "federated" and w["epoch"] >= 20 for w in works(out)), process)
        assert all(gone(child) for child in started)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"stopped; nothing is lost. Resume with: fkge simulate --resume {out}" in err
    assert "Traceback" not in err
    resumed = [w for w in works(out)[seen:] if (w["arm"], w["owner"]) in before]
    assert resumed
    assert all(w["epoch"] > before[w["arm"], w["owner"]] for w in resumed)  # not an epoch is done twice
    last = {w["owner"]: w for w in works(out) if w["arm"] == "federated"}

    done = simulate("--resume", out, "--json", cwd=here)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    for name, owner in result["owners"].items():
        assert owner["arms"]["federated"]["best_score"] >= (last[name]["best"] or 0)
        assert {got["epochs"] for got in owner["arms"].values()} == {result["epochs"]}
        epochs = [w["epoch"] for w in works(out) if w["arm"] == "federated" and w["owner"] == name]
        assert epochs[-1] == result["epochs"]
        assert epochs == sorted(epochs)  # polite stops lose nothing


def test_interrupted_within_a_long_first_training(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C is heard between two epochs, not between two works; what was trained is kept."""
    heard = []

    def emit(events: Any, event: TraceEvent) -> None:
        if isinstance(event, EpochReached) and not heard and event.epoch > 0:
            heard.append(event.epoch)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.chdir(here)
    monkeypatch.setattr("fkge.experiment.simulation._Events.emit", emit)
    options = words(initial_epochs=1_000_000, exchanges=0)
    said = ["pair.toml", "--out", "long", "--start", "alone", "--baselines", "", *options]
    monkeypatch.setattr(sys, "argv", ["fkge", "simulate", *said])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert "stopped; nothing is lost. Resume with: fkge simulate --resume long" in capsys.readouterr().err
    epochs = [kept(owner, "independent")["trainer"]["epoch"] for owner in Simulation.open(here / "long").owners]
    assert max(epochs) >= heard[0]
    assert max(epochs) < 1_000_000


# -- privacy ---------------------------------------------------------------------------------------


def fkge(*said: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fkge", *map(str, said)], cwd=cwd, text=True, capture_output=True, timeout=300,
        env={**os.environ, "COLUMNS": "200"}, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_private_federation_its_ledger_and_its_audit(here: Path) -> None:
    out = here / "private"
    done = simulate("pair.toml", "--out", out, "--privacy", "dp", "--epsilon", 4, "--confidential", 0.2, "--json",
                    *words(**{"private.epochs": 2, "exchanges": 2}), cwd=here)  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    for owner in result["owners"].values():
        (budget,) = owner["arms"]["federated"]["privacy"]["budgets"]
        assert 3.99 < budget["spent"]["epsilon"] <= 4
    ledger = out / "arms" / "federated" / "ant" / "ledger.sqlite"
    shown = fkge("ledger", "show", ledger, cwd=here)
    assert shown.returncode == 0
    assert "one triple, add or remove" in shown.stdout
    sound = fkge("ledger", "verify", ledger, "--json", cwd=here)
    assert json.loads(sound.stdout)["sound"] is True
    audit = fkge("audit", out, "--only", "non-interference,dictionary", "--quick", "--json", cwd=here)
    assert audit.returncode == 0, audit.stderr
    assert json.loads(audit.stdout.splitlines()[-1])["broken"] is False
    data = bytearray(ledger.read_bytes())
    at = data.rindex(b"gaussian")
    data[at : at + 8] = b"gauntian"
    ledger.write_bytes(bytes(data))
    broken = fkge("ledger", "verify", ledger, cwd=here)
    assert broken.returncode == 23
    assert broken.stderr.startswith("error: ")
    assert "Traceback" not in broken.stderr


@pytest.mark.long
def test_the_paper_says_what_it_does_not_cover(here: Path) -> None:
    done = simulate("pair.toml", "--out", here / "paper", "--privacy", "paper", "--baselines", "",
                    *words(**{"exchanges": 1, "ppat.steps": 4, "ppat.candidates": 1, "ppat.teachers": 2}),
                    cwd=here)  # fmt: skip
    assert "client's vectors: no guarantee" in done.stdout
    assert "paper's" in done.stdout


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["--privacy", "dp"], "needs an epsilon"),
        (["--privacy", "dp", "--epsilon", "8", "--translate", "ppat"], "does not cover translate"),
        (["--privacy", "laplace"], "privacy"),
        (["--confidential", "0.2", "--baselines", "fede"], "sees all"),
        (["--confidential", "1.0"], "shares no training triple"),
    ],
)
def test_privacy_that_cannot_be_had(said: list[str], told: str, here: Path) -> None:
    done = simulate("pair.toml", "--out", here / "never", *said, *words(), cwd=here, code=12)
    assert told in done.stderr
    assert done.stderr.count("error: ") == 1
