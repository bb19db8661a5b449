"""Make the archive that the tests in this folder open: runs, and the state of two nodes, as one version writes them.

Run it with the version whose files are to be kept; only the command line of that version is used::

    python -m tests.compat.make tests/compat/files-0.1.0.tar.xz

The graphs are made up: owners know overlapping arcs of a circle of places, by relations that step some places ahead.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OWNERS = ("ant", "bee")

POLICY = """\
default = "share"
[[rules]]
share = false
relation = "three"
"""

FEDERATION = """\
name = "circle"
[owners.ant]
graph = "ant"
policy = "ant.policy.toml"
[owners.bee]
graph = "bee"
[[links]]
between = ["ant", "bee"]
same = true
"""

SETTINGS = """\
initial_epochs = 4
exchanges = {exchanges}
epochs = 2
test_every = 2
window = 2.0
period = 2.0
answer = 20.0
[train]
dim = 8
batch = 32
negatives = 4
lr = 0.05
schedule = "linear"
device = "cpu"
[private]
epochs = 6
tests = 2
[psi]
runs = 100
"""

PRIVATE = """\
[privacy]
mode = "dp"
epsilon = 8.0
[dp]
negatives = 2
noise = 4.0
"""

TRAINING = ("--model", "RotatE", "--set", "dim=8", "--set", "batch=32", "--set", "negatives=4", "--device", "cpu", "-q")


def write_arc(folder: Path, name: str, first: int, places: int = 30, circle: int = 45) -> None:
    """Write the graph of one owner as train.tsv, valid.tsv and test.tsv, split 70:15:15."""
    rng = random.Random(name)
    labels = sorted(f"place{(first + i) % circle:02}" for i in range(places))
    steps = [(label, word, f"place{(int(label[5:]) + n) % circle:02}") for label in labels
             for n, word in enumerate(("one", "two", "three", "four"), start=1)]  # fmt: skip
    facts = [fact for fact in steps if fact[2] in labels]
    rng.shuffle(facts)
    a, b = int(0.7 * len(facts)), int(0.85 * len(facts))
    known = {label for head, _, tail in facts[:a] for label in (head, tail)}
    folder.mkdir(parents=True)
    for split, part in (("train", facts[:a]), ("valid", facts[a:b]), ("test", facts[b:])):
        lines = ["\t".join(fact) + "\n" for fact in sorted(part) if {fact[0], fact[2]} <= known]
        (folder / f"{split}.tsv").write_text("".join(lines))


def command(*words: str) -> list[str]:
    """`fkge WORDS` as a command."""
    return [sys.executable, "-m", "fkge", *words]


def fkge(*words: str, cwd: Path | None = None) -> str:
    """Run a command to its end; what it prints."""
    return subprocess.run(command(*words), check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout


def wait_for(holds: Callable[[], bool], *processes: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    """Wait until something holds, while all these processes live."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end or any(process.poll() is not None for process in processes):
            raise RuntimeError("a command ended too early, or took too long")
        time.sleep(0.005)


def interrupt(words: tuple[str, ...], enough: Callable[[], bool]) -> None:
    """Run a command until `enough`, then stop it as Ctrl-C does."""
    process = subprocess.Popen(command(*words))
    wait_for(enough, process)
    process.send_signal(signal.SIGINT)
    if process.wait(60) != 130:
        raise RuntimeError(f"stopped by SIGINT, it ended with {process.returncode}")


def events(trace: Path, **fields: Any) -> int:
    """How many whole lines of a trace have these fields."""
    if not trace.exists():
        return 0
    records = [json.loads(line) for line in trace.read_text().split("\n")[:-1]]
    return sum(all(record.get(key) == value for key, value in fields.items()) for record in records)


