"""Fixtures of all tests: one thread, small graphs, and where real data is."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from fkge.embed import load_tensors
from fkge.experiment.owners import SimulatedOwner
from fkge.federation import Federation, FederationSettings, Links, Member
from fkge.graph import Graph, Vocabulary, tidy
from fkge.owner_events import OwnerEvent

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES256-GCM-SHA384"  # or a test that loads gRPC before a node's would

settings.register_profile("fkge", deadline=None)  # how long something takes is never what is tested
settings.load_profile("fkge")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("needs the real graphs in ../shared/data")
    return SHARED


def random_graph(entities: int = 40, relations: int = 5, triples: int = 400, seed: int = 0) -> Graph:
    """A graph of random facts, split 80:10:10, with loops and repeated pairs in it."""
    rng = np.random.default_rng(seed)
    columns = (
        rng.integers(entities, size=triples),
        rng.integers(relations, size=triples),
        rng.integers(entities, size=triples),
    )
    facts = rng.permutation(tidy(np.stack(columns, axis=1)))
    a, b = int(0.8 * len(facts)), int(0.9 * len(facts))
    return Graph(
        Vocabulary([f"e{i:03}" for i in range(entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(relations)], "relation"),
        {"train": facts[:a], "valid": facts[a:b], "test": facts[b:]},
        name="random",
    )


@pytest.fixture
def graph() -> Graph:
    return random_graph()


@pytest.fixture
def ring() -> Graph:
    """Twelve entities in a circle, relations that step 1, 2 and 3 places: learnable in a second."""
    n = 12
    facts = np.array([(i, r, (i + r + 1) % n) for i in range(n) for r in range(3)])
    facts = np.random.default_rng(0).permutation(facts)
    return Graph(
        Vocabulary([f"place{i:02}" for i in range(n)], "entity"),
        Vocabulary(["one", "two", "three"], "relation"),
        {"train": facts[:30], "valid": facts[30:33], "test": facts[33:]},
        name="ring",
    )


# -- a federation ----------------------------------------------------------------------------------

OWNERS = ("ant", "bee", "cat")


def arc(name: str, first: int, places: int = 40, circle: int = 60, seed: int = 0) -> Graph:
    """Part of a circle of places, relations that step 1 to 4 of them; 70:15:15, not the same 70 at every owner."""
    rng = np.random.default_rng([seed, *name.encode()])
    labels = sorted(f"place{(first + i) % circle:02}" for i in range(places))
    ids = {label: i for i, label in enumerate(labels)}
    steps = [(label, r, f"place{(int(label[5:]) + r + 1) % circle:02}") for label in labels for r in range(4)]
    facts = rng.permutation(np.array([(ids[h], r, ids[t]) for h, r, t in steps if t in ids]))
    a, b = int(0.7 * len(facts)), int(0.85 * len(facts))
    return Graph(
        Vocabulary(labels, "entity"),
        Vocabulary(["four", "one", "three", "two"], "relation"),
        {"train": tidy(facts[:a]), "valid": tidy(facts[a:b]), "test": tidy(facts[b:])},
        name=name,
    )


def tiny_federation(
    owners: tuple[str, ...] = OWNERS,
    train: dict[str, dict[str, Any]] | None = None,
    refuses: tuple[str, str] = ("", ""),
) -> Federation:
    """Owners of overlapping arcs of one circle, who call things alike. `refuses`: (who, whom)."""
    members = {
        name: Member(
            arc(name, 20 * i), (train or {}).get(name, {}), (refuses[1],) if name == refuses[0] else ()
        )
        for i, name in enumerate(owners)
    }  # fmt: skip
    links = {(a, b): Links(same=True) for a in owners for b in owners if a < b}
    return Federation("circle", members, links)


def tiny_settings(**changes: Any) -> FederationSettings:
    """A run of a second: 20 epochs, 5 tests. ``train`` and ``ppat`` take dicts."""
    train = {"dim": 8, "batch": 32, "negatives": 4, "lr": 0.05, "schedule": "linear", "device": "cpu"}
    ppat = {"steps": 6, "candidates": 2, "teachers": 2, "hidden": 8}
    values: dict[str, Any] = {"initial_epochs": 4, "exchanges": 8, "epochs": 2, "test_every": 2, **changes}
    values["train"] = train | changes.get("train", {})
    values["ppat"] = ppat | changes.get("ppat", {})
    return FederationSettings.build(values)


COMPLEX: dict[str, Any] = {
    "model": "ComplEx", "loss": "1vsall", "reciprocal": True, "optimizer": "adagrad", "lr": 0.1,
    "regularization": 0.05, "regularizer": "n3",
}  # fmt: skip
"""How to train the model whose vectors are tied to their axes, with inverse rows and another optimiser's state."""


class EventLog(list[dict[str, Any]]):
    """Events that an engine reports, in order."""

    def __call__(self, event: OwnerEvent) -> None:
        self.append(event.record())

    def of(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Those of one event whose fields are these."""
        return [n for n in self if n["event"] == event and all(n.get(k) == v for k, v in fields.items())]


@contextmanager
def only_ray() -> Iterator[None]:
    """One Ray at a time on a machine: the servers of two that start at once on few cores give each other up."""
    pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")
    before = signal.getsignal(signal.SIGTERM)  # Ray would take it
    with Path(tempfile.gettempdir(), f"fkge-tests-ray-{os.getuid()}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def ray_here() -> Iterator[None]:
    """Ray on this machine, small and silent, for all engines within; skips where it is not installed."""
    with only_ray():
        import ray

        ray.init(
            address="local", num_cpus=4, num_gpus=0, include_dashboard=False, log_to_driver=False,
            logging_level="ERROR", object_store_memory=100 * 2**20,
        )  # fmt: skip
        try:
            yield
        finally:
            ray.shutdown()


def kept(member: SimulatedOwner, arm: str) -> dict[str, Any]:
    """What an owner's checkpoint says of it, but for its vectors."""
    _, about = load_tensors(member.workspace(arm).folder / "checkpoint.safetensors", "fkge.owner.1")
    return about


def reported(owner: SimulatedOwner, arm: str) -> dict[str, Any] | None:
    """What an owner reached in an arm, as JSON data; None if that is not finished."""
    report = owner.workspace(arm).report()
    return None if report is None else report.to_json()
