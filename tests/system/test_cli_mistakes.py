"""Mistakes of new users: each is one message with advice and an exit code, and nothing is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.cli import exit_codes as exits
from fkge.cli import main
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.graph import Graph
from fkge.settings import TrainSettings
from tests.conftest import tiny_federation, tiny_settings

FILES = {
    "empty.toml": "", "odd.toml": "x = [", "flat.toml": "train = 3", "typo.toml": "exchange = 3\n",
    "typo2.toml": "[train]\ndims = 3\n", "one.toml": '[owners.a]\ngraph = "ant.tsv"\n', "empty.tsv": "",
    "alone.toml": '[owners.a]\ngraph = "ant.tsv"\n[owners.b]\ngraph = "cat.tsv"\n',
    "unlinked.toml": '[owners.a]\ngraph = "ant.tsv"\n[owners.b]\ngraph = "cat.tsv"\n'
                     '[[links]]\nbetween = ["a", "b"]\nentities = "nowhere.tsv"\n',
    "pair.toml": '[owners.a]\ngraph = "ant.tsv"\n[owners.b]\ngraph = "cat.tsv"\n'
                 '[[links]]\nbetween = ["a", "b"]\nsame = true\n',
    "misspelt.toml": '[owners.a]\ngrph = "ant.tsv"\n', "two-columns.tsv": "a\tb\n",
}  # fmt: skip


def write_tsv(graph: Graph, path: Path) -> None:
    triples = [row for split in graph.splits.values() for row in split.tolist()]
    rows = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}" for h, r, t in triples]
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graphs, odd files, a finished run `run` and a finished simulation `sim`."""
    folder = tmp_path_factory.mktemp("mistakes")
    torch.set_num_threads(1)
    federation = tiny_federation()
    for name, graph in federation.graphs.items():
        write_tsv(graph, folder / f"{name}.tsv")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / "simulation.json").write_text("{")
    Run.create(folder / "run", federation.graphs["ant"], TrainSettings(dim=8, epochs=1, device="cpu")).train()
    settings = tiny_settings(exchanges=2)
    Simulation.create(folder / "sim", federation, settings, baselines=(), engine="in-process").run()
    return folder