def make_runs(folder: Path) -> None:
    """Runs of one model and of a federation under a sharing policy: finished, and stopped half-way."""
    for i, name in enumerate(OWNERS):
        write_arc(folder / name, name, 15 * i)
    (folder / "ant.policy.toml").write_text(POLICY)
    (folder / "federation.toml").write_text(FEDERATION)
    trained, stopped = folder / "trained", folder / "stopped-training"
    fkge("train", str(folder / "ant"), *TRAINING, "--set", "epochs=20", "--out", str(trained))
    long = ("--set", "epochs=600", "--set", "patience=0", "--set", "validate_every=50")
    enough = ("train", str(folder / "ant"), *TRAINING, *long, "--out", str(stopped))
    interrupt(enough, lambda: events(stopped / "trace.jsonl", event="epoch") >= 120)
    simulated, stopped = folder / "simulated", folder / "stopped-simulation"
    for out, exchanges in ((simulated, 8), (stopped, 40)):
        (folder / "settings.toml").write_text(SETTINGS.format(exchanges=exchanges))
        words = (
            "simulate", str(folder / "federation.toml"), "--config", str(folder / "settings.toml"),
            "--engine", "in-process", "--baselines", "control", "--out", str(out), "-q",
        )  # fmt: skip
        if out == simulated:
            fkge(*words)
        else:
            interrupt(words, lambda: events(stopped / "trace.jsonl", event="work", arm="federated") >= 30)
    if (stopped / "results.json").exists() or (stopped / "arms" / "federated" / "ant" / "result.json").exists():
        raise RuntimeError("the simulation was not stopped half-way")
    (folder / "settings.toml").unlink()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def make_nodes(folder: Path, work: Path) -> None:
    """Two nodes under differential privacy, stopped half-way. What they start from, but for keys and certificates."""
    work.mkdir()
    (work / "federation.toml").write_text(SETTINGS.format(exchanges=40) + PRIVATE)
    plan = 'name = "circle"\nsettings = "federation.toml"\n'
    plan += "".join(f'[members.{name}]\naddress = "127.0.0.1:{free_port()}"\n' for name in OWNERS)
    (work / "plan.toml").write_text(plan + '[[links]]\nbetween = ["ant", "bee"]\nsame = true\n')
    fkge("provision", str(work / "plan.toml"), "--out", str(work / "trial"))
    sites = {name: work / "trial" / "kits" / name for name in OWNERS}
    nodes = {}
    for i, (name, site) in enumerate(sites.items()):
        write_arc(site / "graph", name, 15 * i)
        (site / "policy.toml").write_text(POLICY)
        text = (site / "node.toml").read_text().replace('"0.0.0.0:', '"127.0.0.1:')
        (site / "node.toml").write_text('metrics = ""\npolicy = "policy.toml"\n' + text)
        nodes[name] = subprocess.Popen(command("node", "--config", str(site / "node.toml"), "-q"))

    def is_halfway() -> bool:
        said = subprocess.run(
            command("status", "--config", str(sites["bee"] / "node.toml"), "--json"), capture_output=True, text=True
        )
        return said.returncode == 0 and (json.loads(said.stdout.splitlines()[-1])["epoch"] or 0) >= 16

    wait_for(is_halfway, *nodes.values())
    for node in nodes.values():
        node.send_signal(signal.SIGTERM)
    if any(node.wait(60) for node in nodes.values()):
        raise RuntimeError("a node that was stopped did not end well")
    for name, site in sites.items():
        for part in ("graph", "state", "policy.toml", "federation.toml"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (site / part).rename(folder / name / part)
        if (folder / name / "state" / "arms" / "federated" / name / "result.json").exists():
            raise RuntimeError(f"{name} had finished before it was stopped")


def ask(folder: Path) -> list[dict[str, Any]]:
    """What this version says of what it made: commands, run in a copy of `folder`, and the JSON that they print."""
    places = [f"runs/simulated/arms/{arm}/{name}" for arm in ("control", "federated") for name in OWNERS]
    questions = [["evaluate", place, "-q", "--device", "cpu"] for place in (*places, "runs/trained")]
    questions += [
        ["evaluate", "runs/trained", "-q", "--raw", "--categories", "--ties", "pessimistic", "--device", "cpu"]
    ]
    for place in (*places, "runs/trained"):
        questions += [
            ["predict", place, "--head", "place20", "--relation", "one", "--include-known", "--device", "cpu"]
        ]
        questions += [["neighbors", place, "place20", "--device", "cpu"]]
    questions += [
        ["predict", "runs/trained", "--tail", "place20", "--relation", "two", "--top", "3", "--device", "cpu"]
    ]
    ledgers = [f"runs/simulated/arms/federated/{name}/ledger.sqlite" for name in OWNERS]
    for ledger in (*ledgers, *(f"nodes/{name}/state/ledger/{name}.sqlite" for name in OWNERS)):
        questions += [["ledger", "show", ledger], ["ledger", "verify", ledger]]
    questions += [["audit-log", "verify", f"nodes/{name}/state/audit"] for name in OWNERS]
    questions += [
        ["simulate", "--resume", "runs/simulated", "-q"],
        ["train", "--resume", "--out", "runs/trained", "-q"],
    ]
    questions += [["simulate", "--resume", "runs/stopped-simulation", "-q"]]
    questions += [["train", "--resume", "--out", "runs/stopped-training", "-q"]]
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, Path(place, "copy"))
        return [
            {"words": words, "said": json.loads(fkge(*words, "--json", cwd=Path(place, "copy")).splitlines()[-1])}
            for words in questions
        ]


def main(archive: Path) -> None:
    """Make everything in a temporary folder, then the archive of it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_runs(folder / "runs")
        make_nodes(folder / "nodes", folder / "work")
        shutil.rmtree(folder / "work")
        (folder / "answers.json").write_text(json.dumps(ask(folder), indent=1))
        with tarfile.open(archive, "w:xz", preset=9) as made:
            for part in ("runs", "nodes", "answers.json"):
                made.add(folder / part, part, filter=_anonymous)
    print(f"{archive}: {archive.stat().st_size:,} bytes")


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(Path(sys.argv[1]))
