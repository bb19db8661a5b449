"""Shared by all tests: one thread, small graphs, and where real data is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fkge.graph import Graph, Vocabulary, tidy

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