def end(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["fkge", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


NO_CUDA = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")

MISTAKES = [
    # words that make no sense
    ("trian ant.tsv", 2, "Did you mean 'train'"),
    ("train", 2, "which graph? fkge train GRAPH"),
    ("train ant.tsv --out x --seed -3", 2, "'--seed': Input should be greater than or equal to 0"),
    ("train ant.tsv --out x --sed 3", 2, "No such option"),
    ("predict run --head place03 --relation one --top 0", 2, "'--top'"),
    ("neighbors run", 2, "Missing argument"),
    ("simulate", 2, "which federation? fkge simulate FEDERATION"),
    ("simulate pair.toml --resume sim", 2, "leave FEDERATION and settings out"),
    ("simulate pair.toml --confidential 7 --out x", 2, "'--confidential'"),
    ("export run", 2, "Missing option '--to'"),
    ("dashboard sim --port 99999", 2, "'--port'"),
    ("dashboard sim --token a --no-token", 2, "give one of them"),
    ("errors 99", 2, "`fkge errors` lists them"),
    ("data lst", 2, "Did you mean 'list'"),
    # graphs
    ("train nowhere --out x", 11, "nowhere: does not exist. Check the path"),
    ("train two-columns.tsv --out x", 11, "two-columns.tsv:1"),
    ("train empty.tsv --out x", 11, "empty.tsv"),
    ("train folder --out x", 11, "folder"),
    ("train pykeen:natons --out x", 11, "did you mean nations"),
    ("simulate unlinked.toml --out x", 11, "nowhere.tsv: cannot be read (No such file or directory). Check the path."),
    # settings
    ("train ant.tsv --out x --set dims=3", 12, "unknown key 'dims'; did you mean dim?"),
    ("train ant.tsv --out x --set dim", 12, "expected key=value"),
    ("train ant.tsv --out x --set dim=-4", 12, "dim: Input should be greater than or equal to 1 (got -4)"),
    ("train ant.tsv --out x --config typo2.toml", 12, "unknown key 'train'"),
    ("train ant.tsv --out x --config nowhere.toml", 12, "nowhere.toml: no such file"),
    ("train ant.tsv --out x --config transee", 12, "no recipe either"),
    ("train ant.tsv --out x --config folder", 12, "folder: cannot be read (Is a directory); name a TOML file"),
    ("train ant.tsv --out x --config odd.toml", 12, "odd.toml: not valid TOML"),
    ("train ant.tsv --out x --device meta", 12, "use cpu, cuda"),
    pytest.param("train ant.tsv --out x --device cuda", 12, "no CUDA GPU; use cpu or auto", marks=NO_CUDA),
    pytest.param("simulate pair.toml --out x --set train.device=cuda", 12, "no CUDA GPU", marks=NO_CUDA),
    pytest.param("evaluate run --device cuda", 12, "no CUDA GPU", marks=NO_CUDA),
    ("evaluate run --split tset", 12, "did you mean test"),
    ("evaluate run --ties foo", 12, "realistic, optimistic or pessimistic"),
    ("predict run --head place03", 12, "needs two of head, relation and tail"),
    ("simulate pair.toml --config typo.toml --out x", 12, "unknown key 'exchange'; did you mean exchanges"),
    (
        "simulate pair.toml --config typo2.toml --out x",
        12,
        "typo2.toml: [train]: unknown key 'dims'; did you mean dim?",
    ),
    ("simulate pair.toml --config flat.toml --out x", 12, "train: Input should be"),
    ("simulate pair.toml --set trian.dim=3 --out x", 12, "no section 'trian'; did you mean train"),
    ("simulate pair.toml --ratio 7 --out x", 12, "ratio: Input should be less than or equal to 1 (got 7.0)"),
    ("simulate pair.toml --epsilon -1 --out x", 12, "epsilon: Input should be greater than 0"),
    ("simulate pair.toml --baselines contrl --out x", 12, "did you mean control"),
    ("simulate nowhere --out x", 12, "nowhere: no such file or folder"),
    ("simulate folder --out x", 12, "a federation has at least two"),
    ("simulate one.toml --out x", 12, "names 1 owner; a federation has at least two"),
    ("simulate alone.toml --out x", 12, "no two owners share an entity or a relation; put links into"),
    ("simulate empty.toml --out x", 12, "owners: Field required"),
    ("simulate odd.toml --out x", 12, "odd.toml: not valid TOML"),
    ("simulate misspelt.toml --out x", 12, "unknown key 'grph'; did you mean graph?"),
    ("audit sim --only mebership", 12, "did you mean membership"),
    ("export run --to nmupy --out x", 12, "did you mean numpy"),
    ("track run --to mlfow --where x", 12, "did you mean mlflow"),
    # folders
    ("train ant.tsv --out ant.tsv", 13, "Choose another --out"),
    ("train ant.tsv --out run", 13, "Resume it: fkge train --resume --out run"),
    ("train ant.tsv --out sim", 13, "Choose another --out"),
    ("train --resume --out sim", 13, "fkge simulate --resume sim"),
    ("train --resume --out folder", 13, "is no run folder"),
    ("train --resume --out run --set dim=16", 13, "was started with dim = 8, not 16"),
    ("train --resume bee.tsv --out run", 13, "was made from another graph"),
    ("evaluate nowhere", 13, "nowhere: is no run folder"),
    ("predict sim --head a --relation b", 13, "fkge predict sim/arms/federated/ant"),
    ("predict sim/owners/ant --head a --relation b", 13, "its model is in sim/arms/federated/ant"),
    ("neighbors sim/arms/federated/nat place03", 13, "OWNER one of ant, bee, cat"),
    ("evaluate sim/arms/federated", 13, "OWNER one of ant, bee, cat"),
    ("simulate pair.toml --out sim", 13, "Continue it: fkge simulate --resume sim"),
    ("simulate --resume run", 13, "fkge train --resume --out run"),
    ("simulate --resume nowhere", 13, "nowhere: holds no simulation"),
    ("audit run", 13, "run: is a run of `fkge train`, not a simulation"),
    ("audit sim/arms/federated/ant", 13, "is a part of a simulation; name the whole: sim"),
    ("report sim/arms/federated/ant", 13, "is a part of a simulation; name the whole: sim"),
    ("report nowhere", 13, "nowhere"),
    ("report folder", 13, "folder: holds no run"),
    ("dashboard run", 13, "run: is a run of `fkge train`, not a simulation"),
    ("dashboard nowhere", 13, "there is no such folder"),
    ("simulate --resume damaged", 13, "damaged/simulation.json: is damaged. Restore it"),
    ("audit damaged", 13, "damaged/simulation.json: is damaged"),
    ("export damaged --to numpy --out x --owner ant", 13, "damaged/simulation.json: is damaged"),
    ("export sim --to numpy --out x", 13, "name one of its owners: ant, bee, cat"),
    ("export run --to numpy --out x --owner ant", 13, "has no owners"),
    ("ledger show sim", 13, "RUN/arms/ARM/OWNER/ledger.sqlite"),
    ("new run", 13, "exists already"),
    ("demo --out sim", 13, "holds circle with seed 0; choose another --out, or --fresh"),
    ("demo --fresh --out sim", 13, "sim: holds a simulation of circle, which is no demo; choose another --out"),
    # names
    ("train ant.tsv --out x --model TranseE", 14, "did you mean TransE"),
    ("predict run --head plce03 --relation one", 14, "did you mean place03"),
    ("predict run --head place03 --relation onne", 14, "did you mean one"),
    ("neighbors run plce03", 14, "did you mean place03"),
    ("audit sim --owner nat", 14, "no owner 'nat'"),
    ("export sim --to numpy --out x --owner be", 14, "did you mean bee"),
    ("data show atlsa", 14, "did you mean atlas"),
    ("demo atlsa --fresh --out sim", 14, "did you mean atlas"),
    ("demo atlsa --out x", 14, "did you mean atlas"),
    # the rest
    ("ledger show nowhere", 23, "nowhere: no such ledger"),
    ("train ant.tsv --out ant.tsv/run", 31, "ant.tsv/run: not a directory; choose another path"),
    ("new ant.tsv/project", 31, "not a directory"),
    ("report sim --out ant.tsv/x/y.html", 31, "the report cannot be written (Not a directory). Choose another --out"),
    ("train ant.tsv --out x --set dim=100000000000", 33, "not enough memory"),
]


@pytest.mark.parametrize(("line", "code", "expected"), MISTAKES, ids=lambda value: str(value).replace(" ", "_")[:60])
def test_a_mistake_is_one_sentence_and_a_number(
    line: str, code: int, expected: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    before = sorted(here.rglob("*"))
    assert end(line.split(), monkeypatch) == code
    said = capsys.readouterr()
    *_, last = said.err.strip().splitlines()
    assert last.startswith("error: ")
    assert expected in last
    assert said.err.count("error: ") == 1
    assert said.out == ""
    assert "did you mean" in last or f"(exit {code}; fkge " in last
    assert code in exits.pages()
    assert sorted(here.rglob("*")) == before


def test_a_port_that_is_taken(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn", reason="needs fkge[dashboard]")
    pytest.importorskip("fastapi", reason="needs fkge[dashboard]")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = end(["dashboard", str(here / "sim"), "--port", port, "--no-open"], monkeypatch)
    assert code == exits.PORT
    error = capsys.readouterr().err
    assert f"port {port}" in error
    assert "--port" in error.replace(f"port {port}", "")
    assert len(error.strip().splitlines()) == 1


# -- disks and permissions ---------------------------------------------------------------------------


SMALL_FILES = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
runpy.run_module("fkge", run_name="__main__", alter_sys=True)
"""


def fkge(*words: object, cwd: Path, small_files: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the program; with `small_files`, as on a disk that has no room for a file of more than 60 kB."""
    program = ["-c", SMALL_FILES] if small_files else ["-m", "fkge"]
    done = subprocess.run(
        [sys.executable, *program, *map(str, words)], cwd=cwd, text=True, capture_output=True, timeout=300,
        env={**os.environ, "COLUMNS": "200"}, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


TRAIN = ("--set", "dim=512", "--set", "epochs=4", "--set", "device=cpu", "--set", "negatives=4", "--quiet")
SIMULATE = ("--engine", "in-process", "--set", "exchanges=2", "--set", "initial_epochs=0", "--set", "train.dim=512",
            "--set", "train.device=cpu", "--set", "train.negatives=4", "--quiet")  # fmt: skip


@pytest.mark.long
def test_no_room_for_a_file_and_then_there_is(here: Path, tmp_path: Path) -> None:
    """A model that does not fit: one sentence; with room again, the run ends as if nothing had happened."""
    fkge("train", here / "ant.tsv", "--out", tmp_path / "whole", *TRAIN, cwd=here)
    full = fkge("train", here / "ant.tsv", "--out", tmp_path / "full", *TRAIN, cwd=here, small_files=True)
    assert full.returncode == exits.DISK
    assert full.stderr.startswith("error: ")
    assert "the disk is full; finished files are intact" in full.stderr
    assert len(full.stderr.strip().splitlines()) == 1
    assert fkge("train", "--resume", "--out", tmp_path / "full", "--quiet", cwd=here).returncode == 0
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "full")]
    assert models[0] == models[1]


@pytest.mark.parametrize("engine", ["in-process", pytest.param("processes", marks=pytest.mark.long)])
def test_no_room_in_a_simulation(engine: str, here: Path, tmp_path: Path) -> None:
    words = ["--out", tmp_path / "full", *SIMULATE, "--engine", engine]
    full = fkge("simulate", here / "pair.toml", *words, cwd=here, small_files=True)
    assert full.returncode == exits.DISK, full.stderr
    assert len(full.stderr.strip().splitlines()) == 1
    assert "--resume" in full.stderr
    assert fkge("simulate", "--resume", tmp_path / "full", "--quiet", cwd=here).returncode == 0


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own at `folder`."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size=16k,{options}", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "rw") as disk:
        yield disk


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that cannot be written: root may write anywhere but to a read-only disk."""
    if os.geteuid() == 0:
        with mounted(tmp_path / "locked", "ro") as disk:
            yield disk
    else:
        (tmp_path / "locked").mkdir(mode=0o555)
        yield tmp_path / "locked"


def test_a_full_disk_leaves_nothing_half_made(here: Path, tiny_disk: Path) -> None:
    done = fkge("simulate", here / "pair.toml", "--out", tiny_disk / "sim", *SIMULATE, cwd=here)
    assert done.returncode == exits.DISK
    assert "the disk is full" in done.stderr
    assert not (tiny_disk / "sim").exists()


def test_a_folder_that_cannot_be_written(here: Path, locked: Path) -> None:
    for words in (("train", here / "ant.tsv", *TRAIN, "--out"), ("simulate", here / "pair.toml", *SIMULATE, "--out"),
                  ("new",)):  # fmt: skip
        done = fkge(*words, locked / "made", cwd=here)
        assert done.returncode == exits.FILES, done.stderr
        assert done.stderr.startswith(f"error: {locked / 'made'}: ")
        assert "choose another path" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
