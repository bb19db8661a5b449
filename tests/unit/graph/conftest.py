"""Facts, and a fixture that writes them to files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from fkge.graph import Graph

Fact = tuple[str, str, str]
Write = Callable[[str, str | bytes], Path]

FACTS: list[Fact] = [
    ("http://x/athens", "http://x/capitalOf", "http://x/greece"),
    ("http://x/paris", "http://x/capitalOf", "http://x/france"),
    ("http://x/greece", "http://x/borders", "http://x/albania"),
    ("http://x/france", "http://x/borders", "http://x/spain"),
    ("http://x/spain", "http://x/borders", "http://x/france"),
    ("http://x/athens", "http://x/twinOf", "http://x/paris"),
    ("http://x/žižkov", "http://x/partOf", "http://x/prague"),
]


@pytest.fixture
def facts() -> list[Fact]:
    return list(FACTS)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes text or bytes to a file of this name below a fresh folder; packs it if it ends in .gz."""

    def write(name: str, content: str | bytes) -> Path:
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository, where there is one."""
    folder = Path(__file__).parents[4] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}")
    return folder


def labelled(graph: Graph, split: str) -> set[Fact]:
    return {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.splits[split]}


def all_labelled(graph: Graph) -> set[Fact]:
    return set().union(*(labelled(graph, split) for split in graph.splits))
