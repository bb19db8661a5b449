"""Compiled counters: used where they can be, and not needed."""

from __future__ import annotations

import sys

from fkge.evaluation import rank
from fkge.evaluation.counting import TorchCounter
from fkge.evaluation.kernels import KernelCounter
from tests.unit.evaluation.rank_twin import assert_same


def _spy(method):
    def spied(self, questions):
        spied.calls += 1
        return method(self, questions)

    spied.calls = 0
    return spied


def test_works_without_numba(make_tables, facts, monkeypatch):
    tables = make_tables("TransE")
    expected = rank(tables, facts, known=None)
    monkeypatch.setitem(sys.modules, "fkge.evaluation.kernels", None)
    monkeypatch.setattr(TorchCounter, "count", seen := _spy(TorchCounter.count))
    assert_same(expected, rank(tables, facts, known=None))
    assert seen.calls


def test_kernels_are_used_where_they_can_be(make_tables, facts, monkeypatch):
    monkeypatch.setattr(KernelCounter, "count", seen := _spy(KernelCounter.count))
    rank(make_tables("TransE"), facts, known=None)
    assert seen.calls
