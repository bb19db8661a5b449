"""Data sets that ship with PyKEEN."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from fkge.errors import GraphError
from fkge.graph import read_graph
from tests.unit.graph.conftest import labelled


class TestPyKeen:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        if importlib.util.find_spec("pykeen") is None:
            pytest.skip("PyKEEN is not installed")

    def test_nations(self) -> None:
        graph = read_graph("pykeen:Nations")
        assert (graph.name, len(graph.entities), len(graph.relations)) == ("nations", 14, 55)
        assert [len(t) for t in graph.splits.values()] == [1592, 199, 201]
        assert ("netherlands", "militaryalliance", "uk") in labelled(graph, "train")

    def test_unknown_name_lists_the_bundled_ones_and_fetches_nothing(self) -> None:
        # PyKEEN knows this one, but would have to download it.
        with pytest.raises(GraphError, match=r"'countries'.*Bundled are kinships, nations, umls;"):
            read_graph("pykeen:countries")
        with pytest.raises(GraphError, match="did you mean nations"):
            read_graph("pykeen:nation")

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pykeen", None)
        with pytest.raises(GraphError, match=r"pip install 'fkge\[pykeen\]'"):
            read_graph("pykeen:nations")
