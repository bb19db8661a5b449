"""Runs to export, with labels that formats stumble over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.embed import make_tables, save_model
from fkge.experiment.training_run import Run
from fkge.graph import Graph, Vocabulary
from fkge.settings import TrainSettings
from tests.conftest import random_graph

ODD = ["a b", "100%", "%20", "tab\tnew\nline", "  ", "né\u00a0e\u2003x", "", "日本", '"quoted", too', "1 2 3", "a%20b"]


def odd_graph() -> Graph:
    """A random graph with labels that formats stumble over."""
    graph = random_graph()
    labels = sorted([*ODD, *(f"e{i:03}" for i in range(len(graph.entities) - len(ODD)))])
    return Graph(Vocabulary(labels, "entity"), graph.relations, graph.splits, name="odd")


def make(folder: Path, graph: Graph, **changes: Any) -> Run:
    """A run with vectors drawn at random, far from each other, all tables alike."""
    settings = TrainSettings.build({"dim": 8, "device": "cpu", **changes})
    run = Run.create(folder, graph, settings)
    tables = make_tables(settings, len(graph.entities), len(graph.relations))
    generator = torch.Generator().manual_seed(3)
    for kind in ("entity", "relation"):
        for name in tables.names(kind):
            tables[name].copy_(torch.randn(tables[name].shape, generator=generator))
    save_model(folder / "model.safetensors", tables, settings)
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make(tmp_path / "run", odd_graph(), model="TransD", relation_dim=5)
